package shunt.cassandra.cache;

import java.nio.ByteBuffer;
import java.util.zip.CRC32C;

/**
 * The format of records on SSD. Records lie one behind the other in a page of 4 KiB and never cross its end; one that is
 * larger than a page has whole pages to itself. Numbers are big endian:
 *
 * <pre>
 * 0  CRC32C of the page's stamp and all that follows, 4 bytes
 * 4  bytes of the key               2; 0 in both lengths ends the page
 * 6  bytes of the body              2
 * 8  catalogue id                   4
 * 12 key, body
 * </pre>
 */
final class Page
{
    static final int BYTES = 4096;
    static final int HEADER = 12;
    /** Pages of the largest record. */
    static final int SPAN_MAX = 4;

    /** What was found in a page. */
    enum Found
    {
        /** The record, its body is set. */
        RECORD,
        /** Records of other keys only. */
        ABSENT,
        /** What should be the record is damaged. */
        DAMAGED
    }

    private Page()
    {
    }

    /** Bytes of a record. */
    static int recordBytes(int key, int body)
    {
        return HEADER + key + body;
    }

    /** Pages that a record touches; more than {@link #SPAN_MAX} do not fit on the SSD. */
    static int span(int recordBytes)
    {
        return (recordBytes + BYTES - 1) / BYTES;
    }

    /**
     * Writes a record and returns where the next one goes.
     *
     * @param stamp goes into the checksum and not into the page: which page this is, in which life of its segment. A write that
     *              the disk lost or put elsewhere leaves a record with another one.
     */
    static int write(ByteBuffer to, int at, long stamp, int id, byte[] key, byte[] body)
    {
        to.putShort(at + 4, (short) key.length);
        to.putShort(at + 6, (short) body.length);
        to.putInt(at + 8, id);
        to.put(at + HEADER, key);
        to.put(at + HEADER + key.length, body);
        int end = at + recordBytes(key.length, body.length);
        to.putInt(at, crc(to, at + 4, end, stamp));
        return end;
    }

    /** Bytes of the record at a place, or 0 where none begins. */
    static int recordBytesAt(ByteBuffer pages, int at, int limit)
    {
        if (at + HEADER > limit)
            return 0;
        int key = pages.getShort(at + 4) & 0xFFFF;
        int body = pages.getShort(at + 6) & 0xFFFF;
        int bytes = recordBytes(key, body);
        return key + body == 0 || at + bytes > limit ? 0 : bytes;
    }

    static int idAt(ByteBuffer pages, int at)
    {
        return pages.getInt(at + 8);
    }

    static byte[] keyAt(ByteBuffer pages, int at)
    {
        byte[] key = new byte[pages.getShort(at + 4) & 0xFFFF];
        pages.get(at + HEADER, key);
        return key;
    }

    static byte[] bodyAt(ByteBuffer pages, int at)
    {
        byte[] body = new byte[pages.getShort(at + 6) & 0xFFFF];
        pages.get(at + HEADER + (pages.getShort(at + 4) & 0xFFFF), body);
        return body;
    }

    static boolean isIntact(ByteBuffer pages, int at, int bytes, long stamp)
    {
        return pages.getInt(at) == crc(pages, at + 4, at + bytes, stamp);
    }

    /** Takes the body of the record with this id and key; a page has one at most. */
    static Found find(ByteBuffer pages, int limit, long stamp, int id, byte[] key, byte[][] body)
    {
        int bytes;
        for (int at = 0; (bytes = recordBytesAt(pages, at, limit)) > 0; at += bytes)
        {
            if (idAt(pages, at) != id || !hasKey(pages, at, key))
                continue;
            if (!isIntact(pages, at, bytes, stamp))
                return Found.DAMAGED;
            body[0] = bodyAt(pages, at);
            return Found.RECORD;
        }
        return Found.ABSENT;
    }

    private static boolean hasKey(ByteBuffer pages, int at, byte[] key)
    {
        if ((pages.getShort(at + 4) & 0xFFFF) != key.length)
            return false;
        for (int i = 0; i < key.length; i++)
            if (pages.get(at + HEADER + i) != key[i])
                return false;
        return true;
    }

    private static int crc(ByteBuffer pages, int from, int to, long stamp)
    {
        CRC32C crc = new CRC32C();
        for (int shift = 0; shift < Long.SIZE; shift += Byte.SIZE)
            crc.update((int) (stamp >>> shift));
        crc.update(pages.slice(from, to - from));
        return (int) crc.getValue();
    }
}

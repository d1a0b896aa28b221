package shunt.cassandra.transport;

import io.netty.buffer.ByteBuf;
import java.util.List;
import org.apache.cassandra.transport.ProtocolException;

/**
 * The layout of an aggregated frame: an ordinary v4 header with opcode {@link #OPCODE}, and a body of {@code [int] count}
 * and {@code count} entries of {@code [short] stream [int] client_id [byte] version [byte] flags [byte] opcode
 * [int] length body}. The answer is laid out alike, with the response bit in the header's version.
 */
public final class FrameLayout
{
    /** The version of the layout: a proxy that does not know it sends ordinary envelopes. */
    private static final String VERSION = "v1";
    /** Opcode of a frame, in both directions. */
    public static final int OPCODE = 0x64;
    /** Opcode of an entry that lets the node forget a client; has no body and no answer. */
    public static final int CLIENT_GONE = 0x65;
    /** Protocol version in a frame's header. */
    public static final int HEADER_VERSION = 4;
    /** Bytes of the header. */
    public static final int HEADER_BYTES = 9;
    /** Bytes of the count in front of the entries. */
    public static final int COUNT_BYTES = 4;
    /** Bytes of an entry without its body. */
    public static final int ENTRY_HEADER_BYTES = 13;

    /** Where in an entry its fields are. */
    private static final int CLIENT_AT = 2;
    private static final int LENGTH_AT = 9;

    private FrameLayout()
    {
    }

    /**
     * Checks a whole body, so that nothing that reads it afterwards can run past its end.
     *
     * @param body the body; its reader index is not moved
     * @param countMax most entries
     * @return the number of entries
     * @throws ProtocolException says what is wrong, and in which entry
     */
    public static int check(ByteBuf body, int countMax)
    {
        int at = body.readerIndex();
        int end = body.writerIndex();
        if (end - at < COUNT_BYTES)
            throw new ProtocolException("Aggregated frame: " + (end - at) + " bytes have no room for the count");
        int count = body.getInt(at);
        at += COUNT_BYTES;
        if (count < 0 || count > countMax)
            throw new ProtocolException("Aggregated frame: count is " + count + ", and may be from 0 to " + countMax);
        for (int entry = 0; entry < count; entry++)
        {
            if (end - at < ENTRY_HEADER_BYTES)
                throw wrong(entry, count, "begins " + (end - at) + " bytes before the frame's end, its header has "
                                          + ENTRY_HEADER_BYTES);
            if (body.getInt(at + CLIENT_AT) == 0)
                throw wrong(entry, count, "has client_id 0");
            int length = body.getInt(at + LENGTH_AT);
            at += ENTRY_HEADER_BYTES;
            if (length < 0 || length > end - at)
                throw wrong(entry, count, "has a length of " + length + ", and " + (end - at) + " bytes are left");
            at += length;
        }
        if (at != end)
            throw new ProtocolException("Aggregated frame: " + (end - at) + " bytes follow its " + count + " entries");
        return count;
    }

    private static ProtocolException wrong(int entry, int count, String what)
    {
        return new ProtocolException("Aggregated frame: entry " + (entry + 1) + " of " + count + " " + what);
    }

    /** What SUPPORTED lists of a node that takes frames of this layout: its version, the limits and where. */
    public static List<String> offer(int countMax, int bytesMax, int port)
    {
        return List.of(VERSION, "count_max=" + countMax, "bytes_max=" + bytesMax, "port=" + port);
    }

    /** Makes room for the header and the count of an answer at the start of an empty buffer. */
    public static void reserveHeader(ByteBuf out)
    {
        out.writeZero(HEADER_BYTES + COUNT_BYTES);
    }

    /** Writes the header and the count of an answer whose entries follow {@link #reserveHeader}. */
    public static void completeHeader(ByteBuf out, int count)
    {
        setHeader(out, count, out.readableBytes() - HEADER_BYTES - COUNT_BYTES);
    }

    /**
     * Writes the header and the count of an answer, over what was reserved.
     *
     * @param entryBytes bytes of all its entries
     */
    public static void setHeader(ByteBuf out, int count, int entryBytes)
    {
        out.setByte(0, 0x80 | HEADER_VERSION).setByte(1, 0).setShort(2, 0).setByte(4, OPCODE);
        out.setInt(5, COUNT_BYTES + entryBytes).setInt(HEADER_BYTES, count);
    }
}

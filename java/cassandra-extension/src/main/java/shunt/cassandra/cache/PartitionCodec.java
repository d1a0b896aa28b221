package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.cache.IRowCacheEntry;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.db.TypeSizes;
import org.apache.cassandra.db.partitions.CachedPartition;
import org.apache.cassandra.io.util.DataInputBuffer;
import org.apache.cassandra.io.util.DataOutputBuffer;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.apache.cassandra.utils.vint.VIntCoding;

/**
 * Cassandra's serialised partition without what the catalogue has: the table's id, the key and the columns' names.
 *
 * <pre>
 * Cassandra  created 4, live rows 4, rows that do not expire 4, table 16, key, flags 1, statistics, names, rows
 * a body     created 4, live rows vint, rows that do not expire vint, flags 1, statistics, columns, rows
 * </pre>
 *
 * The flags are Cassandra's, of which the two highest bits are free. Where all the table's columns are there, the body's
 * columns are empty; {@link #SUBSET} means a bitmap against the table's columns, {@link #NAMES} the names themselves (of
 * columns that the generation does not have). Rows are not touched, so this is right for all that Cassandra can serialise.
 */
final class PartitionCodec implements RowCodec
{
    static final int SUBSET = 0x40;
    static final int NAMES = 0x80;
    private static final int HAS_STATIC_ROW = 0x08;
    private static final int IS_EMPTY = 0x01;
    private static final int TABLE_ID_BYTES = 16;
    /** Bytes of an id in a record. */
    private static final int ID_BYTES = 4;

    @Override
    public Encoded encode(Generation generation, IRowCacheEntry entry) throws IOException
    {
        if (!(entry instanceof CachedPartition partition))
            return null;
        try (DataOutputBuffer out = new DataOutputBuffer())
        {
            CachedPartition.cacheSerializer.serialize(partition, out);
            return shorten(generation.columns(), out.unsafeGetBufferAndFlip());
        }
    }

    @Override
    public IRowCacheEntry decode(Generation generation, RowCacheKey key, byte[] body) throws IOException
    {
        try (DataOutputBuffer out = new DataOutputBuffer(2 * body.length + 256))
        {
            lengthen(generation, key.key, body, out);
            try (DataInputBuffer in = new DataInputBuffer(out.unsafeGetBufferAndFlip(), false))
            {
                return CachedPartition.cacheSerializer.deserialize(in);
            }
        }
    }

    /** Null if a later Cassandra uses the flags that are taken here. */
    static Encoded shorten(ColumnSet table, ByteBuffer full) throws IOException
    {
        try (DataOutputBuffer out = new DataOutputBuffer(full.remaining()))
        {
            out.writeInt(full.getInt());
            out.writeUnsignedVInt32(full.getInt());
            out.writeUnsignedVInt32(full.getInt());
            full.position(full.position() + TABLE_ID_BYTES);
            skip(full, vint32(full));
            int flags = full.get() & 0xFF;
            if ((flags & (SUBSET | NAMES)) != 0)
                return null;
            int saved = TABLE_ID_BYTES - ID_BYTES;
            if ((flags & IS_EMPTY) != 0)
            {
                out.writeByte(flags);
                return new Encoded(out.toByteArray(), saved);
            }
            int statistics = full.position();
            for (int i = 0; i < 3; i++)
                vint(full);
            byte[] statisticsBytes = slice(full, statistics, full.position());
            byte[] statics = (flags & HAS_STATIC_ROW) != 0 ? section(full) : null;
            byte[] regulars = section(full);
            int names = regulars.length + (statics == null ? 0 : statics.length);
            byte[] bitmap = bitmap(table, statics, regulars);
            if (bitmap == null)
                flags |= NAMES;
            else if (bitmap.length > 0)
                flags |= SUBSET;
            out.writeByte(flags);
            out.write(statisticsBytes);
            if (bitmap != null)
                out.write(bitmap);
            else if (statics != null)
                out.write(statics);
            if (bitmap == null)
                out.write(regulars);
            out.write(full);
            return new Encoded(out.toByteArray(), saved + (bitmap == null ? 0 : names - bitmap.length));
        }
    }

    /** Cassandra's form again, byte for byte. */
    static void lengthen(Generation generation, byte[] key, byte[] body, DataOutputBuffer out) throws IOException
    {
        ByteBuffer in = ByteBuffer.wrap(body);
        out.writeInt(in.getInt());
        out.writeInt(vint32(in));
        out.writeInt(vint32(in));
        generation.tableId().serialize(out);
        ByteBufferUtil.writeWithVIntLength(ByteBuffer.wrap(key), out);
        int flags = in.get() & 0xFF;
        out.writeByte(flags & ~(SUBSET | NAMES));
        if ((flags & IS_EMPTY) != 0)
            return;
        int statistics = in.position();
        for (int i = 0; i < 3; i++)
            vint(in);
        out.write(body, statistics, in.position() - statistics);
        ColumnSet table = generation.columns();
        boolean withStatics = (flags & HAS_STATIC_ROW) != 0;
        if ((flags & SUBSET) != 0)
        {
            if (withStatics)
                writeSubset(table.statics(), in, out);
            writeSubset(table.regulars(), in, out);
        }
        else if ((flags & NAMES) == 0)
        {
            if (withStatics)
                out.write(table.statics().section());
            out.write(table.regulars().section());
        }
        out.write(in);
    }

    /** Empty: all the table's columns are there. Null: others, too. */
    private static byte[] bitmap(ColumnSet table, byte[] statics, byte[] regulars)
    {
        if (Arrays.equals(regulars, table.regulars().section())
            && (statics == null || Arrays.equals(statics, table.statics().section())))
            return new byte[0];
        byte[] first = statics == null ? new byte[0] : bitmap(table.statics(), statics);
        byte[] second = bitmap(table.regulars(), regulars);
        if (first == null || second == null)
            return null;
        byte[] both = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, both, first.length, second.length);
        return both;
    }

    private static byte[] bitmap(ColumnSet.Group group, byte[] section)
    {
        Map<ByteBuffer, Integer> places = new HashMap<>();
        for (int i = 0; i < group.columns().size(); i++)
            places.put(ByteBuffer.wrap(group.columns().get(i).name()), i);
        ByteBuffer in = ByteBuffer.wrap(section);
        BitSet bits = new BitSet();
        for (int left = vint32(in); left > 0; left--)
        {
            byte[] name = new byte[vint32(in)];
            in.get(name);
            Integer place = places.get(ByteBuffer.wrap(name));
            // Cassandra's order has to come out again, so a column out of order counts as an unknown one.
            if (place == null || bits.length() > place)
                return null;
            bits.set(place);
        }
        return Arrays.copyOf(bits.toByteArray(), bitmapBytes(group));
    }

    private static int bitmapBytes(ColumnSet.Group group)
    {
        return (group.columns().size() + 7) / 8;
    }

    private static void writeSubset(ColumnSet.Group group, ByteBuffer in, DataOutputBuffer out) throws IOException
    {
        byte[] bytes = new byte[bitmapBytes(group)];
        in.get(bytes);
        BitSet bits = BitSet.valueOf(bytes);
        List<ColumnSet.Column> columns = group.columns();
        out.writeUnsignedVInt32(bits.cardinality());
        for (int i = bits.nextSetBit(0); i >= 0; i = bits.nextSetBit(i + 1))
            ByteBufferUtil.writeWithVIntLength(ByteBuffer.wrap(columns.get(i).name()), out);
    }

    /** The number of columns and their names, as they are. */
    private static byte[] section(ByteBuffer full)
    {
        int start = full.position();
        for (int left = vint32(full); left > 0; left--)
            skip(full, vint32(full));
        return slice(full, start, full.position());
    }

    private static long vint(ByteBuffer from)
    {
        long value = VIntCoding.getUnsignedVInt(from, from.position());
        skip(from, VIntCoding.computeUnsignedVIntSize(value));
        return value;
    }

    private static int vint32(ByteBuffer from)
    {
        return Math.toIntExact(vint(from));
    }

    private static void skip(ByteBuffer from, int bytes)
    {
        from.position(from.position() + bytes);
    }

    private static byte[] slice(ByteBuffer from, int start, int end)
    {
        byte[] bytes = new byte[end - start];
        from.get(start, bytes);
        return bytes;
    }

    /** Bytes of the entry in Cassandra's own form. */
    static long fullBytes(CachedPartition partition)
    {
        return TypeSizes.sizeof(true) + CachedPartition.cacheSerializer.serializedSize(partition);
    }
}

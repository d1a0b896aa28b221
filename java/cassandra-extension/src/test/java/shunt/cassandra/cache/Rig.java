package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.cassandra.cache.IRowCacheEntry;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.cache.RowCacheSentinel;
import org.apache.cassandra.schema.TableId;

/** A cache of numbers instead of rows, with tables that can be altered and segments in memory that can fail. */
final class Rig implements AutoCloseable
{
    static final long MEMORY = 1 << 20;
    static final long SSD = 4 << 20;
    /** Only what never happens takes so long. */
    static final long PATIENCE_NANOS = 180_000_000_000L;
    /** Threads that may read it at the same time: more than tests have. */
    static final int SSD_READS = 16;

    /** What is cached: a number, and so many bytes with it. */
    record Row(long number, int bytes) implements IRowCacheEntry
    {
    }

    static final class NumberCodec implements RowCodec
    {
        @Override
        public Encoded encode(Generation generation, IRowCacheEntry entry)
        {
            Row row = (Row) entry;
            return new Encoded(ByteBuffer.allocate(8 + row.bytes()).putLong(row.number()).array(), 0);
        }

        @Override
        public IRowCacheEntry decode(Generation generation, RowCacheKey key, byte[] body)
        {
            return new Row(ByteBuffer.wrap(body).getLong(), body.length - 8);
        }
    }

    /** Runs before a read or a write. */
    interface Hook
    {
        void run() throws IOException;
    }

    static final class MemoryFiles implements SegmentFiles
    {
        final ConcurrentHashMap<Integer, byte[]> segments = new ConcurrentHashMap<>();
        final AtomicInteger reads = new AtomicInteger();
        volatile Hook onRead = () -> { };
        volatile Hook onWrite = () -> { };
        volatile boolean closed;

        private byte[] segment(int number)
        {
            return segments.computeIfAbsent(number, any -> new byte[(int) CacheParts.segmentBytes(SSD)]);
        }

        @Override
        public void read(int segment, long at, ByteBuffer to) throws IOException
        {
            if (at % Page.BYTES != 0 || to.remaining() % Page.BYTES != 0)
                throw new IOException("not whole pages: " + to.remaining() + " at " + at);
            reads.incrementAndGet();
            byte[] bytes = segment(segment);
            to.put(bytes, (int) at, to.remaining());
            onRead.run();
        }

        @Override
        public void write(int segment, long at, ByteBuffer from) throws IOException
        {
            onWrite.run();
            from.get(segment(segment), (int) at, from.remaining());
        }

        @Override
        public void close()
        {
            closed = true;
        }
    }

    final TableId table = TableId.generate();
    final TableId otherTable = TableId.generate();
    final AtomicLong schemaVersion = new AtomicLong();
    final MemoryFiles files = new MemoryFiles();
    final TieredRowCache cache;
    private final ColumnSet noColumns = new ColumnSet(new ColumnSet.Group(List.of(), new byte[1]),
                                                      new ColumnSet.Group(List.of(), new byte[1]));

    private Rig(long memory, boolean ssd)
    {
        Tables tables = id -> {
            Object now = schemaVersion.get();
            return new Tables.Table("ks.t", noColumns, now, () -> schemaVersion.get() == (Long) now ? now : null);
        };
        CacheParts parts = ssd ? CacheParts.onFiles(memory, Optional.empty(), files, SSD, tables, SSD_READS)
                               : CacheParts.inMemory(memory, tables);
        cache = new TieredRowCache(parts, new NumberCodec());
    }

    static Rig twoTiers()
    {
        return new Rig(MEMORY, true);
    }

    static Rig inMemory()
    {
        return new Rig(MEMORY, false);
    }

    RowCacheKey key(long number)
    {
        return new RowCacheKey(table, null, ("key" + number).getBytes(StandardCharsets.UTF_8));
    }

    RowCacheKey otherKey(long number)
    {
        return new RowCacheKey(otherTable, null, ("key" + number).getBytes(StandardCharsets.UTF_8));
    }

    /** What a read of Cassandra does on a miss. */
    void fill(RowCacheKey key, long number, int bytes)
    {
        RowCacheSentinel sentinel = new RowCacheSentinel();
        if (cache.putIfAbsent(key, sentinel))
            cache.replace(key, sentinel, new Row(number, bytes));
    }

    /** Fills keys from..to with rows of 400 bytes; those that do not fit into memory go to the SSD. */
    void fillRange(long from, long to)
    {
        for (long i = from; i < to; i++)
        {
            fill(key(i), i, 400);
            if (i % 64 == 63)
                settle();
        }
        settle();
    }

    Long number(RowCacheKey key)
    {
        return cache.get(key) instanceof Row row ? row.number() : null;
    }

    boolean isInMemory(RowCacheKey key)
    {
        return cache.shards().of(key).get(key) != null;
    }

    boolean isOnSsd(RowCacheKey key)
    {
        Generation generation = cache.generations().forGet(key.tableId);
        return generation != null && cache.ssd().index().find(cache.shards().hash(key, generation)) != Place.NONE;
    }

    /** A key of the range that is on SSD and not in memory. */
    RowCacheKey onSsdOnly(long from, long to)
    {
        for (long i = from; i < to; i++)
            if (!isInMemory(key(i)) && isOnSsd(key(i)))
                return key(i);
        throw new AssertionError("nothing is on SSD alone");
    }

    /** Waits until what was evicted is written or dropped. */
    void settle()
    {
        long end = System.nanoTime() + PATIENCE_NANOS;
        while (cache.ssd() != null && !cache.ssd().isIdle())
        {
            if (System.nanoTime() > end)
                throw new AssertionError("the queue does not get empty");
            LockSupport.parkNanos(20_000);
        }
    }

    CacheStatistics statistics()
    {
        return cache.statistics();
    }

    @Override
    public void close()
    {
        cache.close();
    }
}

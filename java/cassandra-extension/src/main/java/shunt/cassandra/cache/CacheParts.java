package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Optional;

/**
 * What a cache is made of.
 *
 * @param ssd the second tier, or null
 * @param queueBytes most bytes that wait to be written to the SSD; they are kept back from the memory's capacity
 */
record CacheParts(long memoryBytes, Shards shards, SsdTier ssd, Generations generations, Catalogue catalogue,
                  CacheStatistics statistics, long queueBytes)
{
    private static final long SHARD_BYTES = 4L << 20;
    private static final int SHARDS_MAX = 64;
    private static final int SEGMENTS = 64;
    private static final long SEGMENT_BYTES_MIN = 256L << 10;
    private static final long SEGMENT_BYTES_MAX = 256L << 20;
    private static final long QUEUE_BYTES_MAX = 8L << 20;
    /** Bytes of the SSD for one table of the index and for one remembered key. */
    private static final long INDEX_TABLE_BYTES = 16L << 20;
    private static final long GHOST_BYTES = 256;
    private static final int GHOSTS_MAX = 1 << 24;
    /** The index numbers pages with 32 bits. */
    static final long SSD_BYTES_MAX = 1L << 44;

    /** A cache in memory. */
    static CacheParts inMemory(long memoryBytes, Tables tables)
    {
        CacheStatistics statistics = new CacheStatistics();
        Catalogue catalogue = new Catalogue(Optional.empty());
        int ghosts = ghosts(memoryBytes * 4, shardCount(memoryBytes));
        Shards shards = new Shards(shardCount(memoryBytes), () -> new Shard(null, ghosts, statistics));
        return new CacheParts(memoryBytes, shards, null, new Generations(tables, catalogue), catalogue, statistics, 0);
    }

    /** A cache in memory and in files of a directory; of as many threads as read, half may wait for the SSD. */
    static CacheParts onSsd(long memoryBytes, Path directory, long ssdBytes, Tables tables, int readers) throws IOException
    {
        long segmentBytes = segmentBytes(ssdBytes);
        SegmentFiles files = new DiskSegmentFiles(directory, (int) (ssdBytes / segmentBytes), segmentBytes);
        return onFiles(memoryBytes, Optional.of(directory), files, ssdBytes, tables, Math.max(1, readers / 2));
    }

    /** A cache in memory and in whatever keeps the segments. */
    static CacheParts onFiles(long memoryBytes, Optional<Path> directory, SegmentFiles files, long ssdBytes, Tables tables,
                              int ssdReadsMax)
    {
        CacheStatistics statistics = new CacheStatistics();
        Catalogue catalogue = new Catalogue(directory);
        Generations generations = new Generations(tables, catalogue);
        int shards = shardCount(memoryBytes);
        int indexTables = Math.max(shards, powerOfTwo(ssdBytes / INDEX_TABLE_BYTES));
        long segmentBytes = segmentBytes(ssdBytes);
        SegmentLog log = new SegmentLog(files, (int) (ssdBytes / segmentBytes), segmentBytes, statistics);
        long queueBytes = Math.min(QUEUE_BYTES_MAX, memoryBytes / 16);
        SsdTier ssd = new SsdTier(new SsdIndex(indexTables), log, generations, statistics, queueBytes, ssdReadsMax);
        int ghosts = ghosts(memoryBytes * 4 + ssdBytes, shards);
        return new CacheParts(memoryBytes, new Shards(shards, () -> new Shard(ssd, ghosts, statistics)), ssd, generations,
                              catalogue, statistics, queueBytes);
    }

    /** Segments are equal and at most 256 MiB; a small tier has fewer, but enough to collect. */
    static long segmentBytes(long ssdBytes)
    {
        long bytes = Math.min(SEGMENT_BYTES_MAX, Math.max(SEGMENT_BYTES_MIN, ssdBytes / SEGMENTS));
        return bytes / SegmentLog.BUFFER_BYTES * SegmentLog.BUFFER_BYTES;
    }

    /** The smallest tier: four segments. */
    static long ssdBytesMin()
    {
        return 4 * SEGMENT_BYTES_MIN;
    }

    private static int shardCount(long memoryBytes)
    {
        return Math.min(SHARDS_MAX, powerOfTwo(memoryBytes / SHARD_BYTES));
    }

    private static int ghosts(long cachedBytes, int shards)
    {
        return Math.max(64, Math.min(GHOSTS_MAX / shards, powerOfTwo(cachedBytes / GHOST_BYTES / shards)));
    }

    /** The largest power of two that is not larger; at least 1. */
    private static int powerOfTwo(long number)
    {
        return (int) Math.max(1, Long.highestOneBit(Math.min(number, 1 << 20)));
    }
}

package shunt.cassandra.cache;

/**
 * Keys of one table whose records on the SSD are not valid as far as they were written up to a segment. Until that segment is
 * known it is all of them.
 */
final class Outdated
{
    private final KeyRanges ranges;
    private volatile long upTo = Long.MAX_VALUE;

    Outdated(KeyRanges ranges)
    {
        this.ranges = ranges;
    }

    /** What is written to later segments is valid again. */
    void endWith(long segmentSequence)
    {
        upTo = segmentSequence;
    }

    /** The last segment. */
    long upTo()
    {
        return upTo;
    }

    boolean covers(byte[] key, long segmentSequence)
    {
        return segmentSequence <= upTo && ranges.cover(key);
    }

    /** Covers what both cover, and perhaps more. */
    Outdated and(Outdated other)
    {
        Outdated both = new Outdated(ranges.and(other.ranges));
        both.upTo = Math.max(upTo, other.upTo);
        return both;
    }
}

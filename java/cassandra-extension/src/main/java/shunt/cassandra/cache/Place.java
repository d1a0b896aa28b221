package shunt.cassandra.cache;

/**
 * Where a record lies on the SSD and what the index knows of its key, in one long: 29 bits of the key's hash (the tag), the
 * reference bit, pages spanned less one (2 bits), number of the first page (32 bits). 0 is no place.
 */
final class Place
{
    /** No place. */
    static final long NONE = 0;

    private static final int TAG_SHIFT = 35;
    private static final long REFERENCED = 1L << 34;

    private Place()
    {
    }

    /** The tag of a hash; never 0. Uses bits that choose neither the shard nor the index's table. */
    static int tag(long hash)
    {
        int tag = (int) (hash >>> TAG_SHIFT);
        return tag == 0 ? 1 : tag;
    }

    static long of(int tag, long page, int span)
    {
        return (long) tag << TAG_SHIFT | (long) (span - 1) << 32 | page;
    }

    /** The same record under the tag of a hash; what the log returns has no tag. */
    static long tagged(long place, long hash)
    {
        return of(tag(hash), page(place), span(place));
    }

    static int tagOf(long place)
    {
        return (int) (place >>> TAG_SHIFT);
    }

    static long page(long place)
    {
        return place & 0xFFFFFFFFL;
    }

    static int span(long place)
    {
        return (int) (place >>> 32 & 3) + 1;
    }

    static boolean isReferenced(long place)
    {
        return (place & REFERENCED) != 0;
    }

    static long referenced(long place)
    {
        return place | REFERENCED;
    }

    /** Whether two places are the same record, read since or not. */
    static boolean same(long one, long other)
    {
        return ((one ^ other) & ~REFERENCED) == 0;
    }
}

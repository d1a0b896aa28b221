package shunt.cassandra.cache;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.schema.TableId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keys for those who go through all of them, and {@link #remove()} that reaches both tiers.
 *
 * <p>The index has no keys, so the keys on SSD are read from the log: first a snapshot of memory, then the segments in the
 * order in which they were written, up to the end of the log, then memory once more. What is in the cache all the while is
 * seen: records are copied towards the end only, and until the walk is over one that leaves the index leaves memory as well.
 *
 * <p>Three of Cassandra's callers do not need that, and are recognised by their names on the stack; should they be named
 * otherwise in another version, they get the complete walk, which is right, too, and slower:
 * <ul>
 * <li>TRUNCATE and DROP ({@code CacheService.invalidateRowCacheForCf}) ask every key for its table and remove those of one
 * table. They get one key per table, and its removal ends the table's generation.
 * <li>A task that has received SSTables from another node ({@code ColumnFamilyStore.invalidateRowCache}) removes the keys in
 * their ranges. It gets those in memory; those on SSD are outdated by range, since every task would read all of the log:
 * see {@link StreamedTables}.
 * <li>Saving the cache's keys ({@code AutoSavingCache.Writer}) gets those in memory: they are the ones worth reading again
 * at the next start.
 * </ul>
 */
final class KeyWalk
{
    private static final Logger logger = LoggerFactory.getLogger(KeyWalk.class);
    private static final byte[] NO_KEY = new byte[0];

    private KeyWalk()
    {
    }

    /** What the caller of the cache's method needs. */
    static Iterator<RowCacheKey> forCaller(TieredRowCache cache)
    {
        String caller = StackWalker.getInstance().walk(frames -> frames
            .map(frame -> frame.getClassName() + '.' + frame.getMethodName())
            .filter(name -> name.endsWith("CacheService.invalidateRowCacheForCf") || name.endsWith("ColumnFamilyStore.invalidateRowCache")
                            || name.contains("AutoSavingCache$Writer."))
            .findFirst().orElse(""));
        if (caller.endsWith("ForCf"))
            return new OfTables(cache);
        if (caller.endsWith("invalidateRowCache"))
            return afterStream(cache);
        if (!caller.isEmpty() || cache.ssd() == null)
            return new OfMemory(cache);
        return new OfAll(cache);
    }

    /** What was received is known, or else all keys have to be looked at. */
    static Iterator<RowCacheKey> afterStream(TieredRowCache cache)
    {
        List<RowCacheKey> inMemory = new ArrayList<>();
        if (StreamedTables.take((table, ranges) -> inMemory.addAll(cache.outdate(table, ranges))))
            return new OfThese(cache, inMemory);
        return cache.ssd() == null ? new OfMemory(cache) : new OfAll(cache);
    }

    /** One key for each table that has something in the cache. */
    private static final class OfTables implements Iterator<RowCacheKey>
    {
        private final TieredRowCache cache;
        private final Iterator<TableId> tables;
        private TableId last;

        OfTables(TieredRowCache cache)
        {
            this.cache = cache;
            tables = cache.generations().tables().iterator();
        }

        @Override
        public boolean hasNext()
        {
            return tables.hasNext();
        }

        @Override
        public RowCacheKey next()
        {
            last = tables.next();
            return new RowCacheKey(last, null, NO_KEY);
        }

        @Override
        public void remove()
        {
            cache.invalidate(last);
        }
    }

    /** Every key in memory. */
    private static class OfMemory implements Iterator<RowCacheKey>
    {
        final TieredRowCache cache;
        final ArrayDeque<RowCacheKey> keys = new ArrayDeque<>();
        private int shard;
        private RowCacheKey last;

        OfMemory(TieredRowCache cache)
        {
            this.cache = cache;
        }

        @Override
        public boolean hasNext()
        {
            while (keys.isEmpty())
                if (!more())
                    return false;
            return true;
        }

        @Override
        public RowCacheKey next()
        {
            if (!hasNext())
                throw new NoSuchElementException();
            last = keys.remove();
            return last;
        }

        @Override
        public void remove()
        {
            cache.remove(last);
        }

        /** Gets more keys, perhaps none; false at the end. */
        boolean more()
        {
            if (shard == cache.shards().count())
                return false;
            keys.addAll(cache.shards().get(shard++).keys());
            return true;
        }

        void memoryAgain()
        {
            shard = 0;
        }
    }

    /** Keys that were in memory at one time. */
    private static final class OfThese extends OfMemory
    {
        OfThese(TieredRowCache cache, List<RowCacheKey> these)
        {
            super(cache);
            keys.addAll(these);
        }

        @Override
        boolean more()
        {
            return false;
        }
    }

    /** Every key in both tiers; one may come several times. */
    private static final class OfAll extends OfMemory
    {
        private final SegmentWalk walk;
        private final CacheStatistics statistics = new CacheStatistics();
        private boolean atEnd;
        private long sequence;
        private SegmentLog.Segment segment;
        private int page;

        OfAll(TieredRowCache cache)
        {
            super(cache);
            walk = new SegmentWalk(cache.ssd().log());
            cache.ssd().walking();
            // All of memory now: what leaves it later is found in the log.
            while (super.more())
                ;
        }

        @Override
        boolean more()
        {
            if (atEnd)
                return super.more();
            cache.ssd().walking();
            if (!cache.ssd().isOn() || !readSegment())
            {
                atEnd = true;
                memoryAgain();
            }
            return true;
        }

        /** Reads what is left of a segment; false at the end of the log. */
        private boolean readSegment()
        {
            SegmentLog log = cache.ssd().log();
            long next = log.sequenceAfter(sequence);
            if (segment == null || segment.sequence != sequence)
            {
                if (next == 0)
                    return false;
                sequence = next;
                segment = log.segment(sequence);
                page = 0;
                if (segment == null)
                    return true; // freed meanwhile: what was kept of it is further towards the end
                next = log.sequenceAfter(sequence);
            }
            try
            {
                int before = page;
                page = walk.visit(segment, page, (at, pages, from, bytes) -> addKey(pages, from), statistics);
                if (next == 0)
                    return page > before; // the active segment, which others may go on with
            }
            catch (IOException e)
            {
                logger.debug("the log cannot be read; what is in it cannot be hit any more either", e);
                cache.ssd().foundUnreadable(e);
                return false;
            }
            segment = null;
            return true;
        }

        private void addKey(java.nio.ByteBuffer pages, int at)
        {
            Generation generation = cache.generations().byId(Page.idAt(pages, at));
            if (generation != null && generation.isCurrent())
                keys.add(new RowCacheKey(generation.tableId(), null, Page.keyAt(pages, at)));
        }
    }
}

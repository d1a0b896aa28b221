package shunt.cassandra.cache;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.cache.RowCacheSentinel;

/**
 * A share of the keys: their entries in memory, evicted by S3-FIFO, and what the SSD's index has of them. All changes of
 * either are made with this shard's lock, which is never held over I/O; look-ups need none.
 */
final class Shard
{
    private static final int STRIPES = 256;
    private static final int SMALL_SHARE = 10;

    private final ReentrantLock lock = new ReentrantLock();
    private final ConcurrentHashMap<RowCacheKey, Entry> map = new ConcurrentHashMap<>();
    private final EntryList small = new EntryList();
    private final EntryList main = new EntryList();
    private final Ghosts ghosts;
    /** What the SSD has, or null. */
    private final SsdTier ssd;
    private final CacheStatistics statistics;
    /** Counts changes of keys per stripe of hashes; a read of the SSD is void if its stripe was changed meanwhile. */
    private final AtomicIntegerArray versions = new AtomicIntegerArray(STRIPES);
    private volatile long budget;
    private volatile long bytes;
    private volatile int records;

    Shard(SsdTier ssd, int ghosts, CacheStatistics statistics)
    {
        this.ssd = ssd;
        this.ghosts = new Ghosts(ghosts);
        this.statistics = statistics;
    }

    /** The entry in memory, of any generation, or null. No lock. */
    Entry get(RowCacheKey key)
    {
        return map.get(key);
    }

    /** To be read before the index is asked, and given to {@link #promote}. No lock. */
    int version(long hash)
    {
        return versions.get(stripe(hash));
    }

    private static int stripe(long hash)
    {
        return (int) (hash >>> 24) & STRIPES - 1;
    }

    /** Has to come after the change: a reader that sees the new version sees the change too. */
    private void changed(long hash)
    {
        versions.incrementAndGet(stripe(hash));
    }

    /** Takes a key out of both tiers. */
    void remove(RowCacheKey key, long hash, Generation generation)
    {
        lock.lock();
        try
        {
            Entry entry = map.get(key);
            if (entry != null)
                drop(entry);
            boolean onSsd = generation != null && dropFromSsd(hash, generation);
            if (entry != null || onSsd)
                changed(hash);
        }
        finally
        {
            lock.unlock();
        }
    }

    private boolean dropFromSsd(long hash, Generation generation)
    {
        return ssd != null && ssd.drop(hash, generation);
    }

    /** Puts a sentinel in, unless the key has an entry. An older record on SSD ends with it. */
    boolean putIfAbsent(Entry entry)
    {
        lock.lock();
        try
        {
            Entry old = map.get(entry.key);
            if (old != null && old.generation.isCurrent() || !isOpen(entry))
                return false;
            if (old != null)
                drop(old);
            dropFromSsd(entry.hash, entry.generation);
            map.put(entry.key, entry);
            changed(entry.hash);
            return true;
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Puts a record in the place of this sentinel, if it still is there. Evicted entries come back in the list. */
    boolean replace(RowCacheSentinel sentinel, Entry entry, List<Entry> evicted)
    {
        lock.lock();
        try
        {
            Entry old = map.get(entry.key);
            if (old == null || old.sentinel == null || !old.sentinel.equals(sentinel))
                return false;
            boolean valid = old.generation == entry.generation && isOpen(entry) && fits(entry);
            drop(old);
            if (valid)
                add(entry, 0, evicted);
            changed(entry.hash);
            return valid;
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Puts a record in, whatever was there. */
    void put(Entry entry, List<Entry> evicted)
    {
        lock.lock();
        try
        {
            Entry old = map.get(entry.key);
            if (old != null)
                drop(old);
            dropFromSsd(entry.hash, entry.generation);
            if (isOpen(entry) && entry.sentinel != null)
                map.put(entry.key, entry);
            else if (isOpen(entry) && fits(entry))
                add(entry, 0, evicted);
            else
                entry.release();
            changed(entry.hash);
        }
        finally
        {
            lock.unlock();
        }
    }

    /**
     * Takes a record that was read from the SSD into memory, if nothing has happened to its key since.
     *
     * @param version the stripe's before the index was asked
     * @return whether the record is valid
     */
    boolean promote(Entry entry, int version, long place, List<Entry> evicted)
    {
        lock.lock();
        try
        {
            if (dropOutdated(entry.key, entry.hash, place, entry.generation))
                return false;
            if (!entry.generation.isCurrent() || version(entry.hash) != version || !ssd.use(entry.hash, place))
                return false;
            Entry now = map.get(entry.key);
            if (now == null && isOpen(entry) && fits(entry))
                add(entry, 1, evicted);
            else
                entry.release();
            return true;
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Takes a record that is not valid any more out of the index; tells whether it was that. */
    boolean dropOutdated(RowCacheKey key, long hash, long place, Generation generation)
    {
        if (!ssd.isOutdated(key.key, place, generation))
            return false;
        lock.lock();
        try
        {
            if (Place.same(ssd.index().find(hash), place))
            {
                dropFromSsd(hash, generation);
                changed(hash);
                statistics.outdated.increment();
            }
            return true;
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Whether the index, after a read that found no record, still has the place; then the record is damaged. */
    boolean isStill(long hash, int version, long place, Generation generation)
    {
        lock.lock();
        try
        {
            if (version(hash) != version || !Place.same(ssd.index().find(hash), place))
                return false;
            dropFromSsd(hash, generation);
            changed(hash);
            return true;
        }
        finally
        {
            lock.unlock();
        }
    }

    private boolean isOpen(Entry entry)
    {
        return budget > 0 && entry.generation.isCurrent();
    }

    private boolean fits(Entry entry)
    {
        return entry.weight <= budget / 2;
    }

    private void add(Entry entry, int uses, List<Entry> evicted)
    {
        entry.setUses(uses);
        boolean again = ghosts.remove(entry.hash);
        entry.state = again ? Entry.State.MAIN : Entry.State.SMALL;
        (again ? main : small).add(entry);
        map.put(entry.key, entry);
        account(entry, 1);
        evict(evicted);
    }

    private void account(Entry entry, int sign)
    {
        bytes += (long) sign * entry.weight;
        records += sign;
    }

    /** Out of the map and its list. */
    private void drop(Entry entry)
    {
        map.remove(entry.key);
        unlink(entry);
        if (entry.sentinel == null)
            account(entry, -1);
        entry.release();
    }

    private void unlink(Entry entry)
    {
        if (entry.state == Entry.State.SMALL)
            small.remove(entry);
        else if (entry.state == Entry.State.MAIN)
            main.remove(entry);
    }

    /** Oldest first; those used since go round again, but large ones have to have been used twice for that. */
    private void evict(List<Entry> evicted)
    {
        while (small.bytes() + main.bytes() > budget)
        {
            boolean fromSmall = main.oldest() == null
                                || small.oldest() != null && small.bytes() > budget / SMALL_SHARE;
            EntryList list = fromSmall ? small : main;
            Entry entry = list.oldest();
            list.remove(entry);
            int price = entry.weight > 4 * meanWeight() ? 2 : 1;
            int needed = fromSmall ? price + 1 : price;
            if (entry.uses() >= needed)
            {
                entry.setUses(fromSmall ? 0 : entry.uses() - price);
                entry.state = Entry.State.MAIN;
                main.add(entry);
            }
            else
                leave(entry, fromSmall, evicted);
        }
    }

    private long meanWeight()
    {
        return bytes / Math.max(1, records);
    }

    private void leave(Entry entry, boolean fromSmall, List<Entry> evicted)
    {
        entry.state = Entry.State.GONE;
        if (fromSmall)
            ghosts.add(entry.hash);
        boolean cascades = ssd != null && ssd.isOn() && entry.generation.isCurrent()
                           && ssd.index().find(entry.hash) == Place.NONE;
        if (cascades && ssd.takes(entry, fromSmall && entry.uses() == 0))
        {
            entry.state = Entry.State.CASCADING;
            evicted.add(entry);
        }
        else
            drop(entry);
    }

    /** Whether an entry that was evicted still waits to be written; if it need not be any more, it goes. */
    boolean isStillCascading(Entry entry)
    {
        lock.lock();
        try
        {
            if (entry.state != Entry.State.CASCADING)
                return false;
            if (ssd.isOn() && entry.generation.isCurrent() && ssd.index().find(entry.hash) == Place.NONE)
                return true;
            drop(entry);
            return false;
        }
        finally
        {
            lock.unlock();
        }
    }

    /** The record of a cascading entry was written: from now on the index has it, unless the entry was removed meanwhile. */
    void cascaded(Entry entry, long place)
    {
        lock.lock();
        try
        {
            if (entry.state != Entry.State.CASCADING)
                return;
            // The index first: a look-up without a lock finds the key in one of the two.
            if (ssd.isOn() && entry.generation.isCurrent())
                ssd.insert(entry.hash, place, entry.generation);
            drop(entry);
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Gives a cascading entry up. */
    void abandon(Entry entry)
    {
        lock.lock();
        try
        {
            if (entry.state == Entry.State.CASCADING)
            {
                drop(entry);
                statistics.cascadesDropped.increment();
            }
        }
        finally
        {
            lock.unlock();
        }
    }

    /** What the collector does with a record it finds. */
    enum Collected
    {
        /** The index does not point to it. */
        DEAD,
        /** It is live and was read since it was written: copy it. */
        KEEP,
        /** It was live, and the index has it no more. */
        DROPPED
    }

    /**
     * Decides about a record in a segment that is collected.
     *
     * @param generation null if it is over
     * @param mayKeep whether records are kept at all
     */
    Collected collect(RowCacheKey key, long hash, long page, Generation generation, boolean mayKeep)
    {
        lock.lock();
        try
        {
            long place = ssd.index().find(hash);
            if (place == Place.NONE || Place.page(place) != page)
                return Collected.DEAD;
            boolean isValid = generation != null && !ssd.isOutdated(key.key, place, generation);
            if (mayKeep && isValid && Place.isReferenced(place))
                return Collected.KEEP;
            ssd.index().remove(hash);
            Entry entry = ssd.isWalked() ? map.get(key) : null;
            if (entry != null && entry.sentinel == null)
                drop(entry);
            changed(hash);
            return Collected.DROPPED;
        }
        finally
        {
            lock.unlock();
        }
    }

    /**
     * A record was copied: from now on the index has the copy, not marked as read. Not if the record became outdated meanwhile:
     * the copy would look newer.
     *
     * @param oldSequence of the segment that it was in
     */
    boolean moved(RowCacheKey key, long hash, long oldPage, long oldSequence, long place, Generation generation)
    {
        lock.lock();
        try
        {
            long now = ssd.index().find(hash);
            if (now == Place.NONE || Place.page(now) != oldPage)
                return false;
            if (generation.isOutdated(key.key, oldSequence))
            {
                dropFromSsd(hash, generation);
                changed(hash);
                return false;
            }
            return generation.isCurrent() && ssd.moveTo(hash, now, place, generation);
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Takes out whatever belongs to generations that are over. */
    void sweep()
    {
        lock.lock();
        try
        {
            for (Entry entry : map.values())
                if (!entry.generation.isCurrent())
                    drop(entry);
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Empties the SSD's index of this shard's keys. */
    void clearIndex(int shard, int shards)
    {
        lock.lock();
        try
        {
            ssd.index().clear(shard, shards);
            for (int i = 0; i < STRIPES; i++)
                versions.incrementAndGet(i);
        }
        finally
        {
            lock.unlock();
        }
    }

    void setBudget(long newBudget, List<Entry> evicted)
    {
        lock.lock();
        try
        {
            budget = newBudget;
            evict(evicted);
        }
        finally
        {
            lock.unlock();
        }
    }

    /** All keys in memory at this moment, those of sentinels too. */
    List<RowCacheKey> keys()
    {
        lock.lock();
        try
        {
            return new ArrayList<>(map.keySet());
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Up to so many keys of records, those that were used again first, newest first. */
    void hotKeys(int count, List<RowCacheKey> to)
    {
        lock.lock();
        try
        {
            int left = count;
            for (EntryList list : List.of(main, small))
                for (Entry entry = list.newest(); entry != null && left > 0; entry = entry.older, left--)
                    to.add(entry.key);
        }
        finally
        {
            lock.unlock();
        }
    }

    /** Records in memory. */
    int records()
    {
        return records;
    }

    /** Bytes that count against the capacity. */
    long bytes()
    {
        return bytes;
    }
}

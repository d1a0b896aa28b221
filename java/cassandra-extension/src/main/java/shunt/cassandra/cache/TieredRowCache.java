package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.cassandra.cache.ICache;
import org.apache.cassandra.cache.IRowCacheEntry;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.cache.RowCacheSentinel;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Cassandra's row cache over both tiers. It never throws because of the SSD, and never waits for anything but one read of it;
 * should the SSD hang, few enough threads do that the others go on.
 *
 * <p>A key that {@link #remove} was called for is in neither tier when the call returns, and what was read before does not
 * come back: {@link Shard} has both tiers of a key under one lock.
 */
final class TieredRowCache implements ICache<RowCacheKey, IRowCacheEntry>
{
    private static final Logger logger = LoggerFactory.getLogger(TieredRowCache.class);
    /** A read of the SSD that a change of its key made void is tried again so often. */
    private static final int SSD_ATTEMPTS = 2;

    /** What came of a read of the SSD. */
    private record Read(Page.Found found, byte[] body, boolean buffered)
    {
    }

    private final ThreadLocal<ByteBuffer> pages =
        ThreadLocal.withInitial(() -> SegmentLog.aligned(Page.SPAN_MAX * Page.BYTES));
    private final Shards shards;
    private final SsdTier ssd;
    private final Generations generations;
    private final Catalogue catalogue;
    private final RowCodec codec;
    private final CacheStatistics statistics;
    private final long reserve;
    private volatile long capacity;

    TieredRowCache(CacheParts parts, RowCodec codec)
    {
        shards = parts.shards();
        ssd = parts.ssd();
        generations = parts.generations();
        catalogue = parts.catalogue();
        statistics = parts.statistics();
        reserve = parts.queueBytes();
        this.codec = codec;
        if (ssd != null)
            ssd.start(shards);
        setCapacity(parts.memoryBytes());
    }

    @Override
    public IRowCacheEntry get(RowCacheKey key)
    {
        if (key.indexName != null)
            return null;
        Shard shard = shards.of(key);
        Entry entry = shard.get(key);
        if (entry != null && entry.generation.isCurrent())
        {
            if (entry.sentinel != null)
                return entry.sentinel;
            byte[] body = entry.body();
            if (body != null)
            {
                entry.use();
                statistics.memoryHits.increment();
                return decode(entry.generation, key, body);
            }
        }
        IRowCacheEntry found = ssd != null && ssd.isOn() ? fromSsd(key, shard) : null;
        if (found == null)
            statistics.misses.increment();
        return found;
    }

    private IRowCacheEntry fromSsd(RowCacheKey key, Shard shard)
    {
        Generation generation = generations.forGet(key.tableId);
        if (generation == null)
            return null;
        long hash = shards.hash(key, generation);
        for (int attempt = 0; attempt < SSD_ATTEMPTS; attempt++)
        {
            int version = shard.version(hash);
            long place = ssd.index().find(hash);
            if (place == Place.NONE || shard.dropOutdated(key, hash, place, generation))
                return null;
            Read read = read(place, generation, key);
            if (read == null)
                return null;
            if (read.found == Page.Found.RECORD)
            {
                if (promote(shard, Entry.of(key, generation, hash, read.body), version, place))
                {
                    (read.buffered ? statistics.bufferHits : statistics.ssdHits).increment();
                    return decode(generation, key, read.body);
                }
            }
            else if (shard.isStill(hash, version, place, generation))
            {
                if (read.found == Page.Found.DAMAGED)
                    ssd.foundDamaged();
                else
                    statistics.falseReads.increment();
                return null;
            }
            statistics.racedReads.increment();
        }
        return null;
    }

    /** Null when that fails, and when as many threads wait for the SSD as may: the others are left to read SSTables. */
    private Read read(long place, Generation generation, RowCacheKey key)
    {
        if (!ssd.mayRead())
        {
            statistics.ssdBusy.increment();
            return null;
        }
        try
        {
            ByteBuffer to = pages.get();
            byte[][] body = new byte[1][];
            long stamp = ssd.log().stamp(Place.page(place));
            boolean buffered = ssd.read(place, to);
            Page.Found found = Page.find(to, Place.span(place) * Page.BYTES, stamp, generation.id(), key.key, body);
            return new Read(found, body[0], buffered);
        }
        catch (IOException e)
        {
            logger.debug("a read of the row cache's SSD failed", e);
            return null;
        }
        finally
        {
            ssd.hasRead();
        }
    }

    private boolean promote(Shard shard, Entry entry, int version, long place)
    {
        List<Entry> evicted = new ArrayList<>(0);
        boolean valid = shard.promote(entry, version, place, evicted);
        if (!valid)
            entry.release();
        cascade(evicted);
        return valid;
    }

    /** A record that cannot be decoded is as good as none. */
    private IRowCacheEntry decode(Generation generation, RowCacheKey key, byte[] body)
    {
        try
        {
            return codec.decode(generation, key, body);
        }
        catch (IOException | RuntimeException e)
        {
            statistics.undecodable.increment();
            logger.debug("a cached row of {} cannot be decoded", generation.tableName(), e);
            remove(key);
            return null;
        }
    }

    private Entry encode(RowCacheKey key, IRowCacheEntry value)
    {
        Generation generation = key.indexName == null && capacity > 0 ? generations.forPut(key.tableId) : null;
        if (generation == null)
            return null;
        long hash = shards.hash(key, generation);
        if (value instanceof RowCacheSentinel sentinel)
            return Entry.of(key, generation, hash, sentinel);
        try
        {
            RowCodec.Encoded encoded = codec.encode(generation, value);
            if (encoded == null)
                return null;
            statistics.encoded.increment();
            statistics.encodedBytes.add(encoded.body().length);
            statistics.catalogueSavedBytes.add(encoded.savedBytes());
            return Entry.of(key, generation, hash, encoded.body());
        }
        catch (IOException | RuntimeException e)
        {
            logger.debug("a row of {} cannot be cached", generation.tableName(), e);
            return null;
        }
        catch (OutOfMemoryError e)
        {
            logger.debug("no memory outside the heap for a cached row", e);
            return null;
        }
    }

    @Override
    public void put(RowCacheKey key, IRowCacheEntry value)
    {
        Entry entry = encode(key, value);
        if (entry == null)
        {
            remove(key);
            return;
        }
        List<Entry> evicted = new ArrayList<>(0);
        shards.of(key).put(entry, evicted);
        cascade(evicted);
    }

    @Override
    public boolean putIfAbsent(RowCacheKey key, IRowCacheEntry value)
    {
        if (!(value instanceof RowCacheSentinel))
            throw new IllegalArgumentException("Cassandra puts sentinels only, not " + value.getClass());
        Entry entry = encode(key, value);
        return entry != null && shards.of(key).putIfAbsent(entry);
    }

    @Override
    public boolean replace(RowCacheKey key, IRowCacheEntry old, IRowCacheEntry value)
    {
        if (!(old instanceof RowCacheSentinel sentinel))
            throw new IllegalArgumentException("Cassandra replaces sentinels only, not " + old.getClass());
        Entry entry = encode(key, value);
        if (entry == null)
        {
            // Cassandra takes the sentinel for gone after this call, whatever it returns.
            remove(key);
            return false;
        }
        List<Entry> evicted = new ArrayList<>(0);
        boolean replaced = shards.of(key).replace(sentinel, entry, evicted);
        if (!replaced)
            entry.release();
        cascade(evicted);
        return replaced;
    }

    @Override
    public void remove(RowCacheKey key)
    {
        if (key.indexName != null)
            return;
        Generation generation = ssd == null ? null : generations.last(key.tableId);
        shards.of(key).remove(key, generation == null ? 0 : shards.hash(key, generation), generation);
    }

    /** Without a look at the SSD: a key whose hash has the tag of another's counts as being there. */
    @Override
    public boolean containsKey(RowCacheKey key)
    {
        Entry entry = shards.of(key).get(key);
        if (entry != null && entry.generation.isCurrent())
            return true;
        Generation generation = ssd == null ? null : generations.forGet(key.tableId);
        return generation != null && isOnSsd(key, shards.hash(key, generation), generation);
    }

    /** Looks again where the record was moved or dropped meanwhile: its segment may be another by then, whose records are newer. */
    private boolean isOnSsd(RowCacheKey key, long hash, Generation generation)
    {
        while (true)
        {
            long place = ssd.index().find(hash);
            if (place == Place.NONE)
                return false;
            boolean outdated = ssd.isOutdated(key.key, place, generation);
            if (Place.same(ssd.index().find(hash), place))
                return !outdated;
        }
    }

    @Override
    public void clear()
    {
        generations.endAll();
        for (int i = 0; i < shards.count(); i++)
        {
            shards.get(i).sweep();
            if (ssd != null)
                shards.get(i).clearIndex(i, shards.count());
        }
        reclaimWithoutSsd();
    }

    /** Makes all that is cached of a table invalid, in both tiers. */
    void invalidate(org.apache.cassandra.schema.TableId table)
    {
        generations.end(table);
        for (int i = 0; i < shards.count(); i++)
            shards.get(i).sweep();
        reclaimWithoutSsd();
    }

    /**
     * Records on the SSD of these keys are not valid any more, from now on and without a look at them; those in memory are the
     * caller's, to whom all keys are given that memory has. Nothing that is in neither can be older than this call.
     */
    List<RowCacheKey> outdate(org.apache.cassandra.schema.TableId table, KeyRanges ranges)
    {
        Generation generation = ssd == null ? null : generations.last(table);
        // Before memory is looked at: what comes out of the SSD meanwhile must not be missed.
        Outdated outdated = generation == null ? null : generation.outdate(ranges, ssd.log().oldest());
        List<RowCacheKey> keys = new ArrayList<>();
        for (int i = 0; i < shards.count(); i++)
            keys.addAll(shards.get(i).keys());
        // After it: what went from memory to the SSD meanwhile is in these segments, and what goes later is among the keys.
        if (outdated != null)
        {
            outdated.endWith(ssd.log().sequence());
            statistics.outdatedRanges.increment();
        }
        return keys;
    }

    /** With an SSD that works its thread does that. */
    private void reclaimWithoutSsd()
    {
        if (ssd == null || !ssd.isOn())
            generations.reclaim(null);
    }

    /** Keys of records and sentinels in memory; those on SSD follow where the caller needs them: see {@link KeyWalk}. */
    @Override
    public Iterator<RowCacheKey> keyIterator()
    {
        return KeyWalk.forCaller(this);
    }

    @Override
    public Iterator<RowCacheKey> hotKeyIterator(int count)
    {
        List<RowCacheKey> keys = new ArrayList<>();
        int share = (count + shards.count() - 1) / shards.count();
        for (int i = 0; i < shards.count(); i++)
            shards.get(i).hotKeys(share, keys);
        return Collections.unmodifiableList(keys.subList(0, Math.min(count, keys.size()))).iterator();
    }

    @Override
    public long capacity()
    {
        return capacity;
    }

    /** Without capacity Cassandra does not tell the cache of writes, so nothing may be left then. */
    @Override
    public void setCapacity(long bytes)
    {
        capacity = bytes;
        List<Entry> evicted = new ArrayList<>();
        for (int i = 0; i < shards.count(); i++)
            shards.get(i).setBudget(Math.max(0, bytes - reserve) / shards.count(), evicted);
        cascade(evicted);
        if (bytes == 0)
            clear();
    }

    @Override
    public int size()
    {
        return (int) Math.min(Integer.MAX_VALUE, memoryRecords() + ssdRecords());
    }

    @Override
    public long weightedSize()
    {
        long sum = 0;
        for (int i = 0; i < shards.count(); i++)
            sum += shards.get(i).bytes();
        return sum;
    }

    private void cascade(List<Entry> evicted)
    {
        if (!evicted.isEmpty())
            ssd.offer(evicted);
    }

    long memoryRecords()
    {
        long sum = 0;
        for (int i = 0; i < shards.count(); i++)
            sum += shards.get(i).records();
        return sum;
    }

    long ssdRecords()
    {
        return ssd == null ? 0 : ssd.index().entries();
    }

    Shards shards()
    {
        return shards;
    }

    /** The tier on SSD, or null. */
    SsdTier ssd()
    {
        return ssd;
    }

    Generations generations()
    {
        return generations;
    }

    Catalogue catalogue()
    {
        return catalogue;
    }

    CacheStatistics statistics()
    {
        return statistics;
    }

    void close()
    {
        if (ssd != null)
            ssd.close();
    }
}

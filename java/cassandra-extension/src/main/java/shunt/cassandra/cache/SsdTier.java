package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.cassandra.cache.RowCacheKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The tier on SSD: index, log, and the one thread that writes what memory evicted and collects garbage. When the disk fails
 * or is full the tier is off until the next start, and the cache goes on in memory.
 */
final class SsdTier
{
    private static final Logger logger = LoggerFactory.getLogger(SsdTier.class);
    private static final int QUEUE_ENTRIES = 8192;
    private static final int DAMAGED_MAX = 64;
    private static final long WALK_NANOS = TimeUnit.MINUTES.toNanos(10);

    private final SsdIndex index;
    private final SegmentLog log;
    private final Generations generations;
    private final CacheStatistics statistics;
    private final long queueBytesMax;
    private final ArrayBlockingQueue<Entry> queue = new ArrayBlockingQueue<>(QUEUE_ENTRIES);
    private final AtomicLong queueBytes = new AtomicLong();
    private final Semaphore reads;
    private final SegmentWalk walk;
    private Shards shards;
    private volatile boolean on = true;
    private volatile boolean closing;
    private volatile long walkUntil = System.nanoTime();
    private Thread thread;

    /** @param readsMax threads that may read at the same time */
    SsdTier(SsdIndex index, SegmentLog log, Generations generations, CacheStatistics statistics, long queueBytesMax,
            int readsMax)
    {
        this.index = index;
        this.log = log;
        this.generations = generations;
        this.statistics = statistics;
        this.queueBytesMax = queueBytesMax;
        reads = new Semaphore(readsMax);
        walk = new SegmentWalk(log);
    }

    void start(Shards all)
    {
        shards = all;
        thread = new Thread(this::run, "row-cache-ssd");
        thread.setDaemon(true);
        thread.start();
    }

    /** Whether the tier works. */
    boolean isOn()
    {
        return on;
    }

    SsdIndex index()
    {
        return index;
    }

    SegmentLog log()
    {
        return log;
    }

    long queueBytes()
    {
        return queueBytes.get();
    }

    /** Whether an entry may come here. Those that were never read again may as long as the disk has unused room. */
    boolean takes(Entry entry, boolean neverReadAgain)
    {
        if (Page.span(Page.recordBytes(entry.key.key.length, entry.bodyBytes())) > Page.SPAN_MAX)
        {
            statistics.tooLarge.increment();
            return false;
        }
        if (neverReadAgain && !log.hasSpare())
        {
            statistics.notAdmitted.increment();
            return false;
        }
        return true;
    }

    // With the lock of the hash's shard.

    void insert(long hash, long place, Generation generation)
    {
        index.insert(hash, place);
        count(place, generation, 1);
    }

    boolean drop(long hash, Generation generation)
    {
        long place = index.remove(hash);
        if (place == Place.NONE)
            return false;
        count(place, generation, -1);
        return true;
    }

    /** Marks a record as read since it was written. False if it is not there any more. */
    boolean use(long hash, long place)
    {
        return index.replace(hash, place, Place.referenced(place));
    }

    boolean moveTo(long hash, long now, long place, Generation generation)
    {
        count(now, generation, -1);
        count(place, generation, 1);
        return index.replace(hash, now, Place.tagged(place, hash));
    }

    /** Whether the record is not valid any more, for its key has come from another node since it was written. */
    boolean isOutdated(byte[] key, long place, Generation generation)
    {
        return generation.isOutdated(key, log.sequenceOf(place));
    }

    private void count(long place, Generation generation, int change)
    {
        log.segmentOf(place).live.computeIfAbsent(generation, any -> new AtomicInteger()).addAndGet(change);
    }

    // Without a lock.

    /** Hands over what memory evicted. What does not fit into the queue is given up. */
    void offer(Collection<Entry> evicted)
    {
        for (Entry entry : evicted)
        {
            long bytes = queueBytes.addAndGet(entry.weight);
            if (!on || bytes > queueBytesMax || !queue.offer(entry))
            {
                queueBytes.addAndGet(-entry.weight);
                shards.of(entry.key).abandon(entry);
            }
        }
        if (!on)
            drain();
    }

    private void drain()
    {
        for (Entry entry; (entry = queue.poll()) != null; )
        {
            queueBytes.addAndGet(-entry.weight);
            shards.of(entry.key).abandon(entry);
        }
    }

    /** Whether one more thread may read; if so, {@link #hasRead} follows. */
    boolean mayRead()
    {
        return reads.tryAcquire();
    }

    void hasRead()
    {
        reads.release();
    }

    /** Reads the record at a place; true if it was in the write buffer. On an error the tier is off. */
    boolean read(long place, ByteBuffer to) throws IOException
    {
        try
        {
            return log.read(place, to);
        }
        catch (java.nio.channels.ClosedByInterruptException e)
        {
            throw e;
        }
        catch (IOException e)
        {
            fail("cannot be read", e);
            throw e;
        }
    }

    /** A record whose checksum is wrong. A few may happen, many are a failing disk. */
    void foundDamaged()
    {
        statistics.damaged.increment();
        if (statistics.damaged.sum() > DAMAGED_MAX)
            fail("has too many damaged records", null);
    }

    /** The log could not be read by a walk through it. */
    void foundUnreadable(IOException cause)
    {
        fail("cannot be read", cause);
    }

    /** While somebody walks through all keys, none may be in memory alone that was on SSD when he began. */
    void walking()
    {
        walkUntil = System.nanoTime() + WALK_NANOS;
    }

    boolean isWalked()
    {
        return walkUntil - System.nanoTime() > 0;
    }

    /** Whether all that was handed over has been written or dropped, for tests. */
    boolean isIdle()
    {
        return queueBytes.get() == 0;
    }

    void close()
    {
        closing = true;
        thread.interrupt();
        try
        {
            thread.join();
        }
        catch (InterruptedException e)
        {
            Thread.currentThread().interrupt();
        }
        turnOff();
        log.files().close();
    }

    private void run()
    {
        try
        {
            while (on && !closing)
            {
                Entry entry = queue.poll(1, TimeUnit.SECONDS);
                if (entry != null)
                    write(entry);
                else
                    generations.reclaim(log);
            }
        }
        catch (InterruptedException e)
        {
            if (!closing)
                fail("is not written any more", e);
        }
        catch (IOException | RuntimeException | Error e)
        {
            fail("cannot be written", e);
        }
        if (!on)
        {
            turnOff();
            log.files().close();
        }
    }

    private void write(Entry entry) throws IOException
    {
        try
        {
            Shard shard = shards.of(entry.key);
            byte[] body = shard.isStillCascading(entry) ? entry.body() : null;
            if (body == null)
                return;
            long place = log.append(entry.hash, entry.generation, entry.key.key, body);
            statistics.cascaded.increment();
            statistics.cascadedBytes.add(Page.recordBytes(entry.key.key.length, body.length));
            shard.cascaded(entry, place);
        }
        finally
        {
            queueBytes.addAndGet(-entry.weight);
        }
        while (log.needsCollection())
            collect();
    }

    /** Frees the segment with the fewest live records. Those read since they were written are copied, while there is room. */
    private void collect() throws IOException
    {
        SegmentLog.Segment victim = log.victim();
        statistics.collections.increment();
        int pages = walk.visit(victim, 0, this::collect, statistics);
        statistics.collectedBytesRead.add((long) pages * Page.BYTES);
        log.release(victim);
        generations.reclaim(log);
    }

    private void collect(long page, ByteBuffer pages, int at, int bytes) throws IOException
    {
        int id = Page.idAt(pages, at);
        byte[] keyBytes = Page.keyAt(pages, at);
        Generation generation = generations.byId(id);
        if (generation == null)
            return;
        RowCacheKey key = new RowCacheKey(generation.tableId(), null, keyBytes);
        long hash = shards.hash(key, generation);
        boolean mayKeep = log.roomPages() > log.segmentPages() / 2;
        Generation current = generation.isCurrent() ? generation : null;
        switch (shards.of(key).collect(key, hash, page, current, mayKeep))
        {
            case KEEP ->
            {
                long before = log.sequenceOf(page);
                long place = log.append(hash, generation, keyBytes, Page.bodyAt(pages, at));
                if (shards.of(key).moved(key, hash, page, before, place, generation))
                {
                    statistics.collectedKept.increment();
                    statistics.collectedKeptBytes.add(bytes);
                }
            }
            case DROPPED -> statistics.collectedDropped.increment();
            case DEAD ->
            {
            }
        }
    }

    private synchronized void fail(String what, Throwable cause)
    {
        if (!on || closing)
            return;
        on = false;
        logger.warn("row cache: the tier on SSD {} ({}); it is off until the next start, the cache goes on in memory", what,
                    String.valueOf(cause));
        logger.debug("the cause", cause);
        turnOff();
    }

    private void turnOff()
    {
        on = false;
        for (int i = 0; i < shards.count(); i++)
            shards.get(i).clearIndex(i, shards.count());
        drain();
        // Nothing in the log can be hit any more, and its thread ends.
        generations.reclaim(null);
    }
}

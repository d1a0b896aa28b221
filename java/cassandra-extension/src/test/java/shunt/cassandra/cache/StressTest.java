package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.cassandra.cache.IRowCacheEntry;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.cache.RowCacheSentinel;
import org.junit.jupiter.api.Test;

/**
 * Readers and writers of a table of numbers that only grow, with the cache in between as in Cassandra: a read that began after
 * a write was acknowledged must not see what was there before it. {@code -Dshunt.stress_seconds} makes it longer.
 */
class StressTest
{
    private static final int KEYS = 12_000;
    private static final long SECONDS = Long.getLong("shunt.stress_seconds", 4);

    private final Rig rig = Rig.twoTiers();
    /** The table. */
    private final AtomicLongArray table = new AtomicLongArray(KEYS);
    /** Per key, the number of the last acknowledged write. */
    private final AtomicLongArray acknowledged = new AtomicLongArray(KEYS);
    private final AtomicReference<String> wrong = new AtomicReference<>();
    private final AtomicLong reads = new AtomicLong();

    private void write(int key)
    {
        long number = table.incrementAndGet(key);
        rig.cache.remove(rig.key(key));
        acknowledged.accumulateAndGet(key, number, Math::max);
    }

    private void read(int key, SplittableRandom random)
    {
        long atLeast = acknowledged.get(key);
        RowCacheKey cacheKey = rig.key(key);
        IRowCacheEntry entry = rig.cache.get(cacheKey);
        long seen;
        if (entry instanceof Rig.Row row)
            seen = row.number();
        else if (entry != null)
            seen = table.get(key);
        else
        {
            RowCacheSentinel sentinel = new RowCacheSentinel();
            boolean mine = rig.cache.putIfAbsent(cacheKey, sentinel);
            seen = table.get(key);
            if (random.nextInt(8) == 0)
                Thread.yield();
            if (mine)
                rig.cache.replace(cacheKey, sentinel, new Rig.Row(seen, 300 + random.nextInt(400)));
        }
        reads.incrementAndGet();
        if (seen < atLeast)
            wrong.compareAndSet(null, "key " + key + ": read " + seen + " after " + atLeast + " was acknowledged");
    }

    private void work(int worker, long end)
    {
        SplittableRandom random = new SplittableRandom(worker);
        while (System.nanoTime() < end && wrong.get() == null)
        {
            // Some keys are hot, so that one key meets several threads, and the rest come and go.
            int key = random.nextBoolean() ? random.nextInt(200) : random.nextInt(KEYS);
            int choice = random.nextInt(100_000);
            if (choice < 10_000)
                write(key);
            else if (choice < 10_004)
                rig.cache.clear();
            else if (choice < 10_012)
                rig.schemaVersion.incrementAndGet();
            else if (choice < 10_020)
                rig.cache.invalidate(rig.table);
            else if (choice < 10_024)
                rig.cache.setCapacity(Rig.MEMORY / (1 + random.nextInt(2)));
            else
                read(key, random);
        }
    }

    @Test
    void noReadIsOlderThanAnAcknowledgedWrite() throws InterruptedException
    {
        long end = System.nanoTime() + SECONDS * 1_000_000_000L;
        Thread[] workers = new Thread[6];
        for (int i = 0; i < workers.length; i++)
        {
            int worker = i;
            workers[i] = new Thread(() -> work(worker, end));
            workers[i].setUncaughtExceptionHandler((thread, e) -> {
                e.printStackTrace();
                wrong.compareAndSet(null, e.toString());
            });
            workers[i].start();
        }
        for (Thread worker : workers)
            worker.join();
        assertNull(wrong.get());
        CacheStatistics statistics = rig.statistics();
        System.out.printf("stress: %d reads, hits %d in memory, %d on SSD, %d in its buffer; %d void reads, %d collections%n",
                          reads.get(), statistics.memoryHits.sum(), statistics.ssdHits.sum(), statistics.bufferHits.sum(),
                          statistics.racedReads.sum(), statistics.collections.sum());
        assertTrue(rig.cache.ssd().isOn());
        assertTrue(statistics.ssdHits.sum() > 100, "hits on SSD: " + statistics.ssdHits.sum());
        assertTrue(statistics.damaged.sum() == 0, "damaged: " + statistics.damaged.sum());
        rig.settle();
        rig.cache.clear();
        assertTrue(rig.cache.weightedSize() == 0 && rig.cache.size() == 0, "left: " + rig.cache.weightedSize());
        rig.close();
    }
}

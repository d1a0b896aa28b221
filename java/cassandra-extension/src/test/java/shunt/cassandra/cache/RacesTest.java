package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.cassandra.cache.RowCacheKey;
import org.junit.jupiter.api.Test;

/** Each race stopped in its worst moment: in the middle of the SSD's read or write. */
class RacesTest
{
    private static final int ROWS = 6000;

    /** Runs the action once, in the thread that reads, after the bytes were read. */
    private static void onNextRead(Rig rig, Runnable action)
    {
        AtomicBoolean done = new AtomicBoolean();
        rig.files.onRead = () -> {
            if (done.compareAndSet(false, true))
                action.run();
        };
    }

    @Test
    void aKeyRemovedDuringItsPromotionStaysRemoved()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS);
            onNextRead(rig, () -> rig.cache.remove(key));
            assertNull(rig.number(key), "what was read is void");
            assertFalse(rig.isInMemory(key));
            assertFalse(rig.isOnSsd(key));
            assertEquals(1, rig.statistics().racedReads.sum());
        }
    }

    @Test
    void aKeyWrittenAgainDuringItsPromotionHasTheNewRow()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS);
            onNextRead(rig, () -> {
                rig.cache.remove(key);
                rig.fill(key, 999_999, 400);
            });
            Long read = rig.number(key);
            assertTrue(read == null || read == 999_999, "read: " + read);
            assertEquals(999_999, rig.number(key));
        }
    }

    @Test
    void aKeyThatCameBackToTheSamePageDuringItsPromotionHasTheNewRow()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS);
            Generation generation = rig.cache.generations().forGet(rig.table);
            long hash = rig.cache.shards().hash(key, generation);
            long place = rig.cache.ssd().index().find(hash);
            onNextRead(rig, () -> {
                // The index points to the same place afterwards, as if a new record lay there.
                rig.cache.remove(key);
                Entry entry = Entry.of(key, generation, hash, new byte[8]);
                entry.state = Entry.State.CASCADING;
                rig.cache.shards().of(key).cascaded(entry, place);
                assertTrue(Place.same(place, rig.cache.ssd().index().find(hash)));
            });
            rig.number(key);
            assertEquals(1, rig.statistics().racedReads.sum(), "the first read was of the old record");
        }
    }

    @Test
    void anEntryRemovedWhileItIsWrittenIsNotIndexed() throws Exception
    {
        try (Rig rig = Rig.twoTiers())
        {
            CountDownLatch writing = new CountDownLatch(1);
            CountDownLatch go = new CountDownLatch(1);
            rig.files.onWrite = () -> {
                writing.countDown();
                try
                {
                    go.await();
                }
                catch (InterruptedException e)
                {
                    Thread.currentThread().interrupt();
                }
            };
            for (int i = 0; i < ROWS && writing.getCount() > 0; i++)
                rig.fill(rig.key(i), i, 400);
            writing.await();
            // All that is on its way now is removed before it arrives.
            for (int i = 0; i < ROWS; i++)
                rig.cache.remove(rig.key(i));
            go.countDown();
            rig.settle();
            assertEquals(0, rig.cache.size());
            for (int i = 0; i < ROWS; i++)
                assertNull(rig.number(rig.key(i)));
        }
    }

    @Test
    void aTableTruncatedDuringAPromotionStaysEmpty()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS);
            onNextRead(rig, () -> rig.cache.invalidate(rig.table));
            assertNull(rig.number(key));
            assertFalse(rig.cache.containsKey(key));
        }
    }

    @Test
    void aTableAlteredDuringAPromotionStaysEmpty()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS);
            onNextRead(rig, rig.schemaVersion::incrementAndGet);
            assertNull(rig.number(key));
            assertFalse(rig.cache.containsKey(key));
        }
    }

    @Test
    void anAlterWhileCachingWasOffLeavesNothingOld()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, 100);
            rig.schemaVersion.incrementAndGet(); // caching = NONE: writes are not told to the cache
            rig.schemaVersion.incrementAndGet(); // caching = ALL again
            for (int i = 0; i < 100; i++)
                assertNull(rig.number(rig.key(i)));
        }
    }

    @Test
    void aPromotionIsSeenByAWalkThatBeganBefore()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            Set<RowCacheKey> before = new HashSet<>();
            for (int i = 0; i < ROWS; i++)
                if (rig.cache.containsKey(rig.key(i)))
                    before.add(rig.key(i));
            Iterator<RowCacheKey> walk = rig.cache.keyIterator();
            Set<RowCacheKey> seen = new HashSet<>();
            // While it goes on: promotions, and so much new that every segment is collected.
            for (int step = 0; walk.hasNext(); step++)
            {
                seen.add(walk.next());
                if (step % 200 != 0)
                    continue;
                for (RowCacheKey key : before)
                    if (key.hashCode() % 31 == step / 200 % 31)
                        rig.number(key);
                if (step < 6000)
                    for (int round = 0; round < 2; round++)
                        rig.fillRange(100_000 + step * 100, 100_000 + step * 100 + 3000);
            }
            assertTrue(rig.statistics().collections.sum() > 10, "collections: " + rig.statistics().collections.sum());
            // Not by containsKey: the index has 29 bits of a key's hash, and may take another key for one that was dropped.
            for (RowCacheKey key : before)
                assertTrue(seen.contains(key) || rig.number(key) == null, () -> key + " was in the cache and not seen");
        }
    }

    /** Evicts everything, to SSD as long as that has unused room. */
    private static void squeeze(Rig rig)
    {
        rig.cache.setCapacity(Rig.MEMORY / 16 + 1);
        rig.settle();
        rig.cache.setCapacity(Rig.MEMORY);
    }

    @Test
    void anOlderRecordDoesNotComeBackWhenItsSegmentIsCollected()
    {
        try (Rig rig = Rig.twoTiers())
        {
            RowCacheKey key = rig.key(1);
            rig.fill(key, 1, 10);
            squeeze(rig);
            rig.cache.remove(key);
            rig.fill(key, 2, 10);
            squeeze(rig);
            assertTrue(rig.isOnSsd(key) && !rig.isInMemory(key));
            assertEquals(2, rig.number(key));
            // Read since it was written, so the collector copies it.
            for (int round = 0; rig.statistics().collectedKept.sum() == 0; round++)
                for (int again = 0; again < 2; again++)
                    rig.fillRange(1000 + round * 2000, 3000 + round * 2000);
            squeeze(rig);
            assertEquals(2, rig.number(key));
        }
    }

    @Test
    void readsOfTheSsdDoNotWaitForEachOther() throws Exception
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey slow = rig.onSsdOnly(0, ROWS);
            CountDownLatch reading = new CountDownLatch(1);
            CountDownLatch go = new CountDownLatch(1);
            AtomicBoolean first = new AtomicBoolean(true);
            rig.files.onRead = () -> {
                if (!first.compareAndSet(true, false))
                    return;
                reading.countDown();
                try
                {
                    go.await();
                }
                catch (InterruptedException e)
                {
                    Thread.currentThread().interrupt();
                }
            };
            CompletableFuture<Long> read = CompletableFuture.supplyAsync(() -> rig.number(slow));
            reading.await();
            int others = 0;
            for (int i = 0; i < ROWS; i++)
            {
                if (rig.number(rig.key(i)) != null)
                    others++;
                if (i % 64 == 63)
                    rig.settle(); // what does not find room in the queue is in neither tier
            }
            // The slow one, too, is read by this thread meanwhile, so the first read may be void.
            assertTrue(others > 4000, "read meanwhile: " + others);
            go.countDown();
            Long number = read.get();
            assertTrue(number == null || rig.key(number).equals(slow));
        }
    }
}

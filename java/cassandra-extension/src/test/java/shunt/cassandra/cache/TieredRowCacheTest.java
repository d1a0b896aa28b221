package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.cache.RowCacheSentinel;
import org.junit.jupiter.api.Test;

class TieredRowCacheTest
{
    private static final int ROWS = 6000;

    @Test
    void rowsThatLeaveMemoryAreFoundOnSsdWithOneRead()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS / 2);
            int reads = rig.files.reads.get();
            assertEquals(key, rig.key(rig.number(key)));
            assertEquals(reads + 1, rig.files.reads.get());
            assertEquals(1, rig.statistics().ssdHits.sum());
            assertTrue(rig.isInMemory(key), "promoted");
            assertTrue(rig.cache.weightedSize() <= Rig.MEMORY);
            assertTrue(rig.cache.ssdRecords() > 2000, "records on SSD: " + rig.cache.ssdRecords());
        }
    }

    @Test
    void aRemovedKeyIsInNeitherTier()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey onSsd = rig.onSsdOnly(0, ROWS / 2);
            rig.cache.remove(onSsd);
            assertNull(rig.number(onSsd));
            assertFalse(rig.cache.containsKey(onSsd));
            RowCacheKey promoted = rig.onSsdOnly(0, ROWS / 2);
            rig.number(promoted);
            rig.cache.remove(promoted);
            assertNull(rig.number(promoted));
            assertFalse(rig.isOnSsd(promoted));
        }
    }

    @Test
    void sentinelsAreComparedAndNeverLeaveMemory()
    {
        try (Rig rig = Rig.twoTiers())
        {
            RowCacheSentinel mine = new RowCacheSentinel();
            assertTrue(rig.cache.putIfAbsent(rig.key(1), mine));
            assertFalse(rig.cache.putIfAbsent(rig.key(1), new RowCacheSentinel()));
            assertSame(mine, rig.cache.get(rig.key(1)));
            assertFalse(rig.cache.replace(rig.key(1), new RowCacheSentinel(), new Rig.Row(5, 10)));
            rig.fillRange(100, ROWS);
            assertSame(mine, rig.cache.get(rig.key(1)), "not evicted");
            assertTrue(rig.cache.replace(rig.key(1), mine, new Rig.Row(5, 10)));
            assertEquals(5, rig.number(rig.key(1)));
            assertFalse(rig.cache.replace(rig.key(1), mine, new Rig.Row(6, 10)), "no sentinel any more");
            rig.cache.putIfAbsent(rig.key(2), mine);
            rig.cache.remove(rig.key(2));
            assertFalse(rig.cache.replace(rig.key(2), mine, new Rig.Row(6, 10)), "a write took the sentinel out");
            assertNull(rig.number(rig.key(2)));
        }
    }

    @Test
    void aRowThatIsTooLargeLeavesNoSentinelBehind()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fill(rig.key(1), 1, (int) Rig.MEMORY);
            assertNull(rig.cache.get(rig.key(1)));
            rig.fill(rig.key(2), 2, 20_000);
            rig.fillRange(100, ROWS);
            assertTrue(rig.statistics().tooLarge.sum() >= 1 && !rig.isOnSsd(rig.key(2)), "larger than four pages");
        }
    }

    @Test
    void truncateEndsOneTableInBothTiers()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            rig.fill(rig.otherKey(1), 1, 10);
            RowCacheSentinel before = new RowCacheSentinel();
            rig.cache.putIfAbsent(rig.key(ROWS + 1), before);
            new CacheService(rig.cache).invalidateRowCacheForCf(rig.table);
            for (int i = 0; i < ROWS; i++)
                assertNull(rig.number(rig.key(i)));
            assertFalse(rig.cache.replace(rig.key(ROWS + 1), before, new Rig.Row(1, 1)), "filled from before the truncation");
            assertEquals(1, rig.number(rig.otherKey(1)));
            rig.fill(rig.key(3), 33, 10);
            assertEquals(33, rig.number(rig.key(3)));
        }
    }

    /** Goes through the keys as Cassandra's class of that name does; the cache recognises it by its name. */
    private record CacheService(TieredRowCache cache)
    {
        void invalidateRowCacheForCf(org.apache.cassandra.schema.TableId table)
        {
            for (Iterator<RowCacheKey> keys = cache.keyIterator(); keys.hasNext(); )
                if (keys.next().tableId.equals(table))
                    keys.remove();
        }
    }

    @Test
    void aCallerThatIsNotRecognisedGetsEveryKey()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            Set<RowCacheKey> present = new HashSet<>();
            for (int i = 0; i < ROWS; i++)
                if (rig.cache.containsKey(rig.key(i)))
                    present.add(rig.key(i));
            assertTrue(present.size() > 4000, "cached keys: " + present.size());
            Set<RowCacheKey> seen = new HashSet<>();
            rig.cache.keyIterator().forEachRemaining(seen::add);
            present.removeAll(seen);
            assertEquals(Set.of(), present);
            for (Iterator<RowCacheKey> keys = rig.cache.keyIterator(); keys.hasNext(); )
            {
                keys.next();
                keys.remove();
            }
            for (int i = 0; i < ROWS; i++)
                assertFalse(rig.cache.containsKey(rig.key(i)));
        }
    }

    @Test
    void anAlteredTableBeginsAnew()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey onSsd = rig.onSsdOnly(0, ROWS);
            RowCacheSentinel before = new RowCacheSentinel();
            rig.cache.putIfAbsent(rig.key(ROWS + 1), before);
            rig.schemaVersion.incrementAndGet();
            assertNull(rig.number(onSsd));
            assertNull(rig.number(rig.key(ROWS - 1)));
            assertFalse(rig.cache.replace(rig.key(ROWS + 1), before, new Rig.Row(1, 1)));
            rig.fill(onSsd, 77, 10);
            assertEquals(77, rig.number(onSsd));
        }
    }

    @Test
    void withoutCapacityNothingIsKept()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey onSsd = rig.onSsdOnly(0, ROWS);
            rig.cache.setCapacity(0);
            assertEquals(0, rig.cache.size());
            assertFalse(rig.cache.putIfAbsent(rig.key(1), new RowCacheSentinel()));
            rig.cache.setCapacity(Rig.MEMORY);
            // Cassandra told of no write meanwhile, so all of it may be old.
            assertNull(rig.number(onSsd));
            assertNull(rig.number(rig.key(ROWS - 1)));
            rig.fill(rig.key(1), 1, 10);
            assertEquals(1, rig.number(rig.key(1)));
        }
    }

    @Test
    void clearEmptiesBothTiers()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            rig.cache.clear();
            assertEquals(0, rig.cache.size());
            assertEquals(0, rig.cache.weightedSize());
            for (int i = 0; i < ROWS; i++)
                assertNull(rig.number(rig.key(i)));
            rig.fillRange(0, ROWS);
            assertTrue(rig.cache.ssdRecords() > 2000);
        }
    }

    @Test
    void aScanDoesNotReachAFullSsd()
    {
        try (Rig rig = Rig.twoTiers())
        {
            for (int round = 0; round < 2; round++)
                rig.fillRange(0, 16_000);
            long written = rig.statistics().cascaded.sum();
            assertTrue(rig.statistics().collections.sum() > 0, "the SSD is full");
            rig.fillRange(1_000_000, 1_010_000);
            assertTrue(rig.statistics().cascaded.sum() - written < 500,
                       "of 10,000 rows read once: " + (rig.statistics().cascaded.sum() - written));
        }
    }

    @Test
    void hotRowsSurviveCollection()
    {
        try (Rig rig = Rig.twoTiers())
        {
            for (int round = 0; round < 30; round++)
            {
                for (int hot = 0; hot < 500; hot++)
                    if (rig.number(rig.key(hot)) == null)
                        rig.fill(rig.key(hot), hot, 400);
                // Read twice, so these are written.
                rig.fillRange(10_000 + round * 1000, 10_000 + round * 1000 + 3000);
            }
            int kept = 0;
            for (int hot = 0; hot < 500; hot++)
                if (rig.number(rig.key(hot)) != null)
                    kept++;
            assertTrue(rig.statistics().collections.sum() > 0, "nothing was collected");
            assertTrue(kept > 400, "hot rows that are left: " + kept);
        }
    }

    @Test
    void aSmallerCapacityEvictsAndHotKeysAreThoseReadAgain()
    {
        try (Rig rig = Rig.inMemory())
        {
            for (int i = 0; i < 500; i++)
                rig.fill(rig.key(i), i, 400);
            long before = rig.cache.weightedSize();
            rig.cache.setCapacity(before / 2);
            assertTrue(rig.cache.weightedSize() <= before / 2);
            int count = 0;
            for (Iterator<RowCacheKey> keys = rig.cache.hotKeyIterator(10); keys.hasNext(); keys.next())
                count++;
            assertEquals(10, count);
        }
    }

    @Test
    void idsOfEndedGenerationsAreReclaimedWithTheirSegments()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            List<Integer> first = rig.cache.catalogue().ids();
            rig.schemaVersion.incrementAndGet();
            rig.fillRange(0, 100);
            assertTrue(rig.cache.catalogue().ids().containsAll(first), "records of it are left");
            for (int round = 0; round < 3; round++)
                rig.fillRange(20_000, 36_000);
            assertFalse(rig.cache.catalogue().ids().containsAll(first), "all its segments were collected");
            assertEquals(1, rig.cache.catalogue().ids().size());
        }
    }
}

package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.Token;
import org.junit.jupiter.api.Test;

/** What becomes of rows whose ranges have come from another node. */
class StreamsTest
{
    private static final int ROWS = 6000;
    private static final Murmur3Partitioner PARTITIONER = Murmur3Partitioner.instance;

    /** Half of all keys. */
    private static final KeyRanges NEGATIVE = ranges(Long.MIN_VALUE + 1, 0);

    private static Token token(long of)
    {
        return new Murmur3Partitioner.LongToken(of);
    }

    private static TokenRanges ranges(long... ends)
    {
        List<TokenRanges.Range> ranges = new ArrayList<>();
        for (int i = 0; i < ends.length; i += 2)
            ranges.add(new TokenRanges.Range(token(ends[i]), token(ends[i + 1])));
        return new TokenRanges(PARTITIONER, ranges);
    }

    private static boolean isNegative(RowCacheKey key)
    {
        return PARTITIONER.getToken(ByteBuffer.wrap(key.key)).compareTo(token(0)) <= 0;
    }

    /** Removes keys as Cassandra's class of that name does for SSTables that were received; the cache recognises it by its name. */
    private record ColumnFamilyStore(TieredRowCache cache)
    {
        void invalidateRowCache()
        {
            for (Iterator<RowCacheKey> keys = cache.keyIterator(); keys.hasNext(); )
            {
                RowCacheKey key = keys.next();
                if (isNegative(key))
                    cache.remove(key);
            }
        }
    }

    private static void receive(Rig rig)
    {
        StreamedTables.hear(rig.table, NEGATIVE);
        new ColumnFamilyStore(rig.cache).invalidateRowCache();
    }

    private static RowCacheKey onSsdOnly(Rig rig, boolean negative)
    {
        for (int i = 0; i < ROWS; i++)
            if (isNegative(rig.key(i)) == negative && !rig.isInMemory(rig.key(i)) && rig.isOnSsd(rig.key(i)))
                return rig.key(i);
        throw new AssertionError("none is on SSD alone");
    }

    @Test
    void streamedRowsAreGoneAndNothingOfTheLogIsRead()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            int others = 0;
            for (int i = 0; i < ROWS; i++)
                others += !isNegative(rig.key(i)) && rig.cache.containsKey(rig.key(i)) ? 1 : 0;
            int reads = rig.files.reads.get();
            receive(rig);
            assertEquals(reads, rig.files.reads.get(), "reads of the SSD");
            int left = 0;
            int sameTag = 0;
            for (int i = 0; i < ROWS; i++)
            {
                RowCacheKey key = rig.key(i);
                if (isNegative(key))
                {
                    sameTag += rig.cache.containsKey(key) ? 1 : 0;
                    assertNull(rig.number(key));
                }
                else if (rig.cache.containsKey(key))
                    left++;
            }
            assertTrue(others > ROWS / 4 && left == others, left + " of " + others + " rows of other ranges");
            // One such pair is there once in forty runs.
            assertTrue(sameTag <= 3, sameTag + " keys of these ranges");
            assertTrue(rig.statistics().outdated.sum() > 0);
        }
    }

    @Test
    void rowsReadSinceAreCachedAgainInBothTiers()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            receive(rig);
            // Until the segment that was written meanwhile is full, its rows count as old.
            rig.fillRange(ROWS, 3 * ROWS);
            for (int i = 0; i < ROWS; i++)
                rig.fill(rig.key(i), i + 1_000_000, 400);
            rig.fillRange(3 * ROWS, 4 * ROWS);
            int onSsd = 0;
            for (int i = 0; i < ROWS; i++)
            {
                boolean inMemory = rig.isInMemory(rig.key(i));
                Long number = rig.number(rig.key(i));
                assertTrue(number == null || number == i + 1_000_000 || !isNegative(rig.key(i)) && number == i, "read: " + number);
                onSsd += number != null && !inMemory && isNegative(rig.key(i)) ? 1 : 0;
            }
            assertTrue(onSsd > 0, "hits on the SSD among the ranges that were received");
        }
    }

    @Test
    void withoutKnowingItsRangesEveryKeyIsLookedAt()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            new ColumnFamilyStore(rig.cache).invalidateRowCache();
            for (int i = 0; i < ROWS; i++)
                assertTrue(!isNegative(rig.key(i)) || rig.number(rig.key(i)) == null);
        }
    }

    @Test
    void aRowOnItsWayIntoMemoryStaysOut()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = onSsdOnly(rig, true);
            RowCacheKey other = onSsdOnly(rig, false);
            AtomicBoolean done = new AtomicBoolean();
            rig.files.onRead = () ->
            {
                if (done.compareAndSet(false, true))
                    receive(rig);
            };
            assertNull(rig.number(key));
            assertFalse(rig.isInMemory(key));
            done.set(false);
            assertEquals(0, rig.statistics().misses.sum() - 1);
            assertTrue(rig.number(other) != null, "of another range");
        }
    }

    /** Copied by the collector they would look newer than the stream. */
    @Test
    void rowsThatAreCollectedDoNotComeBack()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            AtomicBoolean done = new AtomicBoolean();
            rig.files.onWrite = () ->
            {
                if (rig.statistics().collectedKept.sum() > 100 && done.compareAndSet(false, true))
                    receive(rig);
            };
            for (int step = 1; step < 100 && !done.get(); step++)
            {
                for (int i = 0; i < ROWS; i++)
                    rig.number(rig.key(i)); // read again: worth keeping
                for (int round = 0; round < 2; round++)
                    rig.fillRange(step * 10_000, step * 10_000 + ROWS / 2);
            }
            assertTrue(done.get(), "rows were copied");
            long kept = rig.statistics().collectedKept.sum();
            for (int step = 1; step < 20; step++)
            {
                for (int i = 0; i < ROWS; i++)
                    if (!isNegative(rig.key(i)))
                        rig.number(rig.key(i));
                for (int round = 0; round < 2; round++)
                    rig.fillRange(step * 10_000_000, step * 10_000_000 + ROWS / 2);
                // A key may have the tag of one that was filled since; only those are read, for a read drops what is outdated.
                for (int i = 0; i < ROWS; i++)
                    if (isNegative(rig.key(i)) && rig.cache.containsKey(rig.key(i)))
                        assertNull(rig.number(rig.key(i)), "came back");
            }
            assertTrue(rig.statistics().collectedKept.sum() > kept, "and since");
            for (int i = 0; i < ROWS; i++)
                assertTrue(!isNegative(rig.key(i)) || rig.number(rig.key(i)) == null, "key " + i);
        }
    }

    @Test
    void manyStreamsAreRememberedInLittle()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            Generation generation = rig.cache.generations().last(rig.table);
            for (long stream = 0; stream < 1000; stream++)
                rig.cache.outdate(rig.table, ranges(stream << 32, (stream << 32) + 1));
            assertTrue(generation.outdatedRanges() <= Generation.OUTDATED_MAX);
            receive(rig);
            for (int i = 0; i < ROWS; i++)
                assertTrue(!isNegative(rig.key(i)) || rig.number(rig.key(i)) == null);
            assertEquals(1, generation.outdate(NEGATIVE, Long.MAX_VALUE) == null ? 0 : generation.outdatedRanges(),
                         "what is about segments that are no more is forgotten");
        }
    }

    @Test
    void rangesCoverWhatIsInThem()
    {
        SplittableRandom random = new SplittableRandom(7);
        for (int round = 0; round < 200; round++)
        {
            int count = 1 + random.nextInt(40);
            long[] ends = new long[2 * count];
            for (int i = 0; i < ends.length; i += 2)
            {
                ends[i] = random.nextLong() / 2;
                ends[i + 1] = ends[i] + (random.nextLong() >>> 8);
            }
            KeyRanges ranges = round % 2 == 0 ? ranges(ends) : ranges(ends[0], ends[1]).and(ranges(ends));
            for (int key = 0; key < 200; key++)
            {
                byte[] bytes = ("k" + random.nextInt()).getBytes(StandardCharsets.UTF_8);
                Token token = PARTITIONER.getToken(ByteBuffer.wrap(bytes));
                boolean covered = false;
                for (int i = 0; i < ends.length; i += 2)
                    covered |= token.compareTo(token(ends[i])) >= 0 && token.compareTo(token(ends[i + 1])) <= 0;
                assertEquals(covered, ranges.cover(bytes));
            }
        }
    }

    @Test
    void tooManyRangesBecomeOne()
    {
        long[] ends = new long[2 * (TokenRanges.RANGES_MAX + 1)];
        for (int i = 0; i < ends.length; i++)
            ends[i] = (long) i << 20;
        assertEquals(1, ranges(ends).count());
    }
}

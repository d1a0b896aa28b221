package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

class SsdIndexTest
{
    @Test
    void entriesTakeAtMostSixteenBytesAtEverySize()
    {
        SplittableRandom random = new SplittableRandom(1);
        SsdIndex index = new SsdIndex(64);
        double worst = 0;
        int entries = 0;
        for (; entries < 1_000_000; entries++)
        {
            long hash = random.nextLong();
            if (index.find(hash) != Place.NONE)
                continue;
            index.insert(hash, Place.of(0, entries, 1));
            if (entries > 20_000 && entries % 1000 == 0)
                worst = Math.max(worst, (double) index.bytes() / index.entries());
        }
        double atEnd = (double) index.bytes() / index.entries();
        System.out.printf("index: %.1f bytes per entry with 1,000,000 entries, at most %.1f on the way%n", atEnd, worst);
        assertTrue(worst <= 16, "bytes per entry: " + worst);
        assertTrue(index.entries() > 999_000, "entries: " + index.entries());
    }

    @Test
    void absentKeysAreHardlyEverFound()
    {
        SplittableRandom random = new SplittableRandom(2);
        SsdIndex index = new SsdIndex(64);
        for (int i = 0; i < 500_000; i++)
        {
            long hash = random.nextLong();
            if (index.find(hash) == Place.NONE)
                index.insert(hash, Place.of(0, i, 1));
        }
        int found = 0;
        for (int i = 0; i < 500_000; i++)
            if (index.find(random.nextLong()) != Place.NONE)
                found++;
        assertTrue(found < 500, found + " of 500,000 absent keys were found");
    }

    @Test
    void followsAModel()
    {
        SplittableRandom random = new SplittableRandom(3);
        SsdIndex index = new SsdIndex(4);
        Map<Long, Long> model = new HashMap<>();
        long[] hashes = random.longs(20_000).toArray();
        for (int step = 0; step < 400_000; step++)
        {
            long hash = hashes[random.nextInt(hashes.length)];
            Long known = model.get(hash);
            if (known == null && random.nextBoolean())
            {
                long place = Place.of(0, random.nextLong(1L << 32), 1 + random.nextInt(Page.SPAN_MAX));
                index.insert(hash, place);
                model.put(hash, Place.tagged(place, hash));
            }
            else if (known != null && random.nextInt(3) == 0)
            {
                assertEquals(known, index.remove(hash));
                model.remove(hash);
            }
            else if (known != null && random.nextInt(3) == 0)
            {
                assertTrue(index.replace(hash, known, Place.referenced(known)));
                model.put(hash, Place.referenced(known));
            }
            assertEquals(model.getOrDefault(hash, Place.NONE), index.find(hash));
        }
        assertEquals(model.size(), index.entries());
        index.clear(0, 1);
        assertEquals(0, index.entries());
        assertEquals(Place.NONE, index.find(hashes[0]));
    }

    @Test
    void aPlaceKeepsItsParts()
    {
        long place = Place.of(0x1FFFFFFF, 0xFFFFFFFEL, 4);
        assertEquals(0x1FFFFFFF, Place.tagOf(place));
        assertEquals(0xFFFFFFFEL, Place.page(place));
        assertEquals(4, Place.span(place));
        assertTrue(!Place.isReferenced(place) && Place.isReferenced(Place.referenced(place)));
        assertTrue(Place.same(place, Place.referenced(place)));
    }
}

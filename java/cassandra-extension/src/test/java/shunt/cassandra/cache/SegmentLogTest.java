package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.cassandra.schema.TableId;
import org.junit.jupiter.api.Test;

class SegmentLogTest
{
    private static final int SEGMENT = 256 << 10;
    private final Rig.MemoryFiles files = new Rig.MemoryFiles();
    private final CacheStatistics statistics = new CacheStatistics();
    private final SegmentLog log = new SegmentLog(files, 16, SEGMENT, statistics);
    private final Generation generation =
        new Generation(7, TableId.generate(), new Tables.Table("ks.t", null, this, () -> this));
    private final ByteBuffer pages = SegmentLog.aligned(Page.SPAN_MAX * Page.BYTES);

    private record Written(byte[] key, byte[] body, long place)
    {
    }

    private Written append(SplittableRandom random, int bytes) throws IOException
    {
        byte[] key = new byte[1 + random.nextInt(40)];
        byte[] body = new byte[bytes];
        random.nextBytes(key);
        random.nextBytes(body);
        return new Written(key, body, log.append(random.nextLong(), generation, key, body));
    }

    private void assertReadable(Written written) throws IOException
    {
        log.read(written.place, pages);
        byte[][] body = new byte[1][];
        assertEquals(Page.Found.RECORD, find(written.place, 7, written.key, body));
        assertArrayEquals(written.body, body[0]);
    }

    @Test
    void everyRecordComesBackWithOneReadOfWholePages() throws IOException
    {
        SplittableRandom random = new SplittableRandom(1);
        List<Written> all = new ArrayList<>();
        for (int i = 0; i < 1200; i++)
            all.add(append(random, random.nextInt(10) == 0 ? random.nextInt(16_000) : random.nextInt(900)));
        int buffered = 0;
        for (Written written : all)
        {
            int before = files.reads.get();
            assertReadable(written);
            int reads = files.reads.get() - before;
            buffered += 1 - reads;
            assertTrue(reads <= 1, "reads for one record: " + reads);
            assertEquals(Page.span(Page.recordBytes(written.key.length, written.body.length)), Place.span(written.place));
        }
        assertTrue(buffered > 0 && buffered < 200, "records out of the buffer: " + buffered);
    }

    @Test
    void theBufferIsReadBeforeItIsWritten() throws IOException
    {
        Written written = append(new SplittableRandom(2), 500);
        assertReadable(written);
        assertEquals(0, files.reads.get());
        assertEquals(0, statistics.ssdBytesWritten.sum());
    }

    private Page.Found find(long place, int id, byte[] key, byte[][] body)
    {
        return Page.find(pages, Place.span(place) * Page.BYTES, log.stamp(Place.page(place)), id, key, body);
    }

    @Test
    void aPageHasOneRecordOfATag() throws IOException
    {
        byte[] body = new byte[100];
        long first = log.append(42L << 35, generation, new byte[] {1}, body);
        long again = log.append(42L << 35, generation, new byte[] {1}, new byte[7]);
        long other = log.append(42L << 35, generation, new byte[] {2}, body);
        assertNotEquals(Place.page(first), Place.page(again), "an older record of the key would come back with its page");
        assertNotEquals(Place.page(again), Place.page(other), "the index takes it for the same key");
        byte[][] found = new byte[1][];
        log.read(again, pages);
        assertEquals(Page.Found.RECORD, find(again, 7, new byte[] {1}, found));
        assertEquals(7, found[0].length);
        assertEquals(Page.Found.ABSENT, find(again, 8, new byte[] {1}, found), "another catalogue id");
    }

    @Test
    void aLostWriteIsFoundOut() throws IOException
    {
        SplittableRandom random = new SplittableRandom(6);
        Written old = append(random, 500);
        while (!log.needsCollection())
            append(random, 2000);
        log.read(old.place, pages);
        assertEquals(Page.Found.RECORD, find(old.place, 7, old.key, new byte[1][]));
        long before = log.stamp(Place.page(old.place));
        // The segment is used again, and the disk says it wrote but did not.
        while (log.segmentOf(old.place).sequence == 1)
        {
            SegmentLog.Segment victim = log.victim();
            log.release(victim);
            while (!log.needsCollection())
                append(random, 2000);
        }
        assertNotEquals(before, log.stamp(Place.page(old.place)));
        assertEquals(Page.Found.DAMAGED, find(old.place, 7, old.key, new byte[1][]));
    }

    @Test
    void aWalkMeetsEveryRecord() throws IOException
    {
        SplittableRandom random = new SplittableRandom(3);
        List<String> written = new ArrayList<>();
        for (int i = 0; i < 1200; i++)
            written.add(java.util.Arrays.toString(append(random, random.nextInt(7) == 0 ? random.nextInt(16_000) : random.nextInt(900)).key));
        List<String> met = new ArrayList<>();
        SegmentWalk walk = new SegmentWalk(log);
        long sequence = 0;
        while ((sequence = log.sequenceAfter(sequence)) != 0)
            walk.visit(log.segment(sequence), 0, (page, in, at, bytes) -> met.add(java.util.Arrays.toString(Page.keyAt(in, at))), statistics);
        assertEquals(written, met);
        assertEquals(0, statistics.damaged.sum());
    }

    /** A walk that kept the segment, instead of its number, went on behind all others. */
    @Test
    void aSegmentThatIsWrittenAnewHasAnotherNumber() throws IOException
    {
        SplittableRandom random = new SplittableRandom(7);
        while (!log.needsCollection())
            append(random, 2000);
        SegmentLog.Segment first = log.segment(1);
        while (first.sequence == 1)
        {
            log.release(log.victim());
            while (!log.needsCollection())
                append(random, 2000);
        }
        assertNull(log.segment(1));
        assertEquals(2, log.sequenceAfter(1));
        assertEquals(2, log.oldest());
        assertEquals(first, log.segment(first.sequence));
        assertEquals(0, log.sequenceAfter(log.sequence()));
    }

    @Test
    void theSegmentWithTheFewestLiveRecordsIsCollected() throws IOException
    {
        SplittableRandom random = new SplittableRandom(4);
        while (!log.needsCollection())
        {
            Written written = append(random, 500);
            int number = log.segmentOf(written.place).number;
            if (number != 5)
                log.segmentOf(written.place).live
                   .computeIfAbsent(generation, any -> new java.util.concurrent.atomic.AtomicInteger()).incrementAndGet();
        }
        assertEquals(5, log.victim().number);
        assertTrue(log.holds(generation));
        log.release(log.victim());
        assertFalse(log.needsCollection());
        generation.end();
        assertEquals(0, log.victim().number, "all are garbage: the oldest");
    }

    /** A walk takes what it has read of a segment for read, and what is put there afterwards has to be behind that. */
    @Test
    void aSegmentThatIsWrittenNeverSeemsToHaveMorePagesThanLater() throws Exception
    {
        SegmentLog small = new SegmentLog(files, 3, 2 * SegmentLog.BUFFER_BYTES, statistics);
        AtomicReference<String> wrong = new AtomicReference<>();
        AtomicBoolean done = new AtomicBoolean();
        Thread walk = new Thread(() -> {
            while (!done.get() && wrong.get() == null)
            {
                SegmentLog.Segment last = small.segment(small.sequence());
                long life = last == null ? 0 : last.sequence;
                if (life == 0)
                    continue;
                int before = small.pagesOf(last);
                int after = small.pagesOf(last);
                if (after < before && last.sequence == life)
                    wrong.set("segment " + last.number + " had " + before + " pages, and then " + after);
            }
        });
        walk.start();
        byte[] body = new byte[3 * Page.BYTES];
        for (int i = 0; i < 40_000 && wrong.get() == null; i++)
        {
            small.append(i, generation, new byte[] { 1 }, body);
            while (small.needsCollection())
                small.release(small.victim());
        }
        done.set(true);
        walk.join();
        assertNull(wrong.get());
    }
}

package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.common.util.concurrent.Uninterruptibles;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.schema.TableId;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A disk that is full, fails or lies never fails a query. */
class FaultsTest
{
    private static final int ROWS = 6000;

    private static void awaitOff(Rig rig)
    {
        long end = System.nanoTime() + Rig.PATIENCE_NANOS;
        while (!rig.files.closed && System.nanoTime() < end)
            Thread.onSpinWait();
    }

    private static void assertOffAndUsable(Rig rig)
    {
        awaitOff(rig);
        assertFalse(rig.cache.ssd().isOn());
        assertTrue(rig.files.closed, "the space is given back");
        assertEquals(0, rig.cache.ssdRecords());
        rig.files.onRead = () -> {
            throw new IOException("nobody should read any more");
        };
        rig.fillRange(0, ROWS);
        assertEquals(ROWS - 1L, rig.number(rig.key(ROWS - 1)));
        assertNull(rig.number(rig.key(0)));
        assertTrue(rig.cache.weightedSize() <= Rig.MEMORY);
        assertTrue(rig.cache.ssd().isIdle());
    }

    @Test
    void aFullDiskTurnsTheTierOff()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            rig.files.onWrite = () -> {
                throw new IOException("No space left on device");
            };
            rig.fillRange(ROWS, 2 * ROWS);
            assertOffAndUsable(rig);
        }
    }

    /** Tables come and go; each would leave its id and its columns behind. */
    @Test
    void generationsEndAlsoWhenTheTierIsOff()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            int first = rig.cache.catalogue().ids().get(0);
            rig.cache.invalidate(rig.table);
            rig.fill(rig.key(0), 0, 10);
            assertEquals(List.of(first, first + 1), rig.cache.catalogue().ids(), "records of the first are on SSD");
            rig.files.onWrite = () -> {
                throw new IOException("No space left on device");
            };
            rig.fillRange(ROWS, 2 * ROWS);
            awaitOff(rig);
            assertEquals(List.of(first + 1), rig.cache.catalogue().ids());
            rig.cache.invalidate(rig.table);
            assertEquals(List.of(), rig.cache.catalogue().ids());
        }
    }

    @Test
    void aReadErrorTurnsTheTierOff()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS / 2);
            rig.files.onRead = () -> {
                throw new IOException("Input/output error");
            };
            assertNull(rig.number(key), "a miss");
            assertOffAndUsable(rig);
        }
    }

    @Test
    void aDiskThatHangsKeepsABoundedNumberOfReaders() throws InterruptedException
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS / 2);
            CountDownLatch hanging = new CountDownLatch(Rig.SSD_READS);
            CountDownLatch mended = new CountDownLatch(1);
            rig.files.onRead = () -> {
                hanging.countDown();
                Uninterruptibles.awaitUninterruptibly(mended);
            };
            Thread[] readers = new Thread[Rig.SSD_READS];
            for (int i = 0; i < readers.length; i++)
                (readers[i] = new Thread(() -> rig.number(key))).start();
            assertTrue(hanging.await(180, TimeUnit.SECONDS));
            assertNull(assertTimeoutPreemptively(Duration.ofSeconds(180), () -> rig.number(key)), "a miss");
            assertEquals(1, rig.statistics().ssdBusy.sum());
            mended.countDown();
            for (Thread reader : readers)
                reader.join();
            RowCacheKey other = rig.onSsdOnly(0, ROWS / 2);
            assertEquals(other, rig.key(rig.number(other)), "the disk is read again");
            assertEquals(1, rig.statistics().ssdBusy.sum());
            assertTrue(rig.cache.ssd().isOn());
        }
    }

    @Test
    void aDamagedRecordIsAMissAndGone()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            RowCacheKey key = rig.onSsdOnly(0, ROWS / 2);
            Generation generation = rig.cache.generations().forGet(rig.table);
            long place = rig.cache.ssd().index().find(rig.cache.shards().hash(key, generation));
            SegmentLog log = rig.cache.ssd().log();
            byte[] segment = rig.files.segments.get(log.segmentOf(place).number);
            int start = (int) (Place.page(place) % log.segmentPages()) * Page.BYTES;
            // Only bytes of bodies: lengths and keys stay right, so the checksum has to tell.
            for (int at = start; at < start + Page.BYTES; at++)
                if (segment[at] == 0)
                    segment[at] = at % 7 == 0 && at % Page.BYTES > 60 ? (byte) 1 : 0;
            assertNull(rig.number(key));
            assertFalse(rig.cache.containsKey(key));
            assertEquals(0, rig.statistics().ssdHits.sum());
            assertTrue(rig.cache.ssd().isOn(), "one damaged page is no failing disk");
        }
    }

    @Test
    void manyDamagedRecordsTurnTheTierOff()
    {
        try (Rig rig = Rig.twoTiers())
        {
            rig.fillRange(0, ROWS);
            Generation generation = rig.cache.generations().forGet(rig.table);
            for (byte[] segment : rig.files.segments.values())
                for (int at = 0; at < segment.length; at++)
                    if (segment[at] == 0 && segment[Math.max(0, at - 30)] == 0 && segment[Math.min(segment.length - 1, at + 30)] == 0)
                        segment[at] = 9;
            for (int i = 0; i < ROWS; i++)
            {
                Long number = rig.number(rig.key(i));
                assertTrue(number == null || number == i, "key " + i + ": " + number);
            }
            assertTrue(generation.isCurrent());
            assertOffAndUsable(rig);
        }
    }

    @Test
    void aSlowDiskDropsCascadesInsteadOfHoldingQueriesUp()
    {
        try (Rig rig = Rig.twoTiers())
        {
            CountDownLatch filled = new CountDownLatch(1);
            rig.files.onWrite = () -> Uninterruptibles.awaitUninterruptibly(filled);
            for (int i = 0; i < ROWS; i++)
                rig.fill(rig.key(i), i, 400);
            filled.countDown();
            assertTrue(rig.statistics().cascadesDropped.sum() > 1000, "dropped: " + rig.statistics().cascadesDropped.sum());
            assertTrue(rig.cache.weightedSize() <= Rig.MEMORY, "memory: " + rig.cache.weightedSize());
        }
    }

    @Test
    void realFilesKeepTheirSpaceAndAreDeletedAtTheNextStart(@TempDir Path directory) throws IOException
    {
        ByteBuffer page = SegmentLog.aligned(2 * Page.BYTES);
        page.putLong(Page.BYTES, 42);
        try (DiskSegmentFiles files = new DiskSegmentFiles(directory, 4, 1 << 20))
        {
            files.write(2, 8 * Page.BYTES, page.duplicate());
            ByteBuffer read = SegmentLog.aligned(Page.BYTES);
            files.read(2, 9 * Page.BYTES, read);
            assertEquals(42, read.getLong(0));
            assertEquals(1 << 20, Files.size(directory.resolve("segment-00003")));
            IOException error = assertThrows(IOException.class, () -> new DiskSegmentFiles(directory, 4, 1 << 20));
            assertTrue(error.getMessage().startsWith("another process has its row cache in"), error.getMessage());
            Thread.currentThread().interrupt();
            assertThrows(IOException.class, () -> files.read(2, 0, read.clear()));
            assertTrue(Thread.interrupted());
            files.read(2, 9 * Page.BYTES, read.clear());
            assertEquals(42, read.getLong(0), "an interrupted reader takes the segment from nobody else");
            try (FileChannel cut = FileChannel.open(directory.resolve("segment-00002"), StandardOpenOption.WRITE))
            {
                cut.truncate(9 * Page.BYTES);
            }
            assertThrows(IOException.class, () -> files.read(2, 9 * Page.BYTES, read.clear()), "a file that was cut off");
        }
        assertFalse(Files.exists(directory.resolve("segment-00000")));
        Files.writeString(directory.resolve("segment-00001"), "left behind by a crash");
        try (DiskSegmentFiles files = new DiskSegmentFiles(directory, 4, 1 << 20))
        {
            ByteBuffer read = SegmentLog.aligned(Page.BYTES);
            files.read(1, 0, read);
            assertEquals(0, read.getLong(0));
        }
    }

    @Test
    void aReaderThatIsInterruptedFailsAlone(@TempDir Path directory) throws Exception
    {
        try (DiskSegmentFiles files = new DiskSegmentFiles(directory, 3, 1 << 20))
        {
            AtomicBoolean over = new AtomicBoolean();
            AtomicReference<IOException> wrong = new AtomicReference<>();
            Thread[] others = new Thread[3];
            for (int i = 0; i < others.length; i++)
            {
                boolean writes = i == 0;
                others[i] = new Thread(() -> {
                    ByteBuffer page = SegmentLog.aligned(Page.BYTES);
                    while (!over.get() && wrong.get() == null)
                    {
                        try
                        {
                            if (writes)
                                files.write(1, Page.BYTES, page.clear());
                            else
                                files.read(1, 0, page.clear());
                        }
                        catch (IOException e)
                        {
                            wrong.set(e);
                        }
                    }
                });
                others[i].start();
            }
            ByteBuffer page = SegmentLog.aligned(Page.BYTES);
            for (int i = 0; i < 300; i++)
            {
                Thread.currentThread().interrupt();
                assertThrows(IOException.class, () -> files.read(1, 0, page.clear()));
                assertTrue(Thread.interrupted());
            }
            over.set(true);
            for (Thread other : others)
                other.join();
            assertNull(wrong.get());
        }
    }

    @Test
    void aDiskThatIsTooSmallIsNoticedAtTheStart(@TempDir Path directory)
    {
        IOException tooLarge = assertThrows(IOException.class, () -> new DiskSegmentFiles(directory, 64, 1L << 43));
        // Not found out by taking all that there is: others write to the disk meanwhile.
        assertTrue(tooLarge.getMessage().contains("bytes are free there"), tooLarge.getMessage());
        assertFalse(Files.exists(directory.resolve("segment-00000")));
    }

    @Test
    void aCatalogueThatCannotBeWrittenIsWrittenLater(@TempDir Path directory) throws IOException
    {
        ColumnSet noColumns = new ColumnSet(new ColumnSet.Group(List.of(), new byte[1]), new ColumnSet.Group(List.of(), new byte[1]));
        Tables tables = id -> new Tables.Table("ks.t", noColumns, this, () -> this);
        Rig.MemoryFiles files = new Rig.MemoryFiles();
        TieredRowCache cache = new TieredRowCache(CacheParts.onFiles(Rig.MEMORY, Optional.of(directory), files, Rig.SSD, tables, Rig.SSD_READS),
                                                  new Rig.NumberCodec());
        Path file = directory.resolve(Catalogue.FILE);
        Files.delete(file);
        Files.createDirectory(file);
        TableId table = TableId.generate();
        for (int i = 0; i < ROWS; i++)
            cache.put(key(table, i), new Rig.Row(i, 400));
        long end = System.nanoTime() + Rig.PATIENCE_NANOS;
        while (!cache.ssd().isIdle() && System.nanoTime() < end)
            Thread.onSpinWait();
        assertTrue(cache.ssd().isOn());
        for (int i = 0; i < ROWS; i++)
            cache.get(key(table, i));
        assertTrue(cache.statistics().ssdHits.sum() + cache.statistics().bufferHits.sum() > 0, "rows are found there");
        Files.delete(file);
        end = System.nanoTime() + Rig.PATIENCE_NANOS;
        while (!Files.exists(file) && System.nanoTime() < end)
            Thread.yield();
        assertEquals(2, Files.readAllLines(file).size(), "the table is in it after all");
        cache.close();
    }

    private static RowCacheKey key(TableId table, int number)
    {
        return new RowCacheKey(table, null, new byte[] {(byte) number, (byte) (number >> 8)});
    }
}

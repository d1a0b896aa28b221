package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.StampedLock;

/**
 * The append-only log: segments of equal size, one of them active. Appending and collecting are for one thread, reading is
 * for any number and holds no lock over I/O. The end of the log is in a buffer of 16 KB that readers can hit.
 */
final class SegmentLog
{
    static final int BUFFER_PAGES = 4;
    static final int BUFFER_BYTES = BUFFER_PAGES * Page.BYTES;

    /** One segment's account. Which records are live the index knows; counts serve the choice of what to collect. */
    static final class Segment
    {
        final int number;
        /** Place in the order of writing; 0 while the segment is free. */
        volatile long sequence;
        /** Records that the index points to, per generation. */
        final ConcurrentHashMap<Generation, AtomicInteger> live = new ConcurrentHashMap<>();
        /** Generations of all records in it, live or not. */
        final Set<Generation> written = ConcurrentHashMap.newKeySet();

        Segment(int number)
        {
            this.number = number;
        }

        /** Records that can still be hit. */
        int live()
        {
            int sum = 0;
            for (var entry : live.entrySet())
                if (!entry.getKey().isDead())
                    sum += Math.max(0, entry.getValue().get());
            return sum;
        }
    }

    private final SegmentFiles files;
    private final CacheStatistics statistics;
    private final int segmentPages;
    private final Segment[] segments;
    private final ArrayDeque<Segment> free = new ArrayDeque<>();
    private Segment active;
    private volatile long sequence;

    private final StampedLock bufferLock = new StampedLock();
    private final ByteBuffer buffer = aligned(BUFFER_BYTES);
    /** Number of the buffer's first page; it is written only with the lock. */
    private volatile long bufferPage;
    /** Where the next record goes in the buffer. */
    private int position;
    /** Tags of the records in the page at the position. */
    private final int[] pageTags = new int[Page.BYTES / (Page.HEADER + 1) + 1];
    private int pageRecords;

    SegmentLog(SegmentFiles files, int segmentCount, long segmentBytes, CacheStatistics statistics)
    {
        if (segmentCount < 3 || segmentBytes % BUFFER_BYTES != 0)
            throw new IllegalArgumentException("at least three segments of whole buffers are needed");
        this.files = files;
        this.statistics = statistics;
        segmentPages = (int) (segmentBytes / Page.BYTES);
        segments = new Segment[segmentCount];
        for (int i = 0; i < segmentCount; i++)
            free.add(segments[i] = new Segment(i));
        open();
    }

    /** A buffer whose address direct I/O accepts. */
    static ByteBuffer aligned(int bytes)
    {
        return ByteBuffer.allocateDirect(bytes + Page.BYTES).alignedSlice(Page.BYTES).slice(0, bytes);
    }

    private void open()
    {
        active = free.remove();
        // First: who sees the new segment before the buffer is there takes it for full, and what is written to it for read.
        moveBuffer((long) active.number * segmentPages);
        active.sequence = sequence + 1;
        sequence = active.sequence;
    }

    private void moveBuffer(long page)
    {
        long stamp = bufferLock.writeLock();
        for (int at = 0; at < BUFFER_BYTES; at += Long.BYTES)
            buffer.putLong(at, 0);
        bufferPage = page;
        position = 0;
        pageRecords = 0;
        bufferLock.unlockWrite(stamp);
    }

    /**
     * Appends a record and returns its place, without a tag. A page has at most one record of a tag. Segments that were free are filled one after the other;
     * {@link #needsCollection()} tells when one has to be freed.
     */
    long append(long hash, Generation generation, byte[] key, byte[] body) throws IOException
    {
        int bytes = Page.recordBytes(key.length, body.length);
        int span = Page.span(bytes);
        int inPage = position % Page.BYTES;
        if (inPage != 0 && (inPage + bytes > Page.BYTES || pageHas(Place.tag(hash))))
            nextPage();
        if (position + span * Page.BYTES > BUFFER_BYTES && position % Page.BYTES == 0)
            flush();
        long page = bufferPage + position / Page.BYTES;
        position = Page.write(buffer, position, stamp(page), generation.id(), key, body);
        pageTags[pageRecords++] = Place.tag(hash);
        active.written.add(generation);
        if (span > 1)
            nextPage();
        else if (position % Page.BYTES == 0)
            pageRecords = 0;
        return Place.of(0, page, span);
    }

    private void nextPage()
    {
        position = (position + Page.BYTES - 1) / Page.BYTES * Page.BYTES;
        pageRecords = 0;
    }

    /** Whether the page has a record of this tag: what the index points to has to be the only one, or old ones come back. */
    private boolean pageHas(int tag)
    {
        for (int i = 0; i < pageRecords; i++)
            if (pageTags[i] == tag)
                return true;
        return pageRecords == pageTags.length;
    }

    /** What goes into the checksums of a page's records: the page and its segment's life. */
    long stamp(long page)
    {
        return segments[(int) (page / segmentPages)].sequence << 32 ^ page;
    }

    /** Writes the buffer and goes on behind it. Until that is done, readers find the records in the buffer. */
    private void flush() throws IOException
    {
        long first = bufferPage;
        files.write((int) (first / segmentPages), first % segmentPages * Page.BYTES, buffer.slice(0, BUFFER_BYTES));
        statistics.ssdBytesWritten.add(BUFFER_BYTES);
        long next = first + BUFFER_PAGES;
        if (next % segmentPages != 0)
            moveBuffer(next);
        else
            open();
    }

    /** Whether no segment is left for when the active one is full. */
    boolean needsCollection()
    {
        return free.isEmpty();
    }

    /** Whether the log still has segments that were never written. */
    boolean hasSpare()
    {
        return sequence < segments.length - 1;
    }

    /** The segment with the fewest live records; the oldest of several. */
    Segment victim()
    {
        Segment best = null;
        int bestLive = 0;
        for (Segment segment : segments)
        {
            if (segment == active || segment.sequence == 0)
                continue;
            int live = segment.live();
            if (best == null || live < bestLive || live == bestLive && segment.sequence < best.sequence)
            {
                best = segment;
                bestLive = live;
            }
        }
        return best;
    }

    /** The segment is free once the index has nothing of it any more. */
    void release(Segment segment)
    {
        segment.sequence = 0;
        segment.live.clear();
        segment.written.clear();
        free.add(segment);
    }

    /** Whether any record of it is left in the log. */
    boolean holds(Generation generation)
    {
        for (Segment segment : segments)
            if (segment.written.contains(generation))
                return true;
        return false;
    }

    /** The segment that holds a place. */
    Segment segmentOf(long place)
    {
        return segments[(int) (Place.page(place) / segmentPages)];
    }

    /** Reads all pages of a record. Returns whether they came out of the buffer. */
    boolean read(long place, ByteBuffer to) throws IOException
    {
        long page = Place.page(place);
        to.clear().limit(Place.span(place) * Page.BYTES);
        if (fromBuffer(page, to))
            return true;
        statistics.ssdReads.increment();
        files.read((int) (page / segmentPages), page % segmentPages * Page.BYTES, to);
        return false;
    }

    /** An optimistic read: nobody waits unless the buffer is moved in that moment. */
    private boolean fromBuffer(long page, ByteBuffer to)
    {
        long stamp = bufferLock.tryOptimisticRead();
        if (stamp != 0)
        {
            boolean copied = copy(page, to);
            if (bufferLock.validate(stamp))
                return copied;
        }
        stamp = bufferLock.readLock();
        try
        {
            return copy(page, to);
        }
        finally
        {
            bufferLock.unlockRead(stamp);
        }
    }

    private boolean copy(long page, ByteBuffer to)
    {
        long ahead = page - bufferPage;
        if (ahead < 0 || ahead >= BUFFER_PAGES)
            return false;
        to.put(0, buffer, (int) ahead * Page.BYTES, Math.min(to.limit(), (int) (BUFFER_PAGES - ahead) * Page.BYTES));
        return true;
    }

    /** The sequence of the segment that is written now. */
    long sequence()
    {
        return sequence;
    }

    /** The sequence of the segment that a place is in; 0 if that was freed. */
    long sequenceOf(long place)
    {
        return segmentOf(place).sequence;
    }

    /** The sequence of the oldest segment. */
    long oldest()
    {
        long oldest = sequenceAfter(0);
        return oldest == 0 ? sequence : oldest;
    }

    /**
     * The sequence number of the segment that was written first after the one with this number; 0 if there is none. A number, not
     * a segment: the collector may free a segment, and the log write it anew under a later number, at any time.
     */
    long sequenceAfter(long sequenceNumber)
    {
        long next = 0;
        for (Segment segment : segments)
        {
            long one = segment.sequence;
            if (one > sequenceNumber && (next == 0 || one < next))
                next = one;
        }
        return next;
    }

    /** The segment with this sequence number; null if it was freed. */
    Segment segment(long sequenceNumber)
    {
        for (Segment segment : segments)
            if (segment.sequence == sequenceNumber)
                return segment;
        return null;
    }

    int segmentPages()
    {
        return segmentPages;
    }

    /** Pages of the active segment that nothing was written to yet. */
    int roomPages()
    {
        return segmentPages - (int) (bufferPage % segmentPages) - (position + Page.BYTES - 1) / Page.BYTES;
    }

    /** Reads pages of a segment for a walk through all of it; from the buffer what is not in the file yet. */
    void readPages(Segment segment, int page, ByteBuffer to) throws IOException
    {
        long first = (long) segment.number * segmentPages + page;
        long end = first + to.remaining() / Page.BYTES;
        long buffered = bufferPage;
        if (end <= buffered || first >= buffered + BUFFER_PAGES)
        {
            files.read(segment.number, (long) page * Page.BYTES, to);
            return;
        }
        ByteBuffer one = aligned(Page.BYTES);
        for (long at = first; at < end; at++)
        {
            one.clear();
            if (!fromBuffer(at, one))
                files.read(segment.number, at % segmentPages * Page.BYTES, one);
            to.put(one.rewind());
        }
    }

    /** Pages of a segment that have been begun. */
    int pagesOf(Segment segment)
    {
        long ahead = bufferPage + BUFFER_PAGES - (long) segment.number * segmentPages;
        return ahead > 0 && ahead <= segmentPages ? (int) ahead : segmentPages;
    }

    SegmentFiles files()
    {
        return files;
    }
}

package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.ByteBuffer;

/** Reads a segment from its first record to its last, in large pieces. */
final class SegmentWalk
{
    private static final int PIECE_PAGES = 64;

    /** Takes one record: the number of its first page in the whole log and its place in the buffer. */
    interface Visitor
    {
        /** @throws IOException ends the walk */
        void record(long page, ByteBuffer pages, int at, int bytes) throws IOException;
    }

    private final SegmentLog log;
    private final ByteBuffer piece = SegmentLog.aligned(PIECE_PAGES * Page.BYTES);

    SegmentWalk(SegmentLog log)
    {
        this.log = log;
    }

    /** Visits all intact records from a page on, and returns how many pages there are by now. */
    int visit(SegmentLog.Segment segment, int fromPage, Visitor visitor, CacheStatistics statistics) throws IOException
    {
        int pages = log.pagesOf(segment);
        for (int page = fromPage; page < pages; )
        {
            int count = Math.min(PIECE_PAGES, pages - page);
            piece.clear().limit(count * Page.BYTES);
            log.readPages(segment, page, piece);
            int at = 0;
            while (at < count)
            {
                int span = visitPage(segment, page + at, at * Page.BYTES, count * Page.BYTES, visitor, statistics);
                if (at + span > count && at > 0)
                    break; // the record goes on in the next piece: begin that with it
                at += span;
            }
            page += at;
        }
        return pages;
    }

    /** Visits the records that begin in a page and returns the pages they take. */
    private int visitPage(SegmentLog.Segment segment, int page, int start, int limit, Visitor visitor,
                          CacheStatistics statistics) throws IOException
    {
        long number = (long) segment.number * log.segmentPages() + page;
        long stamp = log.stamp(number);
        int longest = start + Page.SPAN_MAX * Page.BYTES;
        int bytes = Page.recordBytesAt(piece, start, longest);
        if (bytes > Page.BYTES && start + bytes > limit)
            return Page.span(bytes);
        int end = bytes > Page.BYTES ? start + bytes : start + Page.BYTES;
        for (int at = start; (bytes = Page.recordBytesAt(piece, at, end)) > 0; at += bytes)
        {
            if (Page.isIntact(piece, at, bytes, stamp))
                visitor.record(number, piece, at, bytes);
            else
                statistics.damaged.increment();
        }
        return Math.max(1, Page.span(end - start));
    }
}

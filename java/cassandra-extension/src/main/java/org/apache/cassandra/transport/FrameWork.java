package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.exceptions.OverloadedException;
import org.apache.cassandra.metrics.ClientMetrics;
import org.apache.cassandra.utils.MonotonicClock;
import shunt.cassandra.transport.FrameLayout;
import shunt.cassandra.transport.FramePool;
import shunt.cassandra.transport.FrameTime;
import shunt.cassandra.transport.OutboundBatch;
import shunt.cassandra.transport.PeerTraffic;

/**
 * The execution of one frame: entry by entry, with the answers of those that ran inline gathered in one buffer. That
 * leaves at the end, at the limit of a frame, or when its first answer has waited as long as a slow query may take.
 */
final class FrameWork extends FramePool.Work
{
    private static final int BYTES_PER_ANSWER = 128;
    /** Queries that wait are given to be watched so many at a time, so that the first of a long frame are not late. */
    private static final int WATCHED_TOGETHER = 32;

    final AggregateLink link;
    final AggregateFrame frame;
    /** What its queries have taken. */
    final FrameTime time;
    /** What its queries send to other replicas; null where each message leaves at once. */
    final OutboundBatch batch;
    private final long answersMayWaitNanos;
    /** The query that is executed, or was last. */
    private FrameEntry entry;
    private int at;
    private int index;
    private ByteBuf out;
    private int answers;
    private long firstAnswerNanos;
    /** Queries of it that wait for their replicas, and are not watched yet; null: none. */
    private List<Overdue.Slot> waiting;
    /** Entries done with since the link was last told. */
    private int settled;

    FrameWork(AggregateLink link, AggregateFrame frame)
    {
        this.link = link;
        this.frame = frame;
        this.at = frame.firstEntry();
        time = new FrameTime(link.context.pool());
        PeerTraffic traffic = link.context.traffic();
        batch = traffic.batchesRequests() ? new OutboundBatch(OutboundBatch.Of.REQUESTS, link.context.metrics()) : null;
        int slowMs = link.context.settings().slowQueryMs();
        answersMayWaitNanos = slowMs == 0 ? Long.MAX_VALUE : TimeUnit.MILLISECONDS.toNanos(slowMs);
    }

    @Override
    protected FramePool.Piece next()
    {
        while (index < frame.count && !link.isGone())
        {
            int next = index++;
            int nextAt = at;
            at = frame.entryAfter(nextAt);
            if (frame.opcodeAt(nextAt) != FrameLayout.CLIENT_GONE)
            {
                entry = new FrameEntry(this, next, nextAt);
                return entry;
            }
            settled++;
        }
        return null;
    }

    @Override
    protected void resume()
    {
        closeBatch(); // the slow query may be waiting for an answer to what is held
        watch();
        // It will not be delivered in its turn, and is the last that should not count.
        time.add(entry.kind(), System.nanoTime() - pieceSinceNanos());
        send(false);
    }

    @Override
    protected void finish()
    {
        closeBatch();
        watch();
        settled += frame.count - index;
        index = frame.count;
        send(true);
        frame.body.release();
        link.context.metrics().timeInFrame.update(MonotonicClock.Global.preciseTime.now() - frame.arrivedNanos,
                                                  TimeUnit.NANOSECONDS);
    }

    @Override
    protected void fail()
    {
        closeBatch();
        watch();
        if (out != null)
            out.release();
        out = null;
        link.giveUp(frame);
        frame.body.release();
    }

    /** A query whose answer comes late; the owner's. */
    void awaits(DeferredQuery query)
    {
        if (waiting == null)
            waiting = new ArrayList<>(WATCHED_TOGETHER);
        waiting.add(query.slot);
        if (waiting.size() >= WATCHED_TOGETHER)
            watch();
    }

    /** From here on somebody looks when their time is over. */
    private void watch()
    {
        if (waiting != null)
            link.context.overdue().add(waiting);
        waiting = null;
    }

    private void closeBatch()
    {
        if (batch != null)
            batch.close();
    }

    /** An answer, in the order of the entries; the owner's. */
    void append(FrameEntry entry, Message.Response response)
    {
        if (out == null)
        {
            out = CBUtil.allocator.buffer(FrameLayout.HEADER_BYTES + BYTES_PER_ANSWER * (1 + frame.count - entry.index));
            FrameLayout.reserveHeader(out);
            firstAnswerNanos = pieceSinceNanos();
        }
        int start = out.writerIndex();
        entry.encode(out, response);
        settled++;
        int bytesMax = FrameLayout.HEADER_BYTES + link.context.settings().frameBytesMax();
        if (out.writerIndex() > bytesMax && answers > 0)
            split(start);
        answers++;
        if (out.writerIndex() >= bytesMax || pieceSinceNanos() - firstAnswerNanos > answersMayWaitNanos)
            send(false);
    }

    /** The last answer goes into a frame of its own. */
    private void split(int start)
    {
        int size = out.writerIndex() - start;
        ByteBuf next = CBUtil.allocator.buffer(FrameLayout.HEADER_BYTES + FrameLayout.COUNT_BYTES + size);
        FrameLayout.reserveHeader(next);
        next.writeBytes(out, start, size);
        out.writerIndex(start);
        settled--;
        send(false);
        settled++;
        out = next;
        firstAnswerNanos = pieceSinceNanos();
    }

    private void send(boolean last)
    {
        ByteBuf sent = out;
        if (sent != null)
            FrameLayout.completeHeader(sent, answers);
        out = null;
        answers = 0;
        if (sent != null || settled > 0 || last)
            link.answered(frame, sent, settled, last);
        settled = 0;
    }

    /** Gives an entry to Cassandra's request executor; its answer comes late. From any thread. */
    void handOver(FrameEntry entry, Message.Request request)
    {
        link.context.metrics().handedOver.mark();
        ClientMetrics.instance.markRequestDispatched();
        try
        {
            Dispatcher.requestExecutor.submit(new HandedOver(entry, request, frame.arrivedNanos, frame.overload));
        }
        catch (RejectedExecutionException e)
        {
            entry.answerHandedOver(() -> ReleaseBridge.refusal(new OverloadedException("Server is shutting down")));
        }
    }
}

package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.util.collection.IntObjectHashMap;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.cassandra.exceptions.InvalidRequestException;
import org.apache.cassandra.transport.ChannelPause.Reason;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import shunt.cassandra.transport.FrameLayout;
import shunt.cassandra.transport.FramePool;

/**
 * One connection that sends aggregated frames: its clients, what is in flight on it, and its answers. Belongs to the
 * event loop but for {@link #answered} and {@link #answeredLate}, which bring answers back to it.
 */
final class AggregateLink extends ChannelInboundHandlerAdapter
{
    private static final Logger LOGGER = LoggerFactory.getLogger(AggregateLink.class);

    /** Queries of one link without an answer; beyond it the link is not read until half of them are answered. */
    private static final int QUERIES_MAX = 8192;
    /** Frames of all links that wait for a thread, for each thread; beyond it a link may have one. */
    private static final int WAITING_PER_THREAD = 64;
    /** Frames that a link may hold while it is not read: more than the smallest ones that come with one read. */
    private static final int HELD_MAX = 16384;
    /** Answers of deferred queries that are encoded before others of the event loop have their turn. */
    private static final int DEFERRED_AT_ONCE = 1024;
    /** Room for the answers of a few dozen writes. */
    private static final int DEFERRED_BYTES = 2048;
    /** Bytes of them, beside the largest frame and the largest query. */
    private static final int HELD_BYTES_MAX = 1 << 20;

    /** An answer, encoded as an entry. */
    private record Late(AggregateFrame frame, ByteBuf entry)
    {
    }

    /** An answer that is not encoded yet. */
    private record Deferred(AggregateFrame frame, FrameEntry entry, Message.Response answer)
    {
    }

    final ServerConnection connection;
    final AggregateContext context;
    private final ClientResourceLimits.Allocator limits;
    private final int framesMax;
    private final IntObjectHashMap<AggregateClient> clients = new IntObjectHashMap<>();
    private final Queue<AggregateFrame> held = new ArrayDeque<>();
    private final Queue<Late> late = new ConcurrentLinkedQueue<>();
    private final Queue<Deferred> deferred = new ConcurrentLinkedQueue<>();
    private final AtomicBoolean lateScheduled = new AtomicBoolean();
    private ChannelHandlerContext ctx;
    private ChannelPause pause;
    private FrameAdmission admission;
    private long heldBytes;
    private int framesInPool;
    private int queriesInFlight;
    private boolean used;
    private volatile boolean gone;

    AggregateLink(ServerConnection connection, AggregateContext context, ClientResourceLimits.Allocator limits)
    {
        this.connection = connection;
        this.context = context;
        this.limits = limits;
        framesMax = Math.max(8, 2 * context.settings().threads());
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context)
    {
        ctx = context;
        pause = new ChannelPause(context.channel(), this::takeHeld);
        admission = new FrameAdmission(context.channel(), connection, this.context, limits, pause);
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message)
    {
        if (message instanceof AggregateFrame frame)
            hold(frame);
        else if (message instanceof AggregateDecoder.Oversized query)
            refuse(query);
        else
            context.fireChannelRead(message);
    }

    /**
     * Frames that had been read before there was a reason not to read wait here: those of one read, and of one more each
     * time that Cassandra has read on. A peer that makes it do so without end is not served any longer.
     */
    private void hold(AggregateFrame frame)
    {
        held.add(frame);
        heldBytes += frame.bytes;
        pause.again();
        takeHeld();
        if (held.isEmpty())
            return;
        long bytesMax = HELD_BYTES_MAX + context.settings().frameBytesMax() + AggregateContext.queryBytesMax();
        if (held.size() <= HELD_MAX && heldBytes <= bytesMax || !ctx.channel().isOpen())
            return;
        context.metrics().refusedFrames.mark();
        ProtocolErrorLog.frame(ctx.channel().remoteAddress(), "more were sent than may wait while the connection is not read");
        ctx.close();
    }

    private void takeHeld()
    {
        while (pause.isNone() && !held.isEmpty())
        {
            AggregateFrame frame = held.remove();
            heldBytes -= frame.bytes;
            take(frame);
        }
    }

    private void take(AggregateFrame frame)
    {
        if (!used)
        {
            used = true;
            context.metrics().links.inc();
        }
        int queries = findClients(frame);
        context.metrics().frames.mark();
        context.metrics().queriesPerFrame.update(queries);
        connection.requests.inc(queries);
        admission.admit(frame, queries);
        queriesInFlight += frame.count;
        if (queriesInFlight >= QUERIES_MAX)
            pause.add(Reason.QUERIES);
        framesInPool++;
        if (framesInPool >= framesMax
            || context.pool().waiting() >= WAITING_PER_THREAD * context.settings().threads())
            pause.add(Reason.FRAMES);
        FrameWork work = new FrameWork(this, frame);
        // Who is refused is told at once: the threads are what there is too little of.
        if (frame.refusedFrom == 0)
            FramePool.runHere(work);
        else
            context.pool().submit(work);
    }

    /** In the order of arrival, which the threads of the pool do not keep. Tells the number of queries. */
    private int findClients(AggregateFrame frame)
    {
        int queries = 0;
        int at = frame.firstEntry();
        for (int entry = 0; entry < frame.count; entry++, at = frame.entryAfter(at))
        {
            int id = frame.clientIdAt(at);
            if (frame.opcodeAt(at) == FrameLayout.CLIENT_GONE)
            {
                if (clients.remove(id) != null)
                    context.metrics().clients.decrementAndGet();
                continue;
            }
            queries++;
            AggregateClient client = clients.get(id);
            frame.clients[entry] = client == null ? openClient(id) : client;
        }
        return queries;
    }

    /** Null when it is one too many. */
    private AggregateClient openClient(int id)
    {
        if (clients.size() >= context.settings().clientsMax()
            || !context.metrics().addClient(context.settings().clientsTotalMax()))
            return null;
        AggregateClient client = new AggregateClient(connection);
        clients.put(id, client);
        return client;
    }

    private void refuse(AggregateDecoder.Oversized query)
    {
        context.metrics().refusedQueries.mark();
        String why = String.format("Request is too big: length %d exceeds maximum allowed length %d.",
                                   query.length(), AggregateContext.queryBytesMax());
        ByteBuf out = CBUtil.allocator.buffer();
        FrameLayout.reserveHeader(out);
        ProtocolVersion version = query.version() == 3 ? ProtocolVersion.V3 : query.version() == 5 ? ProtocolVersion.V5 : ProtocolVersion.V4;
        AnswerEncoder.append(out, query.stream(), query.clientId(), version,
                             ReleaseBridge.refusal(new InvalidRequestException(why)), connection.getCompressor());
        FrameLayout.completeHeader(out, 1);
        ctx.writeAndFlush(out);
    }

    /** Whether the connection is closed, so that nobody waits for answers. */
    boolean isGone()
    {
        return gone;
    }

    /**
     * Answers of a frame, from the thread that executes it.
     *
     * @param out a complete frame of answers, or null
     * @param entries entries of the frame that are done with
     * @param last whether the thread is done with the frame
     */
    void answered(AggregateFrame frame, ByteBuf out, int entries, boolean last)
    {
        toEventLoop(out, () ->
        {
            if (out != null)
                ctx.writeAndFlush(out);
            settle(frame, entries);
            if (last)
                leavePool(frame);
        });
    }

    /** A frame cannot be answered completely, so the connection is closed; from the thread that executes the frame. */
    void giveUp(AggregateFrame frame)
    {
        toEventLoop(null, () ->
        {
            frame.left = Integer.MIN_VALUE / 2;
            framesInPool--;
            admission.release(frame);
            ctx.close();
        });
    }

    /** An answer that its frame did not wait for will not come, so the connection is closed; from any thread. */
    void giveUpLate(AggregateFrame frame)
    {
        toEventLoop(null, () ->
        {
            settle(frame, 1);
            ctx.close();
        });
    }

    /** One answer that its frame did not wait for, from any thread. */
    void answeredLate(AggregateFrame frame, ByteBuf entry)
    {
        context.metrics().lateAnswers.mark();
        late.add(new Late(frame, entry));
        if (lateScheduled.compareAndSet(false, true))
            toEventLoop(null, this::writeLate);
    }

    /** One answer that its frame did not wait for, to be encoded with those that have come when the event loop gets to it; from any thread. */
    void answeredLate(AggregateFrame frame, FrameEntry entry, Message.Response answer)
    {
        context.metrics().lateAnswers.mark();
        deferred.add(new Deferred(frame, entry, answer));
        if (lateScheduled.compareAndSet(false, true))
            toEventLoop(null, this::writeLate);
    }

    private void toEventLoop(ByteBuf out, Runnable task)
    {
        try
        {
            ctx.channel().eventLoop().execute(task);
        }
        catch (RejectedExecutionException e)
        {
            // Cassandra is shutting down and its event loops are gone.
            if (out != null)
                out.release();
        }
    }

    private void settle(AggregateFrame frame, int entries)
    {
        queriesInFlight -= entries;
        if (queriesInFlight <= QUERIES_MAX / 2)
            pause.remove(Reason.QUERIES);
        done(frame, entries);
    }

    private void leavePool(AggregateFrame frame)
    {
        framesInPool--;
        if (framesInPool < framesMax)
            pause.remove(Reason.FRAMES);
        done(frame, 1);
    }

    /** The last part is reached once, whether that is a late answer or the thread's leaving. */
    private void done(AggregateFrame frame, int parts)
    {
        frame.left -= parts;
        if (frame.left == 0)
            admission.release(frame);
    }

    /** Late answers that have come since leave together, in frames within the limits. */
    private void writeLate()
    {
        lateScheduled.set(false);
        List<Late> group = new ArrayList<>();
        int bytes = 0;
        for (Late next = late.poll(); next != null; next = late.poll())
        {
            int size = next.entry.readableBytes();
            if (!group.isEmpty() && (group.size() >= context.settings().frameQueriesMax()
                                     || FrameLayout.COUNT_BYTES + bytes + size > context.settings().frameBytesMax()))
            {
                writeLate(group, bytes);
                group.clear();
                bytes = 0;
            }
            group.add(next);
            bytes += size;
        }
        if (!group.isEmpty())
            writeLate(group, bytes);
        writeDeferred();
        ctx.flush();
    }

    /** Encodes the answers of deferred queries behind each other, in as many frames as they need. */
    private void writeDeferred()
    {
        int bytesMax = FrameLayout.HEADER_BYTES + context.settings().frameBytesMax();
        ByteBuf out = null;
        int answers = 0;
        int encoded = 0;
        for (Deferred next = deferred.poll(); next != null; next = deferred.poll())
        {
            if (out == null)
            {
                out = CBUtil.allocator.buffer(DEFERRED_BYTES);
                FrameLayout.reserveHeader(out);
            }
            int start = out.writerIndex();
            settle(next.frame, 1);
            if (!encodes(next, out))
                continue;
            answers++;
            if (out.writerIndex() > bytesMax && answers > 1)
            {
                // It goes into a frame of its own, or with those that follow.
                int size = out.writerIndex() - start;
                ByteBuf following = CBUtil.allocator.buffer(FrameLayout.HEADER_BYTES + FrameLayout.COUNT_BYTES + size);
                FrameLayout.reserveHeader(following);
                following.writeBytes(out, start, size);
                out.writerIndex(start);
                writeDeferred(out, answers - 1);
                out = following;
                answers = 1;
            }
            if (out.writerIndex() >= bytesMax || answers >= context.settings().frameQueriesMax())
            {
                writeDeferred(out, answers);
                out = null;
                answers = 0;
                ctx.flush();
            }
            if (++encoded >= DEFERRED_AT_ONCE)
                break;
        }
        if (answers > 0)
            writeDeferred(out, answers);
        else if (out != null)
            out.release();
        // Others of this event loop have their turn before the rest.
        if (!deferred.isEmpty() && lateScheduled.compareAndSet(false, true))
            toEventLoop(null, this::writeLate);
    }

    /** One that cannot be encoded, not even as an error, closes the connection: its client would wait for ever. */
    private boolean encodes(Deferred next, ByteBuf out)
    {
        int start = out.writerIndex();
        try
        {
            next.entry.encode(out, next.answer);
            return true;
        }
        catch (RuntimeException | Error e)
        {
            JVMStabilityInspector.inspectThrowable(e);
            LOGGER.error("A query of an aggregated frame could not be answered, and its connection is closed", e);
            out.writerIndex(start);
            ctx.close();
            return false;
        }
    }

    private void writeDeferred(ByteBuf out, int answers)
    {
        FrameLayout.completeHeader(out, answers);
        context.metrics().lateFrames.mark();
        ctx.write(out);
    }

    private void writeLate(List<Late> group, int bytes)
    {
        context.metrics().lateFrames.mark();
        ByteBuf header = CBUtil.allocator.buffer(FrameLayout.HEADER_BYTES + FrameLayout.COUNT_BYTES);
        FrameLayout.reserveHeader(header);
        FrameLayout.setHeader(header, group.size(), bytes);
        ctx.write(header);
        for (Late answer : group)
        {
            ctx.write(answer.entry);
            settle(answer.frame, 1);
        }
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context)
    {
        if (context.channel().isWritable())
            pause.remove(Reason.ANSWERS);
        else
            pause.add(Reason.ANSWERS);
        context.fireChannelWritabilityChanged();
    }

    @Override
    public void channelInactive(ChannelHandlerContext context)
    {
        gone = true;
        this.context.metrics().clients.addAndGet(-clients.size());
        clients.clear();
        held.forEach(frame -> frame.body.release());
        held.clear();
        if (used)
            this.context.metrics().links.dec();
        context.fireChannelInactive();
    }
}

package org.apache.cassandra.transport;

import static org.apache.cassandra.transport.CQLMessageHandler.RATE_LIMITER_DELAY_UNIT;
import static org.apache.cassandra.transport.ClientResourceLimits.GLOBAL_REQUEST_LIMITER;

import io.netty.channel.Channel;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.exceptions.OverloadedException;
import org.apache.cassandra.metrics.ClientMetrics;
import org.apache.cassandra.net.ResourceLimits;
import org.apache.cassandra.transport.ChannelPause.Reason;
import org.apache.cassandra.transport.ClientResourceLimits.Overload;

/**
 * Cassandra's limits on clients, applied to frames as {@link PreV5Handlers.LegacyDispatchHandler} applies them to
 * requests: bytes in flight by the frame, requests per second by the query. The event loop's.
 */
final class FrameAdmission
{
    private final Channel channel;
    private final ServerConnection connection;
    private final AggregateContext context;
    private final ClientResourceLimits.Allocator limits;
    private final ChannelPause pause;
    private long bytesInFlight;
    private long pausedUntilNanos;

    FrameAdmission(Channel channel, ServerConnection connection, AggregateContext context,
                   ClientResourceLimits.Allocator limits, ChannelPause pause)
    {
        this.channel = channel;
        this.connection = connection;
        this.context = context;
        this.limits = limits;
        this.pause = pause;
    }

    /**
     * Admits a frame, refuses all or the last of its queries, or admits it and stops reading.
     *
     * @param queries entries of the frame that are queries
     */
    void admit(AggregateFrame frame, int queries)
    {
        if (!context.accepting().getAsBoolean() || !connection.getTracker().isRunning())
        {
            frame.refusedFrom = 0;
            frame.refusal = ReleaseBridge.refusal(new OverloadedException("Server is shutting down"));
            limits.allocate(frame.bytes);
        }
        else if (connection.isThrowOnOverload())
            admitOrRefuse(frame, queries);
        else
            admitAndSlowDown(frame, queries);
        bytesInFlight += frame.bytes;
    }

    private void admitOrRefuse(AggregateFrame frame, int queries)
    {
        if (limits.tryAllocate(frame.bytes) != ResourceLimits.Outcome.SUCCESS)
        {
            refuse(frame, 0, queries, Overload.BYTES_IN_FLIGHT);
            // It is there until it is answered, so it counts.
            limits.allocate(frame.bytes);
            return;
        }
        if (DatabaseDescriptor.getNativeTransportRateLimitingEnabled())
        {
            for (int i = 0; i < queries; i++)
            {
                if (GLOBAL_REQUEST_LIMITER.tryReserve())
                    continue;
                refuse(frame, frame.indexOfQuery(i), queries - i, Overload.REQUESTS);
                return;
            }
        }
        if (!context.hasQueueCapacity())
            refuse(frame, 0, queries, Overload.QUEUE_TIME);
    }

    private void refuse(AggregateFrame frame, int from, int queries, Overload why)
    {
        for (int i = 0; i < queries; i++)
            ClientMetrics.instance.markRequestDiscarded();
        context.metrics().refusedQueries.mark(queries);
        frame.refusedFrom = from;
        OverloadedException error = CQLMessageHandler.buildOverloadedException(limits::toString, GLOBAL_REQUEST_LIMITER, why);
        ReleaseBridge.log(error, channel.remoteAddress());
        frame.refusal = ReleaseBridge.refusal(error);
    }

    private void admitAndSlowDown(AggregateFrame frame, int queries)
    {
        if (limits.tryAllocate(frame.bytes) != ResourceLimits.Outcome.SUCCESS)
        {
            limits.allocate(frame.bytes);
            pause.add(Reason.MEMORY);
            frame.overload = Overload.BYTES_IN_FLIGHT;
        }
        long delay = 0;
        if (DatabaseDescriptor.getNativeTransportRateLimitingEnabled())
        {
            for (int i = 0; i < queries; i++)
                delay = GLOBAL_REQUEST_LIMITER.reserveAndGetDelay(RATE_LIMITER_DELAY_UNIT);
            if (delay > 0 && frame.overload == Overload.NONE)
                frame.overload = Overload.REQUESTS;
        }
        if (frame.overload == Overload.NONE && !context.hasQueueCapacity())
        {
            delay = QueueBackpressure.DEFAULT.markAndGetDelay(RATE_LIMITER_DELAY_UNIT);
            if (delay > 0)
                frame.overload = Overload.QUEUE_TIME;
        }
        if (delay > 0)
        {
            pause.add(Reason.RATE);
            pausedUntilNanos = System.nanoTime() + RATE_LIMITER_DELAY_UNIT.toNanos(delay);
            channel.eventLoop().schedule(this::endPause, delay, RATE_LIMITER_DELAY_UNIT);
        }
    }

    /** Frames that had arrived already may have made the pause longer since. */
    private void endPause()
    {
        if (System.nanoTime() - pausedUntilNanos >= 0)
            pause.remove(Reason.RATE);
    }

    /** All of a frame's queries are answered. */
    void release(AggregateFrame frame)
    {
        bytesInFlight -= frame.bytes;
        boolean below = limits.release(frame.bytes) == ResourceLimits.Outcome.BELOW_LIMIT;
        if (below || bytesInFlight == 0)
            pause.remove(Reason.MEMORY);
    }
}

package org.apache.cassandra.transport;

import io.netty.channel.Channel;
import io.netty.channel.ChannelConfig;
import java.util.EnumSet;
import org.apache.cassandra.metrics.ClientMetrics;

/** Stops reading from a channel while there is a reason to. The event loop's. */
final class ChannelPause
{
    /** Why a channel is not read. */
    enum Reason
    {
        /** Cassandra's limit on bytes in flight. */
        MEMORY,
        /** Cassandra's limit on requests per second, or the age of its queue. */
        RATE,
        /** Frames of this channel wait for a thread. */
        FRAMES,
        /** Queries of this channel without an answer. */
        QUERIES,
        /** The peer does not take its answers. */
        ANSWERS
    }

    private final Channel channel;
    private final Runnable resumed;
    private final EnumSet<Reason> reasons = EnumSet.noneOf(Reason.class);

    /**
     * @param resumed called when the last reason is gone, before the channel is read again; may find a new one
     */
    ChannelPause(Channel channel, Runnable resumed)
    {
        this.channel = channel;
        this.resumed = resumed;
    }

    boolean isNone()
    {
        return reasons.isEmpty();
    }

    void add(Reason reason)
    {
        reasons.add(reason);
        again();
    }

    /**
     * Stops reading once more if there is a reason to. Cassandra's own handler of ordinary requests pauses the same channel
     * for its limits, and reads on when those allow it, whatever the reasons here.
     */
    void again()
    {
        ChannelConfig config = channel.config();
        if (!reasons.isEmpty() && config.isAutoRead())
        {
            config.setAutoRead(false);
            ClientMetrics.instance.pauseConnection();
        }
    }

    void remove(Reason reason)
    {
        if (!reasons.remove(reason) || !reasons.isEmpty() || !channel.isOpen())
            return;
        resumed.run();
        ChannelConfig config = channel.config();
        if (reasons.isEmpty() && !config.isAutoRead())
        {
            ClientMetrics.instance.unpauseConnection();
            config.setAutoRead(true);
        }
    }
}

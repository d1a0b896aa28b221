package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.util.ArrayList;
import java.util.List;
import org.apache.cassandra.config.DataStorageSpec;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import shunt.cassandra.Settings;
import shunt.cassandra.transport.AggregateMetrics;
import shunt.cassandra.transport.PeerTraffic;

/** What a link does with frames while it is not read. */
class AggregateLinkTest
{
    private static final int FRAME_BYTES = 1 << 16;
    private static final int FRAMES_MAX = 1 << 14;

    private final AggregateMetrics metrics = new AggregateMetrics();
    private final long refusedBefore = metrics.refusedFrames.getCount();
    private final AggregateContext context = new AggregateContext(Settings.DEFAULTS, metrics, null, null, new PeerTraffic(Settings.DEFAULTS), null, () -> true);
    private final EmbeddedChannel channel = new EmbeddedChannel(new AggregateLink(null, context, null));
    private final List<ByteBuf> bodies = new ArrayList<>();

    @BeforeAll
    static void config()
    {
        ChannelPauseTest.metrics();
        DatabaseDescriptor.getRawConfig().native_transport_max_message_size = new DataStorageSpec.LongBytesBound("1MiB");
    }

    private void takeNoAnswers()
    {
        channel.unsafe().outboundBuffer().setUserDefinedWritability(1, false);
        channel.runPendingTasks();
        assertFalse(channel.config().isAutoRead());
    }

    private void sendFrame(int bytes)
    {
        ByteBuf body = Unpooled.buffer(bytes).writeZero(bytes);
        bodies.add(body);
        channel.writeInbound(new AggregateFrame(body, 0));
    }

    private void assertClosed()
    {
        assertFalse(channel.isOpen());
        channel.runPendingTasks();
        assertTrue(bodies.stream().allMatch(body -> body.refCnt() == 0));
        assertEquals(1, metrics.refusedFrames.getCount() - refusedBefore);
    }

    @Test
    void aFrameThatComesAllTheSameStopsTheReadingAgain()
    {
        takeNoAnswers();
        channel.config().setAutoRead(true);
        sendFrame(4);
        assertFalse(channel.config().isAutoRead());
        assertTrue(channel.isOpen());
    }

    @Test
    void aLinkHoldsABoundedNumberOfFrames()
    {
        takeNoAnswers();
        for (int frame = 0; frame < FRAMES_MAX; frame++)
            sendFrame(4);
        assertTrue(channel.isOpen());
        sendFrame(4);
        assertClosed();
    }

    @Test
    void aLinkHoldsABoundedNumberOfBytes()
    {
        takeNoAnswers();
        long bytesMax = (1 << 20) + Settings.DEFAULTS.frameBytesMax() + AggregateContext.queryBytesMax();
        for (long bytes = 0; bytes + FRAME_BYTES <= bytesMax; bytes += FRAME_BYTES)
            sendFrame(FRAME_BYTES);
        assertTrue(channel.isOpen());
        sendFrame(FRAME_BYTES);
        assertClosed();
    }
}

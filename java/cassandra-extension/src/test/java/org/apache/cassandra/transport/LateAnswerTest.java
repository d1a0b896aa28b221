package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.cassandra.transport.messages.ErrorMessage;
import org.apache.cassandra.transport.messages.ReadyMessage;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import shunt.cassandra.Settings;
import shunt.cassandra.transport.AggregateMetrics;
import shunt.cassandra.transport.FrameLayout;
import shunt.cassandra.transport.FramePool;
import shunt.cassandra.transport.PeerTraffic;

/** Answers that come after their frame's thread has left, and cannot be given. */
class LateAnswerTest
{
    private static final int STREAM = 7;

    private final FramePool pool = new FramePool(1, 0, 0, task -> { }, () -> { });
    private final AggregateContext context = new AggregateContext(Settings.DEFAULTS, new AggregateMetrics(), pool, null, new PeerTraffic(Settings.DEFAULTS), null, () -> true);
    private final ClientResourceLimits.Allocator limits = ClientResourceLimits.getAllocatorForEndpoint(InetAddress.getLoopbackAddress());
    /** Without a connection, so that no answer can be encoded, not even an error. */
    private final AggregateLink link = new AggregateLink(null, context, limits);
    private final EmbeddedChannel channel = new EmbeddedChannel(link);
    private final ByteBuf body = body();
    private final FrameWork work = new FrameWork(link, new AggregateFrame(body, 1));
    private final FrameEntry entry = new FrameEntry(work, 0, work.frame.firstEntry());

    @BeforeAll
    static void config()
    {
        ChannelPauseTest.metrics();
    }

    private static ByteBuf body()
    {
        return Unpooled.buffer().writeInt(1).writeShort(STREAM).writeInt(1).writeByte(4).writeByte(0).writeByte(7).writeInt(0);
    }

    private void assertDoneWith()
    {
        channel.runPendingTasks();
        assertFalse(channel.isOpen(), "its client would wait for ever");
        assertEquals(0, ClientResourceLimits.getCurrentGlobalUsage(), "bytes in flight");
        assertEquals(0, body.refCnt());
    }

    /** The frame is in flight, and its thread has left it. */
    private void left()
    {
        limits.allocate(work.frame.bytes);
        work.frame.left--;
        body.release();
    }

    @Test
    void anErrorWhileItIsEncodedEndsTheQuery()
    {
        left();
        entry.answerHandedOver(ReadyMessage::new);
        assertDoneWith();
    }

    @Test
    void anErrorWhileItIsMadeEndsTheQuery()
    {
        left();
        entry.answerHandedOver(() ->
        {
            throw new AssertionError("thrown by the test");
        });
        assertDoneWith();
    }

    /** Nobody else's connection ends for it. */
    @Test
    void anErrorOfItsCodecIsTheAnswer()
    {
        ByteBuf out = Unpooled.buffer();
        AnswerEncoder.append(out, STREAM, 1, ProtocolVersion.V4, new ReadyMessage()
        {
            @Override
            public Map<String, ByteBuffer> getCustomPayload()
            {
                throw new AssertionError("thrown by the test");
            }
        }, null);
        assertEquals(STREAM, out.readShort());
        assertEquals(Message.Type.ERROR.opcode, out.getByte(FrameLayout.ENTRY_HEADER_BYTES - 5));
        assertEquals(ErrorMessage.class, Message.Type.ERROR.codec.decode(out.skipBytes(FrameLayout.ENTRY_HEADER_BYTES - 2), ProtocolVersion.V4).getClass());
    }
}

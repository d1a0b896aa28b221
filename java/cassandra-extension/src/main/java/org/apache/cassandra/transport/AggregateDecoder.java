package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import java.util.List;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.metrics.ClientMessageSizeMetrics;
import shunt.cassandra.transport.FrameLayout;

/**
 * Cuts aggregated frames out of the bytes of a connection and leaves everything else to Cassandra's decoder, which would
 * reject their opcode. A frame that is not sound closes the connection, with an ERROR that says what was wrong.
 */
final class AggregateDecoder extends Envelope.Decoder
{
    /** A query too large to be taken in, which was alone in its frame. */
    record Oversized(int stream, int clientId, int version, long length)
    {
    }

    private static final int COUNT_AT = FrameLayout.HEADER_BYTES;
    private static final int ENTRY_AT = COUNT_AT + FrameLayout.COUNT_BYTES;
    private static final int ENTRY_BODY_AT = ENTRY_AT + FrameLayout.ENTRY_HEADER_BYTES;

    private final ServerConnection connection;
    private final AggregateContext context;
    /** Bytes of an oversized query that are still to come. */
    private long skipping;
    /** Bytes of an ordinary envelope that Cassandra's decoder is passing over, for being too large. */
    private long discarding;
    private boolean refused;

    AggregateDecoder(ServerConnection connection, AggregateContext context)
    {
        this.connection = connection;
        this.context = context;
    }

    @Override
    protected void decode(ChannelHandlerContext ctx, ByteBuf in, List<Object> out)
    {
        if (refused)
            in.skipBytes(in.readableBytes());
        else if (skipping > 0)
            skip(in);
        else if (discarding > 0 || !isFrame(in))
            ordinary(ctx, in, out);
        else if (in.readableBytes() >= FrameLayout.HEADER_BYTES)
            frame(ctx, in, out);
    }

    private static boolean isFrame(ByteBuf in)
    {
        return in.readableBytes() > 4 && in.getByte(in.readerIndex() + 4) == FrameLayout.OPCODE;
    }

    private void skip(ByteBuf in)
    {
        int now = (int) Math.min(skipping, in.readableBytes());
        in.skipBytes(now);
        skipping -= now;
    }

    /** Cassandra's decoder passes over an envelope above its limit; meanwhile nothing may be taken for a frame. */
    private void ordinary(ChannelHandlerContext ctx, ByteBuf in, List<Object> out)
    {
        if (discarding == 0 && in.readableBytes() >= Envelope.Header.LENGTH)
        {
            long total = in.getUnsignedInt(in.readerIndex() + 5) + Envelope.Header.LENGTH;
            if (total > DatabaseDescriptor.getNativeTransportMaxFrameSize())
                discarding = total;
        }
        int before = in.readableBytes();
        try
        {
            super.decode(ctx, in, out);
        }
        finally
        {
            if (discarding > 0)
                discarding -= before - in.readableBytes();
        }
    }

    private void frame(ChannelHandlerContext ctx, ByteBuf in, List<Object> out)
    {
        int at = in.readerIndex();
        int length = in.getInt(at + 5);
        String wrong = wrongHeader(in, at, length);
        if (wrong != null)
        {
            refuse(ctx, in, wrong);
            return;
        }
        if (length > context.settings().frameBytesMax() && !maySingle(ctx, in, out, at, length))
            return;
        if (in.readableBytes() < FrameLayout.HEADER_BYTES + length)
            return;
        ByteBuf body = in.retainedSlice(at + FrameLayout.HEADER_BYTES, length);
        try
        {
            int count = FrameLayout.check(body, context.settings().frameQueriesMax());
            in.skipBytes(FrameLayout.HEADER_BYTES + length);
            ClientMessageSizeMetrics.bytesReceived.inc(FrameLayout.HEADER_BYTES + length);
            out.add(new AggregateFrame(body, count));
        }
        catch (ProtocolException e)
        {
            body.release();
            refuse(ctx, in, e.getMessage());
        }
    }

    private String wrongHeader(ByteBuf in, int at, int length)
    {
        int version = in.getUnsignedByte(at);
        if (version != FrameLayout.HEADER_VERSION)
            return String.format("Aggregated frame: its header has version 0x%02x, not 0x04", version);
        if (connection.stage() != ConnectionStage.READY)
            return "Aggregated frame: the connection has not logged in";
        if (in.getByte(at + 1) != 0)
            return String.format("Aggregated frame: its header has flags 0x%02x, not 0", in.getUnsignedByte(at + 1));
        if (length < FrameLayout.COUNT_BYTES)
            return "Aggregated frame: its length is " + length;
        return null;
    }

    /**
     * Whether a frame above the limit may be taken in: when there is a single query in it, and that is within
     * Cassandra's own limits. False also while too little of it has come to tell.
     */
    private boolean maySingle(ChannelHandlerContext ctx, ByteBuf in, List<Object> out, int at, int length)
    {
        if (in.readableBytes() < ENTRY_BODY_AT)
            return false;
        int count = in.getInt(at + COUNT_AT);
        int entryLength = in.getInt(at + ENTRY_BODY_AT - Integer.BYTES);
        int clientId = in.getInt(at + ENTRY_AT + 2);
        if (count != 1 || entryLength != length - (ENTRY_BODY_AT - COUNT_AT) || clientId == 0)
        {
            refuse(ctx, in, "Aggregated frame: " + length + " bytes with a count of " + count + " are more than "
                            + context.settings().frameBytesMax() + ", which only a single query may exceed");
            return false;
        }
        if (entryLength <= AggregateContext.queryBytesMax())
            return true;
        out.add(new Oversized(in.getShort(at + ENTRY_AT), clientId, in.getUnsignedByte(at + ENTRY_AT + 6), entryLength));
        in.skipBytes(ENTRY_BODY_AT);
        skipping = entryLength;
        return false;
    }

    /** Says what is wrong, and closes. */
    private void refuse(ChannelHandlerContext ctx, ByteBuf in, String why)
    {
        refused = true;
        int stream = in.getShort(in.readerIndex() + 2);
        in.skipBytes(in.readableBytes());
        context.metrics().refusedFrames.mark();
        ProtocolErrorLog.frame(ctx.channel().remoteAddress(), why);
        Envelope answer = ReleaseBridge.encode(ReleaseBridge.refusal(new ProtocolException(why)), ProtocolVersion.V4, stream);
        ctx.channel().writeAndFlush(answer).addListener(ChannelFutureListener.CLOSE);
    }
}

package org.apache.cassandra.transport;

import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.WriteBufferWaterMark;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.config.EncryptionOptions.TlsEncryptionPolicy;
import org.apache.cassandra.service.NativeTransportService;

/**
 * The pipeline of the second port: Cassandra's own (limits on connections, TLS, idle time, handshake, authentication),
 * which on connections of version 4 takes aggregated frames too. Other versions are left as they are.
 */
public final class AggregatePipeline extends PipelineConfigurator
{
    /** Answers of a frame come in one piece, so that there is little use in Cassandra's 8 and 32 KiB. */
    private static final WriteBufferWaterMark WATER_MARK = new WriteBufferWaterMark(1 << 20, 4 << 20);
    private static final String ENVELOPE_DECODER = "envelopeDecoder";

    private final AggregateContext context;

    /** A pipeline with the policy on TLS of the ordinary port. */
    public AggregatePipeline(TlsEncryptionPolicy policy, AggregateContext context)
    {
        super(NativeTransportService.useEpoll(), DatabaseDescriptor.getRpcKeepAlive(), policy, context.dispatcher());
        this.context = context;
    }

    @Override
    public void configureLegacyPipeline(ChannelHandlerContext ctx, ClientResourceLimits.Allocator limits)
    {
        super.configureLegacyPipeline(ctx, limits);
        if (!(ctx.channel().attr(Connection.attributeKey).get() instanceof ServerConnection connection)
            || connection.getVersion() != ProtocolVersion.V4)
            return;
        ChannelPipeline pipeline = ctx.pipeline();
        pipeline.replace(ENVELOPE_DECODER, ENVELOPE_DECODER, new AggregateDecoder(connection, context));
        pipeline.addAfter(ENVELOPE_DECODER, "aggregateLink", new AggregateLink(connection, context, limits));
        ctx.channel().config().setWriteBufferWaterMark(WATER_MARK);
    }
}

package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.metrics.ClientMessageSizeMetrics;
import org.apache.cassandra.transport.Envelope.Header.Flag;
import org.apache.cassandra.transport.messages.ErrorMessage;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.apache.cassandra.utils.TimeUUID;

/** Writes answers as entries of a frame, straight into the frame's buffer. */
final class AnswerEncoder
{
    private AnswerEncoder()
    {
    }

    /**
     * Appends an answer. One that cannot be encoded becomes the error that says so.
     *
     * @param version version of the body
     * @param compressor the link's, or null
     */
    static void append(ByteBuf out, int stream, int clientId, ProtocolVersion version, Message.Response response,
                       Compressor compressor)
    {
        int start = out.writerIndex();
        try
        {
            write(out, stream, clientId, version, response, compressor);
        }
        catch (Throwable e)
        {
            // An Error, too: Cassandra runs with assertions, and this one's answer is nobody else's harm.
            JVMStabilityInspector.inspectThrowable(e);
            out.writerIndex(start);
            ErrorMessage error = ReleaseBridge.failure(e);
            writePlain(out, stream, clientId, version, error);
        }
        int size = out.writerIndex() - start;
        ClientMessageSizeMetrics.bytesSent.inc(size);
        ClientMessageSizeMetrics.bytesSentPerResponse.update(size);
    }

    private static void write(ByteBuf out, int stream, int clientId, ProtocolVersion version, Message.Response response,
                              Compressor compressor) throws IOException
    {
        if (compressor == null || version.isGreaterOrEqualTo(ProtocolVersion.V5))
        {
            writePlain(out, stream, clientId, version, response);
            return;
        }
        Envelope plain = ReleaseBridge.encode(response, version, stream);
        plain.header.flags.add(Flag.COMPRESSED);
        Envelope packed = compressor.compress(plain);
        try
        {
            writeHeader(out, stream, clientId, version, Flag.serialize(packed.header.flags), response.type.opcode);
            out.writeInt(packed.body.readableBytes()).writeBytes(packed.body);
        }
        finally
        {
            packed.release();
        }
    }

    /** What {@link Message#encode} does, without a buffer for the body alone. */
    private static void writePlain(ByteBuf out, int stream, int clientId, ProtocolVersion version,
                                   Message.Response response)
    {
        boolean extended = version.isGreaterOrEqualTo(ProtocolVersion.V4);
        TimeUUID tracingId = response.getTracingId();
        List<String> warnings = extended ? response.getWarnings() : null;
        Map<String, ByteBuffer> payload = response.getCustomPayload();
        if (payload != null && !extended)
            throw new ProtocolException("Must not send frame with CUSTOM_PAYLOAD flag for native protocol version < 4");
        EnumSet<Flag> flags = EnumSet.noneOf(Flag.class);
        if (tracingId != null)
            flags.add(Flag.TRACING);
        if (warnings != null)
            flags.add(Flag.WARNING);
        if (payload != null)
            flags.add(Flag.CUSTOM_PAYLOAD);
        writeHeader(out, stream, clientId, version, Flag.serialize(flags), response.type.opcode);
        int lengthAt = out.writerIndex();
        out.writeInt(0);
        if (tracingId != null)
            CBUtil.writeUUID(tracingId, out);
        if (warnings != null)
            CBUtil.writeStringList(warnings, out);
        if (payload != null)
            CBUtil.writeBytesMap(payload, out);
        @SuppressWarnings("unchecked")
        Message.Codec<Message> codec = (Message.Codec<Message>) response.type.codec;
        codec.encode(response, out, version);
        out.setInt(lengthAt, out.writerIndex() - lengthAt - Integer.BYTES);
    }

    private static void writeHeader(ByteBuf out, int stream, int clientId, ProtocolVersion version, int flags, int opcode)
    {
        out.writeShort(stream).writeInt(clientId).writeByte(version.asInt()).writeByte(flags).writeByte(opcode);
    }
}

package shunt.cassandra.transport;

import io.netty.buffer.ByteBuf;
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.transport.Message;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.transport.messages.SupportedMessage;

/**
 * Says in SUPPORTED, to clients of every port, that aggregated frames are taken and where. Wraps the codec of SUPPORTED,
 * since Cassandra has no other place that all of them pass.
 */
final class SupportedOffer implements Message.Codec<SupportedMessage>
{
    /** The key in SUPPORTED. */
    static final String KEY = "SHUNT_AGGREGATE";

    private static SupportedOffer installed;

    private volatile List<String> values;

    private SupportedOffer()
    {
    }

    /**
     * The wrapper of this process; put in place by the first call.
     *
     * @throws ReflectiveOperationException when this Cassandra's {@code Message.Type} has no such field
     */
    static synchronized SupportedOffer install() throws ReflectiveOperationException
    {
        if (installed == null)
        {
            SupportedOffer offer = new SupportedOffer();
            Field codec = Message.Type.class.getDeclaredField("codec");
            codec.setAccessible(true);
            codec.set(Message.Type.SUPPORTED, offer);
            installed = offer;
        }
        return installed;
    }

    /** From now on the values are listed under {@link #KEY}. */
    void announce(List<String> offered)
    {
        values = List.copyOf(offered);
    }

    /** From now on nothing is listed. */
    void withdraw()
    {
        values = null;
    }

    @Override
    public SupportedMessage decode(ByteBuf body, ProtocolVersion version)
    {
        return SupportedMessage.codec.decode(body, version);
    }

    @Override
    public void encode(SupportedMessage message, ByteBuf out, ProtocolVersion version)
    {
        SupportedMessage.codec.encode(withOffer(message), out, version);
    }

    @Override
    public int encodedSize(SupportedMessage message, ProtocolVersion version)
    {
        return SupportedMessage.codec.encodedSize(withOffer(message), version);
    }

    private SupportedMessage withOffer(SupportedMessage message)
    {
        List<String> offered = values;
        if (offered == null)
            return message;
        Map<String, List<String>> supported = new HashMap<>(message.supported);
        supported.put(KEY, offered);
        return new SupportedMessage(supported);
    }
}

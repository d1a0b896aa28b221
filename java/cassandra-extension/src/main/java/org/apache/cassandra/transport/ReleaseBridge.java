package org.apache.cassandra.transport;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.net.SocketAddress;
import com.google.common.base.Predicate;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.exceptions.TransportException;
import org.apache.cassandra.transport.messages.ErrorMessage;

/**
 * What the releases of Cassandra 5.0 name differently, under one name each. Up to 5.0.8 a message carries its stream id, and
 * there is one way to make an answer of an exception; up to 5.0.2 there is no limit on a message beside that on a frame; in
 * 5.0.0 the log takes no address. All of it is looked up when this class is initialised, which fails when neither form of
 * something is there; a method of this class never does for that reason.
 */
public final class ReleaseBridge
{
    private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();

    private static final MethodHandle FROM_TRANSPORT =
        eitherStatic(ErrorMessage.class, MethodType.methodType(ErrorMessage.class, TransportException.class), "fromTransportException",
                     MethodType.methodType(ErrorMessage.class, Throwable.class), "fromException");
    private static final MethodHandle FROM_EXCEPTION =
        eitherStatic(ErrorMessage.class, MethodType.methodType(ErrorMessage.class, Throwable.class), "fromExceptionNoStreamId",
                     MethodType.methodType(ErrorMessage.class, Throwable.class), "fromException");
    private static final MethodHandle FROM_UNEXPECTED =
        eitherStatic(ErrorMessage.class, MethodType.methodType(ErrorMessage.class, Throwable.class, Predicate.class), "fromExceptionNoStreamId",
                     MethodType.methodType(ErrorMessage.class, Throwable.class, Predicate.class), "fromException");
    private static final MethodHandle ENCODE = encoder();
    private static final MethodHandle LOG =
        eitherStatic(ExceptionHandlers.class, MethodType.methodType(void.class, Throwable.class, SocketAddress.class), "logClientNetworkingExceptions",
                     MethodType.methodType(void.class, Throwable.class), "logClientNetworkingExceptions");
    /** Null when there is no such limit. */
    private static final MethodHandle MESSAGE_BYTES_MAX =
        find(DatabaseDescriptor.class, MethodType.methodType(long.class), "getNativeTransportMaxMessageSizeInBytes");

    private ReleaseBridge()
    {
    }

    /**
     * Looks everything up.
     *
     * @throws ExceptionInInitializerError its cause says what is missing
     */
    public static void resolve()
    {
        // It has been, with this class.
    }

    /** The answer that a request which is refused gets. */
    static <E extends Exception & TransportException> ErrorMessage refusal(E why)
    {
        return (ErrorMessage) call(() -> FROM_TRANSPORT.invoke(why));
    }

    /** The answer to a request that has failed. */
    static ErrorMessage failure(Throwable why)
    {
        return (ErrorMessage) call(() -> FROM_EXCEPTION.invoke(why));
    }

    /** As {@link #failure(Throwable)}; what is unexpected is logged, or not, by the handler. */
    static ErrorMessage failure(Throwable why, Predicate<Throwable> unexpected)
    {
        return (ErrorMessage) call(() -> FROM_UNEXPECTED.invoke(why, unexpected));
    }

    /** An answer with a header of its own. */
    static Envelope encode(Message answer, ProtocolVersion version, int stream)
    {
        return (Envelope) call(() -> ENCODE.invoke(answer, version, stream));
    }

    /** Logs what a client is to blame for, as Cassandra does for its own ports. */
    static void log(Throwable why, SocketAddress client)
    {
        call(() -> LOG.type().parameterCount() == 1 ? LOG.invoke(why) : LOG.invoke(why, client));
    }

    /** Most bytes of one request's body. */
    static long messageBytesMax()
    {
        long frame = DatabaseDescriptor.getNativeTransportMaxFrameSize();
        return MESSAGE_BYTES_MAX == null ? frame : Math.min(frame, (Long) call(() -> MESSAGE_BYTES_MAX.invoke()));
    }

    /** {@code (Message, ProtocolVersion, int)Envelope}. */
    private static MethodHandle encoder()
    {
        try
        {
            try
            {
                return LOOKUP.findVirtual(Message.class, "encode", MethodType.methodType(Envelope.class, ProtocolVersion.class, int.class));
            }
            catch (NoSuchMethodException e)
            {
                // The message is numbered first, then it is encoded.
                MethodHandle number = LOOKUP.findVirtual(Message.class, "setStreamId", MethodType.methodType(Message.class, int.class));
                MethodHandle encode = LOOKUP.findVirtual(Message.class, "encode", MethodType.methodType(Envelope.class, ProtocolVersion.class));
                MethodHandle numbered = MethodHandles.collectArguments(encode, 0, number);
                return MethodHandles.permuteArguments(numbered, MethodType.methodType(Envelope.class, Message.class, ProtocolVersion.class, int.class),
                                                      0, 2, 1);
            }
        }
        catch (ReflectiveOperationException e)
        {
            throw missing("Message.encode(ProtocolVersion, int), nor Message.setStreamId(int) and Message.encode(ProtocolVersion)");
        }
    }

    private static MethodHandle eitherStatic(Class<?> of, MethodType type, String name, MethodType olderType, String olderName)
    {
        MethodHandle found = find(of, type, name);
        if (found == null)
            found = find(of, olderType, olderName);
        if (found == null)
            throw missing(of.getSimpleName() + '.' + name + type.toMethodDescriptorString() + ", nor " + olderName
                          + olderType.toMethodDescriptorString());
        return found;
    }

    /** Null when there is none. */
    private static MethodHandle find(Class<?> of, MethodType type, String name)
    {
        try
        {
            return LOOKUP.findStatic(of, name, type);
        }
        catch (NoSuchMethodException | IllegalAccessException e)
        {
            return null;
        }
    }

    private static NoSuchMethodError missing(String what)
    {
        return new NoSuchMethodError(what);
    }

    private interface Call
    {
        Object run() throws Throwable;
    }

    private static Object call(Call call)
    {
        try
        {
            return call.run();
        }
        catch (RuntimeException | Error e)
        {
            throw e;
        }
        catch (Throwable e)
        {
            throw new IllegalStateException(e);
        }
    }
}

package org.apache.cassandra.net;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Set;
import org.apache.cassandra.service.DatacenterSyncWriteResponseHandler;
import org.apache.cassandra.service.DatacenterWriteResponseHandler;
import org.apache.cassandra.service.WriteResponseHandler;
import org.apache.cassandra.service.reads.ReadCallback;

/**
 * Tells what a task is that Cassandra gives to a stage when a message from another node has come. Large messages, which are read
 * when the task runs, count as nothing that is known here.
 */
public final class InboundTasks
{
    /** Handlers whose way with a response is to count it, and to wake or tell one who waits. */
    private static final Set<Class<?>> COUNTING =
        Set.of(WriteResponseHandler.class, DatacenterWriteResponseHandler.class, DatacenterSyncWriteResponseHandler.class, ReadCallback.class);
    private static final Class<?> SMALL;
    private static final MethodHandle MESSAGE;

    static
    {
        try
        {
            SMALL = Class.forName("org.apache.cassandra.net.InboundMessageHandler$ProcessSmallMessage");
            MESSAGE = MethodHandles.privateLookupIn(SMALL, MethodHandles.lookup()).findGetter(SMALL, "message", Message.class)
                                   .asType(MethodType.methodType(Message.class, Runnable.class));
        }
        catch (ReflectiveOperationException e)
        {
            throw new ExceptionInInitializerError(e);
        }
    }

    private InboundTasks()
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

    /** Whether another node asks for a read, or a write, of this node's data. */
    public static boolean isReplicaRequest(Runnable task)
    {
        Message<?> message = message(task);
        return message != null && (message.verb() == Verb.MUTATION_REQ || message.verb() == Verb.READ_REQ);
    }

    /** Whether a replica has answered a read, or a write, of a coordinator that only counts its answers. */
    public static boolean isCountedResponse(Runnable task)
    {
        Message<?> message = message(task);
        if (message == null || message.verb() != Verb.MUTATION_RSP && message.verb() != Verb.READ_RSP)
            return false;
        RequestCallbacks.CallbackInfo waiting = MessagingService.instance().callbacks.get(message.id(), message.from());
        return waiting == null || COUNTING.contains(waiting.callback.getClass());
    }

    private static Message<?> message(Runnable task)
    {
        if (task.getClass() != SMALL)
            return null;
        try
        {
            return (Message<?>) (Message) MESSAGE.invokeExact(task);
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

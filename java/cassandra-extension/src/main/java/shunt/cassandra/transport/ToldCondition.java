package shunt.cassandra.transport;

import java.lang.reflect.Field;
import org.apache.cassandra.utils.concurrent.Condition;

/** A condition of one of Cassandra's handlers that also tells when it is met: perhaps several times, from any thread. */
public final class ToldCondition extends Condition.Async
{
    private final Runnable told;
    /** One that only looks. */
    private volatile Thread neverWaits;

    private ToldCondition(Runnable told)
    {
        this.told = told;
    }

    /**
     * The field {@code condition} of a class of handlers.
     *
     * @throws ExceptionInInitializerError there is none of that type, or it cannot be reached; its cause says what is missing
     */
    public static Field fieldOf(Class<?> handlers)
    {
        try
        {
            Field field = handlers.getDeclaredField("condition");
            field.setAccessible(true);
            if (field.getType() != Condition.class)
                throw new NoSuchFieldException(handlers.getSimpleName() + ".condition is a " + field.getType());
            return field;
        }
        catch (ReflectiveOperationException | RuntimeException e)
        {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Gives a handler that nobody waits for yet such a condition. */
    public static void put(Field field, Object handler, Runnable told)
    {
        try
        {
            field.set(handler, new ToldCondition(told));
        }
        catch (IllegalAccessException e)
        {
            throw new IllegalStateException(e);
        }
    }

    /** Does something that would wait for the condition, on this thread and without waiting. */
    public void withoutWaiting(Runnable look)
    {
        neverWaits = Thread.currentThread();
        try
        {
            look.run();
        }
        finally
        {
            neverWaits = null;
        }
    }

    @Override
    public boolean awaitUntil(long deadline) throws InterruptedException
    {
        return neverWaits == Thread.currentThread() ? isSignalled() : super.awaitUntil(deadline);
    }

    @Override
    public void signal()
    {
        super.signal();
        told.run();
    }
}

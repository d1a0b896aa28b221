package org.apache.cassandra.service;

import java.lang.reflect.Field;
import org.apache.cassandra.utils.concurrent.Condition;

/** Tells when a distributed write need not be waited for any more. */
public final class WriteParts
{
    private static final Field CONDITION;

    static
    {
        try
        {
            CONDITION = AbstractWriteResponseHandler.class.getDeclaredField("condition");
            CONDITION.setAccessible(true);
            if (CONDITION.getType() != Condition.class)
                throw new NoSuchFieldException("AbstractWriteResponseHandler.condition is a " + CONDITION.getType());
        }
        catch (ReflectiveOperationException | RuntimeException e)
        {
            throw new ExceptionInInitializerError(e);
        }
    }

    private WriteParts()
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

    /**
     * Tells when the replicas have answered, or so many have failed that nothing more is waited for: from any thread. Before the
     * write is sent. The callback that Cassandra's handlers take is no such thing: with an {@code ideal_consistency_level} it is
     * called for that, too, which may be reached before the one that was asked for.
     */
    public static void whenAnswered(AbstractWriteResponseHandler<?> handler, Runnable told)
    {
        try
        {
            CONDITION.set(handler, new Told(told));
        }
        catch (IllegalAccessException e)
        {
            throw new IllegalStateException(e);
        }
    }

    private static final class Told extends Condition.Async
    {
        private final Runnable told;

        Told(Runnable told)
        {
            this.told = told;
        }

        @Override
        public void signal()
        {
            super.signal();
            told.run();
        }
    }
}

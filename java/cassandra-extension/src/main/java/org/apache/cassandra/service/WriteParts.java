package org.apache.cassandra.service;

import java.lang.reflect.Field;
import shunt.cassandra.transport.ToldCondition;

/** Tells when a distributed write need not be waited for any more. */
public final class WriteParts
{
    private static final Field CONDITION = ToldCondition.fieldOf(AbstractWriteResponseHandler.class);

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
        ToldCondition.put(CONDITION, handler, told);
    }
}

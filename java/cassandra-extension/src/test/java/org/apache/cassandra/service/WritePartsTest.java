package org.apache.cassandra.service;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.WriteType;
import org.apache.cassandra.net.Message;
import org.apache.cassandra.transport.Dispatcher;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** It is told when the handler that was asked for is done, and not for the one that an ideal consistency level adds. */
@Timeout(60)
class WritePartsTest
{
    @BeforeAll
    static void config()
    {
        DatabaseDescriptor.clientInitialization(false);
    }

    /** Waits for so many of three. */
    private static final class Handler extends AbstractWriteResponseHandler<Object>
    {
        private final int wanted;
        private final AtomicInteger acks = new AtomicInteger();
        private final Handler ideal;

        Handler(int wanted, Handler ideal)
        {
            super(null, null, WriteType.SIMPLE, null, Dispatcher.RequestTime.forImmediateExecution());
            this.wanted = wanted;
            this.ideal = ideal;
        }

        @Override
        protected int blockFor()
        {
            return wanted;
        }

        @Override
        protected int candidateReplicaCount()
        {
            return 3;
        }

        @Override
        protected int ackCount()
        {
            return acks.get();
        }

        /** As Cassandra's, which passes an answer on to the ideal one. */
        @Override
        public void onResponse(Message<Object> message)
        {
            if (acks.incrementAndGet() == wanted)
                signal();
            if (ideal != null)
                ideal.onResponse(message);
        }
    }

    @Test
    void onlyTheOneThatWasAskedForTells()
    {
        AtomicInteger told = new AtomicInteger();
        Handler handler = new Handler(2, new Handler(1, null));
        WriteParts.whenAnswered(handler, () ->
        {
            handler.get(); // at once
            told.incrementAndGet();
        });
        handler.onResponse(null);
        assertEquals(0, told.get());
        handler.onResponse(null);
        assertEquals(1, told.get());
        handler.onResponse(null);
        assertEquals(1, told.get());
    }
}

package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.QueryState;
import org.apache.cassandra.transport.messages.ErrorMessage;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.apache.cassandra.utils.MD5Digest;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import shunt.cassandra.Settings;
import shunt.cassandra.transport.OutboundBatch;
import shunt.cassandra.transport.PeerTraffic;

/** However a deferred query ends, it has one answer, and is not counted as waiting any more. */
@Timeout(60)
class DeferredQueryTest
{
    private static final int QUORUM = 4;

    private final Answers answers = new Answers();

    @BeforeAll
    static void config()
    {
        ChannelPauseTest.metrics();
    }

    /** Takes answers, and tells where they were made. */
    private static final class Answers implements DeferredQuery.Asker
    {
        private final PeerTraffic traffic = new PeerTraffic(Settings.DEFAULTS);
        private final BlockingQueue<Message.Response> here = new LinkedBlockingQueue<>();
        private final BlockingQueue<Message.Response> elsewhere = new LinkedBlockingQueue<>();

        @Override
        public void answerDeferred(Message.Response answer)
        {
            here.add(answer);
        }

        @Override
        public void answerElsewhere(Message.Response answer)
        {
            elsewhere.add(answer);
        }

        @Override
        public OutboundBatch batch()
        {
            return null;
        }

        @Override
        public PeerTraffic traffic()
        {
            return traffic;
        }
    }

    /** Without a keyspace it was prepared with its table's full name. */
    private static QueryHandler.Prepared prepared(String keyspace)
    {
        CQLStatement statement = (CQLStatement) Proxy.newProxyInstance(
            CQLStatement.class.getClassLoader(), new Class<?>[]{CQLStatement.class},
            (proxy, method, arguments) -> method.getName().equals("getBindVariables") ? List.of()
                                          : method.getReturnType() == boolean.class ? false : null);
        return new QueryHandler.Prepared(statement, "made up", keyspace == null, keyspace);
    }

    private static ExecuteMessage message(boolean named)
    {
        ByteBuf body = Unpooled.buffer().writeShort(QUORUM);
        if (named)
        {
            body.writeByte(0x41).writeShort(1); // values, with names
            CBUtil.writeAsciiString("k", body);
            CBUtil.writeValue(ByteBuffer.wrap(new byte[]{1}), body);
        }
        else
        {
            body.writeByte(0);
        }
        return new ExecuteMessage(MD5Digest.compute("made up"), null, QueryOptions.codec.decode(body, ProtocolVersion.V4));
    }

    /** One that is asked, and ends as is said. */
    private DeferredQuery begun(Runnable look, Runnable end)
    {
        DeferredQuery query = new DeferredQuery(message(false), prepared(null), answers)
        {
            @Override
            Response begin()
            {
                return null;
            }

            @Override
            boolean endsSlowly()
            {
                look.run();
                return false;
            }

            @Override
            Response end()
            {
                end.run();
                return new ResultMessage.Void();
            }

            @Override
            public long looksFirstAtNanos()
            {
                return 0;
            }

            @Override
            public long look(long now)
            {
                return Long.MAX_VALUE;
            }
        };
        query.execute(new QueryState(ClientState.forInternalCalls()), new Dispatcher.RequestTime(0), false);
        assertTrue(query.isBegun());
        assertEquals(1, answers.traffic.getDeferredWaiting());
        return query;
    }

    private static void fails()
    {
        throw new AssertionError("as of a replica's data that cannot be read");
    }

    private void assertEnded(DeferredQuery query)
    {
        query.answered();
        query.overdue();
        assertEquals(0, answers.traffic.getDeferredWaiting());
        assertNull(query.slot.get());
        assertTrue(answers.here.isEmpty());
        assertTrue(answers.elsewhere.isEmpty());
    }

    /** They have no order before they are prepared, and asking for them fails. */
    @Test
    void valuesWithNamesAreLookedAt()
    {
        DeferredQuery.fits(prepared(null), message(true), ClientState.forInternalCalls());
    }

    /** As applications prepare that name their keyspace to the driver, which is most of them. */
    @Test
    void aTableWithoutKeyspaceIsThatOfTheConnection()
    {
        assertTrue(DeferredQuery.fits(prepared("app"), message(false), ClientState.forInternalCalls("app")));
        assertFalse(DeferredQuery.fits(prepared("app"), message(false), ClientState.forInternalCalls("other")));
        assertFalse(DeferredQuery.fits(prepared("app"), message(false), ClientState.forInternalCalls()));
        assertTrue(DeferredQuery.fits(prepared(null), message(false), ClientState.forInternalCalls("other")));
    }

    @Test
    void answeredBeforeItsTurnItIsAnsweredInIt()
    {
        DeferredQuery query = begun(() -> { }, () -> { });
        query.answered();
        assertInstanceOf(ResultMessage.Void.class, query.turn());
        assertEnded(query);
    }

    @Test
    void answeredAfterItsTurnItIsAnsweredByWhoBringsTheAnswer()
    {
        DeferredQuery query = begun(() -> { }, () -> { });
        assertNull(query.turn());
        query.answered();
        assertInstanceOf(ResultMessage.Void.class, answers.here.remove());
        assertEnded(query);
    }

    @Test
    void aFailedQueryHasItsOwnError()
    {
        DeferredQuery query = begun(() -> { }, DeferredQueryTest::fails);
        assertNull(query.turn());
        query.answered();
        assertInstanceOf(ErrorMessage.class, answers.here.remove());
        assertEnded(query);
    }

    @Test
    void aQueryThatCannotBePolledEndsElsewhere() throws InterruptedException
    {
        for (boolean inTurn : new boolean[]{true, false})
        {
            DeferredQuery query = begun(DeferredQueryTest::fails, () -> { });
            if (inTurn)
                query.answered();
            assertNull(query.turn());
            query.answered();
            assertInstanceOf(ResultMessage.Void.class, answers.elsewhere.poll(30, TimeUnit.SECONDS));
            while (answers.traffic.getDeferredWaiting() > 0)
                Thread.onSpinWait(); // it is counted until its answer is on its way
            assertEnded(query);
        }
    }
}

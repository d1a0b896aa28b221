package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.net.Message;
import org.apache.cassandra.net.NoPayload;
import org.apache.cassandra.net.Verb;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What is held leaves: at the latest when its batch is flushed or closed, each message once, and to whom it was sent. */
@Timeout(60)
class OutboundBatchTest
{
    private static InetAddressAndPort one;
    private static InetAddressAndPort other;
    private final AggregateMetrics metrics = new AggregateMetrics();
    private final List<Message<?>> sent = Collections.synchronizedList(new ArrayList<>());
    private final List<InetAddressAndPort> addresses = Collections.synchronizedList(new ArrayList<>());
    private final OutboundBatch batch = batch(OutboundBatch.Of.REQUESTS);

    @BeforeAll
    static void config() throws UnknownHostException
    {
        DatabaseDescriptor.clientInitialization(false);
        one = InetAddressAndPort.getByName("127.0.0.1");
        other = InetAddressAndPort.getByName("127.0.0.2");
    }

    @AfterEach
    void leave()
    {
        OutboundBatch.leave();
    }

    private OutboundBatch batch(OutboundBatch.Of of)
    {
        return new OutboundBatch(of, metrics, (message, to) ->
        {
            // As Cassandra's own: through the sink, which must not hold it once more.
            assertTrue(OutboundBatch.passes(message, to));
            sent.add(message);
            addresses.add(to);
        });
    }

    private static Message<?> message(Verb verb)
    {
        return Message.builder(verb, NoPayload.noPayload).from(one).build();
    }

    @Test
    void holdsWhatItIsForUntilItIsFlushed()
    {
        batch.enter();
        assertFalse(OutboundBatch.passes(message(Verb.MUTATION_REQ), one));
        assertFalse(OutboundBatch.passes(message(Verb.READ_REQ), other));
        assertFalse(OutboundBatch.passes(message(Verb.MUTATION_REQ), one));
        assertTrue(OutboundBatch.passes(message(Verb.MUTATION_RSP), one), "an answer");
        assertTrue(OutboundBatch.passes(message(Verb.READ_REPAIR_REQ), one), "a repair");
        assertTrue(OutboundBatch.passes(message(Verb.PAXOS_COMMIT_REQ), one), "a commit");
        assertEquals(0, sent.size());
        batch.flush();
        assertEquals(List.of(one, one, other), addresses);
        batch.flush();
        assertEquals(3, sent.size());
    }

    @Test
    void answersAreHeldByTheirOwnKind()
    {
        batch(OutboundBatch.Of.RESPONSES).enter();
        assertFalse(OutboundBatch.passes(message(Verb.MUTATION_RSP), one));
        assertFalse(OutboundBatch.passes(message(Verb.READ_RSP), one));
        assertTrue(OutboundBatch.passes(message(Verb.MUTATION_REQ), one));
    }

    @Test
    void outsideOfABatchNothingIsHeld()
    {
        batch.enter();
        OutboundBatch.leave();
        assertTrue(OutboundBatch.passes(message(Verb.MUTATION_REQ), one));
    }

    @Test
    void aFullOneLeaves()
    {
        batch.enter();
        for (int i = 0; i < 100; i++)
            OutboundBatch.passes(message(Verb.MUTATION_REQ), one);
        assertEquals(64, sent.size());
        batch.close();
        assertEquals(100, sent.size());
    }

    /** The thread that was slow goes on, and nobody flushes for it any more. */
    @Test
    void aClosedOneHoldsNothing()
    {
        batch.enter();
        assertFalse(OutboundBatch.passes(message(Verb.MUTATION_REQ), one));
        batch.close();
        assertEquals(1, sent.size());
        assertTrue(OutboundBatch.passes(message(Verb.MUTATION_REQ), one));
    }

    @Test
    void oneThatCannotBeSentKeepsNoOther()
    {
        List<Message<?>> arrived = new ArrayList<>();
        OutboundBatch failing = new OutboundBatch(OutboundBatch.Of.REQUESTS, metrics, (message, to) ->
        {
            if (to.equals(one))
                throw new IllegalStateException("no connection");
            arrived.add(message);
        });
        failing.enter();
        OutboundBatch.passes(message(Verb.MUTATION_REQ), one);
        OutboundBatch.passes(message(Verb.MUTATION_REQ), other);
        failing.close();
        assertEquals(1, arrived.size());
    }

    /** The slow thread adds, the one that goes on in its place closes. */
    @Test
    void closingLosesNothingThatIsAddedMeanwhile() throws InterruptedException
    {
        for (int round = 0; round < 2_000; round++)
        {
            OutboundBatch shared = batch(OutboundBatch.Of.REQUESTS);
            CountDownLatch begun = new CountDownLatch(1);
            int[] passed = {0};
            Thread slow = new Thread(() ->
            {
                shared.enter();
                for (int i = 0; i < 50; i++)
                {
                    begun.countDown();
                    passed[0] += OutboundBatch.passes(message(Verb.MUTATION_REQ), one) ? 1 : 0;
                }
            });
            sent.clear();
            slow.start();
            begun.await();
            shared.close();
            slow.join();
            assertEquals(50, sent.size() + passed[0]);
        }
    }
}

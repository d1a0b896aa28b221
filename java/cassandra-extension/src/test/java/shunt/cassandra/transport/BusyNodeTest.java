package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.common.util.concurrent.Uninterruptibles;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.Test;
import shunt.cassandra.NodeProcess;

/** Much to do, on a node whose reads take some milliseconds each: none is slow by itself. */
class BusyNodeTest
{
    private final GuardedNode node = GuardedNode.shared();

    @Test
    void readsThatTakeAWhileDoNotHoldAFrameOneAfterTheOther() throws IOException
    {
        NodeProcess.inTime(GuardedNode.TIMEOUT_MS / 2, this::handsReadsOver);
    }

    private void handsReadsOver() throws IOException
    {
        long handedOver = node.metric("HandedOver", "Count");
        try (LinkClient link = node.link())
        {
            for (int stream = 0; stream < CassandraProcess.COUNT_MAX; stream++)
                link.add(stream, 1, GuardedNode.FAST);
            for (Answer answer : link.answers(CassandraProcess.COUNT_MAX).values())
                assertEquals(List.of("fast"), answer.texts());
        }
        long since = node.metric("HandedOver", "Count") - handedOver;
        assertTrue(since >= CassandraProcess.COUNT_MAX / 2, () -> since + " were handed over");
    }

    /** What is handed over keeps the executor busy that the ordinary port waits for; so it must not be fed meanwhile. */
    @Test
    void thePortsCloseUnderLoad() throws IOException
    {
        // A node that stands still while it closes gives up what is under way.
        NodeProcess.inTime(GuardedNode.TIMEOUT_MS, this::closesUnderLoad);
    }

    private void closesUnderLoad()
    {
        AtomicBoolean ended = new AtomicBoolean();
        AtomicInteger answered = new AtomicInteger();
        List<Thread> load = new ArrayList<>();
        for (int i = 0; i < 4; i++)
            load.add(new Thread(() -> ask(ended, answered)));
        String before = node.log();
        load.forEach(Thread::start);
        try
        {
            NodeProcess.await("load", () -> answered.get() > 200);
            node.storage("stopNativeTransport", false);
        }
        finally
        {
            ended.set(true);
            node.storage("startNativeTransport");
            load.forEach(Uninterruptibles::joinUninterruptibly);
        }
        String said = node.log().substring(before.length());
        assertTrue(said.contains("Aggregated frames: stopped listening"), said);
        assertFalse(said.contains("took longer than the native transport timeout"), said);
    }

    /** Until the node closes the link. */
    private void ask(AtomicBoolean ended, AtomicInteger answered)
    {
        try (LinkClient link = node.link())
        {
            while (!ended.get())
            {
                for (int stream = 0; stream < 20; stream++)
                    link.add(stream, 1, "SELECT v FROM guarded.fast LIMIT 1");
                link.answers(20);
                answered.addAndGet(20);
            }
        }
        catch (IOException e)
        {
            // Closed; the test says when that was.
        }
    }
}

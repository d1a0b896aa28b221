package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.Test;

/** Cassandra's own limits on its clients, in both of their modes. */
class OverloadTest
{
    private static final int OVERLOADED = 0x1001;
    private static final String QUERY = "SELECT cluster_name FROM system.local WHERE key = 'local'";
    private static final String[] THROW = {"THROW_ON_OVERLOAD", "1"};
    private static final String BYTES = "NativeTransportMaxConcurrentRequestsInBytesPerIp";
    private static final String REQUESTS = "NativeTransportMaxRequestsPerSecond";
    private static final String LIMITING = "NativeTransportRateLimitingEnabled";

    private final CassandraProcess node = CassandraProcess.shared();

    private static Map<Integer, Answer> ask(LinkClient link, int queries) throws IOException
    {
        for (int stream = 0; stream < queries; stream++)
            link.add(stream, 1, QUERY);
        return link.answers(queries);
    }

    @Test
    void aFrameAboveTheBytesInFlightIsRefused() throws IOException
    {
        Object before = node.getStorage(BYTES);
        try (LinkClient link = LinkClient.superuser(THROW))
        {
            node.setStorage(BYTES, 1_000L);
            ask(link, 40).values().forEach(answer -> assertTrue(answer.error().startsWith("Request breached limit on bytes in flight"), answer::error));
            assertNull(ask(link, 2).get(1).error());
            node.setStorage(BYTES, before);
            assertNull(ask(link, 40).get(39).error());
        }
        finally
        {
            node.setStorage(BYTES, before);
        }
    }

    @Test
    void orAnsweredWithAWarningWhileNothingMoreIsRead() throws IOException
    {
        Object before = node.getStorage(BYTES);
        long paused = node.metric("Client", "ConnectionPaused", "Count");
        try (LinkClient link = LinkClient.superuser())
        {
            node.setStorage(BYTES, 1_000L);
            for (int round = 0; round < 3; round++)
            {
                Map<Integer, Answer> answers = ask(link, 40);
                assertTrue(answers.get(0).warnings().get(0).startsWith("Request breached limit(s) on bytes in flight"));
                assertEquals(-1, answers.get(39).code());
            }
            CassandraProcess.await("each pause is counted", () -> node.metric("Client", "ConnectionPaused", "Count") >= paused + 3);
            assertNull(ask(link, 1).get(0).warnings());
        }
        finally
        {
            node.setStorage(BYTES, before);
        }
        CassandraProcess.await("no connection is paused", () -> node.metric("Client", "PausedConnections", "Value") == 0);
    }

    /** Also of frames whose thread had nothing more to say at their end, for all answers had left before. */
    @Test
    void bytesInFlightAreGivenBackOnce() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.ask("CREATE KEYSPACE IF NOT EXISTS overload WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            link.ask("CREATE TABLE IF NOT EXISTS overload.t (k int PRIMARY KEY, v text)");
            link.ask("INSERT INTO overload.t (k, v) VALUES (1, '" + "v".repeat(CassandraProcess.BYTES_MAX) + "')");
            for (int round = 0; round < 10; round++)
            {
                link.add(1, 1, "SELECT v FROM overload.t WHERE k = 1").answers(1);
                link.add(1, 1, "SELECT v FROM overload.t").add(2, 1, "SELECT k FROM overload.t").answers(2);
                link.gone(7).sendFrame();
                link.sendFrame();
            }
            // When this is answered, all frames before it have been taken: 0 bytes are the end and not a moment between two.
            link.ask("SELECT k FROM overload.t");
        }
        CassandraProcess.await("all bytes are given back", () -> node.metric("Client", "RequestsSize", "Value") == 0);
        assertFalse(node.log().contains("A task raised an exception"), node::log);
    }

    @Test
    void queriesAboveTheRateAreRefused() throws IOException
    {
        // While the machine stands still, the rate lets more of them in.
        CassandraProcess.inTime(1000, this::refusesQueriesAboveTheRate);
    }

    private void refusesQueriesAboveTheRate() throws IOException
    {
        Object before = node.getStorage(REQUESTS);
        try (LinkClient link = LinkClient.superuser(THROW))
        {
            node.setStorage(REQUESTS, 5);
            node.setStorage(LIMITING, true);
            Map<Integer, Answer> answers = ask(link, 40);
            long refused = answers.values().stream().filter(answer -> answer.code() == OVERLOADED).count();
            assertTrue(refused >= 30 && refused < 40, () -> refused + " of 40 refused");
            assertEquals("Request breached global limit of 5 requests/second. Server is currently in an overloaded state and cannot accept more requests.",
                         answers.get(39).error());
        }
        finally
        {
            node.setStorage(LIMITING, false);
            node.setStorage(REQUESTS, before);
        }
    }

    @Test
    void orMakeTheirLinkWait() throws IOException
    {
        // What stands still meanwhile has waited.
        CassandraProcess.inTime(2000, this::makesALinkWait);
    }

    private void makesALinkWait() throws IOException
    {
        Object before = node.getStorage(REQUESTS);
        try (LinkClient link = LinkClient.superuser())
        {
            node.setStorage(REQUESTS, 20);
            node.setStorage(LIMITING, true);
            Map<Integer, Answer> answers = ask(link, 60);
            assertTrue(answers.get(59).warnings().get(0).startsWith("Request breached global limit of 20 requests/second"));
            long start = System.nanoTime();
            assertEquals(-1, ask(link, 1).get(0).code());
            long waited = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(waited > 200, () -> "the next frame waited " + waited + " ms");
        }
        finally
        {
            node.setStorage(LIMITING, false);
            node.setStorage(REQUESTS, before);
        }
    }

    @Test
    void aPeerThatTakesNoAnswersIsNotRead() throws IOException, InterruptedException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.ask("CREATE KEYSPACE IF NOT EXISTS wide WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            link.ask("CREATE TABLE IF NOT EXISTS wide.t (k int PRIMARY KEY, v text)");
            link.ask("INSERT INTO wide.t (k, v) VALUES (1, '" + "w".repeat(500_000) + "')");
            int frames = 100;
            long before = node.metric("Frames", "Count");
            for (int frame = 0; frame < frames; frame++)
                link.add(frame, 1, "SELECT v FROM wide.t WHERE k = 1 /*" + " ".repeat(20_000) + "*/").sendFrame();
            TimeUnit.MILLISECONDS.sleep(300);
            long taken = node.metric("Frames", "Count") - before;
            assertTrue(taken < frames, () -> "all frames were read while 50 MB of answers waited");
            assertEquals(frames, link.collect(frames).size());
        }
    }
}

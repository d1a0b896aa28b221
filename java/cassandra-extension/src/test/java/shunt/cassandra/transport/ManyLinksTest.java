package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Many links at once, with queries of all kinds in their frames. */
class ManyLinksTest
{
    private static final int LINKS = 6;
    private static final int ROWS = 20;

    private static final ExecutorService THREADS = Executors.newFixedThreadPool(LINKS);

    @BeforeAll
    static void schema() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.ask("CREATE KEYSPACE IF NOT EXISTS many WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            link.ask("CREATE TABLE IF NOT EXISTS many.t (k int PRIMARY KEY, v text)");
            link.ask("CREATE OR REPLACE FUNCTION many.slow(v text) CALLED ON NULL INPUT RETURNS text LANGUAGE java AS "
                     + "'double s = 0; for (int i = 0; i < 500000; i++) s += Math.sin(i); return s > 99 ? \"\" : v;'");
            for (int row = 0; row < ROWS; row++)
                link.ask("INSERT INTO many.t (k, v) VALUES (" + row + ", 'row " + row + "')");
        }
    }

    @AfterAll
    static void end()
    {
        THREADS.shutdownNow();
    }

    private static String query(Random random, int row)
    {
        String column = random.nextInt(80) == 0 ? "many.slow(v)" : "v";
        String where = switch (random.nextInt(6))
        {
            case 0 -> " WHERE k IN (" + row + ")";
            case 1 -> " WHERE k >= " + row + " AND k <= " + row + " ALLOW FILTERING";
            default -> " WHERE k = " + row;
        };
        return "SELECT " + column + " FROM many.t" + where;
    }

    /** Sends frames with up to three of them in flight, and checks every answer. */
    private static int run(int seed, int frames) throws IOException
    {
        Random random = new Random(seed);
        int stream = 0;
        Map<Integer, Integer> expected = new HashMap<>();
        try (LinkClient link = LinkClient.superuser())
        {
            for (int frame = 0; frame < frames; frame++)
            {
                for (int entry = random.nextInt(15); entry >= 0; entry--)
                {
                    int row = random.nextInt(ROWS);
                    int client = 1 + random.nextInt(9);
                    expected.put(stream, row);
                    link.add(stream++, client, 3 + client % 3, LinkClient.query(query(random, row)));
                    if (random.nextInt(10) == 0)
                        link.gone(1 + random.nextInt(9));
                }
                link.sendFrame();
                if (frame % 3 == 2 || frame == frames - 1)
                {
                    for (Answer answer : link.collect(expected.size()).values())
                    {
                        assertNull(answer.error());
                        assertEquals(List.of("row " + expected.remove(answer.stream())), answer.texts());
                    }
                }
            }
        }
        return stream;
    }

    @Test
    void everyQueryGetsItsOwnAnswer() throws InterruptedException, ExecutionException
    {
        CassandraProcess node = CassandraProcess.shared();
        List<Future<Integer>> runs = new ArrayList<>();
        for (int link = 0; link < LINKS; link++)
        {
            int seed = link;
            runs.add(THREADS.submit(() -> run(seed, 25)));
        }
        int queries = 0;
        for (Future<Integer> run : runs)
            queries += run.get();
        assertTrue(queries > LINKS * 25 * 4, queries + " queries");
        CassandraProcess.await("all bytes are given back", () -> node.metric("Client", "RequestsSize", "Value") == 0);
        assertFalse(node.log().contains("LEAK: "), "a buffer was not released; see the log");
    }

    /** Frames keep coming while it closes; those that were taken are finished and the rest refused, so that it can close. */
    @Test
    void thePortClosesUnderLoad() throws InterruptedException, ExecutionException, IOException
    {
        CassandraProcess node = CassandraProcess.shared();
        AtomicInteger answered = new AtomicInteger();
        List<Future<String>> runs = new ArrayList<>();
        for (int number = 0; number < LINKS; number++)
        {
            LinkClient link = LinkClient.superuser();
            Callable<String> untilClosed = () ->
            {
                try (link)
                {
                    for (;;)
                    {
                        for (Answer answer : link.add(1, 1, "SELECT v FROM many.t WHERE k = 1").add(2, 1, "SELECT v FROM many.t WHERE k = 2").answers(2).values())
                        {
                            if (answer.error() != null && !answer.error().equals("Server is shutting down"))
                                return answer.error();
                            answered.incrementAndGet();
                        }
                    }
                }
                catch (IOException e)
                {
                    return "closed";
                }
            };
            runs.add(THREADS.submit(untilClosed));
        }
        while (answered.get() < 100)
            TimeUnit.MILLISECONDS.sleep(5);
        // In a thread of its own: a close that waits for what is in flight for ever would otherwise hold the test.
        assertTimeoutPreemptively(Duration.ofSeconds(180), () -> node.storage("stopNativeTransport", false));
        node.storage("startNativeTransport");
        for (Future<String> run : runs)
            assertEquals("closed", run.get());
    }
}

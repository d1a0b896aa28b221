package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Queries that take long do not hold others. */
class SlowQueriesTest
{
    private static final String SLOW = "SELECT slowq.slow(k) FROM slowq.t WHERE k = 1";
    private static final int TRIES = 30;
    private static final String FAST = "SELECT v FROM slowq.t WHERE k = 1";

    @BeforeAll
    static void schema() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.ask("CREATE KEYSPACE IF NOT EXISTS slowq WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            link.ask("CREATE TABLE IF NOT EXISTS slowq.t (k int PRIMARY KEY, v text)");
            link.ask("INSERT INTO slowq.t (k, v) VALUES (1, 'fast')");
            Answer created = link.ask("CREATE OR REPLACE FUNCTION slowq.slow(k int) CALLED ON NULL INPUT RETURNS text LANGUAGE java AS "
                                      + "'double s = 0; for (int i = 0; i < 5000000; i++) s += Math.sin(i); return s > 99 ? \"no\" : \"slow\";'");
            assertNull(created.error());
        }
    }

    @Test
    void oneThatTurnsOutSlowIsOvertaken() throws IOException
    {
        CassandraProcess node = CassandraProcess.shared();
        long takenOver = node.metric("TakenOver", "Count");
        long late = node.metric("LateAnswers", "Count");
        try (LinkClient link = LinkClient.superuser())
        {
            int tries = 0;
            for (int round = 0; round < 3; round++)
            {
                long before = node.metric("TakenOver", "Count");
                link.add(1, 1, FAST).add(2, 2, SLOW).add(3, 3, FAST).add(4, 1, FAST).sendFrame();
                List<Answer> arrived = new ArrayList<>();
                while (arrived.size() < 4)
                    arrived.addAll(link.readFrame());
                // On a machine that does not let a thread run a fast one is overtaken, too, or nobody looks at the slow one.
                if (node.metric("TakenOver", "Count") != before + 1 && ++tries < TRIES)
                {
                    round--;
                    continue;
                }
                Answer last = arrived.get(3);
                assertEquals(2, last.stream());
                assertEquals(List.of("slow"), last.texts());
                assertEquals(1, arrived.stream().filter(answer -> answer.frame() == last.frame()).count());
                assertEquals(List.of(1, 3, 4), arrived.subList(0, 3).stream().map(Answer::stream).toList());
                arrived.subList(0, 3).forEach(answer -> assertEquals(List.of("fast"), answer.texts()));
            }
        }
        assertTrue(node.metric("TakenOver", "Count") >= takenOver + 3);
        CassandraProcess.await("late answers are counted", () -> node.metric("LateAnswers", "Count") >= late + 3);
    }

    @Test
    void manySlowOnesAreAllAnswered() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            for (int stream = 0; stream < 24; stream++)
                link.add(stream, 1 + stream % 3, stream % 2 == 0 ? SLOW : FAST);
            Map<Integer, Answer> answers = link.answers(24);
            answers.forEach((stream, answer) -> assertEquals(List.of(stream % 2 == 0 ? "slow" : "fast"), answer.texts()));
        }
    }

    @Test
    void oneThatIsKnownToBeSlowIsHandedOver() throws IOException
    {
        CassandraProcess node = CassandraProcess.shared();
        long handedOver = node.metric("HandedOver", "Count");
        try (LinkClient link = LinkClient.superuser())
        {
            link.add(1, 1, "SELECT slowq.slow(k) FROM slowq.t").add(2, 1, FAST).sendFrame();
            List<Answer> arrived = new ArrayList<>();
            while (arrived.size() < 2)
                arrived.addAll(link.readFrame());
            assertEquals(List.of(2, 1), arrived.stream().map(Answer::stream).toList());
        }
        assertEquals(handedOver + 1, node.metric("HandedOver", "Count"));
    }
}

package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class AggregateFramesTest
{
    @BeforeAll
    static void schema() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            for (String keyspace : List.of("frames_a", "frames_b"))
            {
                link.ask("CREATE KEYSPACE IF NOT EXISTS " + keyspace
                         + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
                link.ask("CREATE TABLE IF NOT EXISTS " + keyspace + ".t (k text PRIMARY KEY, v text)");
                link.ask("INSERT INTO " + keyspace + ".t (k, v) VALUES ('which', '" + keyspace + "')");
            }
        }
    }

    @Test
    void aFrameIsExecutedInOrderAndEachVersionIsAnsweredInItself() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.add(1, 1, 3, LinkClient.query("INSERT INTO frames_a.t (k, v) VALUES ('o', 'first')"));
            link.add(2, 2, 4, LinkClient.query("SELECT v FROM frames_a.t WHERE k = 'o'"));
            link.add(3, 3, 5, LinkClient.query("INSERT INTO frames_a.t (k, v) VALUES ('o', 'second')"));
            link.add(4, 3, 5, LinkClient.query("SELECT v FROM frames_a.t WHERE k = 'o'"));
            Map<Integer, Answer> answers = link.answers(4);
            assertNull(answers.get(1).error());
            assertEquals(List.of("first"), answers.get(2).texts());
            assertEquals(List.of("second"), answers.get(4).texts());
            assertEquals(List.of(3, 4, 5, 5), answers.values().stream().map(Answer::version).toList());
            assertEquals(List.of(1, 2, 3, 3), answers.values().stream().map(Answer::client).toList());
            assertTrue(answers.values().stream().allMatch(answer -> answer.frame() == 1), "one frame of answers");
        }
    }
}

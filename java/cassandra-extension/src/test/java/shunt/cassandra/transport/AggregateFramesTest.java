package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.service.pager.PagingState;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** What is in frames and what comes back. */
class AggregateFramesTest
{
    private static final int PROTOCOL_ERROR = 0x0A;
    private static final int OVERLOADED = 0x1001;
    private static final int INVALID = 0x2200;
    private static final int UNPREPARED = 0x2500;
    private static final int TRACING = 2;

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
            link.ask("CREATE TABLE IF NOT EXISTS frames_a.counts (k text PRIMARY KEY, n counter)");
        }
    }

    private static ByteBuffer text(String text)
    {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void aFrameIsExecutedInOrderAndEachVersionIsAnsweredInItself() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            boolean oneFrame = false;
            // Until the classes are loaded and compiled, a query may well be slow, and is then overtaken.
            for (int attempt = 0; attempt < 50 && !oneFrame; attempt++)
            {
                link.add(1, 1, 3, LinkClient.query("INSERT INTO frames_a.t (k, v) VALUES ('o', 'first')"));
                link.add(2, 2, 4, LinkClient.query("SELECT v FROM frames_a.t WHERE k = 'o'"));
                link.add(3, 3, 5, LinkClient.query("INSERT INTO frames_a.t (k, v) VALUES ('o', 'second')"));
                link.add(4, 3, 5, LinkClient.query("SELECT v FROM frames_a.t WHERE k = ?", text("o")));
                Map<Integer, Answer> answers = link.answers(4);
                assertNull(answers.get(1).error());
                assertEquals(List.of(3, 4, 5, 5), answers.values().stream().map(Answer::version).toList());
                assertEquals(List.of(1, 2, 3, 3), answers.values().stream().map(Answer::client).toList());
                oneFrame = answers.values().stream().map(Answer::frame).distinct().count() == 1;
                if (oneFrame)
                {
                    assertEquals(List.of("first"), answers.get(2).texts());
                    assertEquals(List.of("second"), answers.get(4).texts());
                }
            }
            assertTrue(oneFrame, "four answers that waited for nothing never came in one frame");
        }
    }

    @Test
    void statementsArePreparedAndExecutedInEveryVersion() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            for (int version = 3; version <= 5; version++)
            {
                String insert = "INSERT INTO frames_a.t (k, v) VALUES (?, 'prepared" + version + "')";
                Answer prepared = link.add(1, version, version, LinkClient.prepare(insert)).answers(1).get(1);
                var statement = (ResultMessage.Prepared) prepared.message();
                assertNull(link.add(2, version, version, LinkClient.execute(statement, text("p" + version))).answers(1).get(2).error());
                link.add(3, version, version, LinkClient.query("SELECT v FROM frames_a.t WHERE k = 'p" + version + "'"));
                assertEquals(List.of("prepared" + version), link.answers(1).get(3).texts());
            }
            byte[] unknown = new byte[18 + 3];
            unknown[1] = 16;
            unknown[19] = 1;
            assertEquals(UNPREPARED, link.add(4, 4, 4, 0, 0x0A, unknown).answers(1).get(4).code());
        }
    }

    @Test
    void countersAndBatchesAndConditionsAreExecuted() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            long handedOver = CassandraProcess.shared().metric("HandedOver", "Count");
            link.add(1, 1, "UPDATE frames_a.counts SET n = n + 2 WHERE k = 'c'");
            link.add(2, 1, "UPDATE frames_a.counts SET n = n + 3 WHERE k = 'c'");
            link.add(3, 1, "BEGIN BATCH INSERT INTO frames_a.t (k, v) VALUES ('b', 'batch'); APPLY BATCH");
            link.add(4, 1, "INSERT INTO frames_a.t (k, v) VALUES ('l', 'light') IF NOT EXISTS");
            Map<Integer, Answer> answers = link.answers(4);
            answers.values().forEach(answer -> assertNull(answer.error()));
            assertEquals(2, CassandraProcess.shared().metric("HandedOver", "Count") - handedOver);
            link.add(1, 1, "SELECT CAST(n AS text) FROM frames_a.counts WHERE k = 'c'");
            link.add(2, 1, "SELECT v FROM frames_a.t WHERE k = 'b'");
            link.add(3, 1, "SELECT v FROM frames_a.t WHERE k = 'l'");
            answers = link.answers(3);
            assertEquals(List.of("5"), answers.get(1).texts());
            assertEquals(List.of("batch"), answers.get(2).texts());
            assertEquals(List.of("light"), answers.get(3).texts());
        }
    }

    @Test
    void aKeyspaceIsTheClientsOwnAndBeginsAsTheLinks() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            String which = "SELECT v FROM t WHERE k = 'which'";
            assertEquals(INVALID, link.answer(1, which).code());
            link.add(1, 1, "USE frames_a").add(2, 2, "USE frames_b").answers(2);
            link.add(3, 1, which).add(4, 2, which).add(5, 3, which);
            Map<Integer, Answer> answers = link.answers(3);
            assertEquals(List.of("frames_a"), answers.get(3).texts());
            assertEquals(List.of("frames_b"), answers.get(4).texts());
            assertEquals(INVALID, answers.get(5).code());
            assertNull(link.ask("USE frames_b").error());
            assertEquals(List.of("frames_b"), link.answer(4, which).texts());
            assertEquals(List.of("frames_a"), link.answer(1, which).texts());
        }
    }

    @Test
    void aKeyspaceThatWasDroppedIsNoneUntilItIsThereAgain() throws IOException
    {
        String create = "CREATE KEYSPACE frames_dropped WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        try (LinkClient link = LinkClient.superuser(); LinkClient other = LinkClient.superuser())
        {
            assertNull(other.ask(create).error());
            assertNull(link.ask("USE frames_dropped").error());
            assertNull(other.ask("DROP KEYSPACE frames_dropped").error());
            assertEquals(List.of("frames_a"), link.answer(1, "SELECT v FROM frames_a.t WHERE k = 'which'").texts());
            Answer answer = link.answer(1, "SELECT v FROM t WHERE k = 'which'");
            assertEquals(INVALID, answer.code());
            assertTrue(answer.error().startsWith("No keyspace has been specified"), answer::error);
            assertNull(link.answer(2, "USE frames_b").error());
            assertNull(other.ask(create).error());
            assertNull(other.ask("CREATE TABLE frames_dropped.t (k text PRIMARY KEY, v text)").error());
            assertNull(other.ask("INSERT INTO frames_dropped.t (k, v) VALUES ('which', 'again')").error());
            assertEquals(List.of("again"), link.answer(1, "SELECT v FROM t WHERE k = 'which'").texts());
            assertEquals(List.of("frames_b"), link.answer(2, "SELECT v FROM t WHERE k = 'which'").texts(), "its own choice");
            assertNull(other.ask("DROP KEYSPACE frames_dropped").error());
        }
    }

    @Test
    void aClientThatIsGoneIsForgotten() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.add(1, 9, "USE frames_a").answers(1);
            link.gone(9).add(2, 9, "SELECT v FROM t WHERE k = 'which'");
            assertEquals(INVALID, link.answers(1).get(2).code());
        }
    }

    @Test
    void clientsOfALinkAreBounded() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            long refused = CassandraProcess.shared().metric("RefusedQueries", "Count");
            for (int client = 1; client <= CassandraProcess.CLIENTS_MAX + 1; client++)
            {
                Answer answer = link.answer(client, "SELECT v FROM frames_a.t WHERE k = 'which'");
                assertEquals(client > CassandraProcess.CLIENTS_MAX ? OVERLOADED : -1, answer.code(), answer::error);
            }
            assertEquals(refused + 1, CassandraProcess.shared().metric("RefusedQueries", "Count"));
            assertTrue(CassandraProcess.shared().metric("Clients", "Value") >= CassandraProcess.CLIENTS_MAX);
            link.gone(5).add(1, 1000, "SELECT v FROM frames_a.t WHERE k = 'which'");
            assertEquals(-1, link.answers(1).get(1).code());
        }
    }

    @Test
    void aBadEntryFailsAlone() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            String good = "SELECT v FROM frames_a.t WHERE k = 'which'";
            link.add(1, 1, good).add(2, 1, "SELEC").add(3, 1, 4, 0, 7, new byte[] {0, 0, 0, 99, 1});
            link.add(4, 2, 4, 0, 0x7E, new byte[0]).add(5, 3, 9, 0, 7, new byte[0]).add(6, 1, 4, 0, 1, new byte[2]);
            link.add(7, 1, 4, 0, 0x0B, new byte[2]).add(8, 1, 5, LinkClient.query(good)).add(9, 1, 4, 1, 7, new byte[8]).add(10, 1, good);
            Map<Integer, Answer> answers = link.answers(10);
            assertEquals(List.of("frames_a"), answers.get(1).texts());
            assertEquals(0x2000, answers.get(2).code());
            for (int stream = 3; stream <= 9; stream++)
                assertEquals(PROTOCOL_ERROR, answers.get(stream).code(), "stream " + stream + ": " + answers.get(stream).error());
            assertEquals("REGISTER cannot be sent in an aggregated frame", answers.get(7).error());
            assertTrue(answers.get(8).error().startsWith("Invalid message version. Got 5/v5 but"), answers.get(8)::error);
            assertEquals("The query is compressed, and the connection's STARTUP agreed on no compression", answers.get(9).error());
            assertEquals(List.of("frames_a"), answers.get(10).texts());
        }
    }

    @Test
    void largeAnswersAreSplitAndAVeryLargeOneTravelsAlone() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            String large = "x".repeat(30_000);
            String veryLarge = "y".repeat(CassandraProcess.BYTES_MAX + 1);
            link.add(1, 1, "INSERT INTO frames_a.t (k, v) VALUES ('large', '" + large + "')").answers(1);
            // A query above the limit of a frame may come too, alone.
            link.add(1, 1, "INSERT INTO frames_a.t (k, v) VALUES ('very', '" + veryLarge + "')").answers(1);
            for (int stream = 1; stream <= 5; stream++)
                link.add(stream, 1, "SELECT v FROM frames_a.t WHERE k = '" + (stream == 3 ? "very" : "large") + "'");
            Map<Integer, Answer> answers = link.answers(5);
            for (int stream = 1; stream <= 5; stream++)
                assertEquals(List.of(stream == 3 ? veryLarge : large), answers.get(stream).texts());
            int alone = answers.get(3).frame();
            assertEquals(1, answers.values().stream().filter(answer -> answer.frame() == alone).count());
            assertEquals(answers.get(4).frame(), answers.get(5).frame());
        }
    }

    @Test
    void aQueryAboveCassandrasOwnLimitIsRefusedAndPassedOver() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            String tooLarge = "INSERT INTO frames_a.t (k, v) VALUES ('z', '" + "z".repeat(1 << 20) + "')";
            Answer answer = link.answer(1, tooLarge);
            assertEquals(INVALID, answer.code());
            assertTrue(answer.error().startsWith("Request is too big: length "), answer::error);
            assertEquals(List.of("frames_a"), link.answer(1, "SELECT v FROM frames_a.t WHERE k = 'which'").texts());
            // And as an ordinary request, whose bytes must not be taken for a frame meanwhile.
            assertTrue(link.ask(tooLarge + "d".repeat(9_000)).error().startsWith("Request is too big"));
            assertEquals(List.of("frames_a"), link.answer(1, "SELECT v FROM frames_a.t WHERE k = 'which'").texts());
        }
    }

    @Test
    void warningsAndTracesStayWithTheirQuery() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            String batch = "BEGIN BATCH INSERT INTO frames_a.t (k, v) VALUES ('w', '" + "w".repeat(2_000) + "'); "
                           + "INSERT INTO frames_a.t (k, v) VALUES ('w2', ''); APPLY BATCH";
            String good = "SELECT v FROM frames_a.t WHERE k = 'which'";
            byte[] query = body(good);
            link.add(1, 1, batch).add(2, 1, good).add(3, 2, 4, TRACING, 7, query).add(4, 1, good);
            link.add(5, 3, 3, LinkClient.query(batch));
            Map<Integer, Answer> answers = link.answers(5);
            assertEquals(1, answers.get(1).warnings().size());
            for (int stream : new int[] {2, 3, 4, 5})
                assertNull(answers.get(stream).warnings(), "stream " + stream);
            for (int stream = 1; stream <= 5; stream++)
                assertEquals(stream == 3 ? TRACING : 0, answers.get(stream).flags() & TRACING, "stream " + stream);
            assertNull(link.answer(1, good).warnings());
        }
    }

    private static byte[] body(String query)
    {
        byte[] text = query.getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(4 + text.length + 3).putInt(text.length).put(text).putShort((short) 1).put((byte) 0).array();
    }

    /** A paging state is read when the query is executed, from where it was received. */
    @Test
    void aScanIsContinuedPageByPage() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.ask("CREATE TABLE IF NOT EXISTS frames_a.pages (k text, c int, v text, PRIMARY KEY (k, c))");
            for (int row = 0; row < 50; row++)
                link.add(row, 1, "INSERT INTO frames_a.pages (k, c, v) VALUES ('" + row % 2 + "', " + row + ", '" + row + "')");
            link.answers(50);
            for (String query : List.of("SELECT v FROM frames_a.pages WHERE k = '1'", "SELECT v FROM frames_a.pages"))
            {
                int rows = 0;
                PagingState next = null;
                do
                {
                    for (int stream = 0; stream < 10; stream++)
                        link.add(stream, 1, 4, LinkClient.page(query, next, 4));
                    Map<Integer, Answer> answers = link.answers(10);
                    for (Answer answer : answers.values())
                        assertEquals(answers.get(0).texts(), answer.texts());
                    rows += answers.get(0).texts().size();
                    next = ((ResultMessage.Rows) answers.get(0).message()).result.metadata.getPagingState();
                }
                while (next != null);
                assertEquals(query.contains("WHERE") ? 25 : 50, rows);
            }
        }
    }

    @Test
    void bodiesAreCompressedWhenTheLinkAgreedOnIt() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.add(1, 1, "INSERT INTO frames_a.t (k, v) VALUES ('c', '" + "c".repeat(5_000) + "')").answers(1);
        }
        try (LinkClient link = new CompressedLink().link())
        {
            link.add(2, 1, 4, 0, 7, body("SELECT v FROM frames_a.t WHERE k = 'c'"));
            link.add(3, 2, 5, LinkClient.query("SELECT v FROM frames_a.t WHERE k = 'c'"));
            link.add(4, 1, 4, 1, 7, CompressedLink.compress(body("SELECT v FROM frames_a.t WHERE k = 'which'")));
            Map<Integer, Answer> answers = link.answers(3);
            assertEquals(1, answers.get(2).flags() & 1);
            assertTrue(answers.get(2).body().length < 500, "5000 times the same byte is small");
            assertEquals(0, answers.get(3).flags());
            assertEquals(List.of("c".repeat(5_000)), answers.get(3).texts());
            byte[] plain = CompressedLink.decompress(answers.get(4).body());
            assertTrue(new String(plain, StandardCharsets.ISO_8859_1).contains("frames_a"));
        }
    }

    @Test
    void ordinaryRequestsGoOnBetweenFrames() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            for (int round = 0; round < 20; round++)
            {
                assertEquals(List.of("frames_a"), link.answer(1, "SELECT v FROM frames_a.t WHERE k = 'which'").texts());
                assertEquals(List.of("frames_b"), link.ask("SELECT v FROM frames_b.t WHERE k = 'which'").texts());
            }
            assertNotNull(link.supported());
        }
    }
}

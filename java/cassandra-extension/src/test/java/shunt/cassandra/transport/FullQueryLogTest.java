package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import net.openhft.chronicle.queue.ChronicleQueue;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.RollCycles;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.wire.ValueIn;
import net.openhft.chronicle.wire.WireIn;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.cql3.statements.BatchStatement;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.fql.FullQueryLogger;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.apache.cassandra.transport.Message;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.transport.messages.BatchMessage;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Cassandra's full query log of what comes in frames, read as its own tools read it. */
class FullQueryLogTest
{
    private static final String INSERT = "INSERT INTO logged.t (k, v) VALUES (?, ?)";
    private static final String SELECT = "SELECT v FROM logged.t WHERE k = ?";

    private final CassandraProcess node = CassandraProcess.shared();

    /** An entry of the log: texts and values of its queries, and the client's keyspace. */
    private record Logged(String type, int version, String keyspace, List<String> queries, List<List<String>> values)
    {
        static Logged read(WireIn wire)
        {
            assertEquals(FullQueryLogger.CURRENT_VERSION, wire.read(FullQueryLogger.VERSION).int16());
            String type = wire.read(FullQueryLogger.TYPE).text();
            assertTrue(wire.read(FullQueryLogger.QUERY_START_TIME).int64() > 0);
            int version = wire.read(FullQueryLogger.PROTOCOL_VERSION).int32();
            byte[] options = wire.read(FullQueryLogger.QUERY_OPTIONS).bytes();
            wire.read(FullQueryLogger.GENERATED_TIMESTAMP).int64();
            wire.read(FullQueryLogger.GENERATED_NOW_IN_SECONDS).int64();
            String keyspace = wire.read(FullQueryLogger.KEYSPACE).text();
            if (!type.equals(FullQueryLogger.BATCH))
                return new Logged(type, version, keyspace, List.of(wire.read(FullQueryLogger.QUERY).text()),
                                  List.of(texts(QueryOptions.codec.decode(Unpooled.wrappedBuffer(options),
                                                                          ProtocolVersion.decode(version, true)).getValues())));
            assertEquals("LOGGED", wire.read(FullQueryLogger.BATCH_TYPE).text());
            ValueIn in = wire.read(FullQueryLogger.QUERIES);
            List<String> queries = new ArrayList<>();
            for (int left = in.int32(); left > 0; left--)
                queries.add(in.text());
            in = wire.read(FullQueryLogger.VALUES);
            List<List<String>> values = new ArrayList<>();
            for (int left = in.int32(); left > 0; left--)
            {
                List<ByteBuffer> of = new ArrayList<>();
                for (int value = in.int32(); value > 0; value--)
                    of.add(ByteBuffer.wrap(in.bytes()));
                values.add(texts(of));
            }
            return new Logged(type, version, keyspace, queries, values);
        }

        private static List<String> texts(List<ByteBuffer> values)
        {
            return values.stream().map(value -> StandardCharsets.UTF_8.decode(value.duplicate()).toString()).toList();
        }

        static Logged query(int version, String query, String... values)
        {
            return new Logged(FullQueryLogger.SINGLE_QUERY, version, null, List.of(query), List.of(List.of(values)));
        }

        Logged in(String client)
        {
            return new Logged(type, version, client, queries, values);
        }
    }

    @BeforeAll
    static void schema() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.ask("CREATE KEYSPACE IF NOT EXISTS logged WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            link.ask("CREATE TABLE IF NOT EXISTS logged.t (k text PRIMARY KEY, v text)");
            link.ask("INSERT INTO logged.t (k, v) VALUES ('slow', '')");
            assertNull(link.ask("CREATE OR REPLACE FUNCTION logged.slow(v text) CALLED ON NULL INPUT RETURNS text LANGUAGE java AS "
                                + "'double s = 0; for (int i = 0; i < 5000000; i++) s += Math.sin(i); return s > 99 ? \"\" : v;'").error());
        }
    }

    private static ByteBuffer text(String text)
    {
        return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
    }

    private static Message.Request batch(Object... parts)
    {
        List<Object> queries = new ArrayList<>();
        List<List<ByteBuffer>> values = new ArrayList<>();
        for (int i = 0; i < parts.length; i += 3)
        {
            queries.add(parts[i]);
            values.add(List.of(text((String) parts[i + 1]), text((String) parts[i + 2])));
        }
        return new BatchMessage(BatchStatement.Type.LOGGED, queries, values, QueryOptions.forInternalCalls(ConsistencyLevel.ONE, List.of()));
    }

    private List<Logged> log(Path directory)
    {
        List<Logged> entries = new ArrayList<>();
        try (ChronicleQueue queue = SingleChronicleQueueBuilder.single(directory.toFile()).rollCycle(RollCycles.HOURLY).build())
        {
            ExcerptTailer tailer = queue.createTailer();
            while (tailer.readDocument(wire -> entries.add(Logged.read(wire))))
                ;
        }
        return entries;
    }

    private Map<Integer, Answer> ask(LinkClient link) throws IOException
    {
        ResultMessage.Prepared insert = (ResultMessage.Prepared) link.add(1, 1, 4, LinkClient.prepare(INSERT)).answers(1).get(1).message();
        ResultMessage.Prepared select = (ResultMessage.Prepared) link.add(1, 1, 4, LinkClient.prepare(SELECT)).answers(1).get(1).message();
        link.add(1, 2, "USE logged").answers(1);
        // In order: inline, inline, inline, prepared, slow and overtaken, handed over, batches, refused, and what fails.
        link.add(1, 1, 4, LinkClient.query(SELECT, text("one")));
        link.add(2, 2, 4, LinkClient.query("SELECT v FROM t WHERE k = 'of a keyspace'"));
        link.add(3, 3, 3, LinkClient.query("INSERT INTO logged.t (k, v) VALUES ('three', ?)", text("value of three")));
        link.add(4, 1, 4, LinkClient.execute(insert, text("four"), text("x".repeat(20_000))));
        link.add(5, 4, 5, LinkClient.execute(select, text("four")));
        link.add(6, 1, "SELECT logged.slow(v) FROM logged.t WHERE k = 'slow'");
        link.add(7, 1, "SELECT v FROM logged.t LIMIT 7");
        link.add(8, 1, 4, batch(INSERT, "eight", "a", insert.statementId, "eight again", "b".repeat(10_000)));
        link.add(9, 1, "BEGIN BATCH INSERT INTO logged.t (k, v) VALUES ('nine', 'n') APPLY BATCH");
        link.add(10, 1, "SELECT nothing FROM logged.t WHERE k = 'ten'");
        link.add(11, 1, "SELEC eleven").gone(2);
        return link.answers(11);
    }

    @Test
    void everyQueryIsLoggedOnceWithItsValues() throws IOException
    {
        Path directory = node.directory.resolve("full-query-log");
        long takenOver = node.metric("TakenOver", "Count");
        try (LinkClient link = LinkClient.superuser())
        {
            node.storage("enableFullQueryLogger", directory.toString(), "HOURLY", true, 1 << 28, 1L << 30, null, 10);
            Map<Integer, Answer> answers;
            try
            {
                answers = ask(link);
            }
            finally
            {
                node.storage("stopFullQueryLogger");
            }
            for (int stream = 1; stream <= 9; stream++)
                assertNull(answers.get(stream).error(), "stream " + stream);
            assertEquals(-1, link.answer(1, "SELECT v FROM logged.t WHERE k = 'not logged any more'").code());
        }
        assertTrue(node.metric("TakenOver", "Count") > takenOver, "the slow one was not overtaken");
        List<Logged> expected = List.of(
            Logged.query(4, "USE logged").in("logged"), Logged.query(4, SELECT, "one"),
            Logged.query(4, "SELECT v FROM t WHERE k = 'of a keyspace'").in("logged"),
            Logged.query(3, "INSERT INTO logged.t (k, v) VALUES ('three', ?)", "value of three"),
            Logged.query(4, INSERT, "four", "x".repeat(20_000)), Logged.query(5, SELECT, "four"),
            Logged.query(4, "SELECT logged.slow(v) FROM logged.t WHERE k = 'slow'"), Logged.query(4, "SELECT v FROM logged.t LIMIT 7"),
            new Logged(FullQueryLogger.BATCH, 4, null, List.of(INSERT, INSERT), List.of(List.of("eight", "a"), List.of("eight again", "b".repeat(10_000)))),
            Logged.query(4, "BEGIN BATCH INSERT INTO logged.t (k, v) VALUES ('nine', 'n') APPLY BATCH"));
        List<Logged> found = log(directory);
        assertEquals(expected.size(), found.size(), found::toString);
        // What is handed over or slow is logged when it is done, so not in order.
        expected.forEach(entry -> assertTrue(found.contains(entry), () -> entry + " is not in " + found));
    }
}

package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ConnectException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import shunt.cassandra.NodeProcess;
import shunt.cassandra.NodeProcess.Variant;

/**
 * Releases of Cassandra that the extension is not compiled against: what they name differently is used the way they name it, and
 * where something is missing that it needs, there is no second port at all. `make test-long` runs it: it starts three nodes.
 */
@Tag("long")
class OtherReleasesTest
{
    private static final String QUERY = "SELECT cluster_name FROM system.local WHERE key = 'local'";
    private static final int PROTOCOL_ERROR = 0x0A;
    private static final int OVERLOADED = 0x1001;
    private static final int SYNTAX_ERROR = 0x2000;
    private static final int INVALID = 0x2200;

    private static CassandraProcess node(String ready, Variant variant, String sync) throws IOException
    {
        Path directory = Files.createTempDirectory("shunt-release");
        String log = "cassandra-" + (variant.release() == null ? "lacking" : variant.release()) + ".log";
        List<String> yaml = new ArrayList<>(List.of("native_transport_max_frame_size: 1MiB", "native_transport_allow_older_protocols: true",
                                                    "commitlog_sync: " + sync));
        if (sync.equals("group"))
            yaml.add("commitlog_sync_group_window: 10ms");
        yaml.add("row_cache_class_name: shunt.cassandra.cache.TieredRowCacheProvider");
        yaml.add("row_cache_size: 1MiB");
        return new CassandraProcess(directory, log, CassandraProcess.freePort(), yaml,
                                    List.of("io.netty.leakDetection.level=paranoid"), ready, variant);
    }

    private static LinkClient login(CassandraProcess node, String... startup) throws IOException
    {
        return new LinkClient(new Socket(CassandraProcess.HOST, node.port)).authenticate(4, "cassandra", "cassandra", startup);
    }

    @ParameterizedTest
    @CsvSource({"cassandra.first, batch", "cassandra.older, group"})
    void anOlderReleaseTakesFrames(String property, String sync) throws IOException
    {
        String release = System.getProperty(property);
        try (CassandraProcess node = node("Aggregated frames v1 on ", new Variant(release, Map.of()), sync))
        {
            assertEquals(release, node.getStorage("ReleaseVersion"));
            try (LinkClient link = login(node))
            {
                answersAndRefusals(link);
                prepared(link);
                rowCache(node, link);
                writesThatWaitForTheLogAreHandedOver(node, link);
                tooManyClients(link);
            }
            try (LinkClient link = new CompressedLink(node).link())
            {
                Answer answer = link.add(2, 1, QUERY).add(3, 1, 4, 0, 0x01, new byte[0]).answers(2).get(2);
                assertEquals(1, answer.flags() & 1, "compressed");
                assertTrue(new String(CompressedLink.decompress(answer.body()), StandardCharsets.ISO_8859_1).contains("extension"));
            }
            overloaded(node);
            try (LinkClient link = login(node))
            {
                byte[] frame = link.add(1, 0, QUERY).frame();
                link.send(frame);
                assertEquals("Aggregated frame: entry 1 of 1 has client_id 0", link.read().error());
                assertTrue(link.isClosed());
            }
            assertTrue(!node.log().contains("NoSuchMethodError") && !node.log().contains("LEAK"), node::log);
        }
    }

    /** What is refused is the answer to its query, and harms none beside it. */
    private static void answersAndRefusals(LinkClient link) throws IOException
    {
        link.add(1, 1, QUERY);
        link.add(2, 2, 4, 0, 0x01, new byte[0]);
        link.add(3, 2, "SELEKT");
        link.add(4, 2, "SELECT nothing FROM system.local");
        link.add(5, 3, 66, 0, 7, new byte[0]);
        link.add(6, 4, QUERY);
        link.add(7, 4, "SELECT peer FROM system.peers");
        link.add(8, 4, 4, 1, 7, new byte[10]);
        Map<Integer, Answer> answers = link.answers(8);
        assertEquals(List.of("extension"), answers.get(1).texts());
        assertEquals(PROTOCOL_ERROR, answers.get(2).code());
        assertEquals(SYNTAX_ERROR, answers.get(3).code());
        assertEquals(INVALID, answers.get(4).code());
        assertEquals(PROTOCOL_ERROR, answers.get(5).code());
        assertEquals(List.of("extension"), answers.get(6).texts());
        assertEquals(List.of(), answers.get(7).texts());
        assertEquals("The query is compressed, and the connection's STARTUP agreed on no compression", answers.get(8).error());
        link.add(9, 1, "SELECT v FROM t WHERE k = '" + "x".repeat(1 << 20) + "'");
        assertTrue(link.answers(1).get(9).error().startsWith("Request is too big"));
    }

    private static void prepared(LinkClient link) throws IOException
    {
        link.ask("CREATE KEYSPACE r WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        link.ask("CREATE TABLE r.t (k text PRIMARY KEY, v text)");
        var statement = link.add(1, 1, 4, LinkClient.prepare("INSERT INTO r.t (k, v) VALUES (?, 'v')")).answers(1).get(1).message();
        var key = java.nio.ByteBuffer.wrap("k".getBytes(StandardCharsets.UTF_8));
        link.add(2, 1, 4, LinkClient.execute((org.apache.cassandra.transport.messages.ResultMessage.Prepared) statement, key));
        assertNull(link.answers(1).get(2).error());
        assertEquals(List.of("v"), link.answer(1, "SELECT v FROM r.t WHERE k = 'k'").texts());
        assertNull(link.answer(1, "BEGIN BATCH INSERT INTO r.t (k, v) VALUES ('b', 'b') APPLY BATCH").error());
    }

    /** Each of them would wait for the disk by itself; handed over they wait together. */
    private static void writesThatWaitForTheLogAreHandedOver(CassandraProcess node, LinkClient link) throws IOException
    {
        link.ask("CREATE KEYSPACE fleeting WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false");
        link.ask("CREATE TABLE fleeting.t (k text PRIMARY KEY, v text)");
        link.ask("CREATE TABLE r.counts (k text PRIMARY KEY, n counter)");
        long handedOver = node.metric("HandedOver", "Count");
        for (int stream = 0; stream < 20; stream++)
            link.add(stream, 1, "INSERT INTO r.t (k, v) VALUES ('" + stream + "', 'durable')");
        link.add(20, 1, "UPDATE r.counts SET n = n + 1 WHERE k = 'k'");
        link.answers(21).values().forEach(answer -> assertNull(answer.error()));
        assertEquals(handedOver + 21, node.metric("HandedOver", "Count"));
        assertEquals(List.of("durable"), link.answer(1, "SELECT v FROM r.t WHERE k = '19'").texts());
        link.add(1, 1, "INSERT INTO fleeting.t (k, v) VALUES ('k', 'v')").answers(1);
        assertEquals(handedOver + 21, node.metric("HandedOver", "Count"));
    }

    private static void rowCache(CassandraProcess node, LinkClient link) throws IOException
    {
        link.ask("CREATE TABLE r.cached (k text PRIMARY KEY, v text) WITH caching = {'keys': 'ALL', 'rows_per_partition': 'ALL'}");
        link.answer(1, "INSERT INTO r.cached (k, v) VALUES ('k', 'v')");
        for (int i = 0; i < 3; i++)
            assertEquals(List.of("v"), link.answer(1, "SELECT v FROM r.cached WHERE k = 'k'").texts());
        var hits = NodeProcess.name("org.apache.cassandra.metrics:type=Cache,scope=RowCacheMemory,name=Hits");
        assertTrue(((Number) node.attribute(hits, "Value")).longValue() > 0, "hits of the row cache");
    }

    private static void tooManyClients(LinkClient link) throws IOException
    {
        for (int first = 100; first < 100 + CassandraProcess.CLIENTS_MAX; first += 50)
        {
            for (int client = first; client < first + 50; client++)
                link.add(client, client, QUERY);
            link.answers(50);
        }
        assertEquals(OVERLOADED, link.answer(1000, QUERY).code());
    }

    private static void overloaded(CassandraProcess node) throws IOException
    {
        String limit = "NativeTransportMaxConcurrentRequestsInBytesPerIp";
        Object before = node.getStorage(limit);
        try (LinkClient link = login(node, "THROW_ON_OVERLOAD", "1"))
        {
            node.setStorage(limit, 100L);
            for (int stream = 0; stream < 20; stream++)
                link.add(stream, 1, QUERY);
            link.answers(20).values().forEach(answer -> assertEquals(OVERLOADED, answer.code()));
            node.setStorage(limit, before);
            assertEquals(List.of("extension"), link.answer(1, QUERY).texts());
        }
    }

    @Test
    void aReleaseThatLacksAMemberHasNoSecondPort() throws IOException
    {
        Variant lacking = new Variant(null, Map.of(
            "shunt/cassandra/transport/Calls.class", callOf("shunt/cassandra/transport/Calls", "org/apache/cassandra/transport/Message"),
            "shunt/cassandra/cache/Calls.class", callOf("shunt/cassandra/cache/Calls", "org/apache/cassandra/cache/CacheKey")));
        try (CassandraProcess node = node("Aggregated frames are off: ", lacking, "batch"))
        {
            List<String> said = node.log().lines().filter(line -> line.contains("Aggregated frames")).toList();
            assertEquals(1, said.size(), said::toString);
            assertTrue(said.get(0).contains("has no org.apache.cassandra.transport.Message.noSuchMethod(). The node goes on without them"), said.get(0));
            said = node.log().lines().filter(line -> line.contains("row cache: ")).toList();
            assertEquals(1, said.size(), said::toString);
            assertTrue(said.get(0).contains("has no org.apache.cassandra.cache.CacheKey.noSuchMethod(). The node goes on without it"), said.get(0));
            assertThrows(ConnectException.class, () -> new Socket(CassandraProcess.HOST, node.port).close());
            try (LinkClient ordinary = new LinkClient(new Socket(CassandraProcess.HOST, node.ordinaryPort)))
            {
                assertNull(ordinary.supported().get("SHUNT_AGGREGATE"));
                ordinary.authenticate(4, "cassandra", "cassandra");
                assertEquals(List.of("extension"), ordinary.ask(QUERY).texts());
            }
        }
    }

    /** A class that calls a method which is not there. */
    private static byte[] callOf(String name, String owner)
    {
        ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        writer.visit(Opcodes.V17, Opcodes.ACC_PUBLIC, name, null, "java/lang/Object", null);
        MethodVisitor code = writer.visitMethod(Opcodes.ACC_STATIC, "call", "()V", null, null);
        code.visitCode();
        code.visitMethodInsn(Opcodes.INVOKESTATIC, owner, "noSuchMethod", "()V", false);
        code.visitInsn(Opcodes.RETURN);
        code.visitMaxs(0, 0);
        code.visitEnd();
        writer.visitEnd();
        return writer.toByteArray();
    }
}

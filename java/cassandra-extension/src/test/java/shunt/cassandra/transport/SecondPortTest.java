package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ConnectException;
import java.net.ServerSocket;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.transport.SimpleClient;
import org.apache.cassandra.transport.messages.AuthResponse;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The port itself: what it is besides aggregated frames, and when it is there. */
class SecondPortTest
{
    private static final String QUERY = "SELECT cluster_name FROM system.local WHERE key = 'local'";

    private final CassandraProcess node = CassandraProcess.shared();

    private static Map<String, List<String>> supportedAt(int port) throws IOException
    {
        try (LinkClient link = new LinkClient(new Socket(CassandraProcess.HOST, port)))
        {
            return link.supported();
        }
    }

    private List<String> offer()
    {
        return List.of("v1", "count_max=" + CassandraProcess.COUNT_MAX, "bytes_max=" + CassandraProcess.BYTES_MAX, "port=" + node.port);
    }

    @ParameterizedTest
    @ValueSource(ints = {3, 4})
    void speaksOrdinaryCql(int version) throws IOException
    {
        try (LinkClient link = LinkClient.connect().authenticate(version, "cassandra", "cassandra"))
        {
            assertEquals(List.of("extension"), link.ask(version, LinkClient.query(QUERY)).texts());
        }
    }

    @Test
    void speaksOrdinaryCqlOfVersion5() throws IOException
    {
        DatabaseDescriptor.clientInitialization(false);
        SimpleClient client = new SimpleClient(CassandraProcess.HOST, node.port, ProtocolVersion.V5);
        try
        {
            client.connect(false);
            client.execute(new AuthResponse("\0cassandra\0cassandra".getBytes(StandardCharsets.UTF_8)));
            ResultMessage.Rows rows = (ResultMessage.Rows) client.execute(QUERY, ConsistencyLevel.ONE);
            assertEquals("extension", StandardCharsets.UTF_8.decode(rows.result.rows.get(0).get(0).duplicate()).toString());
        }
        finally
        {
            client.close();
        }
    }

    @Test
    void framesAreForVersion4Only() throws IOException
    {
        try (LinkClient link = LinkClient.connect().authenticate(3, "cassandra", "cassandra"))
        {
            byte[] frame = link.add(1, 1, QUERY).frame();
            frame[0] = 3;
            link.send(frame);
            assertEquals("Unknown opcode 100", link.read().error());
        }
    }

    @Test
    void isAnnouncedOnBothPortsWhileItListens() throws IOException
    {
        assertEquals(offer(), supportedAt(node.port).get("SHUNT_AGGREGATE"));
        assertEquals(offer(), supportedAt(node.ordinaryPort).get("SHUNT_AGGREGATE"));
        node.storage("stopNativeTransport", false);
        assertEquals(false, node.getStorage("NativeTransportRunning"));
        assertThrows(ConnectException.class, () -> supportedAt(node.port));
        assertThrows(ConnectException.class, () -> supportedAt(node.ordinaryPort));
        node.storage("startNativeTransport");
        assertEquals(offer(), supportedAt(node.ordinaryPort).get("SHUNT_AGGREGATE"));
        try (LinkClient link = LinkClient.superuser())
        {
            assertEquals(List.of("extension"), link.answer(1, QUERY).texts());
        }
    }

    @Test
    void connectionsAreClosedWithThePort() throws IOException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            link.answer(1, QUERY);
            node.storage("stopNativeTransport", false);
            assertTrue(link.isClosed());
        }
        finally
        {
            node.storage("startNativeTransport");
        }
    }

    @Test
    void aPortThatIsTakenLeavesTheNodeAsItWas() throws IOException
    {
        node.storage("stopNativeTransport", false);
        try (ServerSocket taken = new ServerSocket(node.port, 1, InetAddress.getByName(CassandraProcess.HOST)))
        {
            assertTrue(taken.isBound());
            node.storage("startNativeTransport");
            assertEquals(true, node.getStorage("NativeTransportRunning"));
            assertNull(supportedAt(node.ordinaryPort).get("SHUNT_AGGREGATE"));
            assertTrue(node.log().contains("Aggregated frames are off: cannot listen on /127.0.0.1:" + node.port));
        }
        finally
        {
            node.storage("stopNativeTransport", false);
            node.storage("startNativeTransport");
        }
        assertEquals(offer(), supportedAt(node.ordinaryPort).get("SHUNT_AGGREGATE"));
    }

    @Test
    void tlsIsThatOfTheOrdinaryPort() throws IOException, GeneralSecurityException
    {
        Socket socket = Certificates.anonymous().getSocketFactory().createSocket(CassandraProcess.HOST, node.port);
        try (LinkClient link = new LinkClient(socket).authenticate(4, "cassandra", "cassandra"))
        {
            for (int stream = 0; stream < 40; stream++)
                link.add(stream, 1, QUERY);
            link.answers(40).values().forEach(answer -> assertEquals(List.of("extension"), answer.texts()));
        }
    }

    @Test
    void connectionsAndFramesAreCounted() throws IOException
    {
        // The node may not have heard yet that other tests closed theirs, nor have finished their frames.
        node.awaitNoConnections();
        long frames = node.metric("Frames", "Count");
        long inline = node.metric("Inline", "Count");
        try (LinkClient link = LinkClient.superuser())
        {
            for (int stream = 0; stream < 10; stream++)
                link.add(stream, 1, QUERY);
            link.answers(10);
            assertEquals(frames + 1, node.metric("Frames", "Count"));
            assertEquals(inline + 10, node.metric("Inline", "Count"));
            assertTrue(node.metric("QueriesPerFrame", "Count") > 0);
            assertTrue(node.metric("Links", "Count") > 0);
            assertEquals(1, connected());
        }
    }

    private long connected()
    {
        return node.metric("Client", "ConnectedNativeClients", "Value");
    }

    @Test
    void theLogNamesTheListeningAddress()
    {
        String log = node.log();
        assertTrue(log.contains("Aggregated frames v1 on /127.0.0.1:" + node.port + " (optionally encrypted): up to 64 queries and 65536 bytes"), log);
        assertFalse(log.contains("Unexpected exception during request"), log);
    }
}

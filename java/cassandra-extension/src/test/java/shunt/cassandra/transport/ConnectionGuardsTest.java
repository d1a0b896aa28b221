package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import org.apache.cassandra.transport.LinkClient;
import org.junit.jupiter.api.Test;
import shunt.cassandra.NodeProcess;

/** What Cassandra does about connections, whichever port they come to. */
class ConnectionGuardsTest
{
    private static final String OTHER_ADDRESS = "127.0.0.2";
    private static final int TRIES = 5;
    /** What takes longer may meet the node's short times. */
    private static final long IN_TIME_MS = GuardedNode.IDLE_MS / 2;

    private final GuardedNode node = GuardedNode.shared();

    private long connected()
    {
        return node.metric("Client", "ConnectedNativeClients", "Value");
    }

    private static void use(LinkClient link) throws IOException
    {
        assertEquals(List.of("fast"), link.answer(1, GuardedNode.FAST).texts());
    }

    @Test
    void anIdleLinkIsClosedAndOneInUseIsNot() throws IOException
    {
        int tries = 0;
        while (!closesIdleOnes())
            assertTrue(++tries < TRIES, "the machine stood still each time");
        assertTrue(node.log().contains("after timeout of " + GuardedNode.IDLE_MS + "ms"));
    }

    /** False if the machine stood still so long that the link in use may have been idle, too. */
    private boolean closesIdleOnes() throws IOException
    {
        try (LinkClient ordinary = node.ordinary(); LinkClient idle = node.link(); LinkClient used = node.link())
        {
            // Before what the node hears last, so that its time cannot have begun earlier.
            long last = System.nanoTime();
            use(idle);
            ordinary.ask(GuardedNode.FAST);
            List<LinkClient> open = new ArrayList<>(List.of(ordinary, idle));
            long end = last + TimeUnit.MILLISECONDS.toNanos(3L * GuardedNode.IDLE_MS);
            long lastUse = last;
            while (System.nanoTime() < end)
            {
                IOException lost = null;
                try
                {
                    use(used);
                }
                catch (IOException e)
                {
                    lost = e;
                }
                if (System.nanoTime() - lastUse > TimeUnit.MILLISECONDS.toNanos(GuardedNode.IDLE_MS / 2))
                    return false;
                if (lost != null)
                    throw lost;
                lastUse = System.nanoTime();
                NodeProcess.pause(GuardedNode.IDLE_MS / 20);
                open.removeIf(link -> link.isClosedNow());
                long waited = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - last);
                assertTrue(open.size() == 2 || waited >= GuardedNode.IDLE_MS, () -> "closed after " + waited + " ms");
                if (open.isEmpty() && waited > GuardedNode.IDLE_MS * 3 / 2)
                    break;
            }
            assertEquals(List.of(), open);
            return true;
        }
    }

    /** Whether the node closes a new connection at once, without a word: it has nothing to say before the client has. */
    private boolean isRefused(int port, String from) throws IOException
    {
        try (Socket socket = new Socket())
        {
            socket.bind(new InetSocketAddress(from, 0));
            socket.connect(new InetSocketAddress(NodeProcess.HOST, port));
            socket.setSoTimeout(180_000);
            return socket.getInputStream().read() < 0;
        }
        catch (SocketTimeoutException e)
        {
            return false;
        }
        catch (IOException e)
        {
            return true;
        }
    }

    /** Links with frames and ordinary connections in turn. */
    private void fill(List<LinkClient> open, String from, int connections) throws IOException
    {
        for (int i = 0; i < connections; i++)
        {
            boolean second = i % 2 == 0;
            LinkClient link = node.login(second ? node.port : node.ordinaryPort, from);
            open.add(link);
            if (second)
                use(link);
        }
    }

    @Test
    void connectionsToBothPortsAreLimitedTogetherAndGivenBack() throws IOException
    {
        // If a closed connection went on counting, the second round would not get as far.
        for (int round = 0; round < 2; round++)
        {
            NodeProcess.await("all connections closed", () -> connected() == 0);
            NodeProcess.inTime(IN_TIME_MS, this::limitsConnections);
        }
        NodeProcess.await("all connections closed", () -> connected() == 0);
        assertTrue(node.log().contains("Exceeded maximum native connection limit of " + GuardedNode.CONNECTIONS_MAX));
        assertTrue(node.log().contains("Exceeded maximum native connection limit per ip of " + GuardedNode.CONNECTIONS_PER_ADDRESS_MAX));
    }

    private void limitsConnections() throws IOException
    {
        NodeProcess.await("connections of another try", () -> connected() == 0);
        int others = GuardedNode.CONNECTIONS_MAX - GuardedNode.CONNECTIONS_PER_ADDRESS_MAX;
        List<LinkClient> links = new ArrayList<>();
        try
        {
            fill(links, NodeProcess.HOST, GuardedNode.CONNECTIONS_PER_ADDRESS_MAX);
            assertTrue(isRefused(node.port, NodeProcess.HOST));
            assertTrue(isRefused(node.ordinaryPort, NodeProcess.HOST));
            fill(links, OTHER_ADDRESS, others);
            assertTrue(isRefused(node.port, OTHER_ADDRESS));
            assertTrue(isRefused(node.ordinaryPort, OTHER_ADDRESS));
            use(links.get(0));
            use(links.get(GuardedNode.CONNECTIONS_PER_ADDRESS_MAX));
            assertEquals(GuardedNode.CONNECTIONS_MAX, connected());
        }
        finally
        {
            for (LinkClient link : links)
                link.close();
        }
    }

    private void assertNoLink(int port, SSLContext tls) throws IOException
    {
        try (LinkClient link = new LinkClient(node.socket(port, tls)))
        {
            assertEnded(link);
        }
    }

    /** Not merely without an answer. */
    private static void assertEnded(LinkClient link)
    {
        assertFalse(assertThrows(IOException.class, link::supported) instanceof SocketTimeoutException);
    }

    @Test
    void withoutACertificateThatTheNodeTrustsThereIsNoLink() throws IOException, GeneralSecurityException
    {
        for (int port : new int[] {node.port, node.ordinaryPort})
        {
            assertNoLink(port, Certificates.anonymous());
            assertNoLink(port, node.stranger);
            try (LinkClient plain = new LinkClient(new Socket(NodeProcess.HOST, port)))
            {
                assertEnded(plain);
            }
        }
        NodeProcess.inTime(IN_TIME_MS, this::answersMany);
    }

    private void answersMany() throws IOException
    {
        try (LinkClient link = node.link())
        {
            for (int stream = 0; stream < 40; stream++)
                link.add(stream, 1, GuardedNode.FAST);
            link.answers(40).values().forEach(answer -> assertEquals(List.of("fast"), answer.texts()));
        }
    }
}

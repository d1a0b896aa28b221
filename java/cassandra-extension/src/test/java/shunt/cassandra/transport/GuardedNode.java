package shunt.cassandra.transport;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.util.Collections;
import java.util.List;
import javax.net.ssl.SSLContext;
import org.apache.cassandra.transport.LinkClient;

/**
 * A node whose protections are so tight that a test meets them: clients need certificates, idle connections are closed soon,
 * there are few connections and few threads, and reads are slow, row by row, without keeping a processor busy.
 */
final class GuardedNode extends CassandraProcess
{
    static final int IDLE_MS = 3000;
    static final int CONNECTIONS_MAX = 16;
    static final int CONNECTIONS_PER_ADDRESS_MAX = 12;
    /** Also for those that Cassandra's own executor does. */
    static final int REQUEST_THREADS = 2;
    static final int SLOW_LOG_MS = 300;
    /** Cassandra 5.0.9 reads it once, whatever JMX sets later. */
    static final int TIMEOUT_MS = 2500;
    private static final int ROW_MS = 5;
    private static final int WRITE_ATTEMPTS = 10;
    /** Rows of the slow partitions, each of which takes 600 ms to read. */
    private static final int ROWS = 600 / ROW_MS;
    /** Rows of the one whose read does not end in time. */
    private static final int ENDLESS_ROWS = 2 * TIMEOUT_MS / ROW_MS;
    /** Key of that one. */
    private static final int ENDLESS = 0;
    static final List<String> SLOW_ROWS = Collections.nCopies(ROWS, "slow");
    /** Is given up at {@link #TIMEOUT_MS}. */
    static final String ENDLESS_READ = "SELECT v FROM guarded.slow WHERE k = " + ENDLESS;
    static final String FAST = "SELECT v FROM guarded.fast WHERE k = 1";
    /** Keys of table guarded.slow, each of them a slow partition: enough for five tries of a test. */
    static final int KEYS = 16;

    private static GuardedNode shared;

    private final SSLContext client;
    /** Of a client with a certificate that the node does not trust. */
    final SSLContext stranger;

    public static synchronized GuardedNode shared()
    {
        if (shared == null)
            shared = start();
        return shared;
    }

    private static GuardedNode start()
    {
        try
        {
            GuardedNode node = new GuardedNode(Files.createTempDirectory("shunt-guarded"));
            inTime(TIMEOUT_MS, node::schema);
            return node;
        }
        catch (IOException e)
        {
            throw new UncheckedIOException(e);
        }
        catch (GeneralSecurityException e)
        {
            throw new IllegalStateException(e);
        }
    }

    private GuardedNode(Path directory) throws IOException, GeneralSecurityException
    {
        this(directory, Certificates.keystore(directory, "client"));
    }

    private GuardedNode(Path directory, Path clientKey) throws IOException, GeneralSecurityException
    {
        super(directory, "guarded.log", freePort(), List.of(
              "native_transport_idle_timeout: " + IDLE_MS + "ms",
              "native_transport_max_concurrent_connections: " + CONNECTIONS_MAX,
              "native_transport_max_concurrent_connections_per_ip: " + CONNECTIONS_PER_ADDRESS_MAX,
              "native_transport_max_threads: " + REQUEST_THREADS, "native_transport_timeout: " + TIMEOUT_MS + "ms", "slow_query_log_timeout: " + SLOW_LOG_MS + "ms",
              "client_encryption_options:", "  enabled: true", "  optional: false", "  require_client_auth: true",
              "  keystore: " + Certificates.keystore(directory, "node"), "  keystore_password: " + Certificates.PASSWORD,
              "  truststore: " + Certificates.truststore(clientKey, "client"), "  truststore_password: " + Certificates.PASSWORD,
              "  store_type: PKCS12"),
              List.of("cassandra.test.read_iteration_delay_ms=" + ROW_MS, "cassandra.monitoring_report_interval_ms=200"));
        client = Certificates.with(clientKey);
        stranger = Certificates.with(Certificates.keystore(directory, "stranger"));
    }

    private void schema() throws IOException
    {
        try (LinkClient link = link())
        {
            for (String statement : List.of(
                "CREATE KEYSPACE IF NOT EXISTS guarded WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                "CREATE TABLE IF NOT EXISTS guarded.slow (k int, c int, v text, PRIMARY KEY (k, c))",
                "CREATE TABLE IF NOT EXISTS guarded.fast (k int PRIMARY KEY, v text)",
                "INSERT INTO guarded.fast (k, v) VALUES (1, 'fast')"))
            {
                String error = link.ask(statement).error();
                if (error != null)
                    throw new IOException(statement + ": " + error);
            }
            for (int key = ENDLESS; key <= KEYS; key++)
            {
                StringBuilder batch = new StringBuilder("BEGIN UNLOGGED BATCH ");
                for (int row = 0; row < (key == ENDLESS ? ENDLESS_ROWS : ROWS); row++)
                    batch.append("INSERT INTO guarded.slow (k, c, v) VALUES (").append(key).append(", ").append(row).append(", 'slow');");
                // With this node's short time-outs a write may fail on a busy machine; writing it again is the same.
                String error = null;
                for (int attempt = 0; attempt < WRITE_ATTEMPTS; attempt++)
                    if ((error = link.ask(batch + " APPLY BATCH").error()) == null)
                        break;
                if (error != null)
                    throw new IOException(error);
            }
        }
    }

    /** Takes long enough to be overtaken; its answer is {@link #SLOW_ROWS}. */
    static String slow(int key)
    {
        return "SELECT v FROM guarded.slow WHERE k = " + key;
    }

    /** A socket with TLS to one of the ports. */
    Socket socket(int to, SSLContext tls) throws IOException
    {
        return tls.getSocketFactory().createSocket(HOST, to);
    }

    /** Logged in on one of the ports, from an address of this machine. */
    LinkClient login(int to, String from, String... startup) throws IOException
    {
        Socket plain = new Socket();
        plain.bind(new InetSocketAddress(from, 0));
        plain.connect(new InetSocketAddress(HOST, to));
        return new LinkClient(client.getSocketFactory().createSocket(plain, HOST, to, true)).authenticate(4, "cassandra", "cassandra", startup);
    }

    /** A link for frames. */
    LinkClient link(String... startup) throws IOException
    {
        return login(port, HOST, startup);
    }

    /** A connection to the ordinary port. */
    LinkClient ordinary(String... startup) throws IOException
    {
        return login(ordinaryPort, HOST, startup);
    }
}

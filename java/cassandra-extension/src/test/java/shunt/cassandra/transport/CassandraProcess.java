package shunt.cassandra.transport;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import shunt.cassandra.NodeProcess;

/** A node with a second port. The one that most tests of a run share asks for logins, and TLS is possible. */
public class CassandraProcess extends NodeProcess
{
    public static final int COUNT_MAX = 64;
    public static final int BYTES_MAX = 65536;
    public static final int CLIENTS_MAX = 100;
    /** Less than a full frame of the slowest node's shortest reads takes, more than of other queries. */
    static final int FRAME_TIME_MS = 60;
    /** Frames that are executed at the same time. */
    public static final int THREADS = 2;

    /** Is left there, for whoever wants to know what went wrong. */
    private static final String LOG = "cassandra.log";
    private static CassandraProcess shared;

    /** The second port. */
    public final int port;

    /** The node; started by the first test that asks for it. */
    public static synchronized CassandraProcess shared()
    {
        if (shared == null)
            shared = start();
        return shared;
    }

    private static CassandraProcess start()
    {
        try
        {
            Path directory = Files.createTempDirectory("shunt-cassandra");
            Path keystore = Certificates.keystore(directory, "node");
            return new CassandraProcess(directory, LOG, freePort(), List.of(
                "permissions_validity: 0ms", "roles_validity: 0ms", "credentials_validity: 0ms",
                "storage_compatibility_mode: NONE", "paxos_variant: v2", "user_defined_functions_enabled: true",
                "user_function_timeout_policy: ignore", "user_defined_functions_fail_timeout: 15000ms",
                "native_transport_max_frame_size: 1MiB", "native_transport_idle_timeout: 60000ms",
                "native_transport_timeout: 120000ms", "read_request_timeout: 60000ms", "range_request_timeout: 60000ms",
                "write_request_timeout: 60000ms", "native_transport_allow_older_protocols: true",
                "batch_size_warn_threshold: 1KiB", "batch_size_fail_threshold: 64KiB",
                "client_encryption_options:", "  enabled: true", "  optional: true", "  keystore: " + keystore,
                "  keystore_password: " + Certificates.PASSWORD, "  store_type: PKCS12"),
                List.of("io.netty.leakDetection.level=paranoid"));
        }
        catch (IOException e)
        {
            throw new UncheckedIOException(e);
        }
    }

    protected CassandraProcess(Path directory, String log, int port, List<String> yaml, List<String> properties) throws IOException
    {
        this(directory, log, port, yaml, properties, "Aggregated frames v1 on ", Variant.NONE);
    }

    /** A node of another kind; the caller ends it. */
    CassandraProcess(Path directory, String log, int port, List<String> yaml, List<String> properties, String ready, Variant variant)
        throws IOException
    {
        super(directory, Path.of("target", log), "port=" + port + ",threads=" + THREADS + ",frame_queries_max=" + COUNT_MAX
              + ",frame_bytes_max=" + BYTES_MAX + "B,slow_query_ms=20,frame_time_ms=" + FRAME_TIME_MS + ",clients_max=" + CLIENTS_MAX, withLogins(yaml), properties,
              ready, variant);
        this.port = port;
        endWithTheTests();
    }

    private static List<String> withLogins(List<String> yaml)
    {
        List<String> lines = new ArrayList<>(List.of("authenticator: PasswordAuthenticator", "authorizer: CassandraAuthorizer",
                                                     "role_manager: CassandraRoleManager"));
        lines.addAll(yaml);
        return lines;
    }

    /** Waits until the node has heard that all connections were closed, and has done what came over them. */
    public final void awaitNoConnections()
    {
        await("connections of other tests", () -> metric("Client", "ConnectedNativeClients", "Value") == 0);
        await("frames of other tests", () -> metric("WaitingFrames", "Value") == 0 && metric("Client", "RequestsSize", "Value") == 0);
    }

    /** A value of the extension's metrics. */
    public final long metric(String metric, String attribute)
    {
        return metric("ShuntAggregate", metric, attribute);
    }

    public final long metric(String type, String metric, String attribute)
    {
        return ((Number) attribute(name("org.apache.cassandra.metrics:type=" + type + ",name=" + metric), attribute)).longValue();
    }
}

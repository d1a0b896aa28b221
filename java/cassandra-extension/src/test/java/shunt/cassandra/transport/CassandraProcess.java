package shunt.cassandra.transport;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.stream.Stream;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import shunt.cassandra.Agent;

/**
 * One unmodified Cassandra in a process of its own, with the extension installed the way an operator does it. Shared by
 * all tests of a run; logs in are asked for, TLS is possible.
 */
public final class CassandraProcess
{
    public static final String HOST = "127.0.0.1";
    public static final String PASSWORD = "changeit";
    public static final int COUNT_MAX = 64;
    public static final int BYTES_MAX = 65536;
    public static final int CLIENTS_MAX = 100;

    private static final long START_SECONDS = 300;
    /** Is left there, for whoever wants to know what went wrong. */
    private static final Path LOG = Path.of("target", "cassandra.log").toAbsolutePath();
    private static final ObjectName STORAGE = name("org.apache.cassandra.db:type=StorageService");
    private static CassandraProcess shared;

    public final int port = freePort();
    public final int ordinaryPort = freePort();
    public final Path directory;
    private final int jmxPort = freePort();
    private final int storagePort = freePort();
    private final Process process;
    private final MBeanServerConnection jmx;

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
            return new CassandraProcess();
        }
        catch (IOException | InterruptedException e)
        {
            throw new IllegalStateException(e);
        }
    }

    private CassandraProcess() throws IOException, InterruptedException
    {
        directory = Files.createTempDirectory("shunt-cassandra");
        Path keystore = keystore();
        Files.writeString(directory.resolve("cassandra.yaml"), yaml(keystore));
        Files.writeString(directory.resolve("logback.xml"), "<configuration><appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\">"
                          + "<encoder><pattern>%-5level [%thread] %date %F:%L - %msg%n</pattern></encoder></appender>"
                          + "<root level=\"INFO\"><appender-ref ref=\"OUT\"/></root></configuration>");
        process = new ProcessBuilder(command()).directory(directory.toFile()).redirectErrorStream(true)
                                               .redirectOutput(LOG.toFile()).start();
        Runtime.getRuntime().addShutdownHook(new Thread(this::destroy));
        awaitLog("Aggregated frames v1 on ");
        String url = "service:jmx:rmi:///jndi/rmi://" + HOST + ":" + jmxPort + "/jmxrmi";
        jmx = JMXConnectorFactory.connect(new JMXServiceURL(url)).getMBeanServerConnection();
    }

    private List<String> command() throws IOException
    {
        Path classes = Path.of("target", "classes").toAbsolutePath();
        List<String> classPath = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(":"))
        {
            if (entry.endsWith(".jar") && Path.of(entry).getFileName().toString().matches("(?!junit|opentest4j|apiguardian|surefire).*"))
                classPath.add(entry);
        }
        Path options = Path.of("..", "..", "tests", "ring", "jvm17.options").toAbsolutePath().normalize();
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "@" + options,
            "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-javaagent:" + agentJar(classes) + "=port=" + port + ",threads=2,frame_queries_max=" + COUNT_MAX
            + ",frame_bytes_max=" + BYTES_MAX + "B,slow_query_ms=20,clients_max=" + CLIENTS_MAX));
        for (String property : List.of("cassandra.config=file://" + directory + "/cassandra.yaml",
                                       "cassandra.storagedir=" + directory, "cassandra.jmx.local.port=" + jmxPort,
                                       "logback.configurationFile=" + directory + "/logback.xml", "cassandra-foreground=yes",
                                       "cassandra.ring_delay_ms=1", "cassandra.skip_wait_for_gossip_to_settle=0",
                                       "cassandra.superuser_setup_delay_ms=0", "cassandra.auth_bcrypt_gensalt_log2_rounds=4", "cassandra.memtable.row_overhead_size=180",
                                       "cassandra.available_processors=2", "io.netty.eventLoopThreads=2", "io.netty.leakDetection.level=paranoid"))
            command.add("-D" + property);
        command.addAll(List.of("-cp", String.join(":", classPath), "org.apache.cassandra.service.CassandraDaemon"));
        return command;
    }

    /** The jar as it is installed; Maven packs it after the tests only. */
    private Path agentJar(Path classes) throws IOException
    {
        Manifest manifest = new Manifest();
        manifest.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
        manifest.getMainAttributes().putValue("Premain-Class", Agent.class.getName());
        Path jar = directory.resolve("extension.jar");
        try (OutputStream file = Files.newOutputStream(jar);
             JarOutputStream out = new JarOutputStream(file, manifest);
             Stream<Path> files = Files.walk(classes))
        {
            for (Path path : files.filter(Files::isRegularFile).toList())
            {
                out.putNextEntry(new JarEntry(classes.relativize(path).toString()));
                out.write(Files.readAllBytes(path));
            }
        }
        return jar;
    }

    private Path keystore() throws IOException, InterruptedException
    {
        Path keystore = directory.resolve("keystore.p12");
        Process keytool = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
            "-genkeypair", "-alias", "node", "-keyalg", "EC", "-dname", "CN=node", "-validity", "2", "-storetype", "PKCS12",
            "-keystore", keystore.toString(), "-storepass", PASSWORD).redirectErrorStream(true).start();
        String said = new String(keytool.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (keytool.waitFor() != 0)
            throw new IllegalStateException("keytool: " + said);
        return keystore;
    }

    private String yaml(Path keystore)
    {
        return String.join("\n",
            "cluster_name: extension", "num_tokens: 1", "initial_token: 0", "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch: SimpleSnitch", "listen_address: " + HOST, "rpc_address: " + HOST,
            "native_transport_port: " + ordinaryPort, "storage_port: " + storagePort,
            "seed_provider:", "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
            "    parameters: [{seeds: \"" + HOST + ":" + storagePort + "\"}]",
            "data_file_directories: [" + directory + "/data]", "commitlog_directory: " + directory + "/commitlog",
            "saved_caches_directory: " + directory + "/caches", "hints_directory: " + directory + "/hints",
            "cdc_raw_directory: " + directory + "/cdc", "commitlog_sync: periodic", "commitlog_sync_period: 10000ms",
            "commitlog_segment_size: 8MiB", "authenticator: PasswordAuthenticator", "authorizer: CassandraAuthorizer",
            "role_manager: CassandraRoleManager", "permissions_validity: 0ms", "roles_validity: 0ms", "credentials_validity: 0ms",
            "storage_compatibility_mode: NONE", "auto_snapshot: false", "paxos_variant: v2", "memtable_heap_space: 64MiB",
            "memtable_offheap_space: 64MiB", "file_cache_size: 32MiB", "networking_cache_size: 16MiB",
            "user_defined_functions_enabled: true", "user_function_timeout_policy: ignore", "user_defined_functions_fail_timeout: 15000ms",
            "native_transport_max_frame_size: 1MiB", "native_transport_idle_timeout: 60000ms",
            "native_transport_timeout: 120000ms", "read_request_timeout: 60000ms", "range_request_timeout: 60000ms",
            "write_request_timeout: 60000ms",
            "native_transport_allow_older_protocols: true", "batch_size_warn_threshold: 1KiB", "batch_size_fail_threshold: 64KiB",
            "client_encryption_options:", "  enabled: true", "  optional: true", "  keystore: " + keystore,
            "  keystore_password: " + PASSWORD, "  store_type: PKCS12", "");
    }

    /** Calls an operation of Cassandra's StorageService. */
    public Object storage(String operation, Object... arguments)
    {
        String[] types = Arrays.stream(arguments).map(CassandraProcess::typeOf).toArray(String[]::new);
        try
        {
            return jmx.invoke(STORAGE, operation, arguments, types);
        }
        catch (Exception e)
        {
            throw new IllegalStateException(operation, e);
        }
    }

    private static String typeOf(Object argument)
    {
        return argument instanceof Boolean ? "boolean"
               : argument instanceof Long ? "long"
               : argument instanceof Integer ? "int"
               : argument.getClass().getName();
    }

    public Object getStorage(String attribute)
    {
        try
        {
            return jmx.getAttribute(STORAGE, attribute);
        }
        catch (Exception e)
        {
            throw new IllegalStateException(attribute, e);
        }
    }

    public void setStorage(String attribute, Object value)
    {
        try
        {
            jmx.setAttribute(STORAGE, new javax.management.Attribute(attribute, value));
        }
        catch (Exception e)
        {
            throw new IllegalStateException(attribute, e);
        }
    }

    /** A value of the extension's metrics. */
    public long metric(String metric, String attribute)
    {
        return metric("ShuntAggregate", metric, attribute);
    }

    public long metric(String type, String metric, String attribute)
    {
        try
        {
            return ((Number) jmx.getAttribute(name("org.apache.cassandra.metrics:type=" + type + ",name=" + metric), attribute)).longValue();
        }
        catch (Exception e)
        {
            throw new IllegalStateException(metric, e);
        }
    }

    public String log()
    {
        try
        {
            return Files.readString(LOG);
        }
        catch (IOException e)
        {
            throw new IllegalStateException(e);
        }
    }

    private void awaitLog(String text) throws InterruptedException
    {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        while (!log().contains(text))
        {
            if (!process.isAlive() || System.nanoTime() > deadline)
                throw new IllegalStateException("Cassandra did not start:\n" + log());
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }

    private void destroy()
    {
        process.destroyForcibly();
        try (Stream<Path> files = Files.walk(directory))
        {
            process.waitFor();
            for (Path path : files.sorted(Comparator.reverseOrder()).toList())
                Files.deleteIfExists(path);
        }
        catch (IOException | InterruptedException e)
        {
            System.err.println("left behind: " + directory + " (" + e + ")");
        }
    }

    private static int freePort()
    {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(HOST)))
        {
            return socket.getLocalPort();
        }
        catch (IOException e)
        {
            throw new IllegalStateException(e);
        }
    }

    private static ObjectName name(String text)
    {
        try
        {
            return new ObjectName(text);
        }
        catch (javax.management.MalformedObjectNameException e)
        {
            throw new IllegalArgumentException(e);
        }
    }
}

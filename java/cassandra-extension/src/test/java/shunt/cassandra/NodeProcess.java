package shunt.cassandra;

import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.stream.Stream;
import javax.management.Attribute;
import javax.management.MBeanOperationInfo;
import javax.management.MBeanParameterInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * One unmodified Cassandra in a process of its own, on ports that are free, with the extension installed the way an
 * operator does it. What a test needs besides that is in its subclasses.
 */
public abstract class NodeProcess implements AutoCloseable
{
    public static final String HOST = "127.0.0.1";

    private static final long START_SECONDS = 300;
    private static final long END_SECONDS = 180;
    /** Only what never happens takes so long. */
    private static final long AWAIT_SECONDS = 180;
    private static final int TRIES = 5;
    /** Below the ports that Linux gives to connections: one of those may be another's before the node listens to it. */
    private static final int PORTS_FIRST = 11_000;
    private static final int PORTS = 3_000;
    private static final AtomicInteger NEXT_PORT = new AtomicInteger(ThreadLocalRandom.current().nextInt(PORTS));
    private static final Path HARNESS = Path.of("..", "..", "tests", "harness").toAbsolutePath().normalize();
    private static final ObjectName STORAGE = name("org.apache.cassandra.db:type=StorageService");

    public final Path directory;
    public final int ordinaryPort = freePort();
    private final int jmxPort = freePort();
    private final int storagePort = freePort();
    private final Path log;
    private final Process process;
    private final JMXConnector connector;
    private final MBeanServerConnection beans;

    /**
     * What differs from the node of most tests.
     *
     * @param release of Cassandra, whose jars are in target/releases; null: the one that the extension is compiled against
     * @param added classes in the extension's jar besides its own, by their files' names
     */
    public record Variant(String release, Map<String, byte[]> added)
    {
        public static final Variant NONE = new Variant(null, Map.of());
    }

    protected NodeProcess(Path directory, Path log, String settings, List<String> yaml, List<String> properties, String ready)
        throws IOException
    {
        this(directory, log, settings, yaml, properties, ready, Variant.NONE);
    }

    /**
     * Starts the node and waits for it.
     *
     * @param directory for all that is the node's; another node's, which has ended, to go on with its data
     * @param log file for what it says
     * @param settings behind the agent's jar
     * @param yaml lines of cassandra.yaml besides those that every node here has
     * @param properties of the Java virtual machine, without -D
     * @param ready what is in the log when the node is of use
     * @param variant what else is different
     */
    protected NodeProcess(Path directory, Path log, String settings, List<String> yaml, List<String> properties, String ready,
                          Variant variant) throws IOException
    {
        this.directory = directory;
        this.log = log.toAbsolutePath();
        List<String> lines = new ArrayList<>(yaml());
        if (yaml.stream().anyMatch(line -> line.startsWith("commitlog_sync:")))
            lines.removeIf(line -> line.startsWith("commitlog_sync"));
        lines.addAll(yaml);
        Files.write(directory.resolve("cassandra.yaml"), lines);
        process = new ProcessBuilder(command(settings, properties, variant)).directory(directory.toFile()).redirectErrorStream(true)
                                                                   .redirectOutput(this.log.toFile()).start();
        awaitLog(ready);
        connector = connect();
        beans = connector.getMBeanServerConnection();
    }

    private JMXConnector connect() throws IOException
    {
        try
        {
            return JMXConnectorFactory.connect(new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + HOST + ":" + jmxPort + "/jmxrmi"));
        }
        catch (IOException e)
        {
            process.destroyForcibly();
            throw e;
        }
    }

    private List<String> yaml()
    {
        return List.of(
            "cluster_name: extension", "num_tokens: 1", "initial_token: 0", "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch: SimpleSnitch", "listen_address: " + HOST, "rpc_address: " + HOST,
            "native_transport_port: " + ordinaryPort, "storage_port: " + storagePort,
            "seed_provider:", "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
            "    parameters: [{seeds: \"" + HOST + ":" + storagePort + "\"}]",
            "data_file_directories: [" + directory + "/data]", "commitlog_directory: " + directory + "/commitlog",
            "saved_caches_directory: " + directory + "/saved_caches", "hints_directory: " + directory + "/hints",
            "cdc_raw_directory: " + directory + "/cdc", "commitlog_sync: periodic", "commitlog_sync_period: 10000ms",
            "commitlog_segment_size: 8MiB", "auto_snapshot: false", "concurrent_compactors: 1", "memtable_heap_space: 64MiB",
            "memtable_offheap_space: 64MiB", "file_cache_size: 32MiB", "networking_cache_size: 16MiB");
    }

    private List<String> command(String settings, List<String> properties, Variant variant) throws IOException
    {
        List<String> classPath = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(":"))
        {
            if (entry.endsWith(".jar") && Path.of(entry).getFileName().toString().matches("(?!junit|opentest4j|apiguardian|surefire).*"))
                classPath.add(entry);
        }
        if (variant.release != null)
        {
            classPath.removeIf(entry -> Path.of(entry).getFileName().toString().startsWith("cassandra-all-"));
            try (Stream<Path> jars = Files.list(Path.of("target", "releases", variant.release).toAbsolutePath()))
            {
                jars.forEach(jar -> classPath.add(0, jar.toString()));
            }
        }
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "@" + HARNESS.resolve("jvm17.options"), "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-javaagent:" + agentJar(Path.of("target", "classes").toAbsolutePath(), variant.added) + "=" + settings));
        for (String property : List.of("cassandra.config=file://" + directory + "/cassandra.yaml",
                                       "cassandra.storagedir=" + directory, "cassandra.jmx.local.port=" + jmxPort,
                                       "logback.configurationFile=" + HARNESS.resolve("logback.xml"), "cassandra-foreground=yes",
                                       "cassandra.ring_delay_ms=1", "cassandra.skip_wait_for_gossip_to_settle=0",
                                       "cassandra.superuser_setup_delay_ms=0", "cassandra.auth_bcrypt_gensalt_log2_rounds=4",
                                       "cassandra.memtable.row_overhead_size=180", "cassandra.available_processors=2",
                                       "io.netty.eventLoopThreads=2"))
            command.add("-D" + property);
        properties.forEach(property -> command.add("-D" + property));
        command.addAll(List.of("-cp", String.join(":", classPath), "org.apache.cassandra.service.CassandraDaemon"));
        return command;
    }

    /** The jar as it is installed; Maven packs it after the tests only. */
    private Path agentJar(Path classes, Map<String, byte[]> added) throws IOException
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
            for (Map.Entry<String, byte[]> entry : added.entrySet())
            {
                out.putNextEntry(new JarEntry(entry.getKey()));
                out.write(entry.getValue());
            }
        }
        return jar;
    }

    private void awaitLog(String text)
    {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        while (!log().contains(text))
        {
            if (!process.isAlive() || System.nanoTime() > deadline)
            {
                process.destroyForcibly();
                throw new IllegalStateException("Cassandra did not start:\n" + log());
            }
            pause(50);
        }
    }

    /** What the node has said. */
    public final String log()
    {
        try
        {
            return Files.readString(log);
        }
        catch (IOException e)
        {
            throw new UncheckedIOException(e);
        }
    }

    /** Waits until the node is so; fails if it does not become so. */
    public static void await(String what, BooleanSupplier condition)
    {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(AWAIT_SECONDS);
        while (!condition.getAsBoolean())
        {
            if (System.nanoTime() > deadline)
                throw new AssertionError("not within " + AWAIT_SECONDS + " s: " + what);
            pause(5);
        }
    }

    public static void pause(long milliseconds)
    {
        try
        {
            TimeUnit.MILLISECONDS.sleep(milliseconds);
        }
        catch (InterruptedException e)
        {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    /** Calls an operation of Cassandra's StorageService. */
    public final Object storage(String operation, Object... arguments)
    {
        return invoke(STORAGE, operation, arguments);
    }

    public final Object getStorage(String attribute)
    {
        return attribute(STORAGE, attribute);
    }

    public final void setStorage(String attribute, Object value)
    {
        setAttribute(STORAGE, attribute, value);
    }

    /** Calls the operation of this name that takes so many arguments. */
    public final Object invoke(ObjectName bean, String operation, Object... arguments)
    {
        try
        {
            MBeanOperationInfo found = Arrays.stream(beans.getMBeanInfo(bean).getOperations())
                .filter(info -> info.getName().equals(operation) && info.getSignature().length == arguments.length)
                .findFirst().orElseThrow();
            String[] types = Arrays.stream(found.getSignature()).map(MBeanParameterInfo::getType).toArray(String[]::new);
            return beans.invoke(bean, operation, arguments, types);
        }
        catch (Exception e)
        {
            throw new IllegalStateException(bean + " " + operation, e);
        }
    }

    public final Object attribute(ObjectName bean, String attribute)
    {
        try
        {
            return beans.getAttribute(bean, attribute);
        }
        catch (Exception e)
        {
            throw new IllegalStateException(bean + " " + attribute, e);
        }
    }

    public final void setAttribute(ObjectName bean, String attribute, Object value)
    {
        try
        {
            beans.setAttribute(bean, new Attribute(attribute, value));
        }
        catch (Exception e)
        {
            throw new IllegalStateException(bean + " " + attribute, e);
        }
    }

    public static ObjectName name(String text)
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

    /** A port that nobody listens to, and that this process has not been given before. */
    public static int freePort()
    {
        for (int tries = 0; tries < PORTS; tries++)
        {
            int port = PORTS_FIRST + NEXT_PORT.getAndIncrement() % PORTS;
            try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getByName(HOST)))
            {
                return socket.getLocalPort();
            }
            catch (IOException e)
            {
                // Somebody listens to it.
            }
        }
        throw new IllegalStateException("no port from " + PORTS_FIRST + " on is free");
    }

    /** A part of a test that has to be over within a time. */
    public interface Step
    {
        void run() throws IOException;
    }

    /**
     * Takes a step again that failed if it took longer than it may: then the machine stood still, and the node may have given
     * up what the step waited for. A step that fails in time fails the test, and so does one that is late each time.
     */
    public static void inTime(long milliseconds, Step step) throws IOException
    {
        for (int tries = 1; ; tries++)
        {
            long begun = System.nanoTime();
            try
            {
                step.run();
                return;
            }
            catch (AssertionError | RuntimeException | IOException e)
            {
                if (tries == TRIES || System.nanoTime() - begun < TimeUnit.MILLISECONDS.toNanos(milliseconds))
                    throw e;
            }
        }
    }

    /** For a node that all tests of a run share: ends it after the last of them, and deletes its directory. */
    protected final void endWithTheTests()
    {
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
        {
            try
            {
                process.destroyForcibly().waitFor();
                deleteDirectory();
            }
            catch (IOException | InterruptedException e)
            {
                System.err.println("left behind: " + directory + " (" + e + ")");
            }
        }));
    }

    private void deleteDirectory() throws IOException
    {
        try (Stream<Path> files = Files.walk(directory))
        {
            for (Path path : files.sorted(Comparator.reverseOrder()).toList())
                Files.deleteIfExists(path);
        }
    }

    /** Ends it as an operator does: what it has written is there at the next start. */
    public final void stop()
    {
        disconnect();
        process.destroy();
        awaitEnd();
    }

    /** Kills it. */
    @Override
    public final void close()
    {
        disconnect();
        process.destroyForcibly();
        awaitEnd();
    }

    private void awaitEnd()
    {
        process.onExit().orTimeout(END_SECONDS, TimeUnit.SECONDS).join();
    }

    private void disconnect()
    {
        try
        {
            connector.close();
        }
        catch (IOException e)
        {
            System.err.println("JMX of a node that ends: " + e);
        }
    }
}

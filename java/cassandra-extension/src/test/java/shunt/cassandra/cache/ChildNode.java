package shunt.cassandra.cache;

import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.Attributes;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import javax.management.Attribute;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.transport.SimpleClient;

/** One Cassandra in a process of its own, on ports that are free, with the extension as its agent and a tiny row cache. */
final class ChildNode implements AutoCloseable
{
    private static final long START_SECONDS = 180;
    private final Path directory;
    private final int cqlPort = freePort();
    private final int jmxPort = freePort();
    private final Process process;
    private JMXConnector jmx;

    ChildNode(Path directory, String memory, String ssd) throws IOException
    {
        this.directory = directory;
        Files.writeString(directory.resolve("cassandra.yaml"), yaml(memory));
        List<String> command = new ArrayList<>();
        command.add(ProcessHandle.current().info().command().orElseThrow());
        command.add("@" + Path.of("../../tests/ring/jvm17.options").toAbsolutePath().normalize());
        command.addAll(List.of("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k",
                               "-javaagent:" + agentJar() + "=port=0,row_cache_directory=" + directory.resolve("ssd")
                               + ",row_cache_ssd_size=" + ssd,
                               "-Dcassandra.config=file://" + directory.resolve("cassandra.yaml"),
                               "-Dcassandra.storagedir=" + directory, "-Dcassandra.jmx.local.port=" + jmxPort,
                               "-Dcassandra-foreground=yes", "-Dcassandra.ring_delay_ms=100",
                               "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.superuser_setup_delay_ms=0",
                               "-Dcassandra.memtable.row_overhead_size=180", "-Dcassandra.available_processors=2",
                               "-Dlogback.configurationFile="
                               + Path.of("../../tests/ring/logback.xml").toAbsolutePath().normalize(),
                               "-cp", System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                               "org.apache.cassandra.service.CassandraDaemon"));
        process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log().toFile()).start();
        waitReady();
    }

    private static int freePort()
    {
        try (ServerSocket socket = new ServerSocket(0))
        {
            return socket.getLocalPort();
        }
        catch (IOException e)
        {
            throw new java.io.UncheckedIOException(e);
        }
    }

    /** The classes are on the class path; an agent needs a jar with a manifest, no more. */
    private File agentJar() throws IOException
    {
        Manifest manifest = new Manifest();
        manifest.getMainAttributes().put(Attributes.Name.MANIFEST_VERSION, "1.0");
        manifest.getMainAttributes().putValue("Premain-Class", "shunt.cassandra.Agent");
        File jar = directory.resolve("agent.jar").toFile();
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar.toPath()), manifest))
        {
            out.finish();
        }
        return jar;
    }

    private String yaml(String memory)
    {
        return """
            cluster_name: row cache
            num_tokens: 1
            initial_token: 0
            auto_bootstrap: false
            partitioner: org.apache.cassandra.dht.Murmur3Partitioner
            endpoint_snitch: SimpleSnitch
            listen_address: 127.0.0.1
            rpc_address: 127.0.0.1
            native_transport_port: %d
            storage_port: %d
            seed_provider:
              - class_name: org.apache.cassandra.locator.SimpleSeedProvider
                parameters: [{seeds: "127.0.0.1"}]
            data_file_directories: [%3$s/data]
            commitlog_directory: %3$s/commitlog
            saved_caches_directory: %3$s/saved_caches
            hints_directory: %3$s/hints
            cdc_raw_directory: %3$s/cdc_raw
            commitlog_sync: periodic
            commitlog_sync_period: 10000ms
            commitlog_segment_size: 8MiB
            auto_snapshot: false
            file_cache_size: 32MiB
            memtable_heap_space: 64MiB
            memtable_offheap_space: 64MiB
            concurrent_compactors: 1
            row_cache_class_name: shunt.cassandra.cache.TieredRowCacheProvider
            row_cache_size: %4$s
            """.formatted(cqlPort, freePort(), directory, memory);
    }

    Path log()
    {
        return directory.resolve("node.log");
    }

    private void waitReady() throws IOException
    {
        long end = System.nanoTime() + START_SECONDS * 1_000_000_000L;
        while (true)
        {
            try (Socket socket = new Socket("127.0.0.1", cqlPort))
            {
                if (socket.isConnected())
                    return;
            }
            catch (IOException e)
            {
                if (!process.isAlive() || System.nanoTime() > end)
                {
                    process.destroyForcibly();
                    List<String> lines = Files.readAllLines(log());
                    throw new IOException("the node does not start: "
                                          + String.join("\n", lines.subList(Math.max(0, lines.size() - 30), lines.size())), e);
                }
            }
            pause(200);
        }
    }

    static void pause(long milliseconds)
    {
        try
        {
            Thread.sleep(milliseconds);
        }
        catch (InterruptedException e)
        {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    SimpleClient client() throws IOException
    {
        return SimpleClient.builder("127.0.0.1", cqlPort).protocolVersion(ProtocolVersion.V4).build().connect(false);
    }

    private MBeanServerConnection beans() throws IOException
    {
        if (jmx == null)
            jmx = JMXConnectorFactory.connect(new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + jmxPort + "/jmxrmi"));
        return jmx.getMBeanServerConnection();
    }

    /** A figure of the row cache; the scope is RowCache, RowCacheMemory or RowCacheSsd. */
    double figure(String scope, String name) throws Exception
    {
        ObjectName bean = new ObjectName("org.apache.cassandra.metrics:type=Cache,scope=" + scope + ",name=" + name);
        String attribute = scope.equals("RowCache") && (name.equals("Hits") || name.equals("Requests")) ? "Count" : "Value";
        return ((Number) beans().getAttribute(bean, attribute)).doubleValue();
    }

    Object storageService(String operation, Object[] arguments, String... types) throws Exception
    {
        return beans().invoke(new ObjectName("org.apache.cassandra.db:type=StorageService"), operation, arguments, types);
    }

    void flush(String keyspace) throws Exception
    {
        storageService("forceKeyspaceFlush", new Object[] {keyspace, new String[0]}, "java.lang.String", "[Ljava.lang.String;");
    }

    void compact(String keyspace) throws Exception
    {
        storageService("forceKeyspaceCompaction", new Object[] {false, keyspace, new String[0]}, "boolean", "java.lang.String",
                       "[Ljava.lang.String;");
    }

    /** {@code nodetool cleanup}, which goes through the cache's keys. */
    void cleanup(String keyspace) throws Exception
    {
        storageService("forceKeyspaceCleanup", new Object[] {keyspace, new String[0]}, "java.lang.String", "[Ljava.lang.String;");
    }

    /** {@code nodetool invalidaterowcache} and others. */
    void caches(String operation, Object[] arguments, String... types) throws Exception
    {
        beans().invoke(new ObjectName("org.apache.cassandra.db:type=Caches"), operation, arguments, types);
    }

    /** {@code nodetool setcachecapacity}. */
    void rowCacheCapacity(long mebibytes) throws Exception
    {
        beans().setAttribute(new ObjectName("org.apache.cassandra.db:type=Caches"),
                             new Attribute("RowCacheCapacityInMB", mebibytes));
    }

    @Override
    public void close() throws IOException
    {
        if (jmx != null)
            jmx.close();
        process.destroyForcibly();
        try
        {
            process.waitFor();
        }
        catch (InterruptedException e)
        {
            Thread.currentThread().interrupt();
        }
    }
}

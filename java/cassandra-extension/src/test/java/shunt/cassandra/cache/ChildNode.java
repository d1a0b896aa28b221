package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import javax.management.ObjectName;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.transport.SimpleClient;
import shunt.cassandra.NodeProcess;

/** A node with a tiny row cache in both tiers, and no second port. */
final class ChildNode extends NodeProcess
{
    private static final ObjectName CACHES = name("org.apache.cassandra.db:type=Caches");

    /** @param log its name in the directory */
    ChildNode(Path directory, String log, String memory, String ssd) throws IOException
    {
        super(directory, directory.resolve(log), "port=0,row_cache_directory=" + directory.resolve("ssd") + ",row_cache_ssd_size=" + ssd,
              List.of("row_cache_class_name: shunt.cassandra.cache.TieredRowCacheProvider", "row_cache_size: " + memory,
                      "read_request_timeout: 60000ms", "range_request_timeout: 60000ms", "write_request_timeout: 60000ms",
                      "native_transport_timeout: 120000ms"),
              List.of(), "Startup complete");
    }

    SimpleClient client() throws IOException
    {
        return SimpleClient.builder(HOST, ordinaryPort).protocolVersion(ProtocolVersion.V4).build().connect(false);
    }

    /** A figure of the row cache; the scope is RowCache, RowCacheMemory or RowCacheSsd. */
    double figure(String scope, String name)
    {
        String attribute = scope.equals("RowCache") && (name.equals("Hits") || name.equals("Requests")) ? "Count" : "Value";
        return ((Number) attribute(name("org.apache.cassandra.metrics:type=Cache,scope=" + scope + ",name=" + name), attribute)).doubleValue();
    }

    void flush(String keyspace)
    {
        storage("forceKeyspaceFlush", keyspace, new String[0]);
    }

    void compact(String keyspace)
    {
        storage("forceKeyspaceCompaction", false, keyspace, new String[0]);
    }

    /** {@code nodetool cleanup}, which goes through the cache's keys. */
    void cleanup(String keyspace)
    {
        storage("forceKeyspaceCleanup", keyspace, new String[0]);
    }

    /** {@code nodetool import}: takes the SSTables of a directory in. */
    void importSSTables(String keyspace, String table, Path from)
    {
        ObjectName bean = name("org.apache.cassandra.db:type=ColumnFamilies,keyspace=" + keyspace + ",columnfamily=" + table);
        Object failed = invoke(bean, "importNewSSTables", Set.of(from.toString()), true, true, true, true, true, false, true, false, false);
        if (!((List<?>) failed).isEmpty())
            throw new IllegalStateException("not imported: " + failed);
    }

    /** {@code nodetool invalidaterowcache} and others. */
    void caches(String operation)
    {
        invoke(CACHES, operation);
    }

    /** {@code nodetool setcachecapacity}. */
    void rowCacheCapacity(long mebibytes)
    {
        setAttribute(CACHES, "RowCacheCapacityInMB", mebibytes);
    }

    /** {@code row_cache_save_period}. */
    void rowCacheSavePeriod(int seconds)
    {
        setAttribute(CACHES, "RowCacheSavePeriodInSeconds", seconds);
    }
}

package shunt.cassandra.cache;

import static org.apache.cassandra.metrics.CassandraMetricsRegistry.Metrics;

import com.codahale.metrics.Gauge;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Supplier;
import org.apache.cassandra.metrics.DefaultNameFactory;

/**
 * What JMX shows beside Cassandra's own figures of the row cache: {@code org.apache.cassandra.metrics:type=Cache} with the
 * scopes {@code RowCacheMemory} and {@code RowCacheSsd}.
 */
final class CacheGauges
{
    private CacheGauges()
    {
    }

    /** @param ssdConfigured whether there should be a tier on SSD; {@code On} is 0 then also when it could not be used at all */
    static void register(TieredRowCache cache, boolean ssdConfigured)
    {
        registerMemory(cache);
        DefaultNameFactory ssd = new DefaultNameFactory("Cache", "RowCacheSsd");
        if (cache.ssd() != null)
            registerSsd(ssd, cache);
        else if (ssdConfigured)
            gauge(ssd, "On", () -> 0);
    }

    private static void registerMemory(TieredRowCache cache)
    {
        CacheStatistics statistics = cache.statistics();
        DefaultNameFactory memory = new DefaultNameFactory("Cache", "RowCacheMemory");
        count(memory, "Hits", statistics.memoryHits);
        count(memory, "Misses", statistics.misses);
        gauge(memory, "Bytes", cache::weightedSize);
        gauge(memory, "Entries", cache::memoryRecords);
        count(memory, "RecordsEncoded", statistics.encoded);
        count(memory, "RecordBytesEncoded", statistics.encodedBytes);
        count(memory, "CatalogueSavedBytes", statistics.catalogueSavedBytes);
        gauge(memory, "CatalogueIds", () -> cache.catalogue().ids().size());
        count(memory, "Undecodable", statistics.undecodable);
    }

    private static void registerSsd(DefaultNameFactory ssd, TieredRowCache cache)
    {
        CacheStatistics statistics = cache.statistics();
        gauge(ssd, "On", () -> cache.ssd().isOn() ? 1 : 0);
        gauge(ssd, "Entries", cache::ssdRecords);
        gauge(ssd, "IndexBytes", () -> cache.ssd().index().bytes());
        gauge(ssd, "WaitingBytes", () -> cache.ssd().queueBytes());
        gauge(ssd, "WriteAmplification", statistics::writeAmplification);
        count(ssd, "Hits", statistics.ssdHits);
        count(ssd, "BufferHits", statistics.bufferHits);
        count(ssd, "Reads", statistics.ssdReads);
        count(ssd, "FalseReads", statistics.falseReads);
        count(ssd, "RacedReads", statistics.racedReads);
        count(ssd, "Busy", statistics.ssdBusy);
        count(ssd, "StreamsOutdating", statistics.outdatedRanges);
        count(ssd, "Outdated", statistics.outdated);
        count(ssd, "Damaged", statistics.damaged);
        count(ssd, "Cascaded", statistics.cascaded);
        count(ssd, "CascadedBytes", statistics.cascadedBytes);
        count(ssd, "CascadesDropped", statistics.cascadesDropped);
        count(ssd, "NotAdmitted", statistics.notAdmitted);
        count(ssd, "TooLarge", statistics.tooLarge);
        count(ssd, "BytesWritten", statistics.ssdBytesWritten);
        count(ssd, "Collections", statistics.collections);
        count(ssd, "CollectedBytesRead", statistics.collectedBytesRead);
        count(ssd, "CollectedRecordsKept", statistics.collectedKept);
        count(ssd, "CollectedBytesKept", statistics.collectedKeptBytes);
        count(ssd, "CollectedRecordsDropped", statistics.collectedDropped);
    }

    private static void count(DefaultNameFactory names, String name, LongAdder adder)
    {
        gauge(names, name, adder::sum);
    }

    private static void gauge(DefaultNameFactory names, String name, Supplier<? extends Number> value)
    {
        Gauge<Number> gauge = value::get;
        Metrics.register(names.createMetricName(name), gauge);
    }
}

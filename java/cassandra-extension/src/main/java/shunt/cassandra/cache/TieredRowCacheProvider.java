package shunt.cassandra.cache;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.apache.cassandra.cache.CacheProvider;
import org.apache.cassandra.cache.ICache;
import org.apache.cassandra.cache.IRowCacheEntry;
import org.apache.cassandra.cache.NopCacheProvider;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.utils.FBUtilities;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import shunt.cassandra.RequiredMembers;
import shunt.cassandra.Settings;

/**
 * For {@code row_cache_class_name} in cassandra.yaml. The memory's size is {@code row_cache_size}; the SSD's directory and size
 * come from the agent's settings {@code row_cache_directory} and {@code row_cache_ssd_size}, or, without the agent, from the
 * system properties {@code shunt.row_cache_directory} and {@code shunt.row_cache_ssd_size} (for example 64GiB). Without
 * them, and if the SSD cannot be used, it is a cache in memory. On a Cassandra that lacks something which it needs it is none.
 */
public final class TieredRowCacheProvider implements CacheProvider<RowCacheKey, IRowCacheEntry>
{
    private static final Logger logger = LoggerFactory.getLogger(TieredRowCacheProvider.class);

    /** Cassandra calls this once, with {@code row_cache_size} above 0. */
    @Override
    public ICache<RowCacheKey, IRowCacheEntry> create()
    {
        if (!hasAll())
            return new NopCacheProvider().create();
        long memoryBytes = DatabaseDescriptor.getRowCacheSizeInMiB() << 20;
        Settings settings = settings();
        CacheParts parts = settings.rowCacheDirectory()
                                   .flatMap(directory -> onSsd(memoryBytes, directory, settings.rowCacheSsdBytes()))
                                   .orElseGet(() -> CacheParts.inMemory(memoryBytes, Tables.ofSchema()));
        TieredRowCache cache = new TieredRowCache(parts, new PartitionCodec());
        CacheGauges.register(cache, settings.rowCacheDirectory().isPresent());
        return cache;
    }

    /** Whether this Cassandra has all that the cache needs; if not, says what it lacks, and there is no row cache. */
    private static boolean hasAll()
    {
        try
        {
            List<String> missing = RequiredMembers.missing(TieredRowCacheProvider.class.getPackageName());
            if (!missing.isEmpty())
                logger.error("row cache: it is off, for Cassandra {} has no {}. The node goes on without it",
                             FBUtilities.getReleaseVersionString(), String.join(", ", missing));
            return missing.isEmpty();
        }
        catch (IOException e)
        {
            logger.error("row cache: it is off, for the extension's own classes cannot be read. The node goes on without it", e);
            return false;
        }
    }

    /** The agent's settings, or those of the system properties. */
    private static Settings settings()
    {
        Settings current = Settings.current();
        String directory = System.getProperty("shunt.row_cache_directory");
        String size = System.getProperty("shunt.row_cache_ssd_size");
        if (current.rowCacheDirectory().isPresent() || directory == null && size == null)
            return current;
        StringBuilder argument = new StringBuilder();
        if (directory != null)
            argument.append("row_cache_directory=").append(directory);
        if (size != null)
            argument.append(directory == null ? "" : ",").append("row_cache_ssd_size=").append(size);
        return Settings.parse(argument.toString());
    }

    private static Optional<CacheParts> onSsd(long memoryBytes, Path directory, long bytes)
    {
        if (bytes < CacheParts.ssdBytesMin())
        {
            logger.warn("row cache: row_cache_ssd_size has to be at least {} bytes; the cache is in memory only",
                        CacheParts.ssdBytesMin());
            return Optional.empty();
        }
        try
        {
            CacheParts parts = CacheParts.onSsd(memoryBytes, directory, bytes, Tables.ofSchema(),
                                                DatabaseDescriptor.getConcurrentReaders());
            logger.info("row cache: {} bytes of memory, then {} bytes in {}, which start empty", memoryBytes, bytes, directory);
            return Optional.of(parts);
        }
        catch (IOException | RuntimeException e)
        {
            logger.warn("row cache: {} cannot be used; the cache is in memory only: {}", directory, e.toString());
            return Optional.empty();
        }
    }
}

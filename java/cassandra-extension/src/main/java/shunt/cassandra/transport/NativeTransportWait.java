package shunt.cassandra.transport;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.management.MalformedObjectNameException;
import javax.management.ObjectName;
import org.apache.cassandra.cql3.statements.StatementParts;
import org.apache.cassandra.net.InboundTasks;
import org.apache.cassandra.service.StorageService;
import org.apache.cassandra.service.WriteParts;
import org.apache.cassandra.service.reads.ReadParts;
import org.apache.cassandra.transport.ReleaseBridge;
import org.apache.cassandra.utils.FBUtilities;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import shunt.cassandra.RequiredMembers;
import shunt.cassandra.Settings;

/**
 * Waits in the background until Cassandra's native transport runs for the first time. Until Cassandra's own start has come to
 * its StorageService, no class of Cassandra's is touched, nor its logging, so that they are initialised in their own order.
 */
public final class NativeTransportWait
{
    private static final String STORAGE_SERVICE = "org.apache.cassandra.db:type=StorageService";
    private static final long POLL_MS = 100;
    /** Internals that are used here change with each minor version. */
    private static final String BUILT_FOR = "5.0.";
    private static final String[] PACKAGES = {"shunt.cassandra.transport", "org.apache.cassandra.transport", "org.apache.cassandra.net",
                                              "org.apache.cassandra.cql3.statements", "org.apache.cassandra.service", "org.apache.cassandra.service.reads"};

    private NativeTransportWait()
    {
    }

    /** Returns at once; opens the second port when the native transport has started. */
    public static void begin(Settings settings)
    {
        Thread thread = new Thread(() -> await(settings), "shunt-aggregate-start");
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * Whether this Cassandra has all that aggregated frames need; if not, says what it lacks. Nothing is opened, wrapped or
     * announced before.
     */
    private static boolean hasAll()
    {
        Logger logger = LoggerFactory.getLogger(NativeTransportWait.class);
        String release = FBUtilities.getReleaseVersionString();
        if (!release.startsWith(BUILT_FOR))
        {
            logger.error("Aggregated frames are off: the extension is built for Cassandra {}x, and this is {}. The node goes on "
                         + "without them", BUILT_FOR, release);
            return false;
        }
        try
        {
            List<String> missing = RequiredMembers.missing(PACKAGES);
            if (missing.isEmpty())
                resolve();
            else
                logger.error("Aggregated frames are off: Cassandra {} has no {}. The node goes on without them", release,
                             String.join(", ", missing));
            return missing.isEmpty();
        }
        catch (ExceptionInInitializerError e)
        {
            logger.error("Aggregated frames are off: Cassandra {} has no {}. The node goes on without them", release,
                         e.getCause().getMessage());
        }
        catch (IOException e)
        {
            logger.error("Aggregated frames are off: the extension's own classes cannot be read. The node goes on without them", e);
        }
        return false;
    }

    /** What has no name that the compiler knows. */
    private static void resolve()
    {
        ReleaseBridge.resolve();
        InboundTasks.resolve();
        ReadParts.resolve();
        StatementParts.resolve();
        WriteParts.resolve();
    }

    private static void await(Settings settings)
    {
        try
        {
            ObjectName name = new ObjectName(STORAGE_SERVICE);
            while (!ManagementFactory.getPlatformMBeanServer().isRegistered(name)
                   || !StorageService.instance.isNativeTransportRunning())
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
            if (hasAll())
                AggregateServer.install(settings);
        }
        catch (MalformedObjectNameException e)
        {
            throw new AssertionError(STORAGE_SERVICE, e);
        }
        catch (InterruptedException e)
        {
            Thread.currentThread().interrupt();
        }
    }
}

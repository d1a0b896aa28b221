package shunt.cassandra.transport;

import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import javax.management.MalformedObjectNameException;
import javax.management.ObjectName;
import org.apache.cassandra.service.StorageService;
import shunt.cassandra.Settings;

/**
 * Waits in the background until Cassandra's native transport runs for the first time. Until Cassandra's own start has come to
 * its StorageService, no class of Cassandra's is touched, nor its logging, so that they are initialised in their own order.
 */
public final class NativeTransportWait
{
    private static final String STORAGE_SERVICE = "org.apache.cassandra.db:type=StorageService";
    private static final long POLL_MS = 100;

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

    private static void await(Settings settings)
    {
        try
        {
            ObjectName name = new ObjectName(STORAGE_SERVICE);
            while (!ManagementFactory.getPlatformMBeanServer().isRegistered(name)
                   || !StorageService.instance.isNativeTransportRunning())
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
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

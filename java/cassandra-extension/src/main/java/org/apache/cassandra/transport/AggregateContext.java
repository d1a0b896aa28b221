package org.apache.cassandra.transport;

import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.cassandra.config.DatabaseDescriptor;
import shunt.cassandra.Settings;
import shunt.cassandra.transport.AggregateMetrics;
import shunt.cassandra.transport.FramePool;
import shunt.cassandra.transport.PeerTraffic;

/**
 * What all links of the second port share.
 *
 * @param settings the operator's
 * @param metrics what is counted
 * @param pool executes frames
 * @param dispatcher of ordinary requests on the same port
 * @param traffic what is done about messages between nodes
 * @param overdue looks after queries that wait for their replicas
 * @param accepting whether new frames are executed; false while the port is being closed
 */
public record AggregateContext(Settings settings, AggregateMetrics metrics, FramePool pool, Dispatcher dispatcher,
                               PeerTraffic traffic, Overdue overdue, BooleanSupplier accepting)
{
    /** Whether requests wait too long, here or in Cassandra's own queue ({@code native_transport_queue_max_item_age_threshold}). */
    boolean hasQueueCapacity()
    {
        double threshold = DatabaseDescriptor.getNativeTransportQueueMaxItemAgeThreshold();
        if (threshold <= 0)
            return true;
        double most = DatabaseDescriptor.getNativeTransportTimeout(TimeUnit.NANOSECONDS) * threshold;
        return pool.longestWaitNanos() < most && dispatcher.hasQueueCapacity();
    }

    /** Most bytes of one query's body, whatever the limit of a frame. */
    static long queryBytesMax()
    {
        return ReleaseBridge.messageBytesMax();
    }
}

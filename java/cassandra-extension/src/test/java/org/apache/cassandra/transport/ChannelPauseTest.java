package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.embedded.EmbeddedChannel;
import java.util.List;
import org.apache.cassandra.config.Config;
import org.apache.cassandra.config.DataStorageSpec;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.metrics.ClientMetrics;
import org.apache.cassandra.transport.ChannelPause.Reason;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** When a channel is read, and what Cassandra's metrics say of it. */
class ChannelPauseTest
{
    private final EmbeddedChannel channel = new EmbeddedChannel();
    private final ChannelPause pause = new ChannelPause(channel, () -> { });
    private final int before = paused();

    @BeforeAll
    static void metrics()
    {
        DatabaseDescriptor.clientInitialization(false);
        Config config = DatabaseDescriptor.getRawConfig();
        config.max_mutation_size = new DataStorageSpec.IntKibibytesBound("1MiB");
        config.native_transport_max_request_data_in_flight = new DataStorageSpec.LongBytesBound("1MiB");
        config.native_transport_max_request_data_in_flight_per_ip = new DataStorageSpec.LongBytesBound("1MiB");
        ClientMetrics.instance.init(List.of());
    }

    private static int paused()
    {
        return ClientMetrics.instance.getNumberOfPausedConnections();
    }

    /** What Cassandra's handler of ordinary requests does when its own limit allows it. */
    private void cassandraReadsOn()
    {
        ClientMetrics.instance.unpauseConnection();
        channel.config().setAutoRead(true);
    }

    @Test
    void aChannelIsNotReadWhileThereIsAReason()
    {
        pause.add(Reason.FRAMES);
        pause.add(Reason.ANSWERS);
        assertFalse(channel.config().isAutoRead());
        pause.remove(Reason.FRAMES);
        assertFalse(channel.config().isAutoRead());
        pause.remove(Reason.ANSWERS);
        assertTrue(channel.config().isAutoRead());
        assertEquals(1, paused() - before, "one pause, however many reasons");
    }

    @Test
    void oneThatCassandraReadsOnIsPausedAgain()
    {
        pause.add(Reason.QUERIES);
        cassandraReadsOn();
        pause.again();
        assertFalse(channel.config().isAutoRead());
        cassandraReadsOn();
        pause.add(Reason.QUERIES);
        assertFalse(channel.config().isAutoRead(), "the same reason found once more");
        assertEquals(3, paused() - before);
        pause.remove(Reason.QUERIES);
        assertTrue(channel.config().isAutoRead());
        pause.again();
        assertTrue(channel.config().isAutoRead(), "without a reason");
    }
}

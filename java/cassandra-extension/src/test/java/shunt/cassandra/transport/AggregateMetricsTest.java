package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class AggregateMetricsTest
{
    @Test
    void clientsOfAllConnectionsAreBounded()
    {
        AggregateMetrics metrics = new AggregateMetrics();
        assertTrue(metrics.addClient(2));
        assertTrue(metrics.addClient(2));
        assertFalse(metrics.addClient(2));
        assertEquals(2, metrics.clients.get());
        metrics.clients.decrementAndGet();
        assertTrue(metrics.addClient(2));
    }
}

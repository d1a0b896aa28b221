package shunt.cassandra.cache;

import static org.apache.cassandra.metrics.CassandraMetricsRegistry.Metrics;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import org.apache.cassandra.metrics.DefaultNameFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class CacheGaugesTest
{
    private static final String ON = new DefaultNameFactory("Cache", "RowCacheSsd").createMetricName("On").getMetricName();

    @AfterEach
    void forget()
    {
        Metrics.getNames().stream().filter(name -> name.contains("RowCacheMemory") || name.contains("RowCacheSsd"))
               .forEach(Metrics::remove);
    }

    private static Object on()
    {
        return Metrics.getGauges().get(ON).getValue();
    }

    @Test
    void anSsdThatCouldNotBeUsedAtTheStartIsOff()
    {
        try (Rig rig = Rig.inMemory())
        {
            CacheGauges.register(rig.cache, true);
            assertEquals(0, on());
        }
    }

    @Test
    void oneThatWorksIsOn()
    {
        try (Rig rig = Rig.twoTiers())
        {
            CacheGauges.register(rig.cache, true);
            assertEquals(1, on());
        }
    }

    @Test
    void withoutADirectoryThereIsNone()
    {
        try (Rig rig = Rig.inMemory())
        {
            CacheGauges.register(rig.cache, false);
            assertFalse(Metrics.getGauges().containsKey(ON));
        }
    }
}

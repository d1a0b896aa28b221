import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints the figures of a node's row cache, a line each: {@code java CacheFigures.java PORT}; with {@code flush KEYSPACE} flushes. */
class CacheFigures
{
    public static void main(String[] arguments) throws Exception
    {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url)))
        {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            if (arguments.length > 2)
            {
                beans.invoke(new ObjectName("org.apache.cassandra.db:type=StorageService"), "forceKeyspaceFlush",
                             new Object[] {arguments[2], new String[0]},
                             new String[] {"java.lang.String", "[Ljava.lang.String;"});
                return;
            }
            for (String scope : new String[] {"RowCache", "RowCacheMemory", "RowCacheSsd"})
                for (ObjectName name : beans.queryNames(
                         new ObjectName("org.apache.cassandra.metrics:type=Cache,scope=" + scope + ",*"), null))
                {
                    boolean meter = beans.isInstanceOf(name, "org.apache.cassandra.metrics.CassandraMetricsRegistry$JmxMeterMBean");
                    System.out.println(scope + "." + name.getKeyProperty("name") + " "
                                       + beans.getAttribute(name, meter ? "Count" : "Value"));
                }
        }
    }
}

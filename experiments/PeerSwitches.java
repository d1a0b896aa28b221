import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.management.Attribute;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Sets the extension's switches on nodes: {@code java PeerSwitches.java PORT...}. Takes lines {@code NAME=true NAME=false ...} from
 * standard input, and answers each with {@code done} when all nodes have them.
 */
class PeerSwitches
{
    public static void main(String[] ports) throws Exception
    {
        MBeanServerConnection[] nodes = new MBeanServerConnection[ports.length];
        for (int i = 0; i < ports.length; i++)
        {
            String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + ports[i] + "/jmxrmi";
            nodes[i] = JMXConnectorFactory.connect(new JMXServiceURL(url)).getMBeanServerConnection();
        }
        ObjectName switches = new ObjectName("shunt.cassandra:type=PeerTraffic");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine())
        {
            for (String pair : line.split(" "))
            {
                String[] parts = pair.split("=");
                for (MBeanServerConnection node : nodes)
                    node.setAttribute(switches, new Attribute(parts[0], Boolean.valueOf(parts[1])));
            }
            System.out.println("done");
        }
        System.exit(0);
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import javax.management.Attribute;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Answers each line of its input by one of output: attributes of Cassandra nodes, read and set, and
 * operations. One process does what would take one of nodetool for each question. Fields of a line are
 * between tabs: port, "get" or "set" or "call", bean; then an attribute, one and its value, or an operation
 * and, if it takes one, type and value of its argument.
 */
public final class Jmx {
  private static final Map<Integer, MBeanServerConnection> NODES = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String answer;
      try {
        answer = "ok\t" + answer(line.split("\t"));
      } catch (Exception error) {
        answer = "error\t" + error;
      }
      System.out.println(answer.replace('\n', ' '));
    }
  }

  private static Object answer(String[] fields) throws Exception {
    var node = connected(Integer.parseInt(fields[0]));
    var bean = new ObjectName(fields[2]);
    switch (fields[1]) {
      case "get":
        return node.getAttribute(bean, fields[3]);
      case "set":
        var value = value(typeOf(node, bean, fields[3]), fields[4]);
        node.setAttribute(bean, new Attribute(fields[3], value));
        return "";
      default:
        if (fields.length == 4) {
          return node.invoke(bean, fields[3], new Object[0], new String[0]);
        }
        return node.invoke(
            bean, fields[3], new Object[] {value(fields[4], fields[5])}, new String[] {fields[4]});
    }
  }

  private static MBeanServerConnection connected(int port) throws Exception {
    var node = NODES.get(port);
    if (node == null) {
      var url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + port + "/jmxrmi");
      node = JMXConnectorFactory.connect(url).getMBeanServerConnection();
      NODES.put(port, node);
    }
    return node;
  }

  private static String typeOf(MBeanServerConnection node, ObjectName bean, String name)
      throws Exception {
    for (var attribute : node.getMBeanInfo(bean).getAttributes()) {
      if (attribute.getName().equals(name)) {
        return attribute.getType();
      }
    }
    throw new IllegalArgumentException("no attribute " + name);
  }

  private static Object value(String type, String text) {
    switch (type) {
      case "boolean":
        return Boolean.valueOf(text);
      case "int":
      case "java.lang.Integer":
        return Integer.valueOf(text);
      case "long":
      case "java.lang.Long":
        return Long.valueOf(text);
      case "double":
      case "java.lang.Double":
        return Double.valueOf(text);
      default:
        return text;
    }
  }
}

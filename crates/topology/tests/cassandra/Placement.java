import java.net.InetAddress;
import java.util.*;
import java.util.stream.*;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.locator.*;

/**
 * Prints what Cassandra's own strategy classes place where, for random clusters: the content of placement.txt.
 *
 *   java -Dlogback.configurationFile=tests/harness/logback-tools.xml -cp 'target/cassandra-5.0.9/lib/*' \
 *       crates/topology/tests/cassandra/Placement.java > crates/topology/tests/cassandra/placement.txt
 *
 * Each cluster: a line "cluster", lines "node N DC RACK TOKEN,TOKEN..", and for each setting a line
 * "replication CLASS OPTION=FACTOR .." followed by "TOKEN N,N,N" for every token of the ring. A transient replica is
 * marked with *.
 */
public class Placement
{
    static final Random random = new Random(5);

    public static void main(String[] arguments) throws Exception
    {
        DatabaseDescriptor.clientInitialization();
        DatabaseDescriptor.setPartitionerUnsafe(Murmur3Partitioner.instance);
        DatabaseDescriptor.setTransientReplicationEnabledUnsafe(true);
        DatabaseDescriptor.getRawConfig().num_tokens = 1; // only asked for by a check of transient replication
        for (int i = 0; i < 24; i++)
            cluster();
        System.exit(0);
    }

    static void cluster() throws Exception
    {
        int datacentres = 1 + random.nextInt(3), nodes = 1 + random.nextInt(12), vnodes = 1 + random.nextInt(4);
        Map<InetAddressAndPort, String[]> places = new LinkedHashMap<>();
        Map<InetAddressAndPort, List<Token>> tokens = new LinkedHashMap<>();
        System.out.println("cluster");
        for (int node = 0; node < nodes; node++)
        {
            InetAddressAndPort address = InetAddressAndPort.getByAddress(new byte[]{ 10, 0, 0, (byte) node });
            String[] place = { "dc" + random.nextInt(datacentres), "r" + random.nextInt(1 + random.nextInt(4)) };
            places.put(address, place);
            tokens.put(address, Stream.generate(() -> (Token) new LongToken(random.nextInt(100000) - 50000))
                                      .limit(vnodes).collect(Collectors.toList()));
            System.out.println("node " + node + ' ' + place[0] + ' ' + place[1] + ' ' +
                               tokens.get(address).stream().map(Token::toString).collect(Collectors.joining(",")));
        }
        IEndpointSnitch snitch = new AbstractNetworkTopologySnitch()
        {
            public String getRack(InetAddressAndPort endpoint) { return places.get(endpoint)[1]; }
            public String getDatacenter(InetAddressAndPort endpoint) { return places.get(endpoint)[0]; }
        };
        DatabaseDescriptor.setEndpointSnitch(snitch);
        TokenMetadata metadata = new TokenMetadata(snitch);
        tokens.forEach((address, own) -> metadata.updateNormalTokens(own, address));

        int all = 1 + random.nextInt(5);
        Map<String, String> simple = new TreeMap<>(Map.of("replication_factor", factor(all)));
        print("SimpleStrategy", simple, new SimpleStrategy("ks", metadata, snitch, simple), metadata);
        for (int setting = 0; setting < 2; setting++)
        {
            Map<String, String> options = new TreeMap<>();
            for (int dc = 0; dc <= datacentres; dc++)
                if (random.nextInt(4) > 0)
                    options.put("dc" + dc, factor(random.nextInt(6)));
            if (options.isEmpty())
                options.put("dc0", "2");
            print("NetworkTopologyStrategy", options, new NetworkTopologyStrategy("ks", metadata, snitch, options), metadata);
        }
    }

    static String factor(int all)
    {
        return all > 1 && random.nextInt(3) == 0 ? all + "/" + (1 + random.nextInt(all - 1)) : "" + all;
    }

    static void print(String name, Map<String, String> options, AbstractReplicationStrategy strategy, TokenMetadata metadata)
    {
        System.out.println("replication " + name + options.entrySet().stream()
                           .map(option -> " " + option.getKey() + '=' + option.getValue()).collect(Collectors.joining()));
        for (Token token : metadata.sortedTokens())
            System.out.println(token + " " + strategy.calculateNaturalReplicas(token, metadata).stream()
                               .map(replica -> replica.endpoint().getAddress().getAddress()[3] + (replica.isFull() ? "" : "*"))
                               .collect(Collectors.joining(",")));
    }
}

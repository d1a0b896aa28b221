package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.NodeState;
import com.datastax.oss.driver.api.core.metadata.TokenMap;
import com.datastax.oss.driver.api.core.metadata.token.TokenRange;
import com.datastax.oss.driver.api.core.type.codec.TypeCodecs;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Connecting, and what the driver then believes about the cluster. */
class ConnectTest extends Scenario {
  private static final Duration PATIENCE = Duration.ofSeconds(180);

  @Test
  void settlesOnTheExpectedProtocolVersion() {
    assertEquals(setup.expected, session.getContext().getProtocolVersion());
  }

  @Test
  void learnsTheClusterName() {
    assertTrue(session.getMetadata().getClusterName().isPresent());
  }

  @Test
  void seesTheContactPointAsTheOnlyHost() {
    Store.needsSingleHost();
    Collection<Node> nodes = session.getMetadata().getNodes().values();
    assertEquals(1, nodes.size(), nodes::toString);
    Node node = nodes.iterator().next();
    assertEquals(Store.contact(), node.getEndPoint().resolve());
    assertEquals(NodeState.UP, node.getState());
    assertNotNull(node.getHostId());
    assertNotNull(node.getSchemaVersion());
    assertNotNull(node.getCassandraVersion());
  }

  @Test
  void tokenMapNamesNobodyButTheContactPoint() {
    Store.needsSingleHost();
    TokenMap tokens = session.getMetadata().getTokenMap().orElseThrow();
    Set<TokenRange> ranges = tokens.getTokenRanges();
    assertFalse(ranges.isEmpty());
    CqlIdentifier keyspace = CqlIdentifier.fromCql(Store.KEYSPACE);
    Set<Node> known = Set.copyOf(session.getMetadata().getNodes().values());
    for (TokenRange range : ranges) {
      assertTrue(known.containsAll(tokens.getReplicas(keyspace, range)));
    }
    var routingKey = TypeCodecs.TEXT.encode(key, session.getContext().getProtocolVersion());
    assertEquals(known, tokens.getReplicas(keyspace, routingKey));
  }

  @Test
  void everyQueryIsCoordinatedByTheContactPoint() {
    Store.needsSingleHost();
    var insert = session.prepare("INSERT INTO items (key, number) VALUES (?, ?)");
    for (int i = 0; i < 50; i++) {
      var info = session.execute(insert.bind(key + i, i)).getExecutionInfo();
      assertEquals(Store.contact(), info.getCoordinator().getEndPoint().resolve());
    }
  }

  @Test
  void opensSocketsToTheContactPointOnly() throws Exception {
    Store.needsSingleHost();
    session.execute("SELECT key FROM items LIMIT 1");
    assertEquals(Set.of(Store.contact()), Sockets.remoteAddresses());
  }

  @Test
  void systemTablesNameTheContactPointHoweverTheyAreRead() {
    Store.needsSingleHost();
    try (CqlSession own = Store.open(setup)) {
      own.execute("USE system");
      for (String prefix : List.of("", "system.")) {
        String local = "SELECT rpc_address FROM " + prefix + "local";
        var address = Store.contact().getAddress();
        assertEquals(address, own.execute(local).one().getInetAddress(0));
        assertEquals(address, own.execute(own.prepare(local).bind()).one().getInetAddress(0));
        assertTrue(own.execute("SELECT * FROM " + prefix + "peers").all().isEmpty());
        assertTrue(own.execute("SELECT * FROM " + prefix + "peers_v2").all().isEmpty());
      }
    }
  }

  @Test
  void keepsTheControlConnectionAndOneConnectionPerPool() throws Exception {
    Store.needsSingleHost();
    try (CqlSession own = Store.open(setup)) {
      own.execute("SELECT key FROM system.local");
      Node node = own.getMetadata().getNodes().values().iterator().next();
      // The driver counts a connection some time after it has it.
      long begun = System.nanoTime();
      while (node.getOpenConnections() < 2 && System.nanoTime() - begun < PATIENCE.toNanos()) {
        Thread.sleep(20);
      }
      assertEquals(2, node.getOpenConnections(), "one for queries, one for control");
    }
  }

  @Test
  void opensAndClosesSessionsOneAfterTheOther() {
    for (int i = 0; i < 5; i++) {
      try (CqlSession own = Store.open(setup)) {
        var row = own.execute("SELECT release_version FROM system.local").one();
        assertNotNull(row);
        assertFalse(row.getString(0).isEmpty());
      }
    }
  }
}

package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.schema.ClusteringOrder;
import com.datastax.oss.driver.api.core.metadata.schema.KeyspaceMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.type.DataTypes;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Schema metadata as the driver exposes it, and how it learns of changes. */
class SchemaTest extends Scenario {
  private static final Duration PATIENCE = Duration.ofSeconds(180);

  private static Optional<TableMetadata> table(CqlSession session, String name) {
    return keyspace(session).getTable(name);
  }

  private static KeyspaceMetadata keyspace(CqlSession session) {
    return session.getMetadata().getKeyspace(Store.KEYSPACE).orElseThrow();
  }

  /** Waits until the metadata of the session satisfies the condition; events arrive when they arrive. */
  private static void await(CqlSession session, String what, Predicate<CqlSession> condition) throws Exception {
    long deadline = System.nanoTime() + PATIENCE.toNanos();
    while (!condition.test(session)) {
      if (System.nanoTime() > deadline) {
        fail("never seen: " + what);
      }
      Thread.sleep(20);
    }
  }

  @Test
  void showsTheKeyspaceItsTablesAndTypes() {
    KeyspaceMetadata keyspace = keyspace(session);
    assertEquals(
        System.getenv().getOrDefault("SHUNT_RF", "1"), keyspace.getReplication().get("replication_factor"));
    TableMetadata lines = keyspace.getTable("lines").orElseThrow();
    assertEquals(List.of("key"), names(lines.getPartitionKey()));
    assertEquals(
        List.of("line"),
        lines.getClusteringColumns().keySet().stream().map(c -> c.getName().asInternal()).toList());
    assertTrue(lines.getClusteringColumns().containsValue(ClusteringOrder.ASC));
    assertEquals(DataTypes.TEXT, lines.getColumn("body").orElseThrow().getType());
    assertEquals(
        List.of("street", "number", "tags"),
        keyspace.getUserDefinedType("address").orElseThrow().getFieldNames().stream()
            .map(CqlIdentifier::asInternal)
            .toList());
    assertTrue(keyspace.describeWithChildren(true).contains("CREATE TABLE"));
  }

  private static List<String> names(
      List<com.datastax.oss.driver.api.core.metadata.schema.ColumnMetadata> columns) {
    return columns.stream().map(column -> column.getName().asInternal()).collect(Collectors.toList());
  }

  @Test
  void systemTablesCanBeRead() {
    assertTrue(
        session.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", Store.KEYSPACE).all().stream()
            .anyMatch(row -> "items".equals(row.getString(0))));
    assertNotNull(one("SELECT cluster_name, partitioner, tokens FROM system.local").getString(0));
  }

  @Test
  void describeStatementIsAnsweredByTheStore() {
    var row = one("DESCRIBE TABLE " + Store.KEYSPACE + ".items");
    assertTrue(row.getString("create_statement").contains("CREATE TABLE"));
  }

  @Test
  void changesAreSeenByAnotherSession() throws Exception {
    oneSetup();
    String name = "watched_" + setup.suffix();
    try (CqlSession other = Store.another(setup)) {
      var created = session.execute("CREATE TABLE " + name + " (key text PRIMARY KEY, number int)");
      assertTrue(created.getExecutionInfo().isSchemaInAgreement());
      assertTrue(session.checkSchemaAgreement());
      await(other, "table", s -> table(s, name).isPresent());
      Store.change("ALTER TABLE " + name + " ADD added map<text, int>");
      await(other, "column", s -> table(s, name).orElseThrow().getColumn("added").isPresent());
      Store.change("DROP TABLE " + name);
      await(other, "end of the table", s -> table(s, name).isEmpty());
    }
  }

  @Test
  void anIndexIsSeenByAnotherSession() throws Exception {
    oneSetup();
    String name = "indexed_" + setup.suffix();
    try (CqlSession other = Store.another(setup)) {
      Store.change(
          "CREATE TABLE " + name + " (key text PRIMARY KEY, number int)",
          "CREATE INDEX " + name + "_index ON " + name + " (number)");
      await(other, "table", s -> table(s, name).isPresent());
      await(other, "index", s -> table(s, name).orElseThrow().getIndex(name + "_index").isPresent());
      Store.change("DROP TABLE " + name);
    }
  }

  @Test
  void keyspacesCreatedAndDroppedAreSeenByAnotherSession() throws Exception {
    oneSetup();
    String name = Store.KEYSPACE + "_seen_" + setup.suffix();
    try (CqlSession other = Store.open(setup)) {
      Store.change(
          "DROP KEYSPACE IF EXISTS " + name,
          "CREATE KEYSPACE " + name + " WITH replication = " + Store.replication());
      await(other, "keyspace", s -> s.getMetadata().getKeyspace(name).isPresent());
      Store.change("DROP KEYSPACE " + name);
      await(other, "end of the keyspace", s -> s.getMetadata().getKeyspace(name).isEmpty());
    }
  }

  @Test
  void truncateEmptiesATable() {
    // On all replicas, or the last of them might write the row after it was emptied.
    session.execute(
        SimpleStatement.newInstance("INSERT INTO emptied (key) VALUES (?)", key)
            .setConsistencyLevel(DefaultConsistencyLevel.ALL));
    session.execute("TRUNCATE emptied");
    assertTrue(session.execute("SELECT * FROM emptied").all().isEmpty());
  }
}

package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.QueryTrace;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Simple and prepared statements, their values and their attributes. */
class StatementsTest extends Scenario {
  @Test
  void simpleStatementWithLiterals() {
    session.execute("INSERT INTO items (key, number, note) VALUES ('" + key + "', 7, 'it''s')");
    Row row = one("SELECT number, note FROM items WHERE key = '" + key + "'");
    assertEquals(7, row.getInt("number"));
    assertEquals("it's", row.getString("note"));
  }

  @Test
  void simpleStatementWithPositionalValues() {
    session.execute("INSERT INTO items (key, number) VALUES (?, ?)", key, 8);
    assertEquals(8, one("SELECT number FROM items WHERE key = ?", key).getInt(0));
  }

  @Test
  void simpleStatementWithNamedValues() {
    session.execute(
        "INSERT INTO items (key, number) VALUES (:k, :n)", Map.<String, Object>of("n", 9, "k", key));
    Row row =
        session
            .execute("SELECT number FROM items WHERE key = :k", Map.<String, Object>of("k", key))
            .one();
    assertEquals(9, row.getInt(0));
  }

  @Test
  void preparedStatement() {
    PreparedStatement insert = session.prepare("INSERT INTO items (key, number, note) VALUES (?, ?, ?)");
    PreparedStatement select = session.prepare("SELECT * FROM items WHERE key = ?");
    for (int i = 0; i < 100; i++) {
      session.execute(insert.bind(key + i, i, "n" + i));
    }
    for (int i = 0; i < 100; i++) {
      Row row = session.execute(select.bind(key + i)).one();
      assertEquals(i, row.getInt("number"));
      assertEquals("n" + i, row.getString("note"));
    }
  }

  @Test
  void preparedStatementTellsItsPartitionKey() {
    PreparedStatement update = session.prepare("UPDATE lines SET body = ? WHERE line = ? AND key = ?");
    assertEquals(List.of(2), update.getPartitionKeyIndices());
    assertEquals("key", update.getVariableDefinitions().get(2).getName().asInternal());
    assertNotNull(update.bind("b", 1, key).getRoutingKey());
  }

  @Test
  void statementPreparedByOneSessionIsAlsoPreparedByAnother() {
    String query = "INSERT INTO items (key, number) VALUES (?, ?) USING TTL 1000";
    session.execute(session.prepare(query).bind(key, 1));
    try (CqlSession other = Store.another(setup)) {
      other.execute(other.prepare(query).bind(key, 2));
      assertEquals(2, one("SELECT number FROM items WHERE key = ?", key).getInt(0));
    }
  }

  @Test
  void preparedStatementSurvivesItsTableBeingDroppedAndCreatedAgain() {
    oneSetup();
    PreparedStatement insert = session.prepare("INSERT INTO reborn (key, number) VALUES (?, ?)");
    session.execute(insert.bind(key, 1));
    Store.change("DROP TABLE reborn", "CREATE TABLE reborn (key text PRIMARY KEY, number int)");
    session.execute(insert.bind(key, 2));
    assertEquals(2, one("SELECT number FROM reborn WHERE key = ?", key).getInt(0));
  }

  @Test
  void preparedSelectShowsAColumnAddedByAnotherSession() {
    // By the result-metadata id. Without it a driver decodes with what it knew (CASSANDRA-10786).
    assumeTrue(setup.expected.getCode() >= 5, "protocol v5 brought it");
    session.execute("INSERT INTO grown (key, number) VALUES (?, 1)", key);
    PreparedStatement select = session.prepare("SELECT * FROM grown WHERE key = ?");
    int columns = session.execute(select.bind(key)).getColumnDefinitions().size();
    String added = "added_" + setup.suffix();
    Store.change("ALTER TABLE grown ADD " + added + " text");
    session.execute("UPDATE grown SET " + added + " = 'new' WHERE key = ?", key);
    Row row = session.execute(select.bind(key)).one();
    assertEquals(columns + 1, row.getColumnDefinitions().size());
    assertEquals(1, row.getInt("number"));
    assertEquals("new", row.getString(added));
  }

  @Test
  void unsetValueLeavesTheColumnAloneAndNullDeletesIt() {
    PreparedStatement insert = session.prepare("INSERT INTO items (key, number, note) VALUES (:k, :n, :t)");
    session.execute(insert.bind(key, 1, "kept"));
    session.execute(insert.boundStatementBuilder().setString("k", key).setInt("n", 2).build());
    assertEquals("kept", one("SELECT note FROM items WHERE key = ?", key).getString(0));
    session.execute(insert.bind(key, 3, null));
    assertNull(one("SELECT note FROM items WHERE key = ?", key).getString(0));
  }

  @Test
  void updateAndDelete() {
    session.execute("INSERT INTO items (key, number, note) VALUES (?, 1, 'a')", key);
    session.execute("UPDATE items SET number = 2 WHERE key = ?", key);
    assertEquals(2, one("SELECT number FROM items WHERE key = ?", key).getInt(0));
    session.execute("DELETE note FROM items WHERE key = ?", key);
    assertTrue(one("SELECT note FROM items WHERE key = ?", key).isNull(0));
    session.execute("DELETE FROM items WHERE key = ?", key);
    assertNull(one("SELECT note FROM items WHERE key = ?", key));
  }

  @Test
  void queryTimestampReachesTheStore() {
    session.execute(
        SimpleStatement.builder("INSERT INTO items (key, number) VALUES (?, 1)")
            .addPositionalValue(key)
            .setQueryTimestamp(123_456_789L)
            .build());
    assertEquals(123_456_789L, one("SELECT writetime(number) FROM items WHERE key = ?", key).getLong(0));
  }

  @Test
  void consistencyLevelReachesTheStore() {
    var select =
        SimpleStatement.newInstance("SELECT number FROM items WHERE key = ?", key)
            .setConsistencyLevel(DefaultConsistencyLevel.ALL);
    assertNull(session.execute(select).one());
  }

  @Test
  void tracingIdComesBackWithATracedQuery() {
    var select = SimpleStatement.newInstance("SELECT number FROM items WHERE key = ?", key).setTracing(true);
    assertNotNull(session.execute(select).getExecutionInfo().getTracingId());
    assertNull(session.execute(select.setTracing(false)).getExecutionInfo().getTracingId());
  }

  @Test
  void traceOfAQueryCanBeRead() {
    String query = "SELECT number FROM items WHERE key = '" + key + "'";
    var traced = session.execute(SimpleStatement.newInstance(query).setTracing(true));
    QueryTrace trace = traced.getExecutionInfo().getQueryTrace();
    assertEquals("Execute CQL3 query", trace.getRequestType());
    assertEquals(query, trace.getParameters().get("query"));
    assertTrue(trace.getDurationMicros() > 0);
    assertFalse(trace.getEvents().isEmpty());
  }

  @Test
  void customPayloadIsAccepted() {
    var select =
        SimpleStatement.newInstance("SELECT number FROM items WHERE key = ?", key)
            .setCustomPayload(Map.of("unknown", ByteBuffer.wrap(new byte[] {1, 2, 3})));
    assertNull(session.execute(select).one());
  }

  @Test
  void warningsOfTheStoreComeBack() {
    // More than batch_size_warn_threshold, whose default is 5 KiB.
    StringBuilder batch = new StringBuilder("BEGIN UNLOGGED BATCH\n");
    for (int i = 0; i < 12; i++) {
      batch.append("INSERT INTO items (key, note) VALUES ('").append(key).append(i).append("', '");
      batch.append("x".repeat(1000)).append("');\n");
    }
    List<String> warnings = session.execute(batch + "APPLY BATCH").getExecutionInfo().getWarnings();
    assertFalse(warnings.isEmpty());
    assertTrue(warnings.get(0).contains("atch"), warnings::toString);
  }
}

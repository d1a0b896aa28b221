package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchStatementBuilder;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import org.junit.jupiter.api.Test;

/** Batches of every kind. */
class BatchTest extends Scenario {
  @Test
  void loggedBatchOverSeveralPartitions() {
    insertsLines(DefaultBatchType.LOGGED);
  }

  @Test
  void unloggedBatchOverSeveralPartitions() {
    insertsLines(DefaultBatchType.UNLOGGED);
  }

  private void insertsLines(BatchType type) {
    PreparedStatement insert = session.prepare("INSERT INTO lines (key, line, body) VALUES (?, ?, ?)");
    BatchStatementBuilder batch = BatchStatement.builder(type);
    for (int i = 0; i < 30; i++) {
      batch.addStatement(insert.bind(key + i % 3, i, "body " + i));
    }
    session.execute(batch.build());
    for (int partition = 0; partition < 3; partition++) {
      var rows = session.execute("SELECT line, body FROM lines WHERE key = ?", key + partition).all();
      assertEquals(10, rows.size());
      rows.forEach(row -> assertEquals("body " + row.getInt("line"), row.getString("body")));
    }
  }

  @Test
  void batchOfTextAndPreparedStatements() {
    PreparedStatement update = session.prepare("UPDATE items SET note = ? WHERE key = ?");
    session.execute(
        BatchStatement.newInstance(DefaultBatchType.LOGGED)
            .add(SimpleStatement.newInstance("INSERT INTO items (key, number) VALUES (?, ?)", key, 5))
            .add(update.bind("five", key))
            .add(SimpleStatement.newInstance("INSERT INTO items (key, number) VALUES ('" + key + "b', 6)")));
    assertEquals("five", one("SELECT note FROM items WHERE key = ?", key).getString(0));
    assertEquals(6, one("SELECT number FROM items WHERE key = ?", key + "b").getInt(0));
  }

  @Test
  void batchAsText() {
    session.execute(
        "BEGIN BATCH INSERT INTO items (key, number) VALUES (?, ?);"
            + " UPDATE items SET note = ? WHERE key = ?; APPLY BATCH",
        key, 4, "four", key);
    assertEquals("four", one("SELECT note FROM items WHERE key = ?", key).getString(0));
  }

  @Test
  void counterBatch() {
    PreparedStatement add = session.prepare("UPDATE counts SET hits = hits + ? WHERE key = ?");
    BatchStatement batch =
        BatchStatement.newInstance(DefaultBatchType.COUNTER)
            .add(add.bind(2L, key))
            .add(add.bind(3L, key + "b"))
            .add(add.bind(40L, key));
    session.execute(batch);
    session.execute(batch);
    assertEquals(84, one("SELECT hits FROM counts WHERE key = ?", key).getLong(0));
    assertEquals(6, one("SELECT hits FROM counts WHERE key = ?", key + "b").getLong(0));
  }

  @Test
  void batchTimestampReachesTheStore() {
    session.execute(
        BatchStatement.newInstance(DefaultBatchType.UNLOGGED)
            .add(SimpleStatement.newInstance("INSERT INTO items (key, number) VALUES (?, 1)", key))
            .setQueryTimestamp(987_654L));
    assertEquals(987_654L, one("SELECT writetime(number) FROM items WHERE key = ?", key).getLong(0));
  }

  @Test
  void conditionalBatchAppliesAsAWholeOrNotAtAll() {
    PreparedStatement insert =
        session.prepare("INSERT INTO lines (key, line, body) VALUES (?, ?, ?) IF NOT EXISTS");
    var first =
        BatchStatement.newInstance(DefaultBatchType.UNLOGGED)
            .add(insert.bind(key, 1, "one"))
            .add(insert.bind(key, 2, "two"));
    assertTrue(session.execute(first).wasApplied());
    var second =
        BatchStatement.newInstance(DefaultBatchType.UNLOGGED)
            .add(insert.bind(key, 2, "again"))
            .add(insert.bind(key, 3, "three"));
    assertFalse(session.execute(second).wasApplied());
    assertEquals(2, session.execute("SELECT line FROM lines WHERE key = ?", key).all().size());
  }
}

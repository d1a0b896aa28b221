package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import org.junit.jupiter.api.Test;

/** Conditional statements. */
class LightweightTransactionTest extends Scenario {
  @Test
  void insertIfNotExistsAppliesOnceAndThenShowsTheExistingRow() {
    var insert = session.prepare("INSERT INTO items (key, number, note) VALUES (?, ?, ?) IF NOT EXISTS");
    assertTrue(session.execute(insert.bind(key, 1, "first")).wasApplied());
    ResultSet second = session.execute(insert.bind(key, 2, "second"));
    assertFalse(second.wasApplied());
    Row existing = second.one();
    assertEquals(1, existing.getInt("number"));
    assertEquals("first", existing.getString("note"));
  }

  @Test
  void updateIfComparesTheCurrentValue() {
    session.execute("INSERT INTO items (key, number) VALUES (?, 1) IF NOT EXISTS", key);
    String update = "UPDATE items SET number = ? WHERE key = ? IF number = ?";
    assertTrue(session.execute(update, 2, key, 1).wasApplied());
    ResultSet refused = session.execute(update, 3, key, 1);
    assertFalse(refused.wasApplied());
    assertEquals(2, refused.one().getInt("number"));
  }

  @Test
  void deleteIfExists() {
    assertFalse(session.execute("DELETE FROM items WHERE key = ? IF EXISTS", key).wasApplied());
    session.execute("INSERT INTO items (key, number) VALUES (?, 1) IF NOT EXISTS", key);
    assertTrue(session.execute("DELETE FROM items WHERE key = ? IF EXISTS", key).wasApplied());
  }

  @Test
  void serialReadSeesTheLastTransaction() {
    session.execute("INSERT INTO items (key, number) VALUES (?, 11) IF NOT EXISTS", key);
    var read =
        SimpleStatement.newInstance("SELECT number FROM items WHERE key = ?", key)
            .setConsistencyLevel(DefaultConsistencyLevel.SERIAL);
    assertEquals(11, session.execute(read).one().getInt(0));
  }

  @Test
  void oneOfManyRacersWins() {
    // A contended transaction may time out, and v5 then tells the number of contentions (section 9, 0x1100).
    // native-protocol 1.5.2, under driver 4.19.3, leaves those two bytes unread, takes them for the next
    // frame and closes the connection, whoever is at the other end.
    assumeTrue(setup.expected.getCode() < 5, "the driver cannot read a v5 CAS write timeout");
    List<CompletionStage<AsyncResultSet>> racers = new ArrayList<>();
    for (int i = 0; i < 10; i++) {
      racers.add(
          session.executeAsync("INSERT INTO items (key, number) VALUES (?, ?) IF NOT EXISTS", key, i));
    }
    List<Integer> winners = new ArrayList<>();
    List<Integer> unknown = new ArrayList<>();
    for (int i = 0; i < 10; i++) {
      try {
        if (racers.get(i).toCompletableFuture().join().wasApplied()) {
          winners.add(i);
        }
      } catch (CompletionException error) {
        // Under contention the store may give up and say so; the proposal may have been accepted.
        assertInstanceOf(WriteTimeoutException.class, error.getCause());
        unknown.add(i);
      }
    }
    var read =
        SimpleStatement.newInstance("SELECT number FROM items WHERE key = ?", key)
            .setConsistencyLevel(DefaultConsistencyLevel.SERIAL);
    int stored = session.execute(read).one().getInt(0);
    if (winners.isEmpty()) {
      assertTrue(unknown.contains(stored));
    } else {
      assertEquals(List.of(stored), winners);
    }
  }
}

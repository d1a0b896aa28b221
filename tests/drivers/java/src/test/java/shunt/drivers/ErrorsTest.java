package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidConfigurationInQueryException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import org.junit.jupiter.api.Test;

/** Errors of the store arrive as the driver's own exception for them. */
class ErrorsTest extends Scenario {
  private <E extends DriverException> E fails(Class<E> kind, String query, Object... values) {
    return assertThrows(kind, () -> session.execute(query, values));
  }

  @Test
  void syntaxError() {
    var error = fails(SyntaxError.class, "SELEKT * FROM items");
    assertTrue(error.getMessage().contains("SELEKT"), error::getMessage);
  }

  @Test
  void syntaxErrorOnPrepare() {
    assertThrows(SyntaxError.class, () -> session.prepare("INSERT INTO items VALUES"));
  }

  @Test
  void unknownTable() {
    var error = fails(InvalidQueryException.class, "SELECT * FROM no_such_table");
    assertTrue(error.getMessage().contains("no_such_table"), error::getMessage);
  }

  @Test
  void unknownColumnOnPrepare() {
    assertThrows(InvalidQueryException.class, () -> session.prepare("SELECT no_such_column FROM items"));
  }

  @Test
  void missingPartitionKey() {
    fails(InvalidQueryException.class, "INSERT INTO items (number) VALUES (1)");
  }

  @Test
  void valueOfTheWrongType() {
    fails(InvalidQueryException.class, "INSERT INTO items (key, number) VALUES ('a', 'not a number')");
  }

  @Test
  void wrongNumberOfValues() {
    fails(InvalidQueryException.class, "SELECT * FROM items WHERE key = ?");
  }

  @Test
  void batchThatIsTooLarge() {
    // More than batch_size_fail_threshold, whose default is 50 KiB.
    var insert = session.prepare("INSERT INTO items (key, note) VALUES (?, ?)");
    BatchStatement batch =
        BatchStatement.newInstance(DefaultBatchType.LOGGED)
            .add(insert.bind(key, "x".repeat(30_000)))
            .add(insert.bind(key + "b", "x".repeat(30_000)));
    assertThrows(InvalidQueryException.class, () -> session.execute(batch));
  }

  @Test
  void tableThatAlreadyExists() {
    var error = fails(AlreadyExistsException.class, "CREATE TABLE items (key text PRIMARY KEY)");
    assertTrue(error.getMessage().contains("items"), error::getMessage);
    assertTrue(error.getMessage().contains(Store.KEYSPACE), error::getMessage);
  }

  @Test
  void keyspaceThatAlreadyExists() {
    var error =
        fails(
            AlreadyExistsException.class,
            "CREATE KEYSPACE " + Store.KEYSPACE + " WITH replication = " + Store.replication());
    assertTrue(error.getMessage().contains(Store.KEYSPACE), error::getMessage);
  }

  @Test
  void impossibleConfiguration() {
    fails(
        InvalidConfigurationInQueryException.class,
        "CREATE KEYSPACE driver_java_bad WITH replication = {'class': 'NoSuchStrategy'}");
  }

  @Test
  void unavailable() {
    // Five replicas can be asked for on any ring; to have them all alive this one is too small.
    var insert =
        SimpleStatement.newInstance("INSERT INTO " + Store.FIVE_REPLICAS + ".items (key) VALUES (?)", key)
            .setConsistencyLevel(DefaultConsistencyLevel.ALL);
    var error = unavailable(insert);
    assertEquals(DefaultConsistencyLevel.ALL, error.getConsistencyLevel());
    assertEquals(5, error.getRequired());
    assertTrue(error.getAlive() >= 1 && error.getAlive() < 5, error::getMessage);
  }

  /** The driver tries once more on another node; where it knows of only one it wraps what that one said. */
  private UnavailableException unavailable(SimpleStatement statement) {
    try {
      session.execute(statement);
    } catch (UnavailableException error) {
      return error;
    } catch (AllNodesFailedException error) {
      if (error.getAllErrors().values().iterator().next().get(0) instanceof UnavailableException said) {
        return said;
      }
      throw error;
    }
    return fail("there are not five nodes");
  }

  @Test
  void sessionIsAsGoodAsNewAfterAnError() {
    for (int i = 0; i < 20; i++) {
      fails(SyntaxError.class, "NOT CQL");
      session.execute("INSERT INTO items (key, number) VALUES (?, ?)", key, i);
      assertEquals(i, one("SELECT number FROM items WHERE key = ?", key).getInt(0));
    }
  }
}

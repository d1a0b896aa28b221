package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.InvalidKeyspaceException;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import org.junit.jupiter.api.Test;

/** The current keyspace of a session: USE, at connect, and per query. */
class KeyspaceTest extends Scenario {
  private static final CqlIdentifier KEYSPACE = CqlIdentifier.fromCql(Store.KEYSPACE);

  @Test
  void useSetsTheKeyspaceOfTheSession() {
    try (CqlSession own = Store.open(setup)) {
      assertThrows(InvalidQueryException.class, () -> own.execute("SELECT key FROM items LIMIT 1"));
      own.execute("USE " + Store.KEYSPACE);
      assertEquals(KEYSPACE, own.getKeyspace().orElseThrow());
      own.execute("INSERT INTO items (key, number) VALUES (?, 1)", key);
      assertEquals(1, own.execute("SELECT number FROM items WHERE key = ?", key).one().getInt(0));
      var prepared = own.prepare("SELECT number FROM items WHERE key = ?");
      assertEquals(1, own.execute(prepared.bind(key)).one().getInt(0));
    }
  }

  @Test
  void useInOneSessionLeavesTheOthersAlone() {
    try (CqlSession first = Store.open(setup);
        CqlSession second = Store.open(setup)) {
      first.execute("USE " + Store.KEYSPACE);
      second.execute("USE system");
      for (int i = 0; i < 20; i++) {
        first.execute("SELECT key FROM items LIMIT 1");
        assertThrows(InvalidQueryException.class, () -> second.execute("SELECT key FROM items LIMIT 1"));
        assertEquals("local", second.execute("SELECT key FROM local").one().getString(0));
      }
    }
  }

  @Test
  void useSwitchesBackAndForth() {
    try (CqlSession own = Store.open(setup)) {
      for (int i = 0; i < 10; i++) {
        own.execute("USE " + Store.KEYSPACE);
        own.execute("SELECT key FROM items LIMIT 1");
        own.execute("USE system");
        assertEquals("local", own.execute("SELECT key FROM local").one().getString(0));
      }
    }
  }

  @Test
  void useOfAnUnknownKeyspaceIsRefused() {
    try (CqlSession own = Store.open(setup)) {
      assertThrows(InvalidQueryException.class, () -> own.execute("USE nowhere_to_be_found"));
    }
  }

  @Test
  void connectingWithAnUnknownKeyspaceIsRefused() {
    assertThrows(
        InvalidKeyspaceException.class,
        () -> Store.builder(setup).withKeyspace("nowhere_to_be_found").build().close());
  }

  @Test
  void samePreparedTextInTwoKeyspacesReachesTwoTables() {
    try (CqlSession own = Store.open(setup)) {
      String insert = "INSERT INTO items (key, number) VALUES (?, ?)";
      session.execute(session.prepare(insert).bind(key, 1));
      own.execute("USE " + Store.OTHER_KEYSPACE);
      own.execute(own.prepare(insert).bind(key, 2));
      String select = "SELECT number FROM items WHERE key = ?";
      assertEquals(1, session.execute(session.prepare(select).bind(key)).one().getInt(0));
      assertEquals(2, own.execute(own.prepare(select).bind(key)).one().getInt(0));
    }
  }

  @Test
  void keyspaceOfASingleQuery() {
    assumeTrue(setup.expected.getCode() >= 5, "protocol v5 brought it");
    try (CqlSession own = Store.open(setup)) {
      var insert =
          SimpleStatement.newInstance("INSERT INTO items (key, number) VALUES (?, 3)", key)
              .setKeyspace(KEYSPACE);
      own.execute(insert);
      var select = SimpleStatement.newInstance("SELECT number FROM items WHERE key = ?").setKeyspace(KEYSPACE);
      assertEquals(3, own.execute(own.prepare(select).bind(key)).one().getInt(0));
    }
  }
}

package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.ColumnDefinitions;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.QueryValidationException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Supplier;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;

/** Transactions through a fleet of proxies, in each protocol version that the driver has, on the tables of tests/drivers/fleet.py. */
@ParameterizedClass(name = "{0}")
@ValueSource(strings = {"V3", "V4", "V5"})
@EnabledIfEnvironmentVariable(named = "SHUNT_FLEET", matches = ".+", disabledReason = "tests/drivers/fleet.py starts a fleet")
class TransactionsTest {
  private static final String TRANSFER =
      """
      BEGIN TRANSACTION
        LET payer = (SELECT balance, owner FROM accounts WHERE id = ?);
        SELECT payer.balance, payer.owner;
        IF payer.balance >= ? THEN
          UPDATE accounts SET balance -= ? WHERE id = ?;
          UPDATE driver_transactions.accounts SET balance = balance + ? WHERE id = ?;
          INSERT INTO moves (account, number, amount) VALUES (?, ?, ?);
        END IF
      COMMIT TRANSACTION
      """;

  private static final Map<String, CqlSession> SESSIONS = new HashMap<>();

  @Parameter String version;

  private CqlSession session;

  /** Keys that nobody else uses. */
  private String payer;

  private String payee;

  @BeforeEach
  void connect() {
    session = SESSIONS.computeIfAbsent(version, wanted -> Fleet.open(wanted, "driver_transactions"));
    assertEquals(version, session.getContext().getProtocolVersion().name());
    payer = UUID.randomUUID().toString();
    payee = UUID.randomUUID().toString();
  }

  @AfterAll
  static void disconnect() {
    SESSIONS.values().forEach(CqlSession::close);
    SESSIONS.clear();
  }

  /** From version 4 of the protocol on an answer says whether anything was written. */
  private ResultSet ask(Statement<?> statement, boolean applied) {
    ResultSet result = Fleet.ask(session, statement);
    var says = result.getExecutionInfo().getIncomingPayload().get("shunt-applied");
    if (version.equals("V3")) {
      assertNull(says);
    } else {
      assertEquals(applied ? 1 : 0, says.get(says.position()));
      assertEquals(1, says.remaining());
    }
    return result;
  }

  private void open() {
    for (String id : List.of(payer, payee)) {
      String text = "BEGIN TRANSACTION INSERT INTO accounts (id, balance, owner) VALUES (?, 10, 'ann'); COMMIT TRANSACTION";
      assertNull(ask(SimpleStatement.newInstance(text, id), true).one());
    }
  }

  private void have(int ofPayer, int ofPayee) {
    var select = "SELECT balance FROM accounts WHERE id = ?";
    assertEquals(ofPayer, session.execute(select, payer).one().getInt("balance"));
    assertEquals(ofPayee, session.execute(select, payee).one().getInt("balance"));
  }

  /** Names and types, as in CQL. */
  private static List<String> shown(ColumnDefinitions columns) {
    return StreamSupport.stream(columns.spliterator(), false)
        .map(column -> column.getName().asInternal() + " " + column.getType().asCql(true, false))
        .toList();
  }

  /** The balance is 10, and is so much when the second amount is asked for. */
  private void transfers(ResultSet first, Supplier<ResultSet> second) {
    for (ResultSet result : List.of(first, second.get())) {
      assertEquals(List.of("payer.balance int", "payer.owner text"), shown(result.getColumnDefinitions()));
      var row = result.one();
      assertEquals(result == first ? 10 : 7, row.getInt("payer.balance"));
      assertEquals("ann", row.getString("payer.owner"));
    }
    have(7, 13);
    assertEquals(3, session.execute("SELECT amount FROM moves WHERE account = ? AND number = 1", payer).one().getInt(0));
    assertNull(session.execute("SELECT amount FROM moves WHERE account = ? AND number = 2", payer).one());
  }

  @Test
  void aTextWithValuesAndAConditionThatDoesNotHold() {
    open();
    var text = SimpleStatement.newInstance(TRANSFER, payer, 3, 3, payer, 3, payee, payer, 1L, 3);
    var more = SimpleStatement.newInstance(TRANSFER, payer, 8, 8, payer, 8, payee, payer, 2L, 8);
    transfers(ask(text, true), () -> ask(more, false));
  }

  @Test
  void preparedItsMarkersHaveTheirNamesAndTypes() {
    open();
    var transfer = session.prepare(TRANSFER);
    assertEquals(
        List.of("id text", "balance int", "balance int", "id text", "balance int", "id text", "account text", "number bigint", "amount int"),
        shown(transfer.getVariableDefinitions()));
    assertEquals(List.of("payer.balance int", "payer.owner text"), shown(transfer.getResultSetDefinitions()));
    transfers(
        ask(transfer.bind(payer, 3, 3, payer, 3, payee, payer, 1L, 3), true),
        () -> ask(transfer.bind(payer, 8, 8, payer, 8, payee, payer, 2L, 8), false));
  }

  @Test
  void markersWithNames() {
    open();
    String text =
        "BEGIN TRANSACTION LET a = (SELECT * FROM accounts WHERE id = :payer); SELECT a.balance; IF a.balance >= :amount THEN "
            + "UPDATE accounts SET balance -= :amount WHERE id = :payer; UPDATE accounts SET balance += :amount WHERE id = :payee; "
            + "END IF COMMIT TRANSACTION";
    Map<String, Object> values = Map.of("payer", payer, "payee", payee, "amount", 2);
    assertEquals(10, ask(SimpleStatement.newInstance(text, values), true).one().getInt(0));
    var bound = session.prepare(text).bind().setString("payer", payer).setString("payee", payee).setInt("amount", 3);
    assertEquals(8, ask(bound, true).one().getInt("a.balance"));
    have(5, 15);
  }

  @Test
  void rowsOfASelect() {
    var insert = session.prepare("BEGIN TRANSACTION INSERT INTO moves (account, number, amount) VALUES (?, ?, ?); COMMIT TRANSACTION");
    for (long number = 0; number < 3; number++) {
      ask(insert.bind(payer, number, (int) number * 10), true);
    }
    String select = "BEGIN TRANSACTION SELECT number, amount FROM moves WHERE account = ?; COMMIT TRANSACTION";
    for (Statement<?> one : List.of(SimpleStatement.newInstance(select, payer), session.prepare(select).bind(payer))) {
      var result = ask(one, false);
      assertEquals(List.of("number bigint", "amount int"), shown(result.getColumnDefinitions()));
      var rows = result.all().stream().map(row -> row.getLong("number") + " " + row.getInt("amount")).toList();
      assertEquals(List.of("0 0", "1 10", "2 20"), rows);
    }
  }

  @Test
  void anUnsupportedTransactionIsADriverError() {
    Map<String, Class<? extends QueryValidationException>> refused =
        Map.of(
            "INSERT INTO accounts (id) VALUES ('x') IF NOT EXISTS;", InvalidQueryException.class,
            "INSERT INTO accounts (id, nothing) VALUES ('x', 2);", InvalidQueryException.class,
            "INSERT INTO plain (id, v) VALUES ('x', 2);", InvalidQueryException.class,
            "LET a = (SELECT balance FROM accounts WHERE id = 'x'); SELECT a.balance - 1;", SyntaxError.class,
            "UPDATE accounts SET balance = 1 WHERE id = 'x'", SyntaxError.class);
    refused.forEach(
        (body, kind) -> {
          String text = "BEGIN TRANSACTION " + body + " COMMIT TRANSACTION";
          assertThrows(kind, () -> session.execute(text), text);
          assertThrows(kind, () -> session.prepare(text), text);
        });
    var prepared = session.prepare("BEGIN TRANSACTION INSERT INTO accounts (id, balance) VALUES (?, ?); COMMIT TRANSACTION");
    assertThrows(InvalidQueryException.class, () -> session.execute(prepared.bind(null, 1)));
    assertThrows(InvalidQueryException.class, () -> session.execute(SimpleStatement.newInstance(TRANSFER, payer, 3)));
    open();
  }

  @Test
  void statementsAsTheyAreOnATableWhoseModeIsFull() {
    ask(SimpleStatement.newInstance("INSERT INTO counted (k, v) VALUES (?, 5)", payer), true);
    ask(session.prepare("UPDATE counted SET v = ? WHERE k = ?").bind(7, payer), true);
    ask(SimpleStatement.newInstance("UPDATE counted SET v = v + 1 WHERE k = '" + payer + "'"), true);
    var insert = session.prepare("INSERT INTO counted (k, v) VALUES (?, ?)");
    var batch = BatchStatement.newInstance(BatchType.LOGGED, insert.bind(payee, 1), insert.bind(payer + "x", 2));
    ask(batch, true);
    var select = session.prepare("SELECT v FROM counted WHERE k = ?");
    assertEquals(List.of("v int"), shown(select.getResultSetDefinitions()));
    assertEquals(8, ask(select.bind(payer), false).one().getInt("v"));
    assertEquals(1, ask(SimpleStatement.newInstance("SELECT * FROM counted WHERE k = ?", payee), false).one().getInt("v"));
    assertThrows(InvalidQueryException.class, () -> session.execute("UPDATE counted USING TIMESTAMP 5 SET v = 1 WHERE k = 'x'"));
  }

  @Test
  void aTablesModeIsChangedByTheDriver() {
    assumeTrue(version.equals("V5"), "the driver waits for a second for each change of the schema, and does so in all versions");
    String table = "made_" + UUID.randomUUID().toString().replace('-', '_');
    session.execute("CREATE TABLE " + table + " (k int PRIMARY KEY, v int)");
    String text = "BEGIN TRANSACTION INSERT INTO " + table + " (k, v) VALUES (1, 2); COMMIT TRANSACTION";
    assertThrows(InvalidQueryException.class, () -> session.execute(text));
    session.execute("ALTER TABLE " + table + " WITH transactional_mode = 'unsafe'");
    ask(SimpleStatement.newInstance(text), true);
    assertEquals(2, session.execute("SELECT v FROM " + table).one().getInt(0));
    session.execute("ALTER TABLE " + table + " WITH transactional_mode = 'off'");
    session.execute("DROP TABLE " + table);
    assertFalse(session.getMetadata().getKeyspace("driver_transactions").orElseThrow().getTable(table).isPresent());
    assertTrue(session.checkSchemaAgreement());
  }
}

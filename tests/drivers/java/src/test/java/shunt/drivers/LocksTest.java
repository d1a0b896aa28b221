package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shunt.drivers.Fleet.ACQUIRE;
import static shunt.drivers.Fleet.RELEASE;
import static shunt.drivers.Fleet.TTL;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.type.DataTypes;
import java.net.SocketAddress;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;

/** Locks through a fleet of proxies, in each protocol version that the driver has. */
@ParameterizedClass(name = "{0}")
@ValueSource(strings = {"V3", "V4", "V5"})
@EnabledIfEnvironmentVariable(named = "SHUNT_FLEET", matches = ".+", disabledReason = "tests/drivers/fleet.py starts a fleet")
class LocksTest {
  private static final Map<String, CqlSession> SESSIONS = new java.util.HashMap<>();

  @Parameter String version;

  private CqlSession session;

  /** A lock that nobody else uses. */
  private String name;

  @BeforeEach
  void connect() {
    session = SESSIONS.computeIfAbsent(version, wanted -> Fleet.open(wanted, null));
    assertEquals(version, session.getContext().getProtocolVersion().name());
    name = UUID.randomUUID().toString();
  }

  @AfterAll
  static void disconnect() {
    SESSIONS.values().forEach(CqlSession::close);
    SESSIONS.clear();
  }

  private Row ask(String statement, Object... values) {
    return Fleet.ask(session, statement, values);
  }

  private static boolean applied(Row row) {
    return row.getBoolean("[applied]");
  }

  private static void isRefused(Row row, String holder, long fence) {
    assertFalse(applied(row));
    assertEquals(holder, row.getString("owner"));
    assertEquals(fence, row.getLong("fence"));
  }

  @Test
  void aLockIsHeldByOneAndItsFencesRise() {
    for (String table : List.of("locks", "fast_locks")) {
      String acquire = Fleet.on(table, ACQUIRE);
      String release = Fleet.on(table, RELEASE);
      long last = 0;
      for (String owner : List.of("ann", "bob", "ann")) {
        Row first = ask(acquire, name, owner, TTL);
        assertTrue(applied(first));
        assertEquals(name, first.getString("name"));
        assertEquals(owner, first.getString("owner"));
        assertEquals(0, first.getInt("waiters"));
        long fence = first.getLong("fence");
        assertTrue(fence > last, first::getFormattedContents);
        int left = first.getInt("ttl_ms");
        assertTrue(left > 0 && left <= TTL * 1000, first::getFormattedContents);
        isRefused(ask(acquire, name, owner, TTL), owner, fence);
        isRefused(ask(acquire, name, "eve", TTL), owner, fence);
        assertTrue(applied(ask(release, name, owner)));
        last = fence;
      }
    }
  }

  @Test
  void preparedStatementsDoWhatTextsDo() {
    var acquire = session.prepare(ACQUIRE);
    var renew = session.prepare("UPDATE shunt.locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ? AND fence = ?");
    var look = session.prepare("SELECT owner, fence, ttl_ms, waiters FROM shunt.locks WHERE name = ?");
    var release = session.prepare("DELETE FROM shunt.locks WHERE name = ? IF owner = ? AND fence = ?");
    var granted = session.execute(acquire.bind(name, "ann", TTL));
    assertTrue(granted.wasApplied());
    long fence = granted.one().getLong("fence");
    assertFalse(session.execute(renew.bind(10 * TTL, "ann", name, "ann", fence - 1)).wasApplied());
    assertTrue(session.execute(renew.bind(10 * TTL, "ann", name, "ann", fence)).wasApplied());
    Row seen = session.execute(look.bind(name)).one();
    assertEquals("ann", seen.getString("owner"));
    assertEquals(fence, seen.getLong("fence"));
    assertEquals(0, seen.getInt("waiters"));
    assertTrue(seen.getInt("ttl_ms") > TTL * 1000, seen::getFormattedContents);
    assertFalse(session.execute(release.bind(name, "ann", fence + 1)).wasApplied());
    assertTrue(session.execute(release.bind(name, "ann", fence)).wasApplied());
    assertNull(session.execute(look.bind(name)).one());
    assertTrue(applied(ask("INSERT INTO shunt.locks (name, owner) VALUES ('" + name + "', 'bob') IF NOT EXISTS USING TTL 300")));
    assertTrue(applied(ask("DELETE FROM shunt.locks WHERE name = '" + name + "' IF owner = 'bob'")));
  }

  @Test
  void anotherOwnerChangesNothing() {
    long fence = ask(ACQUIRE, name, "ann", TTL).getLong("fence");
    isRefused(ask(RELEASE, name, "eve"), "ann", fence);
    isRefused(ask("UPDATE shunt.locks USING TTL 300 SET owner = ? WHERE name = ? IF owner = ?", "eve", name, "eve"), "ann", fence);
    assertTrue(applied(ask(RELEASE, name, "ann")));
  }

  @Test
  void aWaitingClientGetsTheReleasedLock() throws Exception {
    try (CqlSession second = Fleet.open(null, null)) {
      long fence = ask(ACQUIRE, name, "first", 3600).getLong("fence");
      String waits = "INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (?, ?, 200000) IF NOT EXISTS USING TTL 300";
      var waiting = second.executeAsync(waits, name, "second").toCompletableFuture();
      long begun = System.nanoTime();
      while (ask("SELECT waiters FROM shunt.locks WHERE name = ?", name).getInt(0) != 1) {
        assertTrue(System.nanoTime() - begun < Fleet.PATIENCE.toNanos(), "nobody waits");
      }
      assertFalse(waiting.isDone(), "it was held");
      assertTrue(applied(ask(RELEASE, name, "first")));
      Row found = waiting.get(Fleet.PATIENCE.toSeconds(), TimeUnit.SECONDS).one();
      assertTrue(applied(found));
      assertEquals("second", found.getString("owner"));
      assertTrue(found.getLong("fence") > fence, found::getFormattedContents);
      assertTrue(applied(ask(RELEASE, name, "second")));
    }
  }

  @Test
  void readersShareAndAWriterDoesNot() {
    for (String table : List.of("rwlocks", "fast_rwlocks")) {
      String take = Fleet.on(table, "INSERT INTO shunt.locks (name, owner, mode) VALUES (?, ?, ?) IF NOT EXISTS USING TTL 300");
      String leave = Fleet.on(table, "DELETE FROM shunt.locks WHERE name = ? AND owner = ? IF EXISTS");
      String renew = Fleet.on(table, "UPDATE shunt.locks USING TTL 300 SET mode = 'S' WHERE name = ? AND owner = ? IF EXISTS");
      assertTrue(applied(ask(take, name, "r1", "S")));
      assertTrue(applied(ask(take, name, "r2", "S")));
      assertFalse(applied(ask(take, name, "w", "X")));
      assertTrue(applied(ask(renew, name, "r1")));
      String queue = "SELECT owner, mode, state FROM shunt.lock_queue WHERE name = ? AND fast = ?";
      var owners = session.execute(queue, name, table.equals("fast_rwlocks")).all().stream().map(row -> row.getString(0)).toList();
      assertEquals(List.of("r1", "r2"), owners);
      assertThrows(InvalidQueryException.class, () -> ask(take, name, "r1", "X"), "one owner in both modes");
      assertTrue(applied(ask(leave, name, "r1")));
      assertTrue(applied(ask(leave, name, "r2")));
      assertTrue(applied(ask(take, name, "w", "X")));
      assertFalse(applied(ask(take, name, "r1", "S")));
      assertTrue(applied(ask(leave, name, "w")));
    }
  }

  @Test
  void severalLocksAreTakenAllOrNone() {
    List<String> names = IntStream.range(0, 5).mapToObj(number -> name + "-" + number).toList();
    var insert = session.prepare(ACQUIRE);
    for (boolean prepared : List.of(true, false)) {
      var taken = Fleet.ask(session, all(names, one -> prepared ? insert.bind(one, "ann", TTL) : text(one, "ann"))).all();
      assertEquals(names, taken.stream().map(row -> row.getString("name")).toList());
      assertTrue(taken.stream().allMatch(row -> applied(row) && row.getString("owner").equals("ann")));
      names.stream().filter(one -> !one.equals(names.get(3))).forEach(one -> assertTrue(applied(ask(RELEASE, one, "ann"))));
      var refused = Fleet.ask(session, all(names, one -> prepared ? insert.bind(one, "bob", TTL) : text(one, "bob"))).all();
      assertEquals(1, refused.size());
      assertFalse(applied(refused.get(0)));
      assertEquals(names.get(3), refused.get(0).getString("name"));
      var held = names.stream().filter(one -> ask("SELECT owner FROM shunt.locks WHERE name = ?", one) != null).toList();
      assertEquals(List.of(names.get(3)), held);
      assertTrue(applied(ask(RELEASE, names.get(3), "ann")));
    }
  }

  private static SimpleStatement text(String name, String owner) {
    return SimpleStatement.newInstance(
        "INSERT INTO shunt.locks (name, owner) VALUES ('" + name + "', '" + owner + "') IF NOT EXISTS USING TTL 300");
  }

  private static BatchStatement all(
      List<String> names, java.util.function.Function<String, com.datastax.oss.driver.api.core.cql.BatchableStatement<?>> of) {
    var batch = BatchStatement.builder(BatchType.LOGGED);
    names.forEach(name -> batch.addStatement(of.apply(name)));
    return batch.build();
  }

  @Test
  void unsupportedStatementsOnLocksAreInvalid() {
    for (String statement :
        List.of(
            "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') USING TTL 5",
            "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS",
            "UPDATE shunt.locks SET owner = 'x' WHERE name = 'n'",
            "DELETE FROM shunt.locks WHERE name = 'n'",
            "SELECT count(*) FROM shunt.locks WHERE name = 'n'",
            "TRUNCATE shunt.locks")) {
      assertThrows(InvalidQueryException.class, () -> session.execute(statement), statement);
      assertThrows(InvalidQueryException.class, () -> session.execute(session.prepare(statement).bind()), statement);
    }
  }

  @Test
  void theDriverKnowsTheTables() {
    var shunt = session.getMetadata().getKeyspace("shunt").orElseThrow();
    var keys = Map.of("locks", 1, "fast_locks", 1, "rwlocks", 2, "fast_rwlocks", 2, "lock_queue", 3);
    keys.forEach(
        (name, columns) -> {
          var table = shunt.getTable(name).orElseThrow();
          assertEquals(columns, table.getPrimaryKey().size(), name);
          assertEquals("name", table.getPartitionKey().get(0).getName().asInternal(), name);
          assertEquals(DataTypes.BIGINT, table.getColumn("fence").orElseThrow().getType(), name);
        });
  }

  @Test
  void theKeyspaceOfASession() {
    try (CqlSession own = Fleet.open(version, "shunt");
        CqlSession used = Fleet.open(version, null)) {
      used.execute("USE shunt");
      for (CqlSession one : List.of(own, used)) {
        Row granted = Fleet.ask(one, "INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 300", name, "ann");
        assertTrue(applied(granted), granted::getFormattedContents);
        var release = one.prepare("DELETE FROM locks WHERE name = ? IF owner = ?");
        assertTrue(one.execute(release.bind(name, "ann")).wasApplied());
      }
    }
  }

  @Test
  void everyProxyIsAHostThatTakesRequests() {
    Set<SocketAddress> proxies = Set.copyOf(Fleet.proxies());
    var hosts = session.getMetadata().getNodes().values().stream().map(node -> node.getEndPoint().resolve());
    assertEquals(proxies, hosts.collect(Collectors.toSet()));
    Set<SocketAddress> asked = new HashSet<>();
    long begun = System.nanoTime();
    while (!asked.equals(proxies)) {
      assertTrue(System.nanoTime() - begun < Fleet.PATIENCE.toNanos(), () -> "only " + asked + " are asked");
      var result = session.execute("SELECT owner FROM shunt.locks WHERE name = ?", name);
      asked.add(result.getExecutionInfo().getCoordinator().getEndPoint().resolve());
    }
  }
}

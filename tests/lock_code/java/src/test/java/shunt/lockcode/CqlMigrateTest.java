package shunt.lockcode;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException;
import com.datastax.oss.driver.api.core.servererrors.WriteType;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import uk.sky.cqlmigrate.CassandraLockConfig;
import uk.sky.cqlmigrate.CqlMigrator;
import uk.sky.cqlmigrate.CqlMigratorConfig;
import uk.sky.cqlmigrate.CqlMigratorFactory;

/** cqlmigrate: of several that migrate at once, each script is carried out by one. */
class CqlMigrateTest {
  private static final int MIGRATORS = 2;
  private static final int SCRIPTS = 3;

  @TempDir Path scripts;

  @Test
  void eachScriptIsCarriedOutOnce() throws Exception {
    assertEquals(0, migrate(0));
  }

  @Test
  void andOnceWhereAnAnswerIsATimeout() throws Exception {
    assertEquals(5, migrate(5));
  }

  /** How many statements were told to have timed out, of so many that were to be. */
  private int migrate(int timeouts) throws Exception {
    String keyspace = "migrated_" + UUID.randomUUID().toString().substring(0, 8);
    String replication = System.getenv("SHUNT_RF");
    Files.writeString(
        scripts.resolve("bootstrap.cql"),
        "CREATE KEYSPACE IF NOT EXISTS " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': "
            + replication + "};\n");
    Files.writeString(scripts.resolve("0.cql"), "CREATE TABLE ran (script int, id uuid, PRIMARY KEY (script, id));\n");
    for (int script = 1; script <= SCRIPTS; script++) {
      Files.writeString(scripts.resolve(script + ".cql"), "INSERT INTO ran (script, id) VALUES (" + script + ", uuid());\n");
    }
    AtomicInteger left = new AtomicInteger(timeouts);
    ExecutorService threads = Executors.newFixedThreadPool(MIGRATORS);
    List<Future<?>> all = new ArrayList<>();
    for (int number = 0; number < MIGRATORS; number++) {
      all.add(
          threads.submit(
              () -> {
                try (CqlSession session = Setup.open()) {
                  migrator().migrate(withTimeouts(session, left), keyspace, List.of(scripts));
                }
              }));
    }
    for (Future<?> one : all) {
      one.get();
    }
    threads.shutdown();
    try (CqlSession session = Setup.open()) {
      for (int script = 1; script <= SCRIPTS; script++) {
        String text = "SELECT id FROM " + keyspace + ".ran WHERE script = ?";
        assertEquals(1, session.execute(Setup.statement(text, script)).all().size(), "script " + script);
      }
      assertEquals(0, session.execute(Setup.statement("SELECT * FROM locks")).all().size(), "the lock is free");
    }
    return timeouts - left.get();
  }

  private static CqlMigrator migrator() {
    CassandraLockConfig lock =
        CassandraLockConfig.builder()
            .withLockKeyspace(Setup.KEYSPACE)
            .withConsistencyLevel(ConsistencyLevel.QUORUM)
            .withPollingInterval(Duration.ofMillis(100))
            .withTimeout(Duration.ofMinutes(1))
            .unlockOnFailure()
            .build();
    return CqlMigratorFactory.create(
        CqlMigratorConfig.builder()
            .withLockConfig(lock)
            .withReadConsistencyLevel(ConsistencyLevel.QUORUM)
            .withWriteConsistencyLevel(ConsistencyLevel.QUORUM)
            .build());
  }

  /** Cassandra 5 has no dateof, by which cqlmigrate notes when a script was carried out. Its lock does not use it. */
  private static Object forThisVersion(Object statement) {
    if (statement instanceof SimpleStatement simple) {
      return simple.setQuery(simple.getQuery().replace("dateof(", "toTimestamp("));
    }
    return statement instanceof String text ? text.replace("dateof(", "toTimestamp(") : statement;
  }

  /** A session whose first statements on locks are told as ones that timed out: the first is carried out, the second is not, and so on. */
  private static CqlSession withTimeouts(CqlSession session, AtomicInteger left) {
    return (CqlSession)
        Proxy.newProxyInstance(
            CqlSession.class.getClassLoader(),
            new Class<?>[] {CqlSession.class},
            (proxy, method, arguments) -> {
              for (int place = 0; arguments != null && place < arguments.length; place++) {
                arguments[place] = forThisVersion(arguments[place]);
              }
              boolean isOnLocks =
                  arguments != null
                      && arguments.length > 0
                      && arguments[0] instanceof BoundStatement bound
                      && bound.getPreparedStatement().getQuery().contains(".locks");
              int timeouts = isOnLocks && method.getName().equals("execute") ? left.getAndUpdate(n -> Math.max(n - 1, 0)) : 0;
              if (timeouts > 0 && timeouts % 2 == 0) {
                throw timedOut(session);
              }
              Object found;
              try {
                found = method.invoke(session, arguments);
              } catch (InvocationTargetException error) {
                throw error.getCause();
              }
              if (timeouts > 0) {
                throw timedOut(session);
              }
              return found;
            });
  }

  private static WriteTimeoutException timedOut(CqlSession session) {
    Node anyone = session.getMetadata().getNodes().values().iterator().next();
    return new WriteTimeoutException(anyone, ConsistencyLevel.SERIAL, 0, 1, WriteType.CAS);
  }
}

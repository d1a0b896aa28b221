package shunt.lockcode;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.cql.Row;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.cassandra.CassandraLockProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** ShedLock's provider for Cassandra, as its own tests use it: the table is emptied between the cases. */
class ShedLockTest {
  private static final int THREADS = 8;
  private static final int TIMES = Integer.parseInt(System.getenv().getOrDefault("SHUNT_INCREMENTS", "100"));
  private static final Duration AT_MOST = Duration.ofSeconds(30);
  private static final Duration BRIEF = Duration.ofSeconds(2);

  private CqlSession session;
  private LockProvider provider;

  @BeforeEach
  void begin() {
    session = Setup.open();
    again(() -> session.execute(Setup.statement("TRUNCATE " + Setup.KEYSPACE + ".lock")));
    provider = new CassandraLockProvider(session, "lock", ConsistencyLevel.QUORUM);
  }

  @AfterEach
  void end() {
    session.close();
  }

  private Optional<SimpleLock> lock(String name, Duration atMost, Duration atLeast) {
    return provider.lock(new LockConfiguration(Instant.now(), name, atMost, atLeast));
  }

  @Test
  void isHeldByOneAndFreeAgain() {
    SimpleLock held = lock("a", AT_MOST, Duration.ZERO).orElseThrow();
    assertTrue(lock("a", AT_MOST, Duration.ZERO).isEmpty());
    assertTrue(lock("b", AT_MOST, Duration.ZERO).isPresent(), "another name");
    held.unlock();
    SimpleLock again = lock("a", AT_MOST, Duration.ZERO).orElseThrow();
    assertTrue(lock("a", AT_MOST, Duration.ZERO).isEmpty());
    again.unlock();
  }

  @Test
  void endsByItself() throws InterruptedException {
    Instant begun = Instant.now();
    assertTrue(lock("a", BRIEF, Duration.ZERO).isPresent());
    assertEndsNoEarlierThan(begun.plus(BRIEF));
  }

  @Test
  void isHeldForAsLongAsItWasAskedForAtLeast() throws InterruptedException {
    Instant begun = Instant.now();
    lock("a", AT_MOST, BRIEF).orElseThrow().unlock();
    assertEndsNoEarlierThan(begun.plus(BRIEF));
  }

  /** However late it is asked for on a busy machine. */
  private void assertEndsNoEarlierThan(Instant end) throws InterruptedException {
    while (lock("a", AT_MOST, Duration.ZERO).isEmpty()) {
      Thread.sleep(50);
    }
    assertFalse(Instant.now().isBefore(end), "it has ended early");
  }

  @Test
  void isExtended() throws InterruptedException {
    // It is over already, if the machine stood still.
    String name = "";
    Optional<SimpleLock> longer = Optional.empty();
    for (int number = 0; longer.isEmpty(); number++) {
      name = "extended " + number;
      SimpleLock held = lock(name, BRIEF, Duration.ZERO).orElseThrow();
      longer = held.extend(Duration.ofMinutes(5), Duration.ZERO);
    }
    Thread.sleep(BRIEF.toMillis() + 200);
    assertTrue(lock(name, AT_MOST, Duration.ZERO).isEmpty());
    longer.get().unlock();
    SimpleLock brief = lock(name, Duration.ofMillis(100), Duration.ZERO).orElseThrow();
    Thread.sleep(300);
    assertFalse(brief.extend(AT_MOST, Duration.ZERO).isPresent(), "it is over");
  }

  /** Each reads a number and writes the next, which nothing but the lock makes right. Proxies may be killed meanwhile. */
  @Test
  void keepsIncrementsApart() throws Exception {
    again(() -> session.execute(Setup.statement("INSERT INTO counter (id, n) VALUES (1, 0)")));
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    List<Future<?>> all = new ArrayList<>();
    for (int thread = 0; thread < THREADS; thread++) {
      all.add(threads.submit(this::increments));
    }
    for (Future<?> one : all) {
      one.get();
    }
    threads.shutdown();
    Row row = again(() -> session.execute(Setup.statement("SELECT n FROM counter WHERE id = 1")).one());
    assertEquals(THREADS * TIMES, row.getInt("n"));
  }

  private void increments() {
    int done = 0;
    while (done < TIMES) {
      Optional<SimpleLock> held;
      Instant end = Instant.now().plus(AT_MOST);
      try {
        held = lock("counter", AT_MOST, Duration.ZERO);
      } catch (RuntimeException error) {
        // It may be held now, by nobody who knows.
        pause();
        continue;
      }
      if (held.isEmpty()) {
        pause();
        continue;
      }
      int n = again(() -> session.execute(Setup.statement("SELECT n FROM counter WHERE id = 1")).one().getInt("n"));
      again(() -> session.execute(Setup.statement("UPDATE counter SET n = ? WHERE id = 1", n + 1)));
      if (!Instant.now().isBefore(end)) {
        throw new IllegalStateException("timed out: a thread stood still until its lock was over, and has written under it");
      }
      done++;
      try {
        held.get().unlock();
      } catch (RuntimeException error) {
        // Then it ends by itself.
        pause();
      }
    }
  }

  private static void pause() {
    try {
      Thread.sleep(2 + (long) (Math.random() * 8));
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Reads or sets a value, again if need be: proxies that were killed are back within a minute. */
  private static <T> T again(java.util.function.Supplier<T> what) {
    Instant last = Instant.now().plus(Duration.ofMinutes(1));
    while (true) {
      try {
        return what.get();
      } catch (DriverException error) {
        if (Instant.now().isAfter(last)) {
          throw error;
        }
        pause();
      }
    }
  }
}

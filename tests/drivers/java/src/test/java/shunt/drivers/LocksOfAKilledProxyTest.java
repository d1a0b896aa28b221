package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shunt.drivers.Fleet.ACQUIRE;
import static shunt.drivers.Fleet.RELEASE;
import static shunt.drivers.Fleet.TTL;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.servererrors.BootstrappingException;
import com.datastax.oss.driver.api.core.servererrors.CoordinatorException;
import com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** The only proxy that the driver was told of is killed. Its process is in SHUNT_FLEET_VICTIM. */
@EnabledIfEnvironmentVariable(named = "SHUNT_FLEET_VICTIM", matches = ".+", disabledReason = "tests/drivers/fleet.py starts a fleet")
class LocksOfAKilledProxyTest {
  /** So many that each proxy owns some. */
  private static final int COUNT = 24;

  private final String name = UUID.randomUUID().toString();

  /** The client goes on with the others; what it held it holds, and it is granted more. */
  @Test
  void clientsOfTheProxyContinueWithTheOthers() {
    try (CqlSession session = Fleet.open(null, null)) {
      knowsAll(session);
      Map<String, Long> held = new HashMap<>();
      for (int i = 0; i < COUNT; i++) {
        String one = name + "-held-" + i;
        held.put(one, Fleet.ask(session, ACQUIRE, one, "ann", 600).getLong("fence"));
      }
      assertTrue(ProcessHandle.of(Long.parseLong(System.getenv("SHUNT_FLEET_VICTIM"))).orElseThrow().destroyForcibly());
      someAreRefused(session);
      held.forEach(
          (one, fence) -> {
            Row found = goesOn(session, ACQUIRE, one, "bob", TTL);
            assertFalse(found.getBoolean("[applied]"), one);
            assertEquals("ann", found.getString("owner"), one);
            assertEquals(fence, found.getLong("fence"), one);
            found = goesOn(session, RELEASE, one, "ann");
            // The answer to a first release may have been lost.
            assertTrue(found.getBoolean("[applied]") || found.isNull("owner"), one);
          });
      for (int i = 0; i < COUNT; i++) {
        assertEquals("ann", goesOn(session, ACQUIRE, name + "-new-" + i, "ann", TTL).getString("owner"));
      }
    }
  }

  /** A proxy that was not run for as long as a lease is none of the fleet for a moment. */
  private static void knowsAll(CqlSession session) {
    long begun = System.nanoTime();
    while (session.getMetadata().getNodes().size() != Fleet.proxies().size()) {
      assertTrue(System.nanoTime() - begun < Fleet.PATIENCE.toNanos(), () -> "hosts: " + session.getMetadata().getNodes());
      Fleet.pause();
    }
  }

  /** Locks in memory that the killed one may have granted are nobody's for longer than its lease. */
  private void someAreRefused(CqlSession session) {
    long begun = System.nanoTime();
    while (System.nanoTime() - begun < Fleet.PATIENCE.toNanos()) {
      for (int i = 0; i < COUNT; i++) {
        try {
          session.execute(Fleet.on("fast_locks", ACQUIRE), name + "-fast-" + i, "ann", TTL);
        } catch (DriverException error) {
          mayBeTold(error);
          if (answers(error).stream().anyMatch(BootstrappingException.class::isInstance)) {
            return;
          }
        }
      }
    }
    throw new AssertionError("no lock in memory was refused by IS_BOOTSTRAPPING");
  }

  /** Asks until there is an answer that says what is. */
  private static Row goesOn(CqlSession session, String statement, Object... values) {
    long begun = System.nanoTime();
    while (true) {
      try {
        return session.execute(statement, values).one();
      } catch (DriverException error) {
        mayBeTold(error);
        if (System.nanoTime() - begun > Fleet.PATIENCE.toNanos()) {
          throw error;
        }
        Fleet.pause();
      }
    }
  }

  /** What proxies said, one after the other. */
  private static List<? extends Throwable> answers(DriverException error) {
    return error instanceof AllNodesFailedException all
        ? all.getAllErrors().values().stream().flatMap(List::stream).toList()
        : List.of(error);
  }

  /** What a server may say in such a moment; anything else of it is a failure. */
  private static void mayBeTold(DriverException error) {
    for (Throwable said : answers(error)) {
      boolean may =
          !(said instanceof CoordinatorException) || said instanceof BootstrappingException || said instanceof WriteTimeoutException;
      assertTrue(may, () -> said.getClass() + ": " + said.getMessage());
    }
  }
}

package shunt.drivers;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.servererrors.BootstrappingException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;

/**
 * A fleet of proxies, whose addresses are in SHUNT_FLEET. The driver is told of the first one only, and has its default settings but
 * for time-outs and what a test asks for.
 */
final class Fleet {
  /** What waits for something gives up after this time. */
  static final Duration PATIENCE = Duration.ofSeconds(180);

  static final String ACQUIRE = "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL ?";
  static final String RELEASE = "DELETE FROM shunt.locks WHERE name = ? IF owner = ?";

  /** As long as tests/drivers/fleet.py allows for locks in memory: no lock ends while a test counts on it. */
  static final int TTL = 300;

  private Fleet() {}

  static List<InetSocketAddress> proxies() {
    return Stream.of(System.getenv("SHUNT_FLEET").split(",")).map(Fleet::address).toList();
  }

  private static InetSocketAddress address(String text) {
    int colon = text.lastIndexOf(':');
    return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
  }

  /** A session in this protocol version, or in the one that is agreed on if it is null. */
  static CqlSession open(String version, String keyspace) {
    var config =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, PATIENCE)
            .withInt(DefaultDriverOption.NETTY_IO_SHUTDOWN_QUIET_PERIOD, 0)
            .withInt(DefaultDriverOption.NETTY_ADMIN_SHUTDOWN_QUIET_PERIOD, 0);
    if (version != null) {
      config.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
    }
    return CqlSession.builder()
        .addContactPoint(proxies().get(0))
        .withLocalDatacenter(System.getenv().getOrDefault("SHUNT_DATACENTRE", "datacenter1"))
        .withKeyspace(keyspace)
        .withConfigLoader(config.build())
        .build();
  }

  /** The row that a conditional statement is answered by, asked for again and again while the lock is not served yet. */
  static Row ask(CqlSession session, String statement, Object... values) {
    return ask(session, SimpleStatement.newInstance(statement, values)).one();
  }

  /** The same of any statement. */
  static ResultSet ask(CqlSession session, Statement<?> statement) {
    long begun = System.nanoTime();
    while (true) {
      try {
        return session.execute(statement);
      } catch (DriverException error) {
        if (!isNotServed(error) || System.nanoTime() - begun > PATIENCE.toNanos()) {
          throw error;
        }
        pause();
      }
    }
  }

  /** Whether some proxy said IS_BOOTSTRAPPING, and none said more than that. The driver has asked them one after the other. */
  static boolean isNotServed(DriverException error) {
    if (!(error instanceof AllNodesFailedException all)) {
      return error instanceof BootstrappingException;
    }
    var errors = all.getAllErrors().values().stream().flatMap(List::stream).toList();
    return !errors.isEmpty() && errors.stream().allMatch(BootstrappingException.class::isInstance);
  }

  static void pause() {
    try {
      Thread.sleep(50);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  static String on(String table, String statement) {
    return statement.replace("shunt.locks", "shunt." + table);
  }
}

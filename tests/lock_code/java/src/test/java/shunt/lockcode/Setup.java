package shunt.lockcode;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;

/** Where the tests run, from the environment. */
final class Setup {
  static final String KEYSPACE = System.getenv("SHUNT_KEYSPACE");

  private Setup() {}

  static CqlSession open() {
    List<InetSocketAddress> contacts =
        Arrays.stream(System.getenv("SHUNT_CONTACT").split(","))
            .map(contact -> contact.split(":"))
            .map(parts -> new InetSocketAddress(parts[0], Integer.parseInt(parts[1])))
            .toList();
    DriverConfigLoader loader =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(8))
            .withDuration(DefaultDriverOption.HEARTBEAT_INTERVAL, Duration.ofSeconds(1))
            .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(200))
            .withDuration(DefaultDriverOption.RECONNECTION_MAX_DELAY, Duration.ofSeconds(1))
            .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "QUORUM")
            .build();
    return CqlSession.builder()
        .addContactPoints(contacts)
        .withLocalDatacenter("datacenter1")
        .withConfigLoader(loader)
        .withKeyspace(KEYSPACE)
        .build();
  }

  static SimpleStatement statement(String text, Object... values) {
    return SimpleStatement.newInstance(text, values).setIdempotent(true);
  }
}

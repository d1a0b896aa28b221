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
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  private Setup() {}

  static CqlSession open() {
    List<InetSocketAddress> contacts =
        Arrays.stream(System.getenv("SHUNT_CONTACT").split(","))
            .map(contact -> contact.split(":"))
            .map(parts -> new InetSocketAddress(parts[0], Integer.parseInt(parts[1])))
            .toList();
    DriverConfigLoader loader =
        DriverConfigLoader.programmaticBuilder()
            // A proxy that is killed closes its connections: only one that is slow hangs on these.
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.HEARTBEAT_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, PATIENCE)
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

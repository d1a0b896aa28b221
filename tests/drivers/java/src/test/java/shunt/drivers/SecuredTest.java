package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Mutual TLS with a proxy. SHUNT_SECURED is its address, SHUNT_SECURED_KEYS and SHUNT_SECURED_TRUSTED are stores in PKCS#12 with the password "secret";
 * tests/tls/test_other_drivers.py makes them. The programs of the other drivers do the same.
 */
@EnabledIfEnvironmentVariable(named = "SHUNT_SECURED", matches = ".+", disabledReason = "tests/tls/test_other_drivers.py starts the proxy")
class SecuredTest {
  private static final String PASSWORD = "secret";
  private static final int LARGE_BYTES = 1 << 20;

  @ParameterizedTest
  @ValueSource(strings = {"V3", "V4", "V5"})
  void mutualTls(String version) {
    String[] address = System.getenv("SHUNT_SECURED").split(":");
    DriverConfigLoader config =
        DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.PROTOCOL_VERSION, version)
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofMinutes(2))
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofMinutes(2))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofMinutes(2))
            .withString(DefaultDriverOption.SSL_ENGINE_FACTORY_CLASS, "DefaultSslEngineFactory")
            .withBoolean(DefaultDriverOption.SSL_HOSTNAME_VALIDATION, true)
            .withString(DefaultDriverOption.SSL_KEYSTORE_PATH, System.getenv("SHUNT_SECURED_KEYS"))
            .withString(DefaultDriverOption.SSL_KEYSTORE_PASSWORD, PASSWORD)
            .withString(DefaultDriverOption.SSL_TRUSTSTORE_PATH, System.getenv("SHUNT_SECURED_TRUSTED"))
            .withString(DefaultDriverOption.SSL_TRUSTSTORE_PASSWORD, PASSWORD)
            .build();
    InetSocketAddress proxy = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
    try (CqlSession session =
        CqlSession.builder().addContactPoint(proxy).withLocalDatacenter(System.getenv("SHUNT_SECURED_DATACENTRE")).withConfigLoader(config).build()) {
      String keyspace = "secured_java_" + version.toLowerCase();
      session.execute("CREATE KEYSPACE IF NOT EXISTS " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
      session.execute("CREATE TABLE IF NOT EXISTS " + keyspace + ".items (k int PRIMARY KEY, v blob)");
      PreparedStatement insert = session.prepare("INSERT INTO " + keyspace + ".items (k, v) VALUES (?, ?)");
      PreparedStatement select = session.prepare("SELECT v FROM " + keyspace + ".items WHERE k = ?");
      for (int size : new int[] {1, 100, LARGE_BYTES}) {
        byte[] written = new byte[size];
        Arrays.fill(written, (byte) 0x16);
        session.execute(insert.bind(size, ByteBuffer.wrap(written)));
        byte[] found = new byte[size];
        session.execute(select.bind(size)).one().getByteBuffer("v").get(found);
        assertArrayEquals(written, found);
      }
      ResultSet pages = session.execute(SimpleStatement.newInstance("SELECT k FROM " + keyspace + ".items").setPageSize(2));
      assertFalse(pages.isFullyFetched(), "the first page has two rows of three");
      assertEquals(3, pages.all().size());
    }
  }
}

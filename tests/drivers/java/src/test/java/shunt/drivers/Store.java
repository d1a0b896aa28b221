package shunt.drivers;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;

/**
 * Where the scenarios connect to, the sessions they share, and the keyspace they work in.
 *
 * <p>Five settings differ from the driver's defaults. Time-outs are longer, also those that the driver
 * derives from them, as for heartbeats; and traces are asked for more often, because the machines that run
 * this are busy. Schema metadata are read a tenth of a second after a change, not a second, for which a
 * session would wait at each of its own. The consistency is LOCAL_QUORUM, because a read at the default
 * LOCAL_ONE may rightly miss a write that was just acknowledged. A session that closes does not linger for
 * two seconds.
 */
final class Store {
  static final String KEYSPACE = "driver_java";

  /** Another keyspace, whose table items has the same name as one of {@link #KEYSPACE}. */
  static final String OTHER_KEYSPACE = KEYSPACE + "_other";

  /** Asks for five replicas, which no ring under test has; with a table items. */
  static final String FIVE_REPLICAS = KEYSPACE + "_five";

  private static final Map<Setup, CqlSession> SHARED = new EnumMap<>(Setup.class);

  private static final List<String> TABLES =
      List.of(
          "CREATE TABLE items (key text PRIMARY KEY, number int, note text)",
          "CREATE TABLE lines (key text, line int, body text, PRIMARY KEY (key, line))",
          "CREATE TABLE scanned (key text PRIMARY KEY, number int)",
          "CREATE TABLE counts (key text PRIMARY KEY, hits counter)",
          "CREATE TABLE blobs (key text PRIMARY KEY, body blob)",
          "CREATE TABLE emptied (key text PRIMARY KEY)",
          "CREATE TABLE reborn (key text PRIMARY KEY, number int)",
          "CREATE TABLE grown (key text PRIMARY KEY, number int)",
          "CREATE TYPE address (street text, number int, tags set<text>)",
          "CREATE TABLE collected (key text PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>,"
              + " t tuple<int, text, boolean>, n map<int, frozen<list<frozen<set<int>>>>>, v vector<float, 3>)",
          "CREATE TABLE scalars (key text PRIMARY KEY, a ascii, bi bigint, bl blob, bo boolean, d date,"
              + " de decimal, dbl double, du duration, f float, ip inet, i int, si smallint, t time,"
              + " ts timestamp, tu timeuuid, ti tinyint, u uuid, vc varchar, vi varint)");

  private static final String PERSON =
      "CREATE TYPE person (name text, home frozen<address>, phones frozen<list<text>>)";

  private static final String PEOPLE =
      "CREATE TABLE people (key text PRIMARY KEY, who person, known list<frozen<person>>,"
          + " homes map<text, frozen<address>>)";

  private Store() {}

  /** The address under test: environment variable SHUNT_CONTACT, host:port. */
  static InetSocketAddress contact() {
    String contact = System.getenv().getOrDefault("SHUNT_CONTACT", "127.0.0.1:9042");
    int colon = contact.lastIndexOf(':');
    try {
      InetAddress host = InetAddress.getByName(contact.substring(0, colon));
      return new InetSocketAddress(host, Integer.parseInt(contact.substring(colon + 1)));
    } catch (UnknownHostException e) {
      throw new IllegalStateException("SHUNT_CONTACT: " + contact, e);
    }
  }

  /** Skips a scenario where clients see the nodes themselves (SHUNT_EXPECT_SINGLE_HOST=0): a proxy shows one host, a bare ring its own. */
  static void needsSingleHost() {
    Assumptions.assumeFalse("0".equals(System.getenv("SHUNT_EXPECT_SINGLE_HOST")), "a bare ring shows its own nodes");
  }

  /** Skips a scenario on the embedded node (SHUNT_STORE=node), which does not have everything. */
  static String replication() {
    String factor = System.getenv().getOrDefault("SHUNT_RF", "1");
    return "{'class': 'SimpleStrategy', 'replication_factor': " + factor + "}";
  }

  /** The session that the scenarios of one setup share; its keyspace is {@link #KEYSPACE}. */
  static synchronized CqlSession shared(Setup setup) {
    Designer.start();
    return SHARED.computeIfAbsent(setup, s -> builder(s).withKeyspace(KEYSPACE).build());
  }

  /** A new session with {@link #KEYSPACE}, for scenarios that need one more. */
  static CqlSession another(Setup setup) {
    return builder(setup).withKeyspace(KEYSPACE).build();
  }

  /** Changes the schema and returns when all nodes agree on it. */
  static void change(String... statements) {
    Designer.change(statements);
  }

  /** A new session without a keyspace, for scenarios that need one of their own. */
  static CqlSession open(Setup setup) {
    return builder(setup).build();
  }

  static CqlSessionBuilder builder(Setup setup) {
    return builder(setup, true);
  }

  private static CqlSessionBuilder builder(Setup setup, boolean schemaMetadata) {
    var config =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(120))
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(60))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(120))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_AGREEMENT_TIMEOUT, Duration.ofSeconds(180))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(100))
            .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "LOCAL_QUORUM")
            .withInt(DefaultDriverOption.REQUEST_TRACE_ATTEMPTS, 3600)
            .withDuration(DefaultDriverOption.REQUEST_TRACE_INTERVAL, Duration.ofMillis(50))
            // A replica that has the end of a trace may lack what came before.
            .withString(DefaultDriverOption.REQUEST_TRACE_CONSISTENCY, "ALL")
            .withInt(DefaultDriverOption.NETTY_IO_SHUTDOWN_QUIET_PERIOD, 0)
            .withInt(DefaultDriverOption.NETTY_ADMIN_SHUTDOWN_QUIET_PERIOD, 0);
    if (!schemaMetadata) {
      config.withBoolean(DefaultDriverOption.METADATA_SCHEMA_ENABLED, false);
    }
    setup.configure(config);
    return CqlSession.builder()
        .addContactPoint(contact())
        .withLocalDatacenter(System.getenv().getOrDefault("SHUNT_DATACENTRE", "datacenter1"))
        .withConfigLoader(config.build());
  }

  /**
   * The session that changes the schema where a scenario is not about that. Without schema metadata, for
   * which the driver otherwise waits a second per change. Created once; if that fails, everything fails.
   */
  private static final class Designer {
    private static final CqlSession SESSION = builder(Setup.NEGOTIATED, false).build();

    static {
      Map<String, String> keyspaces =
          Map.of(
              KEYSPACE, replication(),
              OTHER_KEYSPACE, replication(),
              FIVE_REPLICAS, "{'class': 'SimpleStrategy', 'replication_factor': 5}");
      atOnce(keyspaces.keySet().stream().map(name -> "DROP KEYSPACE IF EXISTS " + name));
      atOnce(
          keyspaces.entrySet().stream()
              .map(one -> "CREATE KEYSPACE " + one.getKey() + " WITH replication = " + one.getValue()));
      change("USE " + KEYSPACE);
      var others =
          Stream.of(
              "CREATE TABLE " + OTHER_KEYSPACE + ".items (key text PRIMARY KEY, number int)",
              "CREATE TABLE " + FIVE_REPLICAS + ".items (key text PRIMARY KEY)");
      atOnce(Stream.concat(TABLES.stream(), others));
      change(PERSON);
      change(PEOPLE);
    }

    /** Nodes need a second to agree on each change, however many they agree on at once. */
    private static void atOnce(Stream<String> statements) {
      var changes = statements.map(statement -> SESSION.executeAsync(statement).toCompletableFuture()).toList();
      changes.forEach(CompletableFuture::join);
      agreed();
    }

    static void start() {}

    static void change(String... statements) {
      for (String statement : statements) {
        SESSION.execute(statement);
      }
      agreed();
    }

    private static void agreed() {
      if (!SESSION.checkSchemaAgreement()) {
        throw new IllegalStateException("no schema agreement");
      }
    }
  }
}

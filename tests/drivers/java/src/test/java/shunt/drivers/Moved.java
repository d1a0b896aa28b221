package shunt.drivers;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;

/**
 * What {@link MovedTest} reads, and where: SHUNT_MOVED is the proxy's address, SHUNT_MOVED_NODE a node's, SHUNT_MOVED_ADMIN that of the proxy's metrics.
 */
final class Moved {
  static final int MIB = 1 << 20;
  static final String KEYSPACE = "moved_java";
  static final int[] BLOB_SIZES = {MIB, MIB, 2 * MIB, MIB, 4 * MIB, MIB, MIB, 2 * MIB, 8 * MIB, MIB, 15 * MIB};
  static final int[] PAGE_SIZES = {4, 16, 64};

  /** Rows of 104 bytes, and how many queries for them are in flight. */
  static final int SMALL_ROWS = 1_000;

  static final int FIRST_SMALL = 1_000;
  static final int SMALL_SIZE = 104;

  /** One partition of 16 MiB in table lines. */
  static final int LINES = 64;

  static final int LINE_SIZE = MIB / 4;

  /** What waits for something gives up after this time. */
  private static final Duration PATIENCE = Duration.ofSeconds(90);

  private static final HttpClient HTTP = HttpClient.newHttpClient();
  private static final byte[][] BLOBS = new byte[BLOB_SIZES.length][];
  private static final byte[][] ROWS = new byte[LINES][];
  private static CqlSession node;

  private Moved() {}

  static byte[] blob(int key) {
    return BLOBS[key];
  }

  static byte[] line(int number) {
    return ROWS[number];
  }

  /** What the row with that key has: 64 bytes by chance and 64 that are easy to compress, in turn. */
  static byte[] content(int key, int size) {
    byte[] made = new byte[size];
    ByteBuffer into = ByteBuffer.wrap(made).order(ByteOrder.LITTLE_ENDIAN);
    long word = ((key + 1L) * 0x9E3779B97F4A7C15L) ^ size;
    for (int at = 0; at < size; at += 8) {
      if (at / 64 % 2 == 0) {
        word ^= word << 13;
        word ^= word >>> 7;
        word ^= word << 17;
      }
      into.putLong(word);
    }
    return made;
  }

  /** A session with one connection for queries, and the driver's own for events. */
  static CqlSession open(String variable, String setup) {
    String address = System.getenv(variable);
    int colon = address.lastIndexOf(':');
    var config =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ofMillis(50))
            .withInt(DefaultDriverOption.CONNECTION_POOL_LOCAL_SIZE, 1)
            .withInt(DefaultDriverOption.CONNECTION_MAX_REQUESTS, 2048)
            .withInt(DefaultDriverOption.NETTY_IO_SHUTDOWN_QUIET_PERIOD, 0)
            .withInt(DefaultDriverOption.NETTY_ADMIN_SHUTDOWN_QUIET_PERIOD, 0)
            .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "LOCAL_QUORUM")
            .withString(DefaultDriverOption.PROTOCOL_VERSION, setup.substring(0, 2).toUpperCase());
    if (setup.endsWith("_lz4")) {
      config.withString(DefaultDriverOption.PROTOCOL_COMPRESSION, "lz4");
    }
    return CqlSession.builder()
        .addContactPoint(new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))))
        .withLocalDatacenter(System.getenv().getOrDefault("SHUNT_DATACENTRE", "datacenter1"))
        .withConfigLoader(config.build())
        .build();
  }

  /** A session with a node, past the proxy, by which was written what is read again and again. */
  static synchronized CqlSession filled() {
    if (node != null) {
      return node;
    }
    CqlSession opened = open("SHUNT_MOVED_NODE", "v4");
    opened.execute("CREATE KEYSPACE " + KEYSPACE + " WITH replication = " + Store.replication());
    opened.execute("CREATE TABLE " + KEYSPACE + ".blobs (k int PRIMARY KEY, v blob)");
    opened.execute("CREATE TABLE " + KEYSPACE + ".lines (k int, n int, v blob, PRIMARY KEY (k, n))");
    var insert = opened.prepare("INSERT INTO " + KEYSPACE + ".blobs (k, v) VALUES (?, ?)");
    for (int key = 0; key < BLOB_SIZES.length; key++) {
      BLOBS[key] = content(key, BLOB_SIZES[key]);
      opened.execute(insert.bind(key, ByteBuffer.wrap(BLOBS[key])));
    }
    for (int key = FIRST_SMALL; key < FIRST_SMALL + SMALL_ROWS; key++) {
      opened.execute(insert.bind(key, ByteBuffer.wrap(content(key, SMALL_SIZE))));
    }
    var insertLine = opened.prepare("INSERT INTO " + KEYSPACE + ".lines (k, n, v) VALUES (0, ?, ?)");
    for (int line = 0; line < LINES; line++) {
      ROWS[line] = content(line, LINE_SIZE);
      opened.execute(insertLine.bind(line, ByteBuffer.wrap(ROWS[line])));
    }
    node = opened;
    return node;
  }

  /** How often connections of clients have gone to agents, and answers with them. */
  static int moves() throws IOException, InterruptedException {
    String begin = "shunt_handover_answers_total{way=\"handed_over\"} ";
    var page = HttpRequest.newBuilder(URI.create("http://" + System.getenv("SHUNT_MOVED_ADMIN") + "/metrics")).build();
    String text = HTTP.send(page, HttpResponse.BodyHandlers.ofString()).body();
    return text.lines()
        .filter(line -> line.startsWith(begin))
        .mapToInt(line -> Integer.parseInt(line.substring(begin.length()).trim()))
        .findFirst()
        .orElseThrow(() -> new IllegalStateException("no shunt_handover_answers_total in the metrics"));
  }
}

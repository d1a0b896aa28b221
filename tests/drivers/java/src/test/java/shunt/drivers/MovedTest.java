package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static shunt.drivers.Moved.BLOB_SIZES;
import static shunt.drivers.Moved.FIRST_SMALL;
import static shunt.drivers.Moved.KEYSPACE;
import static shunt.drivers.Moved.LINES;
import static shunt.drivers.Moved.PAGE_SIZES;
import static shunt.drivers.Moved.SMALL_ROWS;
import static shunt.drivers.Moved.SMALL_SIZE;
import static shunt.drivers.Moved.content;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Answers of 1 to 16 MiB over one connection, while a proxy hands that connection over to agents for each of them, a thousand small queries are in flight on
 * it, 5 MiB are inserted, and tables come and go. Every answer is compared with what was written. The programs of the other drivers do the same.
 */
@ParameterizedClass(name = "{0}")
@ValueSource(strings = {"v4", "v4_lz4", "v5", "v5_lz4"})
@EnabledIfEnvironmentVariable(named = "SHUNT_MOVED", matches = ".+", disabledReason = "tests/dispatch/test_cql_drivers.py makes the hosts")
class MovedTest {
  private static final int WRITES = 3;
  private static final int FIRST_WRITTEN = 10_000;
  private static final int READERS = 8;
  private static final int READS_MAX = 1_000;

  @Parameter String setup;

  private final AtomicInteger reads = new AtomicInteger();
  private final AtomicInteger small = new AtomicInteger();
  private volatile boolean moved;
  private volatile boolean over;
  private CqlSession session;
  private PreparedStatement select;
  private PreparedStatement page;
  private PreparedStatement insert;
  private int before;

  @Test
  void largeAnswersMoveTheConnection() throws Exception {
    CqlSession node = Moved.filled();
    before = Moved.moves();
    try (CqlSession opened = Moved.open("SHUNT_MOVED", setup)) {
      session = opened;
      select = session.prepare("SELECT v FROM " + KEYSPACE + ".blobs WHERE k = ?");
      page = session.prepare("SELECT n, v FROM " + KEYSPACE + ".lines WHERE k = ?");
      insert = session.prepare("INSERT INTO " + KEYSPACE + ".blobs (k, v) VALUES (?, ?)");
      List<CompletableFuture<Void>> ended = new ArrayList<>();
      for (int first = 0; first < SMALL_ROWS; first++) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        readSmall(first, end);
        ended.add(end);
      }
      try {
        workAtOnce();
      } finally {
        over = true;
      }
      CompletableFuture.allOf(ended.toArray(CompletableFuture[]::new)).join();
    }
    PreparedStatement atNode = node.prepare("SELECT v FROM " + KEYSPACE + ".blobs WHERE k = ?");
    for (int write = 0; write < WRITES; write++) {
      expect(keyOf(write), node.execute(atNode.bind(keyOf(write))).one(), valueOf(write));
    }
    System.out.printf("%s: moved %d times, %d small answers%n", setup, Moved.moves() - before, small.get());
  }

  /** Readers of what is large, the inserts, and the changes of the schema, all at once. */
  private void workAtOnce() throws Exception {
    List<Callable<Void>> work = new ArrayList<>(List.of(this::write, this::changeSchema));
    for (int reader = 0; reader < READERS; reader++) {
      work.add(this::readLarge);
    }
    var threads = Executors.newFixedThreadPool(work.size());
    try {
      for (Future<Void> one : threads.invokeAll(work)) {
        one.get();
      }
    } finally {
      threads.shutdown();
    }
  }

  /** Asks for small rows, one after the other, until all is over. */
  private void readSmall(int row, CompletableFuture<Void> end) {
    if (over) {
      end.complete(null);
      return;
    }
    int key = FIRST_SMALL + row;
    session
        .executeAsync(select.bind(key))
        .whenComplete(
            (rows, error) -> {
              try {
                if (error != null) {
                  throw new IllegalStateException("small row " + key, error);
                }
                expect(key, rows.one(), content(key, SMALL_SIZE));
                small.incrementAndGet();
                readSmall((row + 1) % SMALL_ROWS, end);
              } catch (Throwable failure) {
                end.completeExceptionally(failure);
              }
            });
  }

  /** Reads blobs and pages until the connection has been moved as often as it is to be. */
  private Void readLarge() throws Exception {
    int times = Integer.parseInt(System.getenv("SHUNT_MOVED_TIMES"));
    while (!moved) {
      int number = reads.getAndIncrement();
      assertTrue(number < READS_MAX, "the connection was not moved " + times + " times by " + READS_MAX + " reads");
      int which = number % (BLOB_SIZES.length + PAGE_SIZES.length);
      if (which < BLOB_SIZES.length) {
        expect(which, session.execute(select.bind(which)).one(), Moved.blob(which));
      } else {
        readPages(PAGE_SIZES[which - BLOB_SIZES.length]);
      }
      if (Moved.moves() - before >= times) {
        moved = true;
      }
    }
    return null;
  }

  private void readPages(int size) {
    int expected = 0;
    for (Row row : session.execute(page.bind(0).setPageSize(size))) {
      assertEquals(expected, row.getInt("n"), "line, in pages of " + size);
      expect(expected, row, Moved.line(expected));
      expected++;
    }
    assertEquals(LINES, expected, "lines, in pages of " + size);
  }

  private Void write() {
    for (int write = 0; write < WRITES; write++) {
      session.execute(insert.bind(keyOf(write), ByteBuffer.wrap(valueOf(write))));
      expect(keyOf(write), session.execute(select.bind(keyOf(write))).one(), valueOf(write));
    }
    return null;
  }

  private Void changeSchema() {
    for (int change = 0; change < 2; change++) {
      String name = "changed_" + setup + change;
      session.execute("CREATE TABLE " + KEYSPACE + "." + name + " (k int PRIMARY KEY)");
      session.execute("ALTER TABLE " + KEYSPACE + "." + name + " ADD v text");
      var table = session.getMetadata().getKeyspace(KEYSPACE).flatMap(keyspace -> keyspace.getTable(name));
      assertTrue(table.flatMap(found -> found.getColumn("v")).isPresent(), name + " is not known with its column");
      session.execute("DROP TABLE " + KEYSPACE + "." + name);
    }
    return null;
  }

  private static void expect(int key, Row row, byte[] expected) {
    ByteBuffer found = row == null ? null : row.getByteBuffer("v");
    if (!ByteBuffer.wrap(expected).equals(found)) {
      fail("row " + key + ": " + (found == null ? "nothing" : found.remaining() + " bytes") + " instead of the " + expected.length + " that were written");
    }
  }

  private int keyOf(int write) {
    return FIRST_WRITTEN + 100 * List.of("v4", "v4_lz4", "v5", "v5_lz4").indexOf(setup) + write;
  }

  private byte[] valueOf(int write) {
    return content(keyOf(write), 5 * Moved.MIB);
  }
}

package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionStage;
import org.junit.jupiter.api.Test;

/** Many queries outstanding on one session. */
class ConcurrencyTest extends Scenario {
  private static final int QUERIES = 1000;

  @Test
  void thousandWritesAndThenThousandReadsAtOnce() {
    var insert = session.prepare("INSERT INTO items (key, number) VALUES (?, ?)");
    var select = session.prepare("SELECT key, number FROM items WHERE key = ?");
    List<CompletionStage<AsyncResultSet>> pending = new ArrayList<>();
    for (int i = 0; i < QUERIES; i++) {
      pending.add(session.executeAsync(insert.bind(key + i, i)));
    }
    pending.forEach(stage -> stage.toCompletableFuture().join());
    pending.clear();
    for (int i = 0; i < QUERIES; i++) {
      pending.add(session.executeAsync(select.bind(key + i)));
    }
    for (int i = 0; i < QUERIES; i++) {
      var row = pending.get(i).toCompletableFuture().join().one();
      assertEquals(key + i, row.getString("key"));
      assertEquals(i, row.getInt("number"));
    }
  }

  @Test
  void thousandTextQueriesAtOnce() {
    List<CompletionStage<AsyncResultSet>> pending = new ArrayList<>();
    for (int i = 0; i < QUERIES; i++) {
      pending.add(session.executeAsync("SELECT (int) " + i + " AS n FROM system.local"));
    }
    for (int i = 0; i < QUERIES; i++) {
      assertEquals(i, pending.get(i).toCompletableFuture().join().one().getInt("n"));
    }
  }

  @Test
  void largeAndSmallAnswersMixed() {
    byte[] body = new byte[256 * 1024];
    session.execute("INSERT INTO blobs (key, body) VALUES (?, ?)", key, ByteBuffer.wrap(body));
    var large = session.prepare("SELECT body FROM blobs WHERE key = ?");
    var small = session.prepare("SELECT key FROM system.local");
    List<CompletionStage<AsyncResultSet>> pending = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      pending.add(session.executeAsync(i % 10 == 0 ? large.bind(key) : small.bind()));
    }
    for (int i = 0; i < 300; i++) {
      var row = pending.get(i).toCompletableFuture().join().one();
      if (i % 10 == 0) {
        assertEquals(body.length, row.getByteBuffer(0).remaining());
      } else {
        assertEquals("local", row.getString(0));
      }
    }
  }

  @Test
  void failuresAmongSuccessesGoToTheirOwnQueries() {
    List<CompletionStage<AsyncResultSet>> pending = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      String table = i % 2 == 0 ? "items" : "missing";
      pending.add(session.executeAsync("SELECT key FROM " + table + " WHERE key = '" + key + "'"));
    }
    for (int i = 0; i < 200; i++) {
      assertEquals(
          i % 2 == 1, pending.get(i).handle((rows, error) -> error != null).toCompletableFuture().join());
    }
  }
}

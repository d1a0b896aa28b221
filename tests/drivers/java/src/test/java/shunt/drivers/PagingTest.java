package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Results of 6,000 rows, fetched page by page. */
class PagingTest extends Scenario {
  /** More than drivers ask for at once by default. */
  private static final int ROWS = 6_000;
  private static final String PARTITION = "paged";
  private static boolean filled;

  /** One partition of 6,000 lines, and 6,000 partitions of one row. */
  @BeforeEach
  void fill() {
    if (filled) {
      return;
    }
    var lines = session.prepare("INSERT INTO lines (key, line, body) VALUES (?, ?, ?)");
    var scanned = session.prepare("INSERT INTO scanned (key, number) VALUES (?, ?)");
    List<CompletionStage<AsyncResultSet>> pending = new ArrayList<>();
    for (int i = 0; i < ROWS; i++) {
      pending.add(session.executeAsync(lines.bind(PARTITION, i, "body " + i)));
      pending.add(session.executeAsync(scanned.bind("row " + i, i)));
      if (pending.size() >= 800) {
        pending.forEach(stage -> stage.toCompletableFuture().join());
        pending.clear();
      }
    }
    pending.forEach(stage -> stage.toCompletableFuture().join());
    filled = true;
  }

  private static void assertAllInOrder(Iterable<Row> rows) {
    int expected = 0;
    for (Row row : rows) {
      assertEquals(expected, row.getInt("line"));
      assertEquals("body " + expected, row.getString("body"));
      expected++;
    }
    assertEquals(ROWS, expected);
  }

  @Test
  void onePartitionAtTheDefaultPageSize() {
    assertAllInOrder(session.execute("SELECT * FROM lines WHERE key = ?", PARTITION));
  }

  @Test
  void onePartitionInPagesOf701ByAPreparedStatement() {
    var select = session.prepare("SELECT line, body FROM lines WHERE key = ?");
    ResultSet rows = session.execute(select.bind(PARTITION).setPageSize(701));
    assertEquals(701, rows.getAvailableWithoutFetching());
    assertAllInOrder(rows);
    assertEquals(1 + ROWS / 701, rows.getExecutionInfos().size());
  }

  @Test
  void allPartitionsOfATable() {
    var scan = SimpleStatement.newInstance("SELECT key, number FROM scanned").setPageSize(1000);
    Set<Integer> seen = new HashSet<>();
    for (Row row : session.execute(scan)) {
      assertEquals("row " + row.getInt("number"), row.getString("key"));
      assertTrue(seen.add(row.getInt("number")));
    }
    assertEquals(ROWS, seen.size());
  }

  @Test
  void pagesFetchedAsynchronously() throws Exception {
    var scan = SimpleStatement.newInstance("SELECT number FROM scanned").setPageSize(999);
    AsyncResultSet page = session.executeAsync(scan).toCompletableFuture().get();
    long sum = 0;
    while (true) {
      for (Row row : page.currentPage()) {
        sum += row.getInt(0);
      }
      if (!page.hasMorePages()) {
        break;
      }
      page = page.fetchNextPage().toCompletableFuture().get();
    }
    assertEquals((long) ROWS * (ROWS - 1) / 2, sum);
  }

  @Test
  void pagingStateIsGoodInAnotherSession() {
    var select =
        SimpleStatement.newInstance("SELECT line FROM lines WHERE key = ?", PARTITION).setPageSize(100);
    ByteBuffer state = session.execute(select).getExecutionInfo().getPagingState();
    assertNotNull(state);
    try (CqlSession other = Store.another(setup)) {
      ResultSet rest = other.execute(select.setPagingState(state));
      assertEquals(100, rest.one().getInt(0));
    }
  }

  @Test
  void lastPageHasNoPagingState() {
    var select =
        SimpleStatement.newInstance("SELECT line FROM lines WHERE key = ? AND line < 100", PARTITION)
            .setPageSize(200);
    ResultSet rows = session.execute(select);
    assertEquals(100, rows.all().size());
    assertNull(rows.getExecutionInfo().getPagingState());
  }
}

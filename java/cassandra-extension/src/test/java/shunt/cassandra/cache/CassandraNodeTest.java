package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.ResultSet;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.transport.SimpleClient;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * A real node with a memory tier so small that most hits are on SSD. Every statement goes to a table with the row cache and
 * to one without, and every read has to be the same from both. {@code -Dshunt.node_seconds} makes it longer. {@code make test-long}
 * runs it.
 */
@Tag("long")
class CassandraNodeTest
{
    private static final long SECONDS = Long.getLong("shunt.node_seconds", 6);
    private static final long SECONDS_MAX = SECONDS + 240;
    private static final int COMPARED_MIN = 1500;
    private static final int DISTURBANCES = 9;
    private static final int WORKERS = 4;
    private static final int KEYS = 500;
    /** More rows of a kilobyte than fit into memory, and fewer than fit on the SSD. */
    private static final int ROWS_ON_SSD = 1500;
    /** Of a wide partition the first rows are cached, of a whole one all. */
    private static final String[] PAIRS = {"flat", "wide", "whole"};

    private final AtomicReference<String> wrong = new AtomicReference<>();
    private final AtomicLong compared = new AtomicLong();
    private final AtomicLong timestamp = new AtomicLong(System.currentTimeMillis() * 1000);
    /** Statements on one key share it, what concerns a whole table has it alone. */
    private final ReentrantReadWriteLock tables = new ReentrantReadWriteLock();
    private volatile String extraColumn = "";
    private volatile boolean over;

    @BeforeAll
    static void client()
    {
        DatabaseDescriptor.clientInitialization();
    }

    private static ResultMessage run(SimpleClient client, String statement)
    {
        return client.execute(statement, ConsistencyLevel.ONE);
    }

    private static void both(SimpleClient client, String statement)
    {
        run(client, statement.replace("#", "rc.cached_"));
        run(client, statement.replace("#", "rc.plain_"));
    }

    private void schema(SimpleClient client)
    {
        run(client, "CREATE KEYSPACE rc WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        for (String kind : new String[] {"cached_", "plain_"})
        {
            run(client, "CREATE TABLE rc." + kind + "flat (k text PRIMARY KEY, a text, b text, n bigint)" + caching(kind, "ALL"));
            for (String rows : new String[] {"wide", "whole"})
                run(client, "CREATE TABLE rc." + kind + rows + " (k text, c int, s text static, a text, b text, n bigint, "
                            + "PRIMARY KEY (k, c))" + caching(kind, rows.equals("wide") ? "3" : "ALL"));
        }
    }

    private static String caching(String kind, String rows)
    {
        return " WITH caching = {'keys': 'ALL', 'rows_per_partition': '" + (kind.equals("cached_") ? rows : "NONE") + "'}";
    }

    private static String text(ResultMessage message)
    {
        ResultSet rows = ((ResultMessage.Rows) message).result;
        StringBuilder text = new StringBuilder();
        for (var row : rows.rows)
        {
            for (var cell : row)
                text.append(cell == null ? "null" : ByteBufferUtil.bytesToHex(cell)).append(' ');
            text.append('\n');
        }
        return text.toString();
    }

    /** Some kilobytes, so that the rows are several times as much as fits into memory. */
    private static String value(SplittableRandom random)
    {
        return Long.toHexString(random.nextLong()).repeat(100 + random.nextInt(300));
    }

    private void write(SimpleClient client, SplittableRandom random, String pair, int key, boolean[] expires)
    {
        String using = " USING TIMESTAMP " + timestamp.incrementAndGet();
        String where = " WHERE k = 'key" + key + "'" + (pair.equals("flat") ? "" : " AND c = " + random.nextInt(6));
        String value = value(random);
        // Cassandra's own read path fails when the end of a deleted range lies behind the rows that it caches, whatever the cache
        // (docs/internals/row-cache-in-cassandra.md), so ranges are deleted where all rows are.
        switch (random.nextInt(pair.equals("flat") ? 6 : pair.equals("wide") ? 7 : 8))
        {
            case 0 -> both(client, "DELETE FROM #" + pair + using + " WHERE k = 'key" + key + "'");
            case 1 -> both(client, "DELETE a FROM #" + pair + using + where);
            case 2 ->
            {
                expires[0] = true;
                both(client, "UPDATE #" + pair + using + " AND TTL 2 SET b = '" + value + "'" + where);
            }
            case 6 -> both(client, "UPDATE #" + pair + using + " SET s = '" + value + "' WHERE k = 'key" + key + "'");
            case 7 -> both(client, "DELETE FROM #" + pair + using + " WHERE k = 'key" + key + "' AND c > " + random.nextInt(6));
            default -> both(client, "UPDATE #" + pair + using + " SET a = '" + value + "', n = " + random.nextInt()
                                    + (extraColumn.isEmpty() ? "" : ", " + extraColumn + " = 'x'") + where);
        }
    }

    private void compare(SimpleClient client, SplittableRandom random, String pair, int key, boolean expires)
    {
        String columns = random.nextInt(4) == 0 ? "a" : "*";
        String limit = !pair.equals("flat") && random.nextBoolean() ? " LIMIT " + (1 + random.nextInt(3)) : "";
        String select = "SELECT " + columns + " FROM rc.%s" + pair + " WHERE k = 'key" + key + "'" + limit;
        for (int attempt = 0; ; attempt++)
        {
            String cached = text(run(client, select.formatted("cached_")));
            String plain = text(run(client, select.formatted("plain_")));
            compared.incrementAndGet();
            if (cached.equals(plain))
                return;
            // The two reads may lie on either side of a second's end, at which a cell expires.
            if (!expires || attempt == 2)
            {
                wrong.compareAndSet(null, select + "\ncached " + cached + "\nplain  " + plain);
                return;
            }
            ChildNode.pause(2100);
        }
    }

    /** The keys of a worker are written by it alone, so both tables are the same when it compares; others read them, too. */
    private void work(ChildNode node, int worker)
    {
        SplittableRandom random = new SplittableRandom(worker);
        boolean[][][] expires = new boolean[PAIRS.length][KEYS][1];
        try (SimpleClient client = node.client())
        {
            while (!over && wrong.get() == null)
            {
                int pair = random.nextInt(PAIRS.length);
                int key = random.nextInt(3) == 0 ? random.nextInt(40) : random.nextInt(KEYS);
                boolean mine = key % WORKERS == worker;
                tables.readLock().lock();
                try
                {
                    if (!mine)
                        run(client, "SELECT * FROM rc.cached_" + PAIRS[pair] + " WHERE k = 'key" + key + "'");
                    else if (random.nextInt(3) == 0)
                        write(client, random, PAIRS[pair], key, expires[pair][key]);
                    else
                        compare(client, random, PAIRS[pair], key, expires[pair][key][0]);
                }
                finally
                {
                    tables.readLock().unlock();
                }
            }
        }
        catch (IOException | RuntimeException e)
        {
            wrong.compareAndSet(null, e.toString());
        }
    }

    private void alone(Runnable action)
    {
        tables.writeLock().lock();
        try
        {
            action.run();
        }
        finally
        {
            tables.writeLock().unlock();
        }
    }

    /** What concerns whole tables: some of it while statements are under way, some of it between them. */
    private void disturb(ChildNode node, SimpleClient client, int step) throws Exception
    {
        switch (step % DISTURBANCES)
        {
            case 0 -> node.flush("rc");
            case 1 -> node.compact("rc");
            case 2 -> alone(() ->
            {
                extraColumn = "extra" + step;
                both(client, "ALTER TABLE #flat ADD " + extraColumn + " text");
                both(client, "ALTER TABLE #wide ADD " + extraColumn + " text");
                both(client, "ALTER TABLE #whole ADD " + extraColumn + " text");
            });
            case 3 -> node.caches("invalidateRowCache");
            case 4 -> alone(() -> both(client, "TRUNCATE #flat"));
            case 5 -> node.cleanup("rc");
            case 6 ->
            {
                run(client, "ALTER TABLE rc.cached_wide" + caching("plain_", ""));
                ChildNode.pause(300);
                run(client, "ALTER TABLE rc.cached_wide" + caching("cached_", step % 2 == 0 ? "5" : "2"));
            }
            case 7 ->
            {
                node.rowCacheCapacity(0);
                ChildNode.pause(200);
                node.rowCacheCapacity(1);
            }
            default -> node.caches("saveCaches");
        }
    }

    @Test
    void everyReadIsTheSameWithTheCacheAndWithout(@TempDir Path directory) throws Exception
    {
        try (ChildNode node = new ChildNode(directory, "node.log", "1MiB", "4MiB"); SimpleClient client = node.client())
        {
            schema(client);
            SplittableRandom first = new SplittableRandom(WORKERS);
            for (int key = 0; key < KEYS; key++)
                for (String pair : PAIRS)
                    both(client, "UPDATE #" + pair + " USING TIMESTAMP 1 SET a = '" + value(first) + "' WHERE k = 'key" + key + "'"
                                 + (pair.equals("flat") ? "" : " AND c = 0"));
            long begun = System.nanoTime();
            Thread[] workers = new Thread[WORKERS];
            for (int i = 0; i < WORKERS; i++)
            {
                int worker = i;
                workers[i] = new Thread(() -> work(node, worker));
                workers[i].start();
            }
            for (int step = 0; wrong.get() == null && !isEnough((System.nanoTime() - begun) / 1_000_000_000L, step); step++)
            {
                ChildNode.pause(500);
                disturb(node, client, step);
            }
            over = true;
            for (Thread worker : workers)
                worker.join();
            if (wrong.get() != null)
                Files.writeString(Path.of("target/row-cache-node.log"), node.log());
            assertNull(wrong.get(), "the node's log is in target/row-cache-node.log");
            assertTrue(compared.get() >= COMPARED_MIN, "reads compared: " + compared.get());
            System.out.printf("node: %d reads compared; hits %.0f in memory, %.0f on SSD, %.0f in its buffer; %.0f cascaded%n",
                              compared.get(), node.figure("RowCacheMemory", "Hits"), node.figure("RowCacheSsd", "Hits"),
                              node.figure("RowCacheSsd", "BufferHits"), node.figure("RowCacheSsd", "Cascaded"));
            assertTrue(node.figure("RowCacheMemory", "Hits") > 0 && node.figure("RowCacheSsd", "Hits") > 0);
            fillTheSsd(client, node);
            assertEquals(1, node.figure("RowCacheSsd", "On"));
            assertTrue(node.figure("RowCache", "Hits") > 0 && node.figure("RowCache", "HitRate") > 0, "what nodetool info shows");
            assertTrue(node.figure("RowCacheMemory", "CatalogueSavedBytes") > 0);
            assertEquals(0, node.figure("RowCacheMemory", "Undecodable"));
            assertTrue(node.log().contains("which start empty"));
            assertTrue(Files.readAllLines(directory.resolve("ssd/catalogue")).size() > 1);
        }
    }

    private boolean isEnough(long seconds, int disturbances)
    {
        return seconds >= SECONDS && disturbances >= DISTURBANCES && compared.get() >= COMPARED_MIN || seconds > SECONDS_MAX;
    }

    /** More rows than fit into memory, read twice; then every one against the table without the cache, and a truncation. */
    private void fillTheSsd(SimpleClient client, ChildNode node) throws Exception
    {
        for (int key = 0; key < ROWS_ON_SSD; key++)
            both(client, "INSERT INTO #flat (k, a) VALUES ('ssd" + key + "', '" + "v".repeat(1000) + key + "')");
        node.flush("rc");
        for (int round = 0; round < 2; round++)
            for (int key = 0; key < ROWS_ON_SSD; key++)
                run(client, "SELECT * FROM rc.cached_flat WHERE k = 'ssd" + key + "'");
        double before = node.figure("RowCacheSsd", "Hits");
        for (int key = 0; key < ROWS_ON_SSD; key++)
        {
            String where = "flat WHERE k = 'ssd" + key + "'";
            assertEquals(text(run(client, "SELECT * FROM rc.plain_" + where)), text(run(client, "SELECT * FROM rc.cached_" + where)));
        }
        assertTrue(node.figure("RowCacheSsd", "Hits") - before > 300, "hits on SSD: " + (node.figure("RowCacheSsd", "Hits") - before));
        run(client, "TRUNCATE rc.cached_flat");
        for (int key = 0; key < ROWS_ON_SSD; key++)
            assertEquals("", text(run(client, "SELECT * FROM rc.cached_flat WHERE k = 'ssd" + key + "'")));
    }
}

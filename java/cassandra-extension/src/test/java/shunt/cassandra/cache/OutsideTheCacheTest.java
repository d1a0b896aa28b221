package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.transport.SimpleClient;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Rows that change without a write that the cache is told of: SSTables from outside, and a restart. */
class OutsideTheCacheTest
{
    private static final String KEYSPACE = "outside";
    private static final int KEYS = 1000;
    private static final int BATCH = 25;

    @TempDir
    private static Path directory;
    private static ChildNode node;

    @BeforeAll
    static void start() throws IOException
    {
        DatabaseDescriptor.clientInitialization();
        node = new ChildNode(directory, "outside.log", "1MiB", "4MiB");
        try (SimpleClient client = node.client())
        {
            run(client, "CREATE KEYSPACE " + KEYSPACE + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
        }
    }

    @AfterAll
    static void end()
    {
        node.close();
    }

    private static ResultMessage run(SimpleClient client, String statement)
    {
        return client.execute(statement, ConsistencyLevel.ONE);
    }

    private static void create(SimpleClient client, String table)
    {
        run(client, "CREATE TABLE " + KEYSPACE + "." + table + " (k int PRIMARY KEY, v text)"
                    + " WITH caching = {'keys': 'ALL', 'rows_per_partition': 'ALL'} AND compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}");
    }

    /** So long that all rows of a table are more than fits into memory. */
    private static String value(String what, int key)
    {
        return what + key + "v".repeat(1300);
    }

    private static void write(SimpleClient client, String table, String what, int timestamp, int from, int step)
    {
        StringBuilder batch = new StringBuilder();
        for (int key = from, rows = 1; key < KEYS; key += step, rows++)
        {
            batch.append("INSERT INTO ").append(KEYSPACE).append('.').append(table).append(" (k, v) VALUES (").append(key).append(", '")
                 .append(value(what, key)).append("') USING TIMESTAMP ").append(timestamp).append(';');
            if (rows % BATCH != 0 && key + step < KEYS)
                continue;
            run(client, "BEGIN UNLOGGED BATCH " + batch + " APPLY BATCH");
            batch.setLength(0);
        }
    }

    /** The row's value, or null. */
    private static String read(SimpleClient client, String table, int key)
    {
        var rows = ((ResultMessage.Rows) run(client, "SELECT v FROM " + KEYSPACE + "." + table + " WHERE k = " + key)).result.rows;
        return rows.isEmpty() ? null : StandardCharsets.UTF_8.decode(rows.get(0).get(0).duplicate()).toString();
    }

    private static void assertRows(SimpleClient client, String table, IntFunction<String> expected)
    {
        for (int key = 0; key < KEYS; key++)
            assertEquals(expected.apply(key), read(client, table, key));
    }

    /** Copies a table's SSTables to a directory as that of a table. */
    private static Path copySSTables(String table) throws IOException
    {
        Path to = Files.createDirectories(directory.resolve("copies").resolve(KEYSPACE).resolve(table));
        try (Stream<Path> tables = Files.list(directory.resolve("data").resolve(KEYSPACE)))
        {
            Path from = tables.filter(path -> path.getFileName().toString().startsWith(table + "-")).findFirst().orElseThrow();
            try (Stream<Path> files = Files.list(from))
            {
                for (Path file : files.filter(Files::isRegularFile).toList())
                    Files.copy(file, to.resolve(file.getFileName()));
            }
        }
        return to;
    }

    /** How SSTables come from outside. */
    private enum Way
    {
        IMPORT
        {
            @Override
            void bring(String table, Path from)
            {
                node.importSSTables(KEYSPACE, table, from);
            }
        },
        /** What repair, bootstrap and rebuild do, too; from the node to itself. */
        STREAM
        {
            @Override
            void bring(String table, Path from)
            {
                node.storage("bulkLoad", from.toString());
            }
        };

        abstract void bring(String table, Path from);
    }

    @ParameterizedTest
    @EnumSource
    void rowsOfSSTablesFromOutsideAreRead(Way way) throws IOException
    {
        String table = way.name().toLowerCase(Locale.ROOT) + "ed";
        try (SimpleClient client = node.client())
        {
            create(client, table);
            write(client, table, "new", 2, 0, 2);
            node.flush(KEYSPACE);
            Path copies = copySSTables(table);
            run(client, "TRUNCATE " + KEYSPACE + "." + table);
            write(client, table, "old", 1, 0, 1);
            node.flush(KEYSPACE);
            assertRows(client, table, key -> value("old", key));
            assertTrue(node.figure("RowCacheMemory", "Entries") > 300, "rows in memory");
            double onSsd = node.figure("RowCacheSsd", "Hits");
            assertRows(client, table, key -> value("old", key));
            assertTrue(node.figure("RowCacheSsd", "Hits") - onSsd > 100, "rows on the SSD");
            double streams = node.figure("RowCacheSsd", "StreamsOutdating");
            way.bring(table, copies);
            assertEquals(way == Way.STREAM, node.figure("RowCacheSsd", "StreamsOutdating") > streams, "outdated by range, without a walk");
            double misses = misses();
            assertRows(client, table, key -> value(key % 2 == 0 ? "new" : "old", key));
            assertTrue(misses() - misses >= KEYS / 2, "rows that were read from the SSTables: " + (misses() - misses));
        }
    }

    private static double misses()
    {
        return node.figure("RowCache", "Requests") - node.figure("RowCache", "Hits");
    }

    private static Path savedCache()
    {
        return directory.resolve("saved_caches").resolve("RowCache-g.db");
    }

    /** What became of the rows after the cache was saved: a tenth each, and the rest is as it was. */
    private static String afterTheSave(int key)
    {
        return switch (key % 10)
        {
            case 0, 1 -> value("changed", key);
            case 2, 3 -> null;
            default -> value("saved", key);
        };
    }

    private static void changeAfterTheSave(SimpleClient client, String table, int change, int delete)
    {
        write(client, table, "changed", 2, change, 10);
        for (int key = delete; key < KEYS; key += 10)
            run(client, "DELETE FROM " + KEYSPACE + "." + table + " USING TIMESTAMP 2 WHERE k = " + key);
    }

    @Test
    void aSavedCacheIsLoadedAndServesNothingOld() throws IOException
    {
        try (SimpleClient client = node.client())
        {
            create(client, "saved");
            create(client, "emptied");
            write(client, "saved", "saved", 1, 0, 1);
            write(client, "emptied", "emptied", 1, 0, 20);
            node.flush(KEYSPACE);
            assertRows(client, "saved", key -> value("saved", key));
            for (int key = 0; key < KEYS; key += 20)
                assertEquals(value("emptied", key), read(client, "emptied", key));
            node.rowCacheSavePeriod(1);
            ChildNode.await("a saved cache", () -> Files.exists(savedCache()));
            node.rowCacheSavePeriod(0);
            node.caches("saveCaches");
            // In SSTables, and in the commit log alone: that is replayed when the cache has been loaded.
            changeAfterTheSave(client, "saved", 0, 2);
            node.flush(KEYSPACE);
            changeAfterTheSave(client, "saved", 1, 3);
            run(client, "TRUNCATE " + KEYSPACE + ".emptied");
        }
        node.stop();
        node = new ChildNode(directory, "restarted.log", "1MiB", "4MiB");
        assertTrue(node.log().contains("Reading saved cache: " + savedCache()));
        double loaded = node.figure("RowCache", "Entries");
        assertTrue(loaded > 300, "loaded: " + loaded);
        try (SimpleClient client = node.client())
        {
            double hits = node.figure("RowCache", "Hits");
            assertRows(client, "saved", OutsideTheCacheTest::afterTheSave);
            double hit = node.figure("RowCache", "Hits") - hits;
            assertTrue(hit > loaded / 3, hit + " of " + loaded + " rows were hit");
            for (int key = 0; key < KEYS; key += 20)
                assertNull(read(client, "emptied", key));
        }
    }
}

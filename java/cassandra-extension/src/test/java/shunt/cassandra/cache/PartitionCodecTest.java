package shunt.cassandra.cache;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.SplittableRandom;
import java.util.function.Consumer;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.marshal.Int32Type;
import org.apache.cassandra.db.marshal.ListType;
import org.apache.cassandra.db.marshal.UTF8Type;
import org.apache.cassandra.db.partitions.CachedBTreePartition;
import org.apache.cassandra.db.partitions.CachedPartition;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.io.util.DataOutputBuffer;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.utils.ByteBufferUtil;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Bodies of Cassandra's own partitions: shorter, and the same bytes again. */
class PartitionCodecTest
{
    private static final long NOW = 1_700_000_000L;

    @BeforeAll
    static void partitioner()
    {
        DatabaseDescriptor.clientInitialization();
        DatabaseDescriptor.setPartitionerUnsafe(Murmur3Partitioner.instance);
    }

    private static TableMetadata.Builder table()
    {
        return TableMetadata.builder("ks", "t").addPartitionKeyColumn("k", UTF8Type.instance);
    }

    private static Generation generation(TableMetadata table)
    {
        return new Generation(3, table.id, new Tables.Table(table.toString(), ColumnSet.of(table), table, () -> table));
    }

    private static CachedPartition partition(TableMetadata table, String key, Consumer<Row.SimpleBuilder> cells, Object... clustering)
    {
        PartitionUpdate.SimpleBuilder builder = PartitionUpdate.simpleBuilder(table, key);
        builder.timestamp(1_700_000_000_000_000L).nowInSec(NOW);
        cells.accept(builder.row(clustering));
        return cached(builder);
    }

    private static CachedPartition cached(PartitionUpdate.SimpleBuilder builder)
    {
        return CachedBTreePartition.create(builder.build().unfilteredIterator(), NOW);
    }

    private static byte[] full(CachedPartition partition) throws IOException
    {
        try (DataOutputBuffer out = new DataOutputBuffer())
        {
            CachedPartition.cacheSerializer.serialize(partition, out);
            return out.toByteArray();
        }
    }

    /** Checks that the partition's bytes come back, and returns the body. */
    private static RowCodec.Encoded there(TableMetadata table, String key, CachedPartition partition) throws IOException
    {
        byte[] full = full(partition);
        RowCodec.Encoded encoded = PartitionCodec.shorten(ColumnSet.of(table), ByteBuffer.wrap(full));
        assertNotNull(encoded);
        try (DataOutputBuffer out = new DataOutputBuffer())
        {
            PartitionCodec.lengthen(generation(table), ByteBufferUtil.getArray(UTF8Type.instance.decompose(key)), encoded.body(), out);
            assertArrayEquals(full, out.toByteArray());
        }
        return encoded;
    }

    @Test
    void bytesOfARecordWithAndWithoutTheCatalogue() throws IOException
    {
        TableMetadata small = table().addRegularColumn("v", UTF8Type.instance).build();
        CachedPartition seven = partition(small, "key1", row -> row.add("v", "val"));
        RowCodec.Encoded one = there(small, "key1", seven);
        TableMetadata.Builder wide = table();
        for (int i = 0; i < 5; i++)
            wide.addRegularColumn("field" + i, UTF8Type.instance);
        TableMetadata paper = wide.build();
        CachedPartition row = partition(paper, "user1234567890", builder -> {
            for (int i = 0; i < 5; i++)
                builder.add("field" + i, "x".repeat(75));
        });
        RowCodec.Encoded five = there(paper, "user1234567890", row);
        TableMetadata.Builder telemetry = table();
        for (int i = 0; i < 40; i++)
            telemetry.addRegularColumn("engine_temperature_celsius_" + i, Int32Type.instance);
        TableMetadata forty = telemetry.build();
        CachedPartition measured = partition(forty, "vehicle-17", builder -> {
            for (int i = 0; i < 40; i++)
                builder.add("engine_temperature_celsius_" + i, i);
        });
        RowCodec.Encoded many = there(forty, "vehicle-17", measured);
        System.out.printf("record with key and id, Cassandra's form: 7 bytes of data %d, %d; 5 columns of 75 bytes %d, %d; "
                          + "40 telemetry columns %d, %d%n",
                          record(one, "key1"), PartitionCodec.fullBytes(seven), record(five, "user1234567890"),
                          PartitionCodec.fullBytes(row), record(many, "vehicle-17"), PartitionCodec.fullBytes(measured));
        assertTrue(record(one, "key1") < PartitionCodec.fullBytes(seven) - 15);
        assertTrue(record(five, "user1234567890") < PartitionCodec.fullBytes(row) - 45);
        assertTrue(record(many, "vehicle-17") < PartitionCodec.fullBytes(measured) / 3);
        // What is counted as saved: the table's id and the names, less the catalogue's id.
        assertEquals(16 - 4 + 1 + 5 * 7, five.savedBytes());
    }

    private static int record(RowCodec.Encoded encoded, String key)
    {
        return 4 + key.length() + encoded.body().length;
    }

    @Test
    void staticsCollectionsDeletionsAndExpiringCells() throws IOException
    {
        TableMetadata table = table().addClusteringColumn("c", Int32Type.instance)
                                     .addStaticColumn("s", UTF8Type.instance)
                                     .addRegularColumn("v", UTF8Type.instance)
                                     .addRegularColumn("l", ListType.getInstance(Int32Type.instance, true)).build();
        PartitionUpdate.SimpleBuilder mixed = PartitionUpdate.simpleBuilder(table, "a").timestamp(5).nowInSec(NOW);
        mixed.row(Clustering.STATIC_CLUSTERING).add("s", "static");
        mixed.row(7).add("v", "x").add("l", List.of(5, 6));
        mixed.row(8).delete("v");
        mixed.row(9).delete();
        mixed.row(10).ttl(100).add("v", "expires");
        there(table, "a", cached(mixed));
        PartitionUpdate.SimpleBuilder statics = PartitionUpdate.simpleBuilder(table, "b").timestamp(5).nowInSec(NOW);
        statics.row(Clustering.STATIC_CLUSTERING).add("s", "static");
        there(table, "b", cached(statics));
        there(table, "c", cached(PartitionUpdate.simpleBuilder(table, "c").timestamp(5).nowInSec(NOW).delete()));
        there(table, "d", cached(PartitionUpdate.simpleBuilder(table, "d").timestamp(5).nowInSec(NOW)));
    }

    @Test
    void variableColumnsTakeABitEachAndNoIdOfTheirOwn() throws IOException
    {
        TableMetadata.Builder builder = table();
        for (int i = 0; i < 70; i++)
            builder.addRegularColumn(String.format("c%02d", i), Int32Type.instance);
        TableMetadata table = builder.build();
        SplittableRandom random = new SplittableRandom(5);
        for (int round = 0; round < 200; round++)
        {
            CachedPartition partition = partition(table, "k" + round, row -> {
                for (int i = 0; i < 70; i++)
                    if (random.nextInt(3) == 0)
                        row.add(String.format("c%02d", i), i);
            });
            RowCodec.Encoded encoded = there(table, "k" + round, partition);
            int names = partition.columns().regulars.size() * 4;
            assertTrue(names < 40 || encoded.savedBytes() >= names - 9, "saved: " + encoded.savedBytes() + " of " + names);
        }
    }

    @Test
    void columnsThatTheGenerationDoesNotHaveAreNamed() throws IOException
    {
        TableMetadata before = table().addRegularColumn("gone", UTF8Type.instance).addRegularColumn("v", UTF8Type.instance).build();
        TableMetadata now = table().id(before.id).addRegularColumn("v", UTF8Type.instance).build();
        there(now, "k", partition(before, "k", row -> row.add("gone", "x").add("v", "y")));
    }

    @Test
    void theFileTellsWhatIdsStandFor(@TempDir Path directory) throws IOException
    {
        Catalogue catalogue = new Catalogue(Optional.of(directory));
        TableMetadata table = table().addClusteringColumn("c", Int32Type.instance).addStaticColumn("s", UTF8Type.instance)
                                     .addRegularColumn("odd name:,", ListType.getInstance(Int32Type.instance, false)).build();
        Generation generation = generation(table);
        catalogue.add(generation);
        assertEquals(List.of(Catalogue.HEAD, "3 ks.t " + table.id + " static:s:text regular:odd+name%3A%2C:frozen%3Clist%3Cint%3E%3E"),
                     Files.readAllLines(directory.resolve(Catalogue.FILE)));
        catalogue.reclaim(List.of(generation));
        assertEquals(List.of(Catalogue.HEAD), Files.readAllLines(directory.resolve(Catalogue.FILE)));
        assertEquals(List.of(), catalogue.ids());
    }
}

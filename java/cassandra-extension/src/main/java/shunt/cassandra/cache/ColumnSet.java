package shunt.cassandra.cache;

import java.io.IOException;
import java.util.List;
import org.apache.cassandra.db.Columns;
import org.apache.cassandra.io.util.DataOutputBuffer;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.TableMetadata;

/**
 * All static and all regular columns of a table, in Cassandra's order: the base that a record's own columns are told against.
 *
 * @param statics static columns
 * @param regulars the others; no column of the primary key
 */
record ColumnSet(Group statics, Group regulars)
{
    /** One column: its name's bytes and its CQL type. */
    record Column(byte[] name, String type)
    {
    }

    /**
     * Columns and their form in Cassandra's own records: their number and their names, each with its length.
     */
    record Group(List<Column> columns, byte[] section)
    {
        static Group of(Columns columns)
        {
            try (DataOutputBuffer out = new DataOutputBuffer())
            {
                Columns.serializer.serialize(columns, out);
                List<Column> list = new java.util.ArrayList<>();
                for (ColumnMetadata column : columns)
                    list.add(new Column(org.apache.cassandra.utils.ByteBufferUtil.getArray(column.name.bytes),
                                        column.type.asCQL3Type().toString()));
                return new Group(List.copyOf(list), out.toByteArray());
            }
            catch (IOException e)
            {
                throw new java.io.UncheckedIOException(e);
            }
        }
    }

    static ColumnSet of(TableMetadata table)
    {
        return new ColumnSet(Group.of(table.regularAndStaticColumns().statics), Group.of(table.regularAndStaticColumns().regulars));
    }
}

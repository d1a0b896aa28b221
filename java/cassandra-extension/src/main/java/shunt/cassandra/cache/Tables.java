package shunt.cassandra.cache;

import java.util.function.Supplier;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.TableId;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.schema.TableMetadataRef;

/** What the cache has to know of Cassandra's schema. */
interface Tables
{
    /**
     * A table as it is now.
     *
     * @param name keyspace and table
     * @param version an object that is another one after every ALTER
     * @param versionNow the version at the time of the call; this is asked with every access, so it has to be cheap
     */
    record Table(String name, ColumnSet columns, Object version, Supplier<?> versionNow)
    {
    }

    /** The table, or null if there is none. */
    Table get(TableId id);

    /** The schema of this node. */
    static Tables ofSchema()
    {
        return id -> {
            // The reference that the table's store has, too: what it shows is what decides whether a write tells the cache.
            TableMetadataRef reference = Schema.instance.getTableMetadataRef(id);
            // What other nodes send of it has to be heard of before the first row is cached.
            if (reference == null || !StreamedTables.follow(id))
                return null;
            TableMetadata now = reference.get();
            return new Table(now.toString(), ColumnSet.of(now), now, reference::get);
        };
    }
}

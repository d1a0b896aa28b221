package shunt.cassandra.cache;

import org.apache.cassandra.schema.TableId;

/**
 * A table from one ALTER, TRUNCATE or DROP to the next. Its id is what records carry, so that all records of an earlier
 * generation are invalid at once, wherever they are.
 */
final class Generation
{
    private final int id;
    private final TableId tableId;
    private final Tables.Table table;
    private volatile boolean dead;

    Generation(int id, TableId tableId, Tables.Table table)
    {
        this.id = id;
        this.tableId = tableId;
        this.table = table;
    }

    int id()
    {
        return id;
    }

    TableId tableId()
    {
        return tableId;
    }

    ColumnSet columns()
    {
        return table.columns();
    }

    String tableName()
    {
        return table.name();
    }

    /** Ends it; there is no way back. */
    void end()
    {
        dead = true;
    }

    /** Whether it was ended. It may be over without: see {@link #isCurrent()}. */
    boolean isDead()
    {
        return dead;
    }

    /** Whether records of it may be used: it was not ended, and the table was not altered. */
    boolean isCurrent()
    {
        return !dead && table.versionNow().get() == table.version();
    }
}

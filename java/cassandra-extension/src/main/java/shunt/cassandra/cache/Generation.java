package shunt.cassandra.cache;

import java.util.ArrayList;
import java.util.List;
import org.apache.cassandra.schema.TableId;

/**
 * A table from one ALTER, TRUNCATE or DROP to the next. Its id is what records carry, so that all records of an earlier
 * generation are invalid at once, wherever they are.
 */
final class Generation
{
    /** Beyond it two become one. */
    static final int OUTDATED_MAX = 16;

    private final int id;
    private final TableId tableId;
    private final Tables.Table table;
    private volatile boolean dead;
    /** Oldest first; replaced, never changed. */
    private volatile List<Outdated> outdated = List.of();

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

    /**
     * Records on the SSD of keys in these ranges are not valid from now on. The caller ends what it gets.
     *
     * @param oldestSegment sequence of the log's oldest: what is about older ones is forgotten
     */
    synchronized Outdated outdate(KeyRanges ranges, long oldestSegment)
    {
        List<Outdated> now = new ArrayList<>();
        for (Outdated before : outdated)
        {
            if (before.upTo() >= oldestSegment)
                now.add(before);
        }
        // Two that are ended, of which there are always some: few streams end at the same time.
        for (int i = 0; now.size() >= OUTDATED_MAX && i + 1 < now.size(); i++)
        {
            if (now.get(i).upTo() < Long.MAX_VALUE && now.get(i + 1).upTo() < Long.MAX_VALUE)
                now.add(i, now.remove(i).and(now.remove(i)));
        }
        Outdated added = new Outdated(ranges);
        now.add(added);
        outdated = List.copyOf(now);
        return added;
    }

    /** How many ranges are remembered, for tests. */
    int outdatedRanges()
    {
        return outdated.size();
    }

    /** Whether a record of this key in a segment is not valid any more. */
    boolean isOutdated(byte[] key, long segmentSequence)
    {
        List<Outdated> now = outdated;
        for (int i = 0; i < now.size(); i++)
        {
            Outdated one = now.get(i);
            if (one.covers(key, segmentSequence))
                return true;
        }
        return false;
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

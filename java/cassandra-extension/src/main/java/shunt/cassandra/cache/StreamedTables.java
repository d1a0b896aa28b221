package shunt.cassandra.cache;

import java.util.function.BiConsumer;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.lifecycle.Tracker;
import org.apache.cassandra.notifications.INotification;
import org.apache.cassandra.notifications.INotificationConsumer;
import org.apache.cassandra.notifications.SSTableAddedNotification;
import org.apache.cassandra.schema.TableId;

/**
 * Hears of SSTables that were received from another node. The task that has received them adds them, which this is told, and
 * then asks the row cache for all keys, on the same thread, to remove those in the ranges of these SSTables; what was
 * heard tells the cache which they will be.
 *
 * <p>What was heard may never be that of another table than the one whose keys are asked for. A table is heard of from
 * before its first row is cached, so what was last heard on a thread is about the table of the task, or that has no rows.
 */
final class StreamedTables implements INotificationConsumer
{
    private record Heard(TableId table, KeyRanges ranges)
    {
    }

    private static final StreamedTables INSTANCE = new StreamedTables();
    private static final ThreadLocal<Heard> HEARD = new ThreadLocal<>();

    private StreamedTables()
    {
    }

    /** From now on hears of the table's SSTables; false when there is no such table here. */
    static synchronized boolean follow(TableId id)
    {
        ColumnFamilyStore table = ColumnFamilyStore.getIfExists(id);
        if (table == null)
            return false;
        if (!table.getTracker().contains(INSTANCE))
            table.getTracker().subscribe(INSTANCE);
        return true;
    }

    @Override
    public void handleNotification(INotification notification, Object sender)
    {
        // Those that were flushed from a memtable, or compacted, bring nothing that the cache has not been told.
        if (!(notification instanceof SSTableAddedNotification added) || added.memtable().isPresent())
            return;
        TokenRanges ranges = TokenRanges.of(added.added);
        if (ranges != null)
            hear(added.added.iterator().next().metadata().id, ranges);
    }

    /** SSTables of a table with keys in these ranges have been added on this thread. */
    static void hear(TableId table, KeyRanges ranges)
    {
        HEARD.set(new Heard(table, ranges));
    }

    /** Gives on what was heard last on this thread, once; false when that is nothing. */
    static boolean take(BiConsumer<TableId, KeyRanges> to)
    {
        Heard heard = HEARD.get();
        if (heard == null)
            return false;
        HEARD.remove();
        to.accept(heard.table, heard.ranges);
        return true;
    }
}

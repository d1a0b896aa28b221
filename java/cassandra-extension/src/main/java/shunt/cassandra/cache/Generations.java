package shunt.cassandra.cache;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.cassandra.schema.TableId;

/** The current generation of every table that has anything in the cache. */
final class Generations
{
    private final Tables tables;
    private final Catalogue catalogue;
    private final ConcurrentHashMap<TableId, Generation> current = new ConcurrentHashMap<>();
    private final ConcurrentHashMap<Integer, Generation> byId = new ConcurrentHashMap<>();
    /** Ended, but the catalogue still has their ids, because the log may hold records of them. */
    private final Queue<Generation> ended = new ConcurrentLinkedQueue<>();

    Generations(Tables tables, Catalogue catalogue)
    {
        this.tables = tables;
        this.catalogue = catalogue;
    }

    /** The generation to put records into, a new one if need be; null if there is no such table any more. */
    Generation forPut(TableId table)
    {
        Generation generation = current.get(table);
        if (generation != null && generation.isCurrent())
            return generation;
        return renew(table);
    }

    private synchronized Generation renew(TableId id)
    {
        Generation old = current.get(id);
        if (old != null && old.isCurrent())
            return old;
        if (old != null)
            end(old);
        Tables.Table table = tables.get(id);
        if (table == null)
            return null;
        Generation generation = new Generation(catalogue.nextId(), id, table);
        catalogue.add(generation);
        byId.put(generation.id(), generation);
        current.put(id, generation);
        return generation;
    }

    /** The generation whose records may be read, or null. */
    Generation forGet(TableId table)
    {
        Generation generation = current.get(table);
        return generation != null && generation.isCurrent() ? generation : null;
    }

    /** The table's last generation, current or not, or null: what records of the table that can be read belong to. */
    Generation last(TableId table)
    {
        return current.get(table);
    }

    /** The generation of an id that is in a record; it may have ended. */
    Generation byId(int id)
    {
        return byId.get(id);
    }

    /** Makes all records of a table invalid. */
    synchronized void end(TableId table)
    {
        Generation generation = current.get(table);
        if (generation != null)
            end(generation);
    }

    /** Makes all records of all tables invalid. */
    synchronized void endAll()
    {
        List.copyOf(current.values()).forEach(this::end);
    }

    private void end(Generation generation)
    {
        generation.end();
        current.remove(generation.tableId(), generation);
        ended.add(generation);
    }

    /** Gives the catalogue back the ids that no record in the log has. */
    void reclaim(SegmentLog log)
    {
        List<Generation> unused = new ArrayList<>();
        for (Generation generation : ended)
            if (log == null || !log.holds(generation))
                unused.add(generation);
        ended.removeAll(unused);
        unused.forEach(generation -> byId.remove(generation.id()));
        catalogue.reclaim(unused);
    }

    List<TableId> tables()
    {
        return List.copyOf(current.keySet());
    }
}

package shunt.cassandra.cache;

/** Entries in the order they came in, linked through themselves so that any of them leaves at once. */
final class EntryList
{
    private Entry oldest;
    private Entry newest;
    private long bytes;

    void add(Entry entry)
    {
        entry.older = newest;
        entry.newer = null;
        if (newest == null)
            oldest = entry;
        else
            newest.newer = entry;
        newest = entry;
        bytes += entry.weight;
    }

    void remove(Entry entry)
    {
        if (entry.older == null)
            oldest = entry.newer;
        else
            entry.older.newer = entry.newer;
        if (entry.newer == null)
            newest = entry.older;
        else
            entry.newer.older = entry.older;
        entry.older = null;
        entry.newer = null;
        bytes -= entry.weight;
    }

    Entry oldest()
    {
        return oldest;
    }

    Entry newest()
    {
        return newest;
    }

    long bytes()
    {
        return bytes;
    }
}

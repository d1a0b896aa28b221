package shunt.cassandra.cache;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * What lies on the SSD and where, without keys: one long ({@link Place}) per record in buckets of eight, two buckets to
 * choose from. Many small tables, chosen by the hash; each grows by a quarter when it is full, which needs the stored tags
 * only, so an entry takes 10 to 12.5 bytes.
 *
 * <p>Look-ups need no lock. Whoever changes an entry holds the lock of the shard that the hash belongs to; a shard's hashes
 * fall into tables of its own. The arrays are on the heap: they have no references, so the garbage collector never scans them.
 */
final class SsdIndex
{
    private static final VarHandle SLOTS = MethodHandles.arrayElementVarHandle(long[].class);
    private static final int BUCKET = 8;
    private static final int FIRST_BUCKETS = 4;
    /** Above this share of used slots a table grows. */
    private static final double FILL_MAX = 0.8;

    private static final class Table
    {
        volatile long[] slots = new long[FIRST_BUCKETS * BUCKET];
        int used;
    }

    private final Table[] tables;

    /** @param tables a power of two, at least the number of shards */
    SsdIndex(int tables)
    {
        this.tables = new Table[tables];
        for (int i = 0; i < tables; i++)
            this.tables[i] = new Table();
    }

    /** The place of the record with this hash's tag, or {@link Place#NONE}. May be another key's. */
    long find(long hash)
    {
        long[] slots = table(hash).slots;
        int at = slotOf(slots, Place.tag(hash));
        return at < 0 ? Place.NONE : at(slots, at, Place.tag(hash));
    }

    /** A slot that another thread changes meanwhile may hold another tag by now. */
    private static long at(long[] slots, int at, int tag)
    {
        long place = (long) SLOTS.getAcquire(slots, at);
        return Place.tagOf(place) == tag ? place : Place.NONE;
    }

    /** Puts a record's place in; the tag must not be there yet. Needs the shard's lock. */
    void insert(long hash, long place)
    {
        Table table = table(hash);
        if (table.used + 1 > table.slots.length * FILL_MAX)
            grow(table);
        while (!insert(table.slots, Place.tagged(place, hash)))
            grow(table);
        table.used++;
    }

    /** Takes the record of this tag out, if there is one, and returns its place. Needs the shard's lock. */
    long remove(long hash)
    {
        Table table = table(hash);
        int at = slotOf(table.slots, Place.tag(hash));
        if (at < 0)
            return Place.NONE;
        long place = table.slots[at];
        SLOTS.setRelease(table.slots, at, Place.NONE);
        table.used--;
        return place;
    }

    /** Replaces the record's place by another of the same tag, if it still is what is expected. Needs the shard's lock. */
    boolean replace(long hash, long expected, long place)
    {
        Table table = table(hash);
        int at = slotOf(table.slots, Place.tag(hash));
        if (at < 0 || !Place.same(table.slots[at], expected))
            return false;
        SLOTS.setRelease(table.slots, at, place);
        return true;
    }

    /** Empties the tables of one shard. Needs its lock. */
    void clear(int shard, int shards)
    {
        for (int i = shard; i < tables.length; i += shards)
        {
            tables[i].slots = new long[FIRST_BUCKETS * BUCKET];
            tables[i].used = 0;
        }
    }

    /** Entries; roughly, while others change it. */
    long entries()
    {
        long sum = 0;
        for (Table table : tables)
            sum += table.used;
        return sum;
    }

    /** Bytes of all slots. */
    long bytes()
    {
        long sum = 0;
        for (Table table : tables)
            sum += (long) table.slots.length * Long.BYTES;
        return sum;
    }

    private Table table(long hash)
    {
        return tables[(int) hash & tables.length - 1];
    }

    private static int slotOf(long[] slots, int tag)
    {
        int buckets = slots.length / BUCKET;
        for (int choice = 0; choice < 2; choice++)
        {
            int first = bucket(tag, choice, buckets) * BUCKET;
            for (int at = first; at < first + BUCKET; at++)
                if (Place.tagOf((long) SLOTS.getAcquire(slots, at)) == tag)
                    return at;
        }
        return -1;
    }

    /** Puts it into the emptier of its two buckets. */
    private static boolean insert(long[] slots, long place)
    {
        int buckets = slots.length / BUCKET;
        int best = -1;
        int bestFree = 0;
        for (int choice = 0; choice < 2; choice++)
        {
            int first = bucket(Place.tagOf(place), choice, buckets) * BUCKET;
            int free = 0;
            int hole = -1;
            for (int at = first; at < first + BUCKET; at++)
            {
                if (slots[at] == Place.NONE)
                {
                    free++;
                    hole = at;
                }
            }
            if (free > bestFree)
            {
                best = hole;
                bestFree = free;
            }
        }
        if (best < 0)
            return false;
        SLOTS.setRelease(slots, best, place);
        return true;
    }

    /** Readers go on with the old slots until the new ones are complete. */
    private static void grow(Table table)
    {
        long[] old = table.slots;
        int buckets = old.length / BUCKET;
        while (true)
        {
            buckets += Math.max(1, buckets / 4);
            long[] slots = new long[buckets * BUCKET];
            boolean fits = true;
            for (int i = 0; i < old.length && fits; i++)
                fits = old[i] == Place.NONE || insert(slots, old[i]);
            if (!fits)
                continue;
            table.slots = slots;
            return;
        }
    }

    /** Any number of buckets, from the 29 bits of the tag alone. */
    private static int bucket(int tag, int choice, int buckets)
    {
        long bits = choice == 0 ? tag : KeyHash.mix(tag) >>> 35;
        return (int) (bits * buckets >>> 29);
    }
}

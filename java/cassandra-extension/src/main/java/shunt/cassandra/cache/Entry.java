package shunt.cassandra.cache;

import org.apache.cassandra.cache.RefCountedMemory;
import org.apache.cassandra.cache.RowCacheKey;
import org.apache.cassandra.cache.RowCacheSentinel;

/**
 * What memory has of a key: a sentinel or a record's body, the latter outside the heap. Everything but the count of uses is
 * changed with the shard's lock only.
 */
final class Entry
{
    /** The heap that key, entry and map take beside the bytes of key and body. */
    static final int OVERHEAD = 160;
    private static final int USES_MAX = 3;

    /** Where an entry is. */
    enum State
    {
        /** A sentinel: in the map, in no list. */
        SENTINEL,
        /** In the list of new entries. */
        SMALL,
        /** In the list of those that were used again. */
        MAIN,
        /** Still in the map, on its way to the SSD. */
        CASCADING,
        /** In the map no more. */
        GONE
    }

    final RowCacheKey key;
    final Generation generation;
    final long hash;
    final RowCacheSentinel sentinel;
    final RefCountedMemory memory;
    /** Bytes that count against the capacity. */
    final int weight;
    State state;
    Entry older;
    Entry newer;
    private volatile byte uses;

    private Entry(RowCacheKey key, Generation generation, long hash, RowCacheSentinel sentinel, byte[] body)
    {
        this.key = key;
        this.generation = generation;
        this.hash = hash;
        this.sentinel = sentinel;
        state = sentinel == null ? State.SMALL : State.SENTINEL;
        weight = weightOf(key, body == null ? 0 : body.length);
        memory = body == null ? null : new RefCountedMemory(Math.max(1, body.length));
        if (body != null)
            memory.setBytes(0, body, 0, body.length);
        bodyBytes = body == null ? 0 : body.length;
    }

    private final int bodyBytes;

    static Entry of(RowCacheKey key, Generation generation, long hash, byte[] body)
    {
        return new Entry(key, generation, hash, null, body);
    }

    static Entry of(RowCacheKey key, Generation generation, long hash, RowCacheSentinel sentinel)
    {
        return new Entry(key, generation, hash, sentinel, null);
    }

    static int weightOf(RowCacheKey key, int body)
    {
        return OVERHEAD + key.key.length + body;
    }

    int bodyBytes()
    {
        return bodyBytes;
    }

    /** A copy of the body, or null if the entry left memory meanwhile. */
    byte[] body()
    {
        if (!memory.reference())
            return null;
        try
        {
            byte[] body = new byte[bodyBytes];
            memory.getBytes(0, body, 0, bodyBytes);
            return body;
        }
        finally
        {
            memory.unreference();
        }
    }

    /** Counts a hit. Of several at the same time one may be lost. */
    void use()
    {
        byte now = uses;
        if (now < USES_MAX)
            uses = (byte) (now + 1);
    }

    int uses()
    {
        return uses;
    }

    void setUses(int count)
    {
        uses = (byte) count;
    }

    /** The map's reference to the memory is given up; readers that have one keep it. */
    void release()
    {
        state = State.GONE;
        if (memory != null)
            memory.unreference();
    }
}

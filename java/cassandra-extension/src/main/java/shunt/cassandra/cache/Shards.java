package shunt.cassandra.cache;

import java.util.function.Supplier;
import org.apache.cassandra.cache.RowCacheKey;

/** All shards, and the hashes of keys. */
final class Shards
{
    private final Shard[] shards;

    /** @param count a power of two */
    Shards(int count, Supplier<Shard> maker)
    {
        shards = new Shard[count];
        for (int i = 0; i < count; i++)
            shards[i] = maker.get();
    }

    int count()
    {
        return shards.length;
    }

    Shard get(int number)
    {
        return shards[number];
    }

    /** A key's shard is the same in every generation of its table. */
    Shard of(RowCacheKey key)
    {
        return shards[number(key)];
    }

    private int number(RowCacheKey key)
    {
        return (int) KeyHash.mix(key.hashCode()) & shards.length - 1;
    }

    /** The hash in a generation. Its lowest bits are the shard's number, so that a shard has tables of the index of its own. */
    long hash(RowCacheKey key, Generation generation)
    {
        long mask = shards.length - 1;
        return KeyHash.of(generation.id(), key.key) & ~mask | number(key);
    }
}

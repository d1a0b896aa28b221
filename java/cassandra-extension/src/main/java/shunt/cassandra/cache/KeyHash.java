package shunt.cassandra.cache;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.security.SecureRandom;

/** 64-bit hashes of keys, seeded per process so that nobody can choose keys that collide. */
final class KeyHash
{
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final long SEED = new SecureRandom().nextLong();
    private static final long PRIME = 0x9E3779B97F4A7C15L;

    private KeyHash()
    {
    }

    /** The hash of a key of one generation of a table. */
    static long of(int generation, byte[] key)
    {
        long hash = mix(SEED ^ generation * PRIME ^ key.length);
        int at = 0;
        for (; at + 8 <= key.length; at += 8)
            hash = mix(hash ^ (long) LONGS.get(key, at));
        long rest = 0;
        for (int i = at; i < key.length; i++)
            rest = rest << 8 | key[i] & 0xFF;
        return mix(hash ^ rest);
    }

    /** A bijection of 64 bits in which every bit of the input changes half of the output's (Stafford's mix 13). */
    static long mix(long bits)
    {
        bits += PRIME;
        bits = (bits ^ bits >>> 30) * 0xBF58476D1CE4E5B9L;
        bits = (bits ^ bits >>> 27) * 0x94D049BB133111EBL;
        return bits ^ bits >>> 31;
    }
}

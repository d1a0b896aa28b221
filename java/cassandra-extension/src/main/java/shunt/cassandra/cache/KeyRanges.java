package shunt.cassandra.cache;

/** Some keys of one table. */
interface KeyRanges
{
    /** Whether the key is one of them. */
    boolean cover(byte[] key);

    /** Keys of both; may cover more, never less. */
    KeyRanges and(KeyRanges other);
}

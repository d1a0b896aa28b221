/**
 * The row cache of an unmodified Apache Cassandra in two tiers: memory, and a log on an SSD for what leaves memory.
 *
 * <pre>
 * get -> memory (map, S3-FIFO) -> index without keys -> 16 KB write buffer -> one read of the SSD -> check -> memory
 * put -> memory; what leaves it -> bounded queue -> one thread -> write buffer -> segment log -> index
 * write of Cassandra -> remove(key) -> both tiers, under the lock of the key's shard
 * </pre>
 *
 * Records are bytes in both tiers: {@link shunt.cassandra.cache.RowCodec} makes them from Cassandra's own serialised form, with
 * an id of the {@link shunt.cassandra.cache.Catalogue} in place of the table's id and its columns' names. An id stands for one
 * {@link shunt.cassandra.cache.Generation} of a table, so TRUNCATE, DROP and ALTER are one new id. Locks are never held over
 * I/O. Races and formats are described in docs/internals/row-cache-in-cassandra.md. After CaSSanDra (ICDE 2014).
 */
package shunt.cassandra.cache;

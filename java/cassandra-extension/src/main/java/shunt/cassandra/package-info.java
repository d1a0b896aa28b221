/**
 * The extension as an operator meets it: the agent named in {@code jvm-server.options} and its settings.
 *
 * <pre>
 * -javaagent -> Agent -> Settings
 *                 '----> transport.AggregateServer   a second CQL port that also takes aggregated frames
 * cassandra.yaml: row_cache_class_name -> cache.TieredRowCacheProvider
 * </pre>
 */
package shunt.cassandra;

/**
 * Aggregated frames: what needs nothing of Cassandra's internals. Threads, limits of a frame, life of the second port.
 *
 * <pre>
 * NativeTransportWait -> AggregateServer   opens and closes the second port with the native transport
 *   |-> SupportedOffer   announces it
 *   '-> org.apache.cassandra.transport.AggregatePipeline -> AggregateDecoder -> AggregateLink
 *         '-> FramePool (threads, watchdog) -> FrameWork -> Classifier: inline, or Cassandra's request executor
 * InlineStages      lets a frame's thread do local reads and writes itself
 * </pre>
 */
package shunt.cassandra.transport;

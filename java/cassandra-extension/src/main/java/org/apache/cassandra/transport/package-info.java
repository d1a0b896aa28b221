/**
 * The part of aggregated frames that has to live in Cassandra's own package: requests are decoded, executed and their
 * answers encoded by methods that are visible here only.
 *
 * <pre>
 * AggregateDecoder --frame--> AggregateLink (event loop: admission, clients) --FrameWork--> FramePool
 *        inline answers  &lt;-- one buffer per frame --'        '-- HandedOver --> Dispatcher.requestExecutor
 *        late answers    &lt;-- coalesced by AggregateLink ----------'
 * </pre>
 */
package org.apache.cassandra.transport;

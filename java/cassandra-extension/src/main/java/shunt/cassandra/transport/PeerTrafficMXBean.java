package shunt.cassandra.transport;

/**
 * Switches for what the extension does about messages between nodes, as {@code shunt.cassandra:type=PeerTraffic} by JMX. They
 * begin as the agent's argument says; a change holds until the node is restarted.
 */
public interface PeerTrafficMXBean
{
    /** Setting {@code batch_requests}. */
    boolean isBatchRequests();

    /** Setting {@code batch_requests}. */
    void setBatchRequests(boolean on);

    /** Setting {@code defer_writes}. */
    boolean isDeferWrites();

    /** Setting {@code defer_writes}. */
    void setDeferWrites(boolean on);

    /** Setting {@code defer_reads}. */
    boolean isDeferReads();

    /** Setting {@code defer_reads}. */
    void setDeferReads(boolean on);

    /** Setting {@code gather_replica_requests}. */
    boolean isGatherReplicaRequests();

    /** Setting {@code gather_replica_requests}. */
    void setGatherReplicaRequests(boolean on);

    /** Setting {@code inline_responses}. */
    boolean isInlineResponses();

    /** Setting {@code inline_responses}. */
    void setInlineResponses(boolean on);

    /** Setting {@code deferred_max}. */
    int getDeferredMax();

    /** Setting {@code deferred_max}; 0 or less: none. */
    void setDeferredMax(int max);

    /** Queries that wait for their replicas now. */
    int getDeferredWaiting();
}

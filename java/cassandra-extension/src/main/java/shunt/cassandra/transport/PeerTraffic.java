package shunt.cassandra.transport;

import java.util.concurrent.atomic.AtomicInteger;
import shunt.cassandra.Settings;

/** What the extension does about messages between nodes: the switches, and the count of queries that no thread waits for. */
public final class PeerTraffic implements PeerTrafficMXBean
{
    /** A watchdog that takes longer is none for what others wait for. */
    private static final int WATCHED_MS_MAX = 50;

    private volatile int deferredMax;
    private final boolean watched;
    private final AtomicInteger deferred = new AtomicInteger();
    private volatile boolean batchRequests;
    private volatile boolean deferWrites;
    private volatile boolean deferReads;
    private volatile boolean gatherReplicaRequests;
    private volatile boolean inlineResponses;

    /** As the operator wants it. */
    public PeerTraffic(Settings settings)
    {
        Settings.Peers peers = settings.peers();
        deferredMax = peers.deferredMax();
        watched = settings.slowQueryMs() > 0 && settings.slowQueryMs() <= WATCHED_MS_MAX;
        batchRequests = peers.batchRequests();
        deferWrites = peers.deferWrites();
        deferReads = peers.deferReads();
        gatherReplicaRequests = peers.gatherReplicaRequests();
        inlineResponses = peers.inlineResponses();
    }

    /** Whether the requests of a frame leave together. Never without the watchdog, which sends them when a query is slow. */
    public boolean batchesRequests()
    {
        return batchRequests && watched;
    }

    /** Whether a write may be begun that no thread waits for. */
    public boolean defersWrites()
    {
        return deferWrites && deferred.get() < deferredMax;
    }

    /** Whether a read may be begun that no thread waits for. */
    public boolean defersReads()
    {
        return deferReads && deferred.get() < deferredMax;
    }

    /** Whether other coordinators' requests are done one after the other. Never without the watchdog, which overtakes slow ones. */
    public boolean gathersReplicaRequests()
    {
        return gatherReplicaRequests && watched;
    }

    /** Whether replicas' answers are taken by the thread that reads them. */
    public boolean takesResponsesInline()
    {
        return inlineResponses;
    }

    /** A query waits for its replicas. */
    public void begun()
    {
        deferred.incrementAndGet();
    }

    /** One does no longer. */
    public void ended()
    {
        deferred.decrementAndGet();
    }

    @Override
    public boolean isBatchRequests()
    {
        return batchRequests;
    }

    @Override
    public void setBatchRequests(boolean on)
    {
        batchRequests = on;
    }

    @Override
    public boolean isDeferWrites()
    {
        return deferWrites;
    }

    @Override
    public void setDeferWrites(boolean on)
    {
        deferWrites = on;
    }

    @Override
    public boolean isDeferReads()
    {
        return deferReads;
    }

    @Override
    public void setDeferReads(boolean on)
    {
        deferReads = on;
    }

    @Override
    public boolean isGatherReplicaRequests()
    {
        return gatherReplicaRequests;
    }

    @Override
    public void setGatherReplicaRequests(boolean on)
    {
        gatherReplicaRequests = on;
    }

    @Override
    public boolean isInlineResponses()
    {
        return inlineResponses;
    }

    @Override
    public void setInlineResponses(boolean on)
    {
        inlineResponses = on;
    }

    @Override
    public int getDeferredMax()
    {
        return deferredMax;
    }

    @Override
    public void setDeferredMax(int max)
    {
        deferredMax = max;
    }

    @Override
    public int getDeferredWaiting()
    {
        return deferred.get();
    }
}

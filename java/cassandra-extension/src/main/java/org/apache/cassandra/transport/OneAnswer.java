package org.apache.cassandra.transport;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * Who answers a query: the owner of its frame when its turn comes, who brings the last of its replicas' answers, or who finds that
 * its time is over. Exactly one of them is told to, whenever they come, and however often the replicas do.
 */
final class OneAnswer
{
    /** Neither its turn has come nor an answer. */
    private static final int BEGUN = 0;
    /** The replicas have answered before its turn came; the owner ends it. */
    private static final int ANSWERED = 1;
    /** Its turn has come before the answers; its frame goes on without it. */
    private static final int WAITING = 2;
    /** Somebody ends it. */
    private static final int ENDED = 3;

    private final AtomicInteger phase = new AtomicInteger(BEGUN);

    /** Its turn has come, once: whether the owner ends it. */
    boolean isForOwner()
    {
        if (phase.compareAndSet(BEGUN, WAITING))
            return false;
        phase.set(ENDED);
        return true;
    }

    /** The replicas have answered, from any thread and any number of times: whether this one ends it. */
    boolean isForReplicas()
    {
        return !phase.compareAndSet(BEGUN, ANSWERED) && phase.compareAndSet(WAITING, ENDED);
    }

    /** Its time is over: whether this one ends it. */
    boolean isForTime()
    {
        return phase.compareAndSet(WAITING, ENDED);
    }
}

package shunt.cassandra.transport;

import org.apache.cassandra.concurrent.ExecutorPlus;
import org.apache.cassandra.concurrent.TaskFactory;
import org.apache.cassandra.concurrent.WrappedExecutorPlus;
import org.apache.cassandra.net.InboundTasks;
import org.apache.cassandra.utils.WithResources;

/**
 * Replicas' answers to reads and writes, taken by the event loop that has read them. To count an answer takes less than to wake a
 * thread for it. Whatever may take longer stays the stage's: large messages, failures, and answers to anything but a read or a write
 * that only counts them.
 */
final class ReplicaResponses
{
    private final PeerTraffic traffic;
    private final AggregateMetrics metrics;

    ReplicaResponses(PeerTraffic traffic, AggregateMetrics metrics)
    {
        this.traffic = traffic;
        this.metrics = metrics;
    }

    /** The stage's executor, without those. */
    Wrapper wrap(ExecutorPlus executor)
    {
        return new Wrapper(executor);
    }

    /** Stands before the stage's executor. */
    final class Wrapper extends WrappedExecutorPlus
    {
        private Wrapper(ExecutorPlus executor)
        {
            super(executor);
        }

        @Override
        public void execute(WithResources locals, Runnable task)
        {
            if (!traffic.takesResponsesInline() || !InboundTasks.isCountedResponse(task))
            {
                super.execute(locals, task);
                return;
            }
            metrics.replicaResponses.mark();
            TaskFactory.localAware().toExecute(locals, task).run();
        }
    }
}

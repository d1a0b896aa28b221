package shunt.cassandra.transport;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.cassandra.concurrent.Stage;
import org.apache.cassandra.concurrent.TaskFactory;
import org.apache.cassandra.net.InboundTasks;
import org.apache.cassandra.utils.WithResources;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Other coordinators' reads and writes of this node's data, done one after the other by few threads as long as they are short, and
 * their answers sent together. A stage of Cassandra's gives each to a thread of its own, which costs more than a short one takes.
 *
 * <p>It may never make a request wait for others that wait: one that is slow is overtaken, as in a frame ({@link FramePool}); when
 * many take long, or one has waited for some time, they go to the stage, where they wait side by side; and so do writes where each waits for the commit log.
 */
final class ReplicaRequests
{
    private static final Logger LOGGER = LoggerFactory.getLogger(ReplicaRequests.class);
    /** Beyond so many times the time of a slow one the stage's threads are needed, whatever the reason. */
    private static final int WAITS_SLOW_ONES = 4;
    /** Requests after which those before them no longer say whether requests are short. */
    private static final int REMEMBERED = 64;

    private record Request(Stage stage, Executor stages, WithResources locals, Runnable task, long queuedNanos)
    {
        int kind()
        {
            return stage == Stage.READ ? FrameTime.READ : FrameTime.WRITE;
        }
    }

    private final FramePool pool;
    private final int threads;
    private final AggregateMetrics metrics;
    private final PeerTraffic traffic;
    private final Queue<Request> queue = new ConcurrentLinkedQueue<>();
    private final AtomicInteger waiting = new AtomicInteger();
    private final AtomicInteger active = new AtomicInteger();
    private final long waitsNanosMax;

    /**
     * @param threads requests done at the same time; the pool's
     * @param slowNanos time after which one is slow; the pool's
     */
    ReplicaRequests(FramePool pool, int threads, long slowNanos, AggregateMetrics metrics, PeerTraffic traffic)
    {
        waitsNanosMax = WAITS_SLOW_ONES * slowNanos;
        this.pool = pool;
        this.threads = threads;
        this.metrics = metrics;
        this.traffic = traffic;
    }

    /**
     * Takes a task of a stage if it is such a request.
     *
     * @param stages does it otherwise
     */
    boolean takes(Stage stage, Executor stages, WithResources locals, Runnable task)
    {
        if (!traffic.gathersReplicaRequests() || !InboundTasks.isReplicaRequest(task) || pool.isCongested())
            return false;
        if (stage != Stage.READ && Classifier.isLogWaitedFor())
            return false;
        take(stage, stages, locals, task);
        return true;
    }

    /** Queues one. */
    void take(Stage stage, Executor stages, WithResources locals, Runnable task)
    {
        waiting.incrementAndGet();
        queue.add(new Request(stage, stages, locals, task, System.nanoTime()));
        begin();
    }

    /** Requests that no thread has begun. */
    int waiting()
    {
        return waiting.get();
    }

    /** For how long the first of them has waited, in microseconds. */
    long longestWaitMicros()
    {
        Request head = queue.peek();
        return head == null ? 0 : TimeUnit.NANOSECONDS.toMicros(System.nanoTime() - head.queuedNanos);
    }

    private void begin()
    {
        for (int running = active.get(); running < threads; running = active.get())
        {
            if (!active.compareAndSet(running, running + 1))
                continue;
            pool.submit(new Turn());
            return;
        }
    }

    private void toStage(Request request)
    {
        metrics.replicaRequestsToStage.mark();
        request.stages.execute(TaskFactory.localAware().toExecute(request.locals, request.task));
    }

    /** One thread's work until nothing is left. */
    private final class Turn extends FramePool.Work
    {
        private OutboundBatch batch = new OutboundBatch(OutboundBatch.Of.RESPONSES, metrics);
        private FrameTime time = new FrameTime(pool);
        private Request last;
        private int done;

        @Override
        protected FramePool.Piece next()
        {
            for (Request request = queue.poll(); request != null; request = queue.poll())
            {
                waiting.decrementAndGet();
                if (done++ % REMEMBERED == 0)
                    time = new FrameTime(pool);
                last = request;
                if (!time.isOver(request.kind()) && !pool.isCongested() && System.nanoTime() - request.queuedNanos < waitsNanosMax)
                    return piece(request);
                toStage(request);
            }
            return null;
        }

        private FramePool.Piece piece(Request request)
        {
            // Answers that are ready do not wait for a disk.
            if (request.kind() == FrameTime.READ && time.areLong(FrameTime.READ))
                batch.flush();
            return new Piece(this, request, batch);
        }

        @Override
        protected void resume()
        {
            batch.close();
            batch = new OutboundBatch(OutboundBatch.Of.RESPONSES, metrics);
            // It will not be delivered, and is the last that should not count.
            time.add(last.kind(), System.nanoTime() - pieceSinceNanos());
        }

        @Override
        protected void finish()
        {
            batch.close();
            active.decrementAndGet();
            if (!queue.isEmpty())
                begin();
        }

        @Override
        protected void fail()
        {
            finish();
        }
    }

    private final class Piece implements FramePool.Piece
    {
        private final Turn turn;
        private final Request request;
        private final OutboundBatch batch;
        private long tookNanos;

        Piece(Turn turn, Request request, OutboundBatch batch)
        {
            this.turn = turn;
            this.request = request;
            this.batch = batch;
        }

        @Override
        public void execute()
        {
            metrics.replicaRequests.mark();
            long began = System.nanoTime();
            batch.enter();
            try
            {
                TaskFactory.localAware().toExecute(request.locals, request.task).run();
            }
            finally
            {
                OutboundBatch.leave();
            }
            tookNanos = System.nanoTime() - began;
        }

        @Override
        public void deliver()
        {
            turn.time.add(request.kind(), tookNanos);
            batch.flushIfDue();
        }

        @Override
        public void deliverLate()
        {
            // Its batch was closed when it was overtaken: what it sent afterwards has left.
        }

        @Override
        public void failLate(Throwable why)
        {
            LOGGER.error("A replica's read or write has failed; its coordinator runs out of time", why);
        }
    }
}

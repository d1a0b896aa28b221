package shunt.cassandra.transport;

import com.codahale.metrics.Counter;
import com.codahale.metrics.Gauge;
import com.codahale.metrics.Histogram;
import com.codahale.metrics.Meter;
import com.codahale.metrics.Timer;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntSupplier;
import org.apache.cassandra.metrics.CassandraMetricsRegistry;
import org.apache.cassandra.metrics.DefaultNameFactory;

/**
 * What is counted, in Cassandra's registry under {@code org.apache.cassandra.metrics:type=ShuntAggregate}.
 */
public final class AggregateMetrics
{
    private static final DefaultNameFactory NAMES = new DefaultNameFactory("ShuntAggregate");

    /** Frames taken. */
    public final Meter frames = meter("Frames");
    /** Queries of a frame. */
    public final Histogram queriesPerFrame =
        CassandraMetricsRegistry.Metrics.histogram(NAMES.createMetricName("QueriesPerFrame"), false);
    /** From a frame's arrival until its last inline answer is written. */
    public final Timer timeInFrame = CassandraMetricsRegistry.Metrics.timer(NAMES.createMetricName("TimeInFrame"));
    /** Queries executed on the frame's own thread. */
    public final Meter inline = meter("Inline");
    /** Queries begun on the frame's own thread, and ended when their replicas had answered. */
    public final Meter deferred = meter("Deferred");
    /** Messages to other nodes that left together. */
    public final Histogram messagesPerBatch =
        CassandraMetricsRegistry.Metrics.histogram(NAMES.createMetricName("MessagesPerBatch"), false);
    /** Other coordinators' reads and writes that a thread of the extension did among others, without a hand-over for each. */
    public final Meter replicaRequests = meter("ReplicaRequests");
    /** Of those taken, requests that were given to their stage after all: they took long, or had waited. */
    public final Meter replicaRequestsToStage = meter("ReplicaRequestsToStage");
    /** Replicas' reads and writes that were slow, so that another thread went on with those behind them. */
    public final Meter replicaTakenOver = meter("ReplicaTakenOver");
    /** Replicas' answers that the thread which read them took, without a hand-over. */
    public final Meter replicaResponses = meter("ReplicaResponses");
    /** Queries handed over to Cassandra's request executor. */
    public final Meter handedOver = meter("HandedOver");
    /** Frames whose rest another thread took over. */
    public final Meter takenOver = meter("TakenOver");
    /** Answers that followed in a later frame than the one made by the thread of their query's frame. */
    public final Meter lateAnswers = meter("LateAnswers");
    /** Frames of late answers. */
    public final Meter lateFrames = meter("LateFrames");
    /** Frames refused as a whole, with their connection closed. */
    public final Meter refusedFrames = meter("RefusedFrames");
    /** Queries refused for one of Cassandra's limits, or of those on clients. */
    public final Meter refusedQueries = meter("RefusedQueries");
    /** Connections that have sent a frame. */
    public final Counter links = CassandraMetricsRegistry.Metrics.counter(NAMES.createMetricName("Links"));
    /** Clients that state is kept for, on all connections. */
    public final AtomicLong clients = new AtomicLong();

    /** Registers them. */
    public AggregateMetrics()
    {
        gauge("Clients", clients::get);
    }

    /** Registers how many queries wait for their replicas. */
    void follow(IntSupplier waiting)
    {
        gauge("DeferredWaiting", waiting::getAsInt);
    }

    /** Registers what replica requests wait for. */
    void follow(ReplicaRequests requests, IntSupplier slow)
    {
        gauge("WaitingReplicaRequests", requests::waiting);
        gauge("LongestWaitOfReplicaRequests", requests::longestWaitMicros);
        gauge("SlowReplicaThreads", slow::getAsInt);
    }

    /** Registers what the pool knows by itself. */
    void follow(IntSupplier waiting, IntSupplier slow)
    {
        gauge("WaitingFrames", waiting::getAsInt);
        gauge("SlowThreads", slow::getAsInt);
    }

    /** Counts a client, unless there are so many already; event loops open clients at the same time. */
    public boolean addClient(int max)
    {
        if (clients.incrementAndGet() <= max)
            return true;
        clients.decrementAndGet();
        return false;
    }

    private static <T> void gauge(String name, Gauge<T> gauge)
    {
        CassandraMetricsRegistry.Metrics.register(NAMES.createMetricName(name), gauge);
    }

    private static Meter meter(String name)
    {
        return CassandraMetricsRegistry.Metrics.meter(NAMES.createMetricName(name));
    }
}

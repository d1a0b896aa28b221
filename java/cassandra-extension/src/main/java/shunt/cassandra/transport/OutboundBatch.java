package shunt.cassandra.transport;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BiPredicate;
import org.apache.cassandra.locator.InetAddressAndPort;
import org.apache.cassandra.net.Message;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.net.Verb;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.apache.cassandra.utils.NoSpamLogger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Messages to other nodes that are held back until those of their neighbours are there too. Cassandra writes what is queued for a
 * node in one go, and the receiver takes what arrives together with one wake-up; messages that come one by one are written and
 * taken one by one.
 *
 * <p>A message is held after Cassandra has registered its callback, its hint and its time-out, so holding it changes nothing but the
 * moment at which it leaves. It may never be held for longer than the work that made it: whoever owns a batch flushes it before
 * anything waits, and closes it when another thread takes the work over. From then on its messages leave at once.
 */
public final class OutboundBatch
{
    /** What a batch holds back. */
    public enum Of
    {
        /** Requests of a coordinator. */
        REQUESTS(Verb.MUTATION_REQ, Verb.READ_REQ),
        /** Answers of a replica. */
        RESPONSES(Verb.MUTATION_RSP, Verb.READ_RSP);

        private final Verb write;
        private final Verb read;

        Of(Verb write, Verb read)
        {
            this.write = write;
            this.read = read;
        }
    }

    private static final Logger LOGGER = LoggerFactory.getLogger(OutboundBatch.class);

    /** Beyond it nothing more is gained. */
    private static final int MESSAGES_MAX = 64;
    /** No message waits longer for others of its batch, as long as others come. */
    private static final long HOLD_NANOS = 200_000;

    private static final ThreadLocal<OutboundBatch[]> CURRENT = ThreadLocal.withInitial(() -> new OutboundBatch[1]);
    /** Always the same object, by which the sink finds it again. */
    private static final BiPredicate<Message<?>, InetAddressAndPort> SINK = OutboundBatch::passes;

    private record Held(Message<?> message, InetAddressAndPort to)
    {
    }

    /** Where messages go. */
    interface Way
    {
        /** Sends one. */
        void send(Message<?> message, InetAddressAndPort to);
    }

    private final Of of;
    private final AggregateMetrics metrics;
    private final Way way;
    private List<Held> held = new ArrayList<>();
    private long firstNanos;
    private boolean closed;

    /** An empty one. */
    public OutboundBatch(Of of, AggregateMetrics metrics)
    {
        this(of, metrics, (message, to) -> MessagingService.instance().send(message, to));
    }

    /** One whose messages go another way. */
    OutboundBatch(Of of, AggregateMetrics metrics, Way way)
    {
        this.of = of;
        this.metrics = metrics;
        this.way = way;
    }

    /** Holds back what batches hold, from here until {@link #uninstall}. */
    static void install()
    {
        MessagingService.instance().outboundSink.add(SINK);
    }

    /** The opposite of {@link #install}; what is held then is still sent by its batch. */
    static void uninstall()
    {
        MessagingService.instance().outboundSink.remove(SINK);
    }

    /** From here until {@link #leave} messages of this thread go to this batch. */
    public void enter()
    {
        CURRENT.get()[0] = this;
    }

    /** The opposite of {@link #enter}. */
    public static void leave()
    {
        CURRENT.get()[0] = null;
    }

    /** Sends what is held. From any thread. */
    public void flush()
    {
        List<Held> all;
        synchronized (this)
        {
            if (held.isEmpty())
                return;
            all = held;
            held = new ArrayList<>();
        }
        metrics.messagesPerBatch.update(all.size());
        OutboundBatch[] current = CURRENT.get();
        OutboundBatch before = current[0];
        current[0] = null;
        try
        {
            // Those to one node one after the other: the first wakes the thread that writes to it, and the others are there when it looks.
            all.sort((one, other) -> one.to.compareTo(other.to));
            for (Held next : all)
                send(next);
        }
        finally
        {
            current[0] = before;
        }
    }

    /** One that cannot be sent is no reason not to send the others; its callback runs out of time, as that of any lost message. */
    private void send(Held next)
    {
        try
        {
            way.send(next.message, next.to);
        }
        catch (Throwable t)
        {
            JVMStabilityInspector.inspectThrowable(t);
            NoSpamLogger.log(LOGGER, NoSpamLogger.Level.ERROR, 1, TimeUnit.MINUTES, "A message to {} could not be sent", next.to, t);
        }
    }

    /** Sends what is held if the first of it has waited long enough. */
    public void flushIfDue()
    {
        boolean due;
        synchronized (this)
        {
            due = !held.isEmpty() && System.nanoTime() - firstNanos > HOLD_NANOS;
        }
        if (due)
            flush();
    }

    /** Sends what is held, and holds nothing any more. From any thread. */
    public void close()
    {
        synchronized (this)
        {
            closed = true;
        }
        flush();
    }

    /** Whether a message that this thread sends leaves at once. */
    static boolean passes(Message<?> message, InetAddressAndPort to)
    {
        OutboundBatch batch = CURRENT.get()[0];
        return batch == null || !batch.holds(message, to);
    }

    private boolean holds(Message<?> message, InetAddressAndPort to)
    {
        Verb verb = message.verb();
        if (verb != of.write && verb != of.read)
            return false;
        boolean full;
        synchronized (this)
        {
            if (closed)
                return false;
            if (held.isEmpty())
                firstNanos = System.nanoTime();
            held.add(new Held(message, to));
            full = held.size() >= MESSAGES_MAX;
        }
        if (full)
            flush();
        return true;
    }
}

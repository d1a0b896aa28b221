package org.apache.cassandra.transport;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.apache.cassandra.utils.MonotonicClock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Looks at deferred queries when it is time to: to ask one more replica, or to answer that too few have. One thread and a wheel of
 * ticks; taking a query in is adding it to a queue, and a query that was answered meanwhile is an empty slot when its tick comes.
 * The thread sleeps until the first tick that has something.
 *
 * <p>A query is looked at after its time, by up to two ticks, and never before. It may never be missed, which the two notes of
 * {@link #add} are about.
 */
public final class Overdue implements Runnable
{
    /** What has a time. */
    interface Look
    {
        /** When to look for the first time, by the clock of {@link Dispatcher.RequestTime}. */
        long looksFirstAtNanos();

        /**
         * Looks whether something is due.
         *
         * @return when to look again; {@link Long#MAX_VALUE} when {@link #overdue} is to be called
         */
        long look(long now);

        /** Nothing has come in time. */
        void overdue();
    }

    /** Holds what has a time until there is nothing to look for: empty then, so that the wheel keeps nothing in memory. */
    static final class Slot extends AtomicReference<Look>
    {
        private static final long serialVersionUID = 1;

        Slot(Look look)
        {
            super(look);
        }
    }

    private static final Logger LOGGER = LoggerFactory.getLogger(Overdue.class);

    private static final long TICK_NANOS = TimeUnit.MILLISECONDS.toNanos(2);
    /** What is due later than the wheel is long is looked at when its last tick comes, and put in again. */
    private static final int TICKS = 2048;
    private static final long NEVER = Long.MAX_VALUE;
    /** Sleeps no longer, whatever is due. */
    private static final long SLEEP_NANOS = TimeUnit.SECONDS.toNanos(1);

    private final List<Queue<Slot>> wheel = new ArrayList<>(TICKS);
    /** Those whose tick was gone when they came. */
    private final Queue<Slot> missed = new ConcurrentLinkedQueue<>();
    /** The last tick that was looked at. */
    private volatile long tick = tickOf(now());
    /** The tick until which the thread sleeps; {@link #NEVER} also while it looks for it. */
    private volatile long wakes = NEVER;
    private final Thread thread;

    /** Starts its thread. */
    public Overdue()
    {
        for (int i = 0; i < TICKS; i++)
            wheel.add(new ConcurrentLinkedQueue<>());
        thread = new Thread(this, "shunt-aggregate-overdue");
        thread.setDaemon(true);
        thread.start();
    }

    /** Takes in what has a time; each is looked at when it says so for the first time. */
    void add(List<Slot> slots)
    {
        for (Slot slot : slots)
        {
            Look look = slot.get();
            if (look != null)
                add(slot, look.looksFirstAtNanos());
        }
    }

    private void add(Slot slot, long atNanos)
    {
        long last = tick;
        long due = Math.min(Math.max(tickOf(atNanos) + 1, last + 1), last + TICKS - 1);
        wheel.get(index(due)).add(slot);
        // The thread may have passed the tick between the look at where it is and the adding.
        if (tick >= due)
            missed.add(slot);
        // It may also be about to sleep: it says so before it looks for what to sleep until, and so either sees the slot or is woken.
        if (due < wakes)
            LockSupport.unpark(thread);
    }

    @Override
    public void run()
    {
        for (;;)
        {
            try
            {
                sleepAndTurn();
            }
            catch (Throwable t)
            {
                // Whatever it was: without this thread no query would run out of time any more.
                JVMStabilityInspector.inspectThrowable(t);
            }
        }
    }

    private void sleepAndTurn()
    {
        wakes = NEVER;
        long next = nextTick();
        wakes = next;
        long nanos = next == NEVER ? SLEEP_NANOS : Math.min(SLEEP_NANOS, next * TICK_NANOS - now());
        if (nanos > 0)
            LockSupport.parkNanos(this, nanos);
        turn(tickOf(now()));
    }

    /** The first tick that has something, or {@link #NEVER}. */
    private long nextTick()
    {
        if (!missed.isEmpty())
            return tick;
        long last = tick;
        for (long next = last + 1; next < last + TICKS; next++)
        {
            if (!wheel.get(index(next)).isEmpty())
                return next;
        }
        return NEVER;
    }

    private void turn(long until)
    {
        // After a long pause every tick of the wheel is looked at once.
        for (long next = Math.max(tick + 1, until - TICKS + 1); next <= until; next++)
        {
            tick = next;
            look(wheel.get(index(next)));
        }
        look(missed);
    }

    private void look(Queue<Slot> slots)
    {
        // What is put in again has a later tick, never this queue's.
        for (Slot slot = slots.poll(); slot != null; slot = slots.poll())
        {
            try
            {
                look(slot);
            }
            catch (RuntimeException | Error e)
            {
                LOGGER.error("A query that is overdue could not be looked at; it is tried again", e);
                add(slot, now() + SLEEP_NANOS);
            }
        }
    }

    private void look(Slot slot)
    {
        Look look = slot.get();
        if (look == null)
            return;
        long again = look.look(now());
        if (again != Long.MAX_VALUE)
        {
            add(slot, again);
            return;
        }
        slot.set(null); // it may be here twice
        look.overdue();
    }

    private static int index(long tick)
    {
        return (int) Math.floorMod(tick, (long) TICKS);
    }

    private static long tickOf(long nanos)
    {
        return Math.floorDiv(nanos, TICK_NANOS);
    }

    private static long now()
    {
        return MonotonicClock.Global.preciseTime.now();
    }
}

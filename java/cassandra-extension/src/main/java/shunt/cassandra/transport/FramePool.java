package shunt.cassandra.transport;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executes works, each piece by piece on one thread, a bounded number at a time. A watchdog sees to it that no piece
 * holds the pieces behind it for long: another thread then goes on with the work, and the slow one delivers its piece
 * late. The number of slow threads is bounded too; beyond it pieces wait.
 */
public final class FramePool
{
    /** Threads that may be kept busy by slow pieces, for each one that executes. */
    private static final int SLOW_PER_THREAD = 4;

    private static final Logger LOGGER = LoggerFactory.getLogger(FramePool.class);

    private final Worker[] workers;
    private final long slowNanos;
    private final long frameNanos;
    private final Executor executor;
    private final Runnable takenOver;
    private final Queue<Work> queue = new ConcurrentLinkedQueue<>();
    private final AtomicInteger waiting = new AtomicInteger();
    private final AtomicInteger slow = new AtomicInteger();
    private final Thread watchdog;
    private volatile boolean watchdogSleeps;
    private volatile boolean closed;

    /**
     * @param threads works executed at the same time
     * @param slowNanos time after which a piece is slow; 0: never
     * @param frameNanos time that a work's pieces of one kind may take one after the other; 0: any
     * @param executor runs at least {@link #threadsMax} tasks at the same time
     * @param takenOver called each time another thread goes on with a work
     */
    public FramePool(int threads, long slowNanos, long frameNanos, Executor executor, Runnable takenOver)
    {
        this.slowNanos = slowNanos;
        this.frameNanos = frameNanos;
        this.executor = executor;
        this.takenOver = takenOver;
        workers = new Worker[threads];
        for (int i = 0; i < threads; i++)
            workers[i] = new Worker();
        watchdog = new Thread(this::watch, "shunt-aggregate-watchdog");
        watchdog.setDaemon(true);
        if (slowNanos > 0)
            watchdog.start();
    }

    /** Most threads that are in use at the same time, slow ones included. */
    public static int threadsMax(int threads)
    {
        return threads * (1 + SLOW_PER_THREAD);
    }

    /** Takes a work; the caller bounds how many it gives. */
    public void submit(Work work)
    {
        waiting.incrementAndGet();
        queue.add(work);
        for (Worker worker : workers)
        {
            if (worker.busy.get() || !worker.busy.compareAndSet(false, true))
                continue;
            if (!starts(worker))
                worker.busy.set(false); // the watchdog tries again, if no other worker comes to it before
            if (watchdogSleeps)
                LockSupport.unpark(watchdog);
            return;
        }
    }

    /** Gives a worker a thread; false when there is none to be had, and then nothing has happened. */
    private boolean starts(Worker worker)
    {
        try
        {
            executor.execute(worker);
            return true;
        }
        catch (RuntimeException | OutOfMemoryError e)
        {
            LOGGER.error("There is no thread for aggregated frames; it is tried again", e);
            return false;
        }
    }

    /** Executes a work on this thread and at once, for pieces that take no time: no watchdog looks at them. */
    public static void runHere(Work work)
    {
        completes(work);
    }

    /** See the constructor. */
    long frameNanos()
    {
        return frameNanos;
    }

    /** Works that no thread has begun. */
    public int waiting()
    {
        return waiting.get();
    }

    /** Threads that slow pieces keep. */
    public int slow()
    {
        return slow.get();
    }

    /** Whether half of the threads that slow pieces may keep are kept: what may be slow should go elsewhere before all are. */
    public boolean isCongested()
    {
        return slow.get() >= SLOW_PER_THREAD * workers.length / 2;
    }

    /** How long the work that is next has waited, in nanoseconds by {@link System#nanoTime}. */
    public long longestWaitNanos()
    {
        Work head = queue.peek();
        return head == null ? 0 : System.nanoTime() - head.submittedNanos;
    }

    /** Whether nothing waits and nothing is executed. */
    public boolean isIdle()
    {
        return waiting.get() == 0 && slow.get() == 0 && !isBusy();
    }

    /** Waits until {@link #isIdle}, or until the time is over; tells which. */
    public boolean awaitIdle(long nanos)
    {
        return await(this::isIdle, nanos);
    }

    /** Waits until something is so, or until the time is over; tells which. */
    static boolean await(BooleanSupplier isSo, long nanos)
    {
        long deadline = System.nanoTime() + nanos;
        while (!isSo.getAsBoolean())
        {
            if (System.nanoTime() > deadline)
                return false;
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(2));
        }
        return true;
    }

    /** Ends the watchdog. What was submitted is still executed. */
    public void close()
    {
        closed = true;
        LockSupport.unpark(watchdog);
    }

    private boolean isBusy()
    {
        for (Worker worker : workers)
        {
            if (worker.busy.get())
                return true;
        }
        return false;
    }

    private void watch()
    {
        long period = Math.max(slowNanos / 2, 100_000);
        while (!closed)
        {
            watchdogSleeps = true;
            if (!isBusy() && queue.isEmpty())
                LockSupport.park(this);
            watchdogSleeps = false;
            long before = System.nanoTime();
            LockSupport.parkNanos(period);
            long now = System.nanoTime();
            // After a pause of the whole machine everything looks slow, and is not.
            if (now - before > period + slowNanos)
                continue;
            for (Worker worker : workers)
                watch(worker, now);
            Worker first = workers[0];
            if (!queue.isEmpty() && !isBusy() && first.busy.compareAndSet(false, true) && !starts(first))
                first.busy.set(false);
        }
    }

    private void watch(Worker worker, long now)
    {
        if (worker.waitsForThread)
        {
            worker.waitsForThread = !starts(worker);
            return;
        }
        Work work = worker.current;
        if (work == null || slow.get() >= SLOW_PER_THREAD * workers.length || !work.takeOver(now, slowNanos))
            return;
        slow.incrementAndGet();
        takenOver.run();
        worker.waitsForThread = !starts(worker);
    }

    /** Executes until the end; false when the work was taken over. */
    private static boolean completes(Work work)
    {
        try
        {
            return work.run();
        }
        catch (RuntimeException | Error e)
        {
            LOGGER.error("An aggregated frame was given up", e);
            work.fail();
            return true;
        }
    }

    /** Pieces that are executed in order, such as the queries of a frame. */
    public abstract static class Work
    {
        private final long submittedNanos = System.nanoTime();
        /** Twice the pieces executed; odd while one is. Whoever moves it on owns the work. */
        private final AtomicInteger turn = new AtomicInteger();
        private volatile long pieceSinceNanos;

        /** The next piece, or null; called by the owner. */
        protected abstract Piece next();

        /** Goes on after another thread's piece was slow; called by the owner before anything else. */
        protected abstract void resume();

        /** After the last piece; called by the owner. */
        protected abstract void finish();

        /** Instead of {@link #finish}, when one of the methods called by the owner has thrown. */
        protected abstract void fail();

        /** When the piece that is executed, or was last, began; by {@link System#nanoTime}. */
        protected final long pieceSinceNanos()
        {
            return pieceSinceNanos;
        }

        /** Executes until the end; false when the work was taken over. */
        private boolean run()
        {
            for (Piece piece = next(); piece != null; piece = next())
            {
                int before = turn.get();
                pieceSinceNanos = System.nanoTime();
                turn.set(before + 1);
                if (!executes(piece, before + 1))
                    return false;
                piece.deliver();
            }
            finish();
            return true;
        }

        /**
         * False when the work was taken over meanwhile. Then nothing may be thrown: whoever catches it takes this thread for
         * the owner.
         */
        private boolean executes(Piece piece, int mine)
        {
            try
            {
                piece.execute();
            }
            catch (RuntimeException | Error e)
            {
                if (turn.compareAndSet(mine, mine + 1))
                    throw e;
                failLate(piece, e);
                return false;
            }
            if (turn.compareAndSet(mine, mine + 1))
                return true;
            try
            {
                piece.deliverLate();
            }
            catch (RuntimeException | Error e)
            {
                failLate(piece, e);
            }
            return false;
        }

        private static void failLate(Piece piece, Throwable why)
        {
            LOGGER.error("A slow query of an aggregated frame was given up", why);
            try
            {
                piece.failLate(why);
            }
            catch (RuntimeException | Error e)
            {
                LOGGER.error("And its connection may not be closed", e);
            }
        }

        private boolean takeOver(long now, long slowNanos)
        {
            int seen = turn.get();
            return (seen & 1) == 1 && now - pieceSinceNanos > slowNanos && turn.compareAndSet(seen, seen + 1);
        }
    }

    /** One of a work's pieces. */
    public interface Piece
    {
        /** May take long; must not touch what belongs to the work's owner, nor throw. */
        void execute();

        /** After {@link #execute}, in order; the owner's. */
        void deliver();

        /** After {@link #execute}, when it was slow and another thread has gone on; must not throw. */
        void deliverLate();

        /**
         * When it was slow, another thread has gone on, and {@link #execute} or {@link #deliverLate} has thrown all the same.
         */
        void failLate(Throwable why);
    }

    /** A place for one work at a time; the thread that runs it changes when a work is taken over. */
    private final class Worker implements Runnable
    {
        private final AtomicBoolean busy = new AtomicBoolean();
        private volatile Work current;
        /** Its work was taken over, and there was no thread to go on with it; the watchdog's. */
        private boolean waitsForThread;

        @Override
        public void run()
        {
            Work work = current;
            if (work != null)
                work.resume();
            for (;;)
            {
                if (work == null)
                    work = queue.poll();
                if (work == null)
                {
                    busy.set(false);
                    if (queue.isEmpty() || !busy.compareAndSet(false, true))
                        return;
                    continue;
                }
                if (current == null)
                {
                    current = work;
                    waiting.decrementAndGet();
                }
                if (!completes(work))
                {
                    slow.decrementAndGet();
                    return;
                }
                current = null;
                work = null;
            }
        }
    }
}

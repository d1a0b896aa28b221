package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class FramePoolTest
{
    private static final int THREADS = 2;
    private static final long SLOW_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
    /** Only what never happens takes so long. */
    private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(180);
    private static final int TRIES = 20;

    private final ExecutorService executor = Executors.newFixedThreadPool(FramePool.threadsMax(THREADS));
    private final AtomicInteger takenOver = new AtomicInteger();
    private FramePool pool = new FramePool(THREADS, SLOW_NANOS, 0, executor, takenOver::incrementAndGet);

    @AfterEach
    void close()
    {
        pool.close();
        executor.shutdownNow();
    }

    /** Says what happens to its pieces. */
    private final class Recorded extends FramePool.Work
    {
        private final Iterator<Runnable> pieces;
        private final List<String> events = new CopyOnWriteArrayList<>();
        private final CountDownLatch finished = new CountDownLatch(1);
        private int number;
        private boolean lateThrows;

        Recorded(Runnable... pieces)
        {
            this.pieces = List.of(pieces).iterator();
        }

        @Override
        protected FramePool.Piece next()
        {
            if (!pieces.hasNext())
                return null;
            Runnable piece = pieces.next();
            int mine = number++;
            return new FramePool.Piece()
            {
                @Override
                public void execute()
                {
                    piece.run();
                }

                @Override
                public void deliver()
                {
                    events.add("delivered " + mine);
                }

                @Override
                public void deliverLate()
                {
                    events.add("late " + mine);
                    if (lateThrows)
                        throw new OutOfMemoryError("thrown by the test");
                }

                @Override
                public void failLate(Throwable why)
                {
                    events.add("failed late " + mine);
                    throw new IllegalStateException("thrown by the test");
                }
            };
        }

        @Override
        protected void resume()
        {
            events.add("resumed");
        }

        @Override
        protected void finish()
        {
            events.add("finished");
            finished.countDown();
        }

        @Override
        protected void fail()
        {
            events.add("failed");
            finished.countDown();
        }

        Recorded submit()
        {
            pool.submit(this);
            return this;
        }

        Recorded await() throws InterruptedException
        {
            assertTrue(finished.await(PATIENCE_NANOS, TimeUnit.NANOSECONDS), events::toString);
            return this;
        }
    }

    /** With a watchdog, a thread that the machine does not let run is overtaken. */
    private void useNoWatchdog()
    {
        pool.close();
        pool = new FramePool(THREADS, 0, 0, executor, takenOver::incrementAndGet);
    }

    /** Works with slow pieces; returns what is to be checked when they have ended. */
    private interface Attempt
    {
        Runnable run() throws InterruptedException;
    }

    /** Tries again where more pieces were overtaken than the slow ones: the machine did not let their threads run. */
    private void overtaking(int slow, Attempt attempt) throws InterruptedException
    {
        for (int tries = 1; ; tries++)
        {
            takenOver.set(0);
            Runnable check = attempt.run();
            if (takenOver.get() > slow && tries < TRIES)
                continue;
            check.run();
            assertEquals(slow, takenOver.get());
            return;
        }
    }

    @Test
    void piecesOfAWorkAreExecutedInOrder() throws InterruptedException
    {
        useNoWatchdog();
        Recorded work = new Recorded(() -> { }, () -> { }, () -> { }).submit().await();
        assertEquals(List.of("delivered 0", "delivered 1", "delivered 2", "finished"), work.events);
        assertTrue(pool.awaitIdle(PATIENCE_NANOS));
    }

    @Test
    void aWorkThatThrowsIsGivenUpAndItsThreadGoesOn() throws InterruptedException
    {
        useNoWatchdog();
        for (int i = 0; i < 2 * THREADS; i++)
        {
            Recorded work = new Recorded(() -> { }, () ->
            {
                throw new IllegalStateException("thrown by the test");
            }).submit().await();
            assertEquals(List.of("delivered 0", "failed"), work.events);
        }
        assertEquals(List.of("finished"), new Recorded().submit().await().events);
        assertTrue(pool.awaitIdle(PATIENCE_NANOS));
    }

    @Test
    void thePoolExecutesOneWorkPerThreadAtATime() throws InterruptedException
    {
        AtomicInteger now = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        List<Recorded> works = new ArrayList<>();
        useNoWatchdog();
        for (int i = 0; i < 500; i++)
        {
            works.add(new Recorded(() ->
            {
                most.accumulateAndGet(now.incrementAndGet(), Math::max);
                Thread.yield();
                now.decrementAndGet();
            }).submit());
        }
        for (Recorded work : works)
            work.await();
        assertTrue(most.get() <= THREADS, () -> most + " at the same time");
        assertEquals(0, pool.waiting());
    }

    @Test
    void aSlowPieceDoesNotHoldThoseBehindIt() throws InterruptedException
    {
        overtaking(1, () ->
        {
            Semaphore held = new Semaphore(0);
            Recorded work = new Recorded(() -> { }, held::acquireUninterruptibly, () -> { }).submit().await();
            assertFalse(pool.isIdle());
            held.release();
            assertTrue(pool.awaitIdle(PATIENCE_NANOS));
            return () -> assertEquals(List.of("delivered 0", "resumed", "delivered 2", "finished", "late 1"), work.events);
        });
    }

    /** No new thread may be had for a while; then the pool must not be smaller, nor a work left, for ever. */
    @Test
    void withoutAThreadItIsTriedAgain() throws InterruptedException
    {
        overtaking(1, () ->
        {
            AtomicInteger refused = new AtomicInteger(2);
            pool.close();
            pool = new FramePool(1, SLOW_NANOS, 0, task ->
            {
                if (refused.getAndDecrement() > 0)
                    throw new OutOfMemoryError("thrown by the test");
                executor.execute(task);
            }, takenOver::incrementAndGet);
            Recorded first = new Recorded(() -> { }).submit().await();
            refused.set(0);
            Semaphore held = new Semaphore(0);
            Recorded work = new Recorded(() ->
            {
                refused.set(2);
                held.acquireUninterruptibly();
            }, () -> { }).submit().await();
            List<String> before = List.copyOf(work.events);
            held.release();
            assertTrue(pool.awaitIdle(PATIENCE_NANOS));
            return () ->
            {
                assertEquals(List.of("delivered 0", "finished"), first.events);
                assertEquals(List.of("resumed", "delivered 1", "finished"), before);
            };
        });
    }

    @Test
    void manySlowPiecesAreCongestion() throws InterruptedException
    {
        Semaphore held = new Semaphore(0);
        int congested = (FramePool.threadsMax(THREADS) - THREADS) / 2;
        for (int slow = 0; slow < congested; slow++)
        {
            assertFalse(pool.isCongested(), slow + " are slow");
            // It is finished by another thread, so the first one counts.
            new Recorded(held::acquireUninterruptibly).submit().await();
            assertEquals(slow + 1, pool.slow());
        }
        assertTrue(pool.isCongested());
        held.release(congested);
        assertTrue(pool.awaitIdle(PATIENCE_NANOS));
        assertFalse(pool.isCongested());
    }

    /** Its thread must not touch what belongs to the one that goes on, nor go on with the pool's works itself. */
    @Test
    void aSlowPieceThatThrowsFailsAlone() throws InterruptedException
    {
        overtaking(2, () ->
        {
            Semaphore held = new Semaphore(0);
            Recorded delivered = new Recorded(held::acquireUninterruptibly, () -> { });
            delivered.lateThrows = true;
            Recorded executed = new Recorded(() ->
            {
                held.acquireUninterruptibly();
                throw new IllegalStateException("thrown by the test");
            }, () -> { });
            delivered.submit().await();
            executed.submit().await();
            held.release(2);
            assertTrue(pool.awaitIdle(PATIENCE_NANOS), "no thread counts as slow any more");
            return () ->
            {
                assertEquals(List.of("resumed", "delivered 1", "finished", "late 0", "failed late 0"), delivered.events);
                assertEquals(List.of("resumed", "delivered 1", "finished", "failed late 0"), executed.events);
            };
        });
        for (int i = 0; i < 2 * THREADS; i++)
            new Recorded(() -> { }).submit().await();
        assertTrue(pool.awaitIdle(PATIENCE_NANOS));
    }

    @Test
    void slowPiecesAreBoundedAndNothingIsLost() throws InterruptedException
    {
        Semaphore held = new Semaphore(0);
        List<Recorded> works = new ArrayList<>();
        int slowMax = FramePool.threadsMax(THREADS) - THREADS;
        for (int i = 0; i < slowMax + THREADS; i++)
            works.add(new Recorded(held::acquireUninterruptibly, () -> { }).submit());
        Recorded behind = new Recorded(() -> { }).submit();
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (takenOver.get() < slowMax && System.nanoTime() < deadline)
            TimeUnit.MILLISECONDS.sleep(1);
        TimeUnit.NANOSECONDS.sleep(3 * SLOW_NANOS);
        assertEquals(slowMax, takenOver.get());
        assertEquals(List.of(), behind.events);
        held.release(slowMax + THREADS);
        behind.await();
        for (Recorded work : works)
            work.await();
        assertTrue(pool.awaitIdle(PATIENCE_NANOS));
    }
}

package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.cassandra.utils.MonotonicClock;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Whatever is put in is looked at, never before its time, and once it is empty not at all. */
@Timeout(120)
class OverdueTest
{
    private final Overdue overdue = new Overdue();

    /** Looked at as often as it has times, and then overdue. */
    private static final class Query implements Overdue.Look
    {
        private final long[] times;
        private final Overdue.Slot slot = new Overdue.Slot(this);
        private final CountDownLatch ended;
        private final AtomicInteger looked = new AtomicInteger();
        private volatile boolean early;

        Query(CountDownLatch ended, long... times)
        {
            this.times = times;
            this.ended = ended;
        }

        @Override
        public long looksFirstAtNanos()
        {
            return times[0];
        }

        @Override
        public long look(long now)
        {
            int index = looked.get();
            if (now < times[index])
                return times[index]; // the wheel is shorter than that
            looked.incrementAndGet();
            return index + 1 == times.length ? Long.MAX_VALUE : times[index + 1];
        }

        @Override
        public void overdue()
        {
            early |= now() < times[times.length - 1];
            ended.countDown();
        }
    }

    private static long now()
    {
        return MonotonicClock.Global.preciseTime.now();
    }

    private static long ms(long ms)
    {
        return TimeUnit.MILLISECONDS.toNanos(ms);
    }

    @Test
    void nothingIsMissedAndNothingIsEarly() throws InterruptedException
    {
        int threads = 4;
        int each = 25_000;
        CountDownLatch ended = new CountDownLatch(threads * each);
        List<Query> all = new ArrayList<>();
        List<Thread> adding = new ArrayList<>();
        for (int i = 0; i < threads; i++)
        {
            List<Query> mine = new ArrayList<>();
            Random random = new Random(i);
            for (int j = 0; j < each; j++)
            {
                long first = now() + ms(random.nextInt(60)) - ms(5);
                mine.add(random.nextBoolean() ? new Query(ended, first) : new Query(ended, first, first + ms(random.nextInt(40))));
            }
            all.addAll(mine);
            adding.add(new Thread(() -> mine.forEach(query -> overdue.add(List.of(query.slot)))));
        }
        adding.forEach(Thread::start);
        for (Thread thread : adding)
            thread.join();
        ended.await();
        for (Query query : all)
        {
            assertEquals(query.times.length, query.looked.get());
            assertTrue(!query.early);
        }
    }

    /** Beyond the wheel's end, and after the thread has slept with nothing to do. */
    @Test
    void entriesBeyondTheWheelAreNotLookedAtEarly() throws InterruptedException
    {
        CountDownLatch ended = new CountDownLatch(1);
        Query query = new Query(ended, now() + ms(5000));
        overdue.add(List.of(query.slot));
        ended.await();
        assertTrue(!query.early);
    }

    @Test
    void emptySlotsAreNotLookedAt() throws InterruptedException
    {
        CountDownLatch ended;
        Query answered;
        Query marks;
        long inMs = 30;
        do
        {
            ended = new CountDownLatch(2);
            answered = new Query(ended, now() + ms(inMs));
            marks = new Query(new CountDownLatch(1), now() + ms(2 * inMs));
            overdue.add(List.of(answered.slot, marks.slot));
            answered.slot.set(null);
            inMs *= 2;
        }
        while (now() >= answered.times[0]); // it was emptied too late
        marks.ended.await();
        assertEquals(0, answered.looked.get());
        assertEquals(2, ended.getCount());
    }
}

package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class OneAnswerTest
{
    private static final int RACES = 100_000;

    @Test
    void replicasThatCameFirstLeaveItToTheOwner()
    {
        OneAnswer one = new OneAnswer();
        assertFalse(one.isForReplicas());
        assertFalse(one.isForReplicas());
        assertFalse(one.isForTime());
        assertTrue(one.isForOwner());
        assertFalse(one.isForReplicas());
        assertFalse(one.isForTime());
    }

    @Test
    void afterItsTurnTheFirstToComeEndsIt()
    {
        OneAnswer answered = new OneAnswer();
        assertFalse(answered.isForOwner());
        assertTrue(answered.isForReplicas());
        assertFalse(answered.isForReplicas());
        assertFalse(answered.isForTime());
        OneAnswer late = new OneAnswer();
        assertFalse(late.isForOwner());
        assertTrue(late.isForTime());
        assertFalse(late.isForReplicas());
    }

    @Test
    void exactlyOneRacingAnswerEndsAQuery() throws InterruptedException
    {
        OneAnswer[] queries = new OneAnswer[RACES];
        AtomicInteger[] ended = new AtomicInteger[RACES];
        for (int i = 0; i < RACES; i++)
        {
            queries[i] = new OneAnswer();
            ended[i] = new AtomicInteger();
        }
        CyclicBarrier together = new CyclicBarrier(4);
        Thread[] racers = {
            racer(together, i -> queries[i].isForOwner(), ended),
            racer(together, i -> queries[i].isForReplicas(), ended),
            racer(together, i -> queries[i].isForReplicas(), ended),
            racer(together, i -> queries[i].isForTime(), ended),
        };
        for (Thread racer : racers)
            racer.start();
        for (Thread racer : racers)
            racer.join();
        for (AtomicInteger count : ended)
            assertEquals(1, count.get());
    }

    private interface Step
    {
        boolean ends(int query);
    }

    private static Thread racer(CyclicBarrier together, Step step, AtomicInteger[] ended)
    {
        return new Thread(() ->
        {
            for (int i = 0; i < RACES; i++)
            {
                if (i % 1000 == 0)
                    await(together);
                if (step.ends(i))
                    ended[i].incrementAndGet();
            }
        });
    }

    private static void await(CyclicBarrier together)
    {
        try
        {
            together.await();
        }
        catch (InterruptedException | BrokenBarrierException e)
        {
            throw new IllegalStateException(e);
        }
    }
}

package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.locks.LockSupport;
import org.apache.cassandra.concurrent.Stage;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.utils.WithResources;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import shunt.cassandra.Settings;

/** Each request is done once, and none waits for long behind others that wait. */
@Timeout(120)
class ReplicaRequestsTest
{
    private static final int THREADS = 2;
    private static final long SLOW_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final ExecutorService stage = Executors.newCachedThreadPool();
    private final AtomicInteger given = new AtomicInteger();
    private final FramePool pool = new FramePool(THREADS, SLOW_NANOS, TimeUnit.MILLISECONDS.toNanos(1), threads, () -> { });
    private final ReplicaRequests requests =
        new ReplicaRequests(pool, THREADS, SLOW_NANOS, new AggregateMetrics(), new PeerTraffic(Settings.DEFAULTS));

    @BeforeAll
    static void config()
    {
        DatabaseDescriptor.clientInitialization(false);
    }

    @AfterEach
    void close()
    {
        pool.close();
        threads.shutdownNow();
        stage.shutdownNow();
    }

    private void take(Stage kind, Runnable task)
    {
        requests.take(kind, given(), WithResources.none(), task);
    }

    /** Counts what the stage gets. */
    private Executor given()
    {
        return task ->
        {
            given.incrementAndGet();
            stage.execute(task);
        };
    }

    private static void sleep(long ms)
    {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
        while (System.nanoTime() < until)
            LockSupport.parkNanos(until - System.nanoTime());
    }

    /** Each is overtaken, and so never delivered: they count all the same. */
    @Test
    void readsThatWaitForADiskGoToTheStageToWaitSideBySide() throws InterruptedException
    {
        int count = 200;
        CountDownLatch done = new CountDownLatch(count);
        for (int i = 0; i < count; i++)
        {
            take(Stage.READ, () ->
            {
                sleep(8);
                done.countDown();
            });
        }
        done.await();
        assertTrue(given.get() > count / 2, given + " of " + count + " went to the stage");
    }

    @Test
    void eachIsDoneOnce() throws InterruptedException
    {
        int count = 20_000;
        AtomicIntegerArray times = new AtomicIntegerArray(count);
        CountDownLatch done = new CountDownLatch(count);
        Thread[] coordinators = new Thread[4];
        for (int thread = 0; thread < coordinators.length; thread++)
        {
            int first = thread;
            Random random = new Random(thread);
            coordinators[thread] = new Thread(() ->
            {
                for (int i = first; i < count; i += coordinators.length)
                {
                    int number = i;
                    int ms = random.nextInt(500) == 0 ? random.nextInt(12) : 0;
                    boolean fails = random.nextInt(100) == 0;
                    take(random.nextBoolean() ? Stage.READ : Stage.MUTATION, () ->
                    {
                        sleep(ms);
                        times.incrementAndGet(number);
                        done.countDown();
                        if (fails)
                            throw new IllegalStateException("as a request that fails");
                    });
                }
            });
            coordinators[thread].start();
        }
        for (Thread thread : coordinators)
            thread.join();
        done.await();
        for (int i = 0; i < count; i++)
            assertEquals(1, times.get(i));
        assertTrue(pool.awaitIdle(TimeUnit.SECONDS.toNanos(30)));
        assertEquals(0, requests.waiting());
    }
}

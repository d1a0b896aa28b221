package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class FrameTimeTest
{
    private static final long FRAME_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    private static final long LONG = 2 * FrameTime.WORTH_NANOS;
    private static final long SHORT = FrameTime.WORTH_NANOS / 5;
    private static final Executor NEVER = task -> { };

    private FramePool pool = new FramePool(1, 0, FRAME_NANOS, NEVER, () -> { });
    private final FrameTime frame = new FrameTime(pool);

    @AfterEach
    void close()
    {
        pool.close();
    }

    private static void add(FrameTime frame, int kind, long took, int times)
    {
        for (int i = 0; i < times; i++)
            frame.add(kind, took);
    }

    @Test
    void queriesThatTakeAWhileMayTakeTheFramesTimeTogether()
    {
        add(frame, FrameTime.READ, LONG, (int) (FRAME_NANOS / LONG));
        assertFalse(frame.isOver(FrameTime.READ));
        frame.add(FrameTime.READ, LONG);
        assertTrue(frame.isOver(FrameTime.READ));
        assertFalse(frame.isOver(FrameTime.WRITE), "of its writes none has taken long");
    }

    @Test
    void manyShortOnesAreNotHandedOver()
    {
        add(frame, FrameTime.WRITE, SHORT, 10 * (int) (FRAME_NANOS / SHORT));
        assertFalse(frame.isOver(FrameTime.WRITE));
    }

    /** Their thread had to make room for others: that is no reason to give more to do. */
    @Test
    void nowAndThenALongOneIsNoReason()
    {
        for (int frames = 0; frames < 100; frames++)
        {
            FrameTime frame = new FrameTime(pool);
            frame.add(FrameTime.READ, 20 * FRAME_NANOS);
            assertFalse(frame.isOver(FrameTime.READ));
            add(frame, FrameTime.READ, SHORT, 30);
            frame.add(FrameTime.READ, 20 * FRAME_NANOS);
            add(frame, FrameTime.READ, SHORT, 30);
            assertFalse(frame.isOver(FrameTime.READ));
        }
    }

    @Test
    void withoutATimeAllAreExecuted()
    {
        pool.close();
        pool = new FramePool(1, 0, 0, NEVER, () -> { });
        FrameTime frame = new FrameTime(pool);
        add(frame, FrameTime.READ, LONG, 1000);
        assertFalse(frame.isOver(FrameTime.READ));
    }
}

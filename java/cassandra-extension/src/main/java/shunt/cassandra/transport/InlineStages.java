package shunt.cassandra.transport;

import java.util.EnumMap;
import java.util.Map;
import org.apache.cassandra.concurrent.ExecutorPlus;
import org.apache.cassandra.concurrent.Stage;
import org.apache.cassandra.concurrent.TaskFactory;
import org.apache.cassandra.concurrent.WrappedExecutorPlus;

/**
 * Lets a thread that executes a frame do its local reads and writes itself. Cassandra's stages hand such work to another
 * thread whenever nothing is queued, which costs two wake-ups per query: more than aggregation saves. All other threads
 * meet the stages exactly as they were.
 */
public final class InlineStages
{
    private static final Stage[] STAGES = {Stage.READ, Stage.MUTATION, Stage.COUNTER_MUTATION};
    private static final ThreadLocal<boolean[]> INLINE = ThreadLocal.withInitial(() -> new boolean[1]);

    private final Map<Stage, ExecutorPlus> originals = new EnumMap<>(Stage.class);

    /** From here until {@link #leave} this thread does its local work itself. */
    public static void enter()
    {
        INLINE.get()[0] = true;
    }

    /** The opposite of {@link #enter}. */
    public static void leave()
    {
        INLINE.get()[0] = false;
    }

    /** Puts the wrappers in. */
    synchronized void install()
    {
        for (Stage stage : STAGES)
        {
            ExecutorPlus original = stage.executor();
            originals.put(stage, original);
            stage.unsafeSetExecutor(new Inline(original, stage == Stage.COUNTER_MUTATION));
        }
    }

    /** Puts the stages back as they were. */
    synchronized void remove()
    {
        originals.forEach((stage, original) ->
        {
            if (stage.executor() instanceof Inline)
                stage.unsafeSetExecutor(original);
        });
        originals.clear();
    }

    private static final class Inline extends WrappedExecutorPlus
    {
        /** Counter writes come by {@code execute}; elsewhere that is for work which must not run where it is made. */
        private final boolean alsoExecute;

        Inline(ExecutorPlus executor, boolean alsoExecute)
        {
            super(executor);
            this.alsoExecute = alsoExecute;
        }

        @Override
        public void maybeExecuteImmediately(Runnable task)
        {
            if (INLINE.get()[0])
                run(task);
            else
                super.maybeExecuteImmediately(task);
        }

        @Override
        public void execute(Runnable task)
        {
            if (alsoExecute && INLINE.get()[0])
                run(task);
            else
                super.execute(task);
        }

        /** As the stage itself would: with its handling of what the task throws. */
        private static void run(Runnable task)
        {
            TaskFactory.localAware().toExecute(task).run();
        }
    }
}

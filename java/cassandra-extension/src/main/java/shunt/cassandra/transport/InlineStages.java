package shunt.cassandra.transport;

import java.util.EnumMap;
import java.util.Map;
import org.apache.cassandra.concurrent.ExecutorPlus;
import org.apache.cassandra.concurrent.Stage;
import org.apache.cassandra.concurrent.TaskFactory;
import org.apache.cassandra.concurrent.WrappedExecutorPlus;
import org.apache.cassandra.utils.WithResources;

/**
 * Lets a thread that executes a frame do its local reads and writes itself. Cassandra's stages hand such work to another
 * thread whenever nothing is queued, which costs two wake-ups per query: more than aggregation saves. All other threads
 * meet the stages exactly as they were.
 *
 * <p>Cassandra writes locally before it sends a write to other replicas, so a local write on the frame's own thread may never
 * stand between a write and those replicas while local writes are known to stall: see {@link #enterWithoutWrites}.
 */
public final class InlineStages
{
    private static final Stage[] STAGES = {Stage.READ, Stage.MUTATION, Stage.COUNTER_MUTATION};

    /** What a thread does of its local work. */
    private enum Mode
    {
        /** As without the extension. */
        NONE,
        /** Reads; writes are the stage's threads' in any case, which may not be left to chance as without the extension. */
        READS,
        /** All. */
        ALL
    }

    private static final ThreadLocal<Mode[]> MODE = ThreadLocal.withInitial(() -> new Mode[]{Mode.NONE});

    private final Map<Stage, ExecutorPlus> originals = new EnumMap<>(Stage.class);

    /** From here until {@link #leave} this thread does its local work itself. */
    public static void enter()
    {
        MODE.get()[0] = Mode.ALL;
    }

    /**
     * From here until {@link #leave} this thread does its local reads itself, and gives its local writes to other threads, so
     * that it comes to sending them to other replicas.
     */
    public static void enterWithoutWrites()
    {
        MODE.get()[0] = Mode.READS;
    }

    /** The opposite of {@link #enter} and {@link #enterWithoutWrites}. */
    public static void leave()
    {
        MODE.get()[0] = Mode.NONE;
    }

    /**
     * Puts the wrappers in.
     *
     * @param requests takes other coordinators' reads and writes; null: the stages do
     * @param responses takes replicas' answers; null: the stage does
     */
    synchronized void install(ReplicaRequests requests, ReplicaResponses responses)
    {
        for (Stage stage : STAGES)
        {
            ExecutorPlus original = stage.executor();
            originals.put(stage, original);
            stage.unsafeSetExecutor(new Inline(original, stage, requests));
        }
        if (responses == null)
            return;
        ExecutorPlus original = Stage.REQUEST_RESPONSE.executor();
        originals.put(Stage.REQUEST_RESPONSE, original);
        Stage.REQUEST_RESPONSE.unsafeSetExecutor(responses.wrap(original));
    }

    /** Puts the stages back as they were. */
    synchronized void remove()
    {
        originals.forEach((stage, original) ->
        {
            if (stage.executor() instanceof Inline || stage.executor() instanceof ReplicaResponses.Wrapper)
                stage.unsafeSetExecutor(original);
        });
        originals.clear();
    }

    private static final class Inline extends WrappedExecutorPlus
    {
        /** Counter writes come by {@code execute}; elsewhere that is for work which must not run where it is made. */
        private final boolean alsoExecute;
        private final boolean writes;
        private final Stage stage;
        private final ReplicaRequests requests;

        Inline(ExecutorPlus executor, Stage stage, ReplicaRequests requests)
        {
            super(executor);
            this.stage = stage;
            this.requests = requests;
            alsoExecute = stage == Stage.COUNTER_MUTATION;
            writes = stage != Stage.READ;
        }

        @Override
        public void maybeExecuteImmediately(Runnable task)
        {
            Mode mode = MODE.get()[0];
            if (mode == Mode.NONE)
                super.maybeExecuteImmediately(task);
            else if (mode == Mode.ALL || !writes)
                run(task);
            else
                super.execute(task);
        }

        @Override
        public void execute(Runnable task)
        {
            if (alsoExecute && MODE.get()[0] == Mode.ALL)
                run(task);
            else
                super.execute(task);
        }

        @Override
        public void execute(WithResources locals, Runnable task)
        {
            if (requests == null || !requests.takes(stage, executor, locals, task))
                super.execute(locals, task);
        }

        /** As the stage itself would: with its handling of what the task throws. */
        private static void run(Runnable task)
        {
            TaskFactory.localAware().toExecute(task).run();
        }
    }
}

package shunt.cassandra.transport;

/**
 * What the queries of one frame take that its thread executes one after the other. Reads that wait for a disk may be far from
 * slow each, and still hold those behind them for long: a frame of 64 that take a millisecond. Beyond a bound the rest of
 * their kind is handed over, to wait side by side. Reads and writes are told apart, so that short ones do not leave for the
 * others' sake.
 *
 * <p>It may never hand over because there is much to do: a frame of many short queries keeps its thread as long as it takes,
 * since handing them over would cost more than executing them. On a machine with more to do than processors a short query
 * takes long now and then, when its thread has to make room, so what counts is how many do, and not for how long.
 */
public final class FrameTime
{
    /** Kinds of queries. */
    public static final int READ = 0;
    public static final int WRITE = 1;
    private static final int KINDS = 2;

    /** A query that takes longer would have been worth handing over, which costs a third of that. */
    static final long WORTH_NANOS = 150_000;
    /** While those of a kind go elsewhere because they usually take long, every so many stay, and show whether they still do. */
    private static final int PROBE_EVERY = 16;

    /** Of so many queries more than one has to take long, and never one alone. */
    private static final int LONG_SHARE = 8;

    /** How many queries of one kind took long lately. Threads may overwrite each other's part, of which there is always a next one. */
    static final class Usual
    {
        private static final int WEIGHT = 32;
        private static final int ALL = 1 << 20;

        private volatile int share;
        private int asked;

        void add(int longOnes, int queries)
        {
            int before = share;
            share = before + ((int) ((long) ALL * longOnes / queries) - before) / WEIGHT;
        }

        boolean isLong()
        {
            return share > ALL / LONG_SHARE && ++asked % PROBE_EVERY != 0;
        }
    }

    private final FramePool pool;
    private final long[] nanos = new long[KINDS];
    private final int[] queries = new int[KINDS];
    private final int[] longOnes = new int[KINDS];

    /** For a frame that a thread of the pool executes. */
    public FrameTime(FramePool pool)
    {
        this.pool = pool;
    }

    /** A query was executed on the frame's thread; the owner's. */
    public void add(int kind, long took)
    {
        nanos[kind] += took;
        queries[kind]++;
        if (took > WORTH_NANOS)
            longOnes[kind]++;
    }

    /**
     * Whether the next query of the kind should be handed over: those of the frame have taken the time that they may, many of them
     * long, or they usually take long and other frames wait for a thread. The owner's.
     */
    public boolean isOver(int kind)
    {
        if (pool.frameNanos() == 0)
            return false;
        if (nanos[kind] > pool.frameNanos() && longOnes[kind] > 1 && longOnes[kind] * LONG_SHARE > queries[kind])
            return true;
        return pool.waiting() > 0 && pool.usual(kind).isLong();
    }

    /** All queries are executed, here or elsewhere; the owner's. */
    public void finish()
    {
        for (int kind = 0; kind < KINDS; kind++)
        {
            if (queries[kind] > 0)
                pool.usual(kind).add(longOnes[kind], queries[kind]);
        }
    }
}

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
    /** Of so many queries more than one has to take long, and never one alone. */
    private static final int LONG_SHARE = 4;

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

    /** Whether many of the kind have taken long; the owner's. */
    public boolean areLong(int kind)
    {
        return longOnes[kind] > 1 && longOnes[kind] * LONG_SHARE > queries[kind];
    }

    /**
     * Whether the next query of the kind should be handed over: those of the frame have taken the time that they may, many of them
     * long. The owner's.
     */
    public boolean isOver(int kind)
    {
        return pool.frameNanos() > 0 && nanos[kind] > pool.frameNanos() && areLong(kind);
    }
}

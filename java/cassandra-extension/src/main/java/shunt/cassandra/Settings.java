package shunt.cassandra;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.function.Consumer;

/**
 * What the operator wrote behind {@code -javaagent:shunt-cassandra-extension.jar=}: {@code name=value} pairs separated by
 * commas. Anything unknown, doubled or out of range is refused, and then the agent does not start.
 *
 * @param port port of the second CQL listener; 0 switches aggregated frames off
 * @param threads frames that are executed at the same time; each holds one thread
 * @param frameQueriesMax most queries of one frame
 * @param frameBytesMax most bytes of one frame's body
 * @param rowCacheDirectory where the row cache keeps its segments; empty: memory only
 * @param rowCacheSsdBytes bytes that the segments may take
 * @param slowQueryMs milliseconds after which one query of a frame no longer holds the rest of it; 0: it always does
 * @param frameTimeMs milliseconds after which queries of a frame that each take a while are no longer executed one after the
 *     other; 0: they always are
 * @param clientsMax most clients of one connection that state is kept for
 * @param clientsTotalMax most clients of all connections that state is kept for
 * @param peers what is done about messages between nodes
 */
public record Settings(int port, int threads, int frameQueriesMax, int frameBytesMax,
                       Optional<Path> rowCacheDirectory, long rowCacheSsdBytes,
                       int slowQueryMs, int frameTimeMs, int clientsMax, int clientsTotalMax, Peers peers)
{
    /**
     * What is done about messages between nodes.
     *
     * @param batchRequests what a frame's queries ask of other replicas leaves together
     * @param deferWrites no thread waits for the replicas of a write
     * @param deferReads no thread waits for the replicas of a read
     * @param deferredMax most queries that no thread waits for; beyond it Cassandra's threads do
     * @param gatherReplicaRequests other coordinators' reads and writes are done one after the other, their answers leave together
     * @param inlineResponses replicas' answers are counted by the thread that reads them
     */
    public record Peers(boolean batchRequests, boolean deferWrites, boolean deferReads, int deferredMax, boolean gatherReplicaRequests,
                        boolean inlineResponses)
    {
        /** What holds without arguments. */
        public static final Peers DEFAULTS = new Peers(true, true, true, 8192, true, true);
    }

    /** What holds without arguments. */
    public static final Settings DEFAULTS = new Settings(9142, Math.max(2, Runtime.getRuntime().availableProcessors()),
                                                         1024, 1 << 20, Optional.empty(), 0, 5, 1, 65536, clientsFor(Runtime.getRuntime().maxMemory()),
                                                         Peers.DEFAULTS);

    /** Heap that the state of one client takes. */
    private static final int CLIENT_BYTES = 512;
    /** The part of the heap that clients may take unless the operator says otherwise. */
    private static final int CLIENTS_SHARE = 32;

    private static volatile Settings current = DEFAULTS;

    /** As many clients as a small part of the heap has room for. */
    static int clientsFor(long heapBytes)
    {
        return (int) Math.max(1, Math.min(1 << 20, heapBytes / CLIENTS_SHARE / CLIENT_BYTES));
    }

    /** The settings of this process. */
    public static Settings current()
    {
        return current;
    }

    /** Makes these the settings of this process. */
    static void use(Settings settings)
    {
        current = settings;
    }

    /**
     * Reads the argument of the agent.
     *
     * @throws IllegalArgumentException says which part is wrong and what would be right
     */
    public static Settings parse(String argument)
    {
        Draft draft = new Draft();
        Map<String, Consumer<Value>> fields = draft.fields();
        Map<String, Value> given = new LinkedHashMap<>();
        for (String pair : argument == null || argument.isBlank() ? new String[0] : argument.split(","))
        {
            int equals = pair.indexOf('=');
            if (equals < 0)
                throw new IllegalArgumentException("'" + pair + "' is not name=value");
            String name = pair.substring(0, equals).strip();
            if (!fields.containsKey(name))
                throw new IllegalArgumentException("there is no setting '" + name + "'; there are "
                                                   + String.join(", ", new TreeSet<>(fields.keySet())));
            if (given.put(name, new Value(name, pair.substring(equals + 1).strip())) != null)
                throw new IllegalArgumentException(name + " is given twice");
        }
        given.forEach((name, value) -> fields.get(name).accept(value));
        return draft.finish();
    }

    /** One value as it was written. */
    private record Value(String name, String text)
    {
        long between(long min, long max, String unit)
        {
            long number;
            try
            {
                number = Long.parseLong(text);
            }
            catch (NumberFormatException e)
            {
                throw wrong("a whole number" + unit);
            }
            if (number < min || number > max)
                throw wrong("from " + min + " to " + max + unit);
            return number;
        }

        boolean onOrOff()
        {
            if (!text.equals("on") && !text.equals("off"))
                throw wrong("on or off");
            return text.equals("on");
        }

        /** A size such as {@code 64MiB}, in the units of cassandra.yaml. */
        long bytes(long min, long max)
        {
            String lower = text.toLowerCase(Locale.ROOT);
            String[] units = {"kib", "mib", "gib", "tib", "b"};
            int[] shifts = {10, 20, 30, 40, 0};
            for (int i = 0; i < units.length; i++)
            {
                if (!lower.endsWith(units[i]))
                    continue;
                String digits = lower.substring(0, lower.length() - units[i].length()).strip();
                long number = new Value(name, digits).between(0, Long.MAX_VALUE >> shifts[i], " and a unit") << shifts[i];
                if (number < min || number > max)
                    throw wrong("from " + min + "B to " + max + "B");
                return number;
            }
            throw wrong("a size with one of the units B, KiB, MiB, GiB, TiB");
        }

        IllegalArgumentException wrong(String expected)
        {
            return new IllegalArgumentException(name + " has to be " + expected + ", not '" + text + "'");
        }
    }

    private static final class Draft
    {
        private int port = DEFAULTS.port;
        private int threads = DEFAULTS.threads;
        private int frameQueriesMax = DEFAULTS.frameQueriesMax;
        private int frameBytesMax = DEFAULTS.frameBytesMax;
        private Optional<Path> rowCacheDirectory = Optional.empty();
        private long rowCacheSsdBytes;
        private int slowQueryMs = DEFAULTS.slowQueryMs;
        private int frameTimeMs = DEFAULTS.frameTimeMs;
        private int clientsMax = DEFAULTS.clientsMax;
        private int clientsTotalMax = DEFAULTS.clientsTotalMax;
        private boolean batchRequests = Peers.DEFAULTS.batchRequests;
        private boolean deferWrites = Peers.DEFAULTS.deferWrites;
        private boolean deferReads = Peers.DEFAULTS.deferReads;
        private int deferredMax = Peers.DEFAULTS.deferredMax;
        private boolean gatherReplicaRequests = Peers.DEFAULTS.gatherReplicaRequests;
        private boolean inlineResponses = Peers.DEFAULTS.inlineResponses;

        Map<String, Consumer<Value>> fields()
        {
            Map<String, Consumer<Value>> all = new HashMap<>(fieldsOfFrames());
            all.put("batch_requests", value -> batchRequests = value.onOrOff());
            all.put("defer_writes", value -> deferWrites = value.onOrOff());
            all.put("defer_reads", value -> deferReads = value.onOrOff());
            all.put("deferred_max", value -> deferredMax = (int) value.between(1, 1 << 20, ""));
            all.put("gather_replica_requests", value -> gatherReplicaRequests = value.onOrOff());
            all.put("inline_responses", value -> inlineResponses = value.onOrOff());
            return all;
        }

        private Map<String, Consumer<Value>> fieldsOfFrames()
        {
            return Map.of("port", value -> port = (int) value.between(0, 65535, ""),
                          "threads", value -> threads = (int) value.between(1, 1024, ""),
                          "frame_queries_max", value -> frameQueriesMax = (int) value.between(1, 65535, ""),
                          "frame_bytes_max", value -> frameBytesMax = (int) value.bytes(1024, 256L << 20),
                          "row_cache_directory", value -> rowCacheDirectory = Optional.of(Path.of(value.text())),
                          "row_cache_ssd_size", value -> rowCacheSsdBytes = value.bytes(0, 1L << 44),
                          "slow_query_ms", value -> slowQueryMs = (int) value.between(0, 60_000, ""),
                          "frame_time_ms", value -> frameTimeMs = (int) value.between(0, 60_000, ""),
                          "clients_max", value -> clientsMax = (int) value.between(1, 1 << 20, ""),
                          "clients_total_max", value -> clientsTotalMax = (int) value.between(1, 1 << 30, ""));
        }

        Settings finish()
        {
            if (rowCacheDirectory.isPresent() != (rowCacheSsdBytes > 0))
                throw new IllegalArgumentException("row_cache_directory and row_cache_ssd_size belong together");
            return new Settings(port, threads, frameQueriesMax, frameBytesMax, rowCacheDirectory, rowCacheSsdBytes,
                                slowQueryMs, frameTimeMs, clientsMax, clientsTotalMax,
                                new Peers(batchRequests, deferWrites, deferReads, deferredMax, gatherReplicaRequests, inlineResponses));
        }
    }
}

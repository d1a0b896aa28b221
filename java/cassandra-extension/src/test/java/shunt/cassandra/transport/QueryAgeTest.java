package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.apache.cassandra.transport.messages.OptionsMessage;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import shunt.cassandra.NodeProcess;

/** What Cassandra does about queries that wait or take too long, whichever port they come to. */
class QueryAgeTest
{
    private static final int OVERLOADED = 0x1001;
    /** Read timeout and read failure: one that is given up is either, on every port. */
    private static final Set<Integer> GIVEN_UP = Set.of(0x1200, 0x1300);
    private static final String AGE = "NativeTransportQueueMaxItemAgeThreshold";
    /** Slow queries that are overtaken; what comes behind them is handed over to Cassandra's request executor. */
    private static final int OVERTAKEN_MAX = 2 * CassandraProcess.THREADS;

    private final GuardedNode node = GuardedNode.shared();
    private final Object ageBefore = node.getStorage(AGE);
    /** The first of three keys that a try reads slowly; the next one is three further. */
    private int firstRead = -1;

    @AfterEach
    void restore()
    {
        node.setStorage(AGE, ageBefore);
    }

    private long active()
    {
        Object active = node.attribute(NodeProcess.name("org.apache.cassandra.metrics:type=ThreadPools,path=transport,"
                                                        + "scope=Native-Transport-Requests,name=ActiveTasks"), "Value");
        return ((Number) active).longValue();
    }

    @Test
    void aQueryThatWaitedTooLongIsRefusedAndNoOther() throws IOException
    {
        // The time after which a query is given up, and a little.
        NodeProcess.inTime(GuardedNode.TIMEOUT_MS + 500, this::refusesWhatWaitedTooLong);
    }

    private void refusesWhatWaitedTooLong() throws IOException
    {
        long late = node.metric("Client", "TimedOutBeforeProcessing", "Count");
        try (LinkClient link = node.link())
        {
            link.add(0, 1, GuardedNode.FAST).add(1, 1, GuardedNode.slow(1));
            // As many as keep all request threads, whether or not the slow one has left its place; those behind may not begin.
            int last = OVERTAKEN_MAX + GuardedNode.REQUEST_THREADS;
            int behind = last + 1 + GuardedNode.REQUEST_THREADS;
            // Each in a frame of its own: of one frame the first few are overtaken, and the rest handed over for their sake.
            int overtaken = 1 + OVERTAKEN_MAX;
            for (int stream = 2; stream <= overtaken; stream++)
                link.sendFrame().add(stream, 1, GuardedNode.ENDLESS_READ);
            link.sendFrame();
            NodeProcess.await("slow queries are overtaken", () -> node.metric("SlowThreads", "Value") >= OVERTAKEN_MAX);
            for (int stream = overtaken + 1; stream <= behind; stream++)
                link.add(stream, 1, GuardedNode.ENDLESS_READ);
            link.add(100, 1, GuardedNode.FAST).add(101, 2, "SELECT v FROM guarded.fast WHERE k IN (1, 2)");
            link.add(102, 3, 4, LinkClient.prepare(GuardedNode.FAST)).add(103, 1, 4, new OptionsMessage()).add(104, 1, "SELEC");
            Map<Integer, Answer> answers = link.answers(behind + 6);
            assertEquals(List.of("fast"), answers.get(0).texts());
            assertEquals(GuardedNode.SLOW_ROWS, answers.get(1).texts());
            for (int stream = 2; stream <= last; stream++)
                assertTrue(GIVEN_UP.contains(answers.get(stream).code()), "stream " + stream + ": " + answers.get(stream).error());
            assertNull(answers.get(103).error(), "OPTIONS wait for nobody");
            for (int stream : new int[] {100, 101, 102, 104})
            {
                assertEquals(OVERLOADED, answers.get(stream).code(), "stream " + stream);
                assertEquals("Query timed out before it could start", answers.get(stream).error());
            }
            assertTrue(node.metric("Client", "TimedOutBeforeProcessing", "Count") >= late + 4);
            assertEquals(List.of("fast"), link.answer(1, GuardedNode.FAST).texts());
        }
    }

    private void assertRefused(LinkClient link, String why) throws IOException
    {
        long refused = node.metric("RefusedQueries", "Count");
        Map<Integer, Answer> answers = link.add(1, 1, GuardedNode.FAST).add(2, 2, GuardedNode.FAST).answers(2);
        for (Answer answer : answers.values())
        {
            assertEquals(OVERLOADED, answer.code());
            assertEquals(why, answer.error());
        }
        assertEquals(refused + 2, node.metric("RefusedQueries", "Count"));
    }

    /** The age of what waits in Cassandra's queue, for a query of an ordinary connection and for one of a frame. */
    @Test
    void nothingNewIsTakenWhileQueriesWaitTooLong() throws IOException
    {
        // The time that the slow queries take, and a little.
        NodeProcess.inTime(4800, this::takesNothingNew);
    }

    private void takesNothingNew() throws IOException
    {
        node.setStorage(AGE, 0.05);
        String why = "Request has spent over 0.05 time of the maximum timeout " + GuardedNode.TIMEOUT_MS + "ms in the queue";
        try (LinkClient slow = node.ordinary(); LinkClient ordinary = node.ordinary("THROW_ON_OVERLOAD", "1");
             LinkClient refused = node.link("THROW_ON_OVERLOAD", "1"); LinkClient warned = node.link())
        {
            // Some wait for a long time: until those executed before them are, twice.
            int queries = 2 * GuardedNode.REQUEST_THREADS + 1;
            for (int stream = 1; stream <= queries; stream++)
                slow.send(stream, 4, LinkClient.query(GuardedNode.slow(1)));
            NodeProcess.await("slow queries are executed", () -> active() == GuardedNode.REQUEST_THREADS);
            NodeProcess.pause(200);
            assertEquals(why, ordinary.ask(GuardedNode.FAST).error());
            assertRefused(refused, why);
            Map<Integer, Answer> answers = warned.add(1, 1, GuardedNode.FAST).add(2, 1, GuardedNode.FAST).answers(2);
            answers.values().forEach(answer -> assertEquals(List.of(why), answer.warnings()));
            slow.read(queries).values().forEach(answer -> assertEquals(GuardedNode.SLOW_ROWS, answer.texts()));
        }
        try (LinkClient slow = node.link(); LinkClient refused = node.link("THROW_ON_OVERLOAD", "1"))
        {
            // Of those that are handed over, half wait for a request thread.
            int queries = OVERTAKEN_MAX + 2 * GuardedNode.REQUEST_THREADS;
            for (int stream = 1; stream <= queries; stream++)
                slow.add(stream, 1, GuardedNode.slow(1));
            slow.sendFrame();
            NodeProcess.await("slow queries are handed over", () -> active() == GuardedNode.REQUEST_THREADS);
            NodeProcess.pause(200);
            assertRefused(refused, why);
            assertEquals(0, node.metric("WaitingFrames", "Value"), "slow queries do not keep frames from a thread");
            slow.collect(queries).values().forEach(answer -> assertEquals(GuardedNode.SLOW_ROWS, answer.texts()));
        }
        try (LinkClient taken = node.link("THROW_ON_OVERLOAD", "1"))
        {
            assertNull(taken.answer(1, GuardedNode.FAST).error());
        }
    }

    /** Whether the read of a key is in the log, once and with its time. */
    private boolean isReported(int key)
    {
        String read = "<SELECT[^>]* FROM guarded\\.slow WHERE k = " + key + "[^>]*>, time (\\d+) msec - slow timeout " + GuardedNode.SLOW_LOG_MS + " msec";
        List<MatchResult> reports = Pattern.compile(read).matcher(node.log()).results().toList();
        assertTrue(reports.size() <= 1, () -> "key " + key + " is reported " + reports.size() + " times");
        reports.forEach(report -> assertTrue(Long.parseLong(report.group(1)) >= GuardedNode.SLOW_LOG_MS, report::group));
        return reports.size() == 1;
    }

    @Test
    void aSlowReadIsReportedOnce() throws IOException
    {
        node.storage("setLoggingLevel", "org.apache.cassandra.db.monitoring", "DEBUG");
        NodeProcess.inTime(2000, this::readsSlowly);
        for (int key = firstRead; key < firstRead + 3; key++)
        {
            int read = key;
            NodeProcess.await("the slow read of key " + read, () -> isReported(read));
        }
        assertFalse(node.log().contains("FROM guarded.fast"), "what is fast is not reported");
    }

    /** Keys of its own each time: what it read in another try may be reported late. */
    private void readsSlowly() throws IOException
    {
        firstRead += 3;
        assertTrue(firstRead + 2 <= GuardedNode.KEYS);
        long inline = node.metric("Inline", "Count");
        try (LinkClient ordinary = node.ordinary(); LinkClient link = node.link())
        {
            assertEquals(GuardedNode.SLOW_ROWS, ordinary.ask(GuardedNode.slow(firstRead)).texts());
            link.add(1, 1, GuardedNode.FAST).add(2, 1, GuardedNode.slow(firstRead + 1));
            link.add(3, 1, "SELECT v FROM guarded.slow WHERE k IN (" + (firstRead + 2) + ", -1)");
            Map<Integer, Answer> answers = link.answers(3);
            assertEquals(GuardedNode.SLOW_ROWS, answers.get(2).texts());
            assertEquals(GuardedNode.SLOW_ROWS, answers.get(3).texts());
        }
        assertEquals(inline + 2, node.metric("Inline", "Count"));
    }
}

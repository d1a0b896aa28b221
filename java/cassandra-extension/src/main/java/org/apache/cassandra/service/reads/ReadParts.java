package org.apache.cassandra.service.reads;

import java.lang.reflect.Field;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.db.ReadResponse;
import org.apache.cassandra.db.partitions.PartitionIterator;
import org.apache.cassandra.net.Message;
import org.apache.cassandra.net.MessagingService;
import org.apache.cassandra.service.StorageProxy;
import shunt.cassandra.transport.ToldCondition;

/** The parts of a distributed read between which Cassandra's own coordinator waits. */
public final class ReadParts
{
    private static final Field CONDITION = ToldCondition.fieldOf(ReadCallback.class);

    private ReadParts()
    {
    }

    /**
     * Looks everything up.
     *
     * @throws ExceptionInInitializerError its cause says what is missing
     */
    public static void resolve()
    {
        // It has been, with this class.
    }

    /**
     * Tells when the replicas have answered, or so many have failed that nothing more is waited for: perhaps several times, from
     * any thread. Before the read is sent.
     */
    public static void whenAnswered(AbstractReadExecutor read, Runnable told)
    {
        ToldCondition.put(CONDITION, read.handler, told);
    }

    /** When a further replica should be asked unless there is an answer; {@link Long#MAX_VALUE}: never. */
    public static long speculatesAtNanos(AbstractReadExecutor read)
    {
        long latencyNanos = TimeUnit.MICROSECONDS.toNanos(read.cfs.sampleReadLatencyMicros);
        long moment = read.requestTime.startedAtNanos() + latencyNanos;
        return latencyNanos > read.command.getTimeout(TimeUnit.NANOSECONDS) || moment > read.requestTime.clientDeadline() ? Long.MAX_VALUE : moment;
    }

    /** Asks a further replica, if there is no answer and Cassandra would; never waits for the moment to do so. */
    public static void speculate(AbstractReadExecutor read)
    {
        ((ToldCondition) read.handler.condition).withoutWaiting(read::maybeTryAdditionalReplicas);
    }

    /** Whether what the replicas sent is no longer than this in all, so that looking at it takes no time to speak of. */
    public static boolean isShort(AbstractReadExecutor read, long bytesMax)
    {
        long bytes = 0;
        for (Message<ReadResponse> response : read.digestResolver.responses.snapshot())
            bytes += ReadResponse.serializer.serializedSize(response.payload, MessagingService.current_version);
        return bytes <= bytesMax;
    }

    /** After {@link #whenAnswered} told: whether there is a result without waiting and without a repair. */
    public static boolean agrees(AbstractReadExecutor read)
    {
        return read.digestResolver.isDataPresent() && read.digestResolver.responses.size() >= read.handler.blockFor
               && read.digestResolver.responsesMatch();
    }

    /** Takes the result that {@link #agrees} has found. */
    public static void take(AbstractReadExecutor read)
    {
        read.handler.awaitResults(); // there are enough of them: it collects the replicas' warnings
        read.setResult(read.digestResolver.getData());
    }

    /** What {@code StorageProxy.fetchRows} does after one more replica was asked, if that was necessary; waits. */
    public static void await(AbstractReadExecutor read)
    {
        read.awaitResponses(StorageProxy.instance.isLoggingReadRepairs());
        read.maybeSendAdditionalDataRequests();
        read.awaitReadRepair();
    }

    /** The rows, after {@link #take} or {@link #await}; closing it waits for repairs if there are any. */
    public static PartitionIterator result(AbstractReadExecutor read)
    {
        return StorageProxy.concatAndBlockOnRepair(List.of(read.getResult()), List.of(read.getReadRepair()));
    }
}

package org.apache.cassandra.transport;

import static org.apache.cassandra.utils.Clock.Global.currentTimeMillis;

import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.cassandra.concurrent.DebuggableTask.RunnableDebuggableTask;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryEvents;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.ClientWarn;
import org.apache.cassandra.service.QueryState;
import org.apache.cassandra.service.reads.thresholds.CoordinatorWarnings;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.apache.cassandra.utils.MonotonicClock;
import shunt.cassandra.transport.OutboundBatch;
import shunt.cassandra.transport.PeerTraffic;

/**
 * An EXECUTE whose replicas no thread waits for. The frame's thread begins it: everything that {@link ExecuteMessage} does until the
 * replicas are asked. When they have answered, whoever brings the last answer ends it: everything that comes after the wait. What is
 * decided in between, when there are enough answers and what it means when there are not, is decided by Cassandra's own handlers.
 *
 * <p>It may never be answered twice, nor before Cassandra's handler would have let its waiting thread go, nor not at all
 * ({@link OneAnswer}, {@link Overdue}); and it may never wait on a thread that others need. What would wait goes to Cassandra's
 * request executor, where all of it would have waited.
 */
abstract class DeferredQuery extends ExecuteMessage implements Overdue.Look
{
    private static final QueryProcessor PROCESSOR = QueryProcessor.instance;

    /** Who wants the answer. */
    interface Asker
    {
        /** The answer, to a query whose turn has passed. From any thread; never throws. */
        void answerDeferred(Response answer);

        /** The same, from a thread that may take its time over it. */
        void answerElsewhere(Response answer);

        /** Holds back what is sent to other replicas; null: nothing does. */
        OutboundBatch batch();

        /** Counts it while it waits. */
        PeerTraffic traffic();
    }

    final QueryHandler.Prepared prepared;
    final Overdue.Slot slot = new Overdue.Slot(this);
    private final Asker asker;
    private final OneAnswer answer = new OneAnswer();
    private QueryState state;
    private Dispatcher.RequestTime time;
    private ClientWarn.State warnings;
    private long beganMillis;
    private boolean begun;

    DeferredQuery(ExecuteMessage from, QueryHandler.Prepared prepared, Asker asker)
    {
        super(from.statementId, from.resultMetadataId, from.options);
        this.prepared = prepared;
        this.asker = asker;
        attach(from.connection());
        setSource(from.getSource());
        setCustomPayload(from.getCustomPayload());
    }

    /**
     * Whether EXECUTE messages are executed as Cassandra does, and this one with as many values as it needs, under the keyspace that it
     * was prepared in: under another Cassandra warns the client. Prepares its options.
     */
    static boolean fits(QueryHandler.Prepared prepared, ExecuteMessage execute, ClientState client)
    {
        execute.options.prepare(prepared.statement.getBindVariables()); // values with names have no order before
        return (prepared.fullyQualified || Objects.equals(prepared.keyspace, client.getRawKeyspace()))
               && execute.options.getConsistency() != null && !execute.options.getConsistency().isSerialConsistency()
               && execute.options.getPageSize() != 0
               && execute.options.getValues().size() == prepared.statement.getBindVariables().size()
               && ClientState.getCQLQueryHandler() == PROCESSOR;
    }

    /** Whether it was begun, so that its answer is to be had from {@link #turn}, and not the one of its execution. */
    final boolean isBegun()
    {
        return begun;
    }

    final QueryState state()
    {
        return state;
    }

    final Dispatcher.RequestTime time()
    {
        return time;
    }

    /** As far as the replicas' being asked; the answer if there is one already, else null. */
    abstract Response begin();

    /** Whether {@link #end} would wait, or take long. */
    abstract boolean endsSlowly();

    /** What comes after the replicas' answers, or after the time for them. */
    abstract Response end();

    @Override
    protected final Response execute(QueryState state, Dispatcher.RequestTime time, boolean trace)
    {
        if (trace)
            return waits(() -> super.execute(state, time, true));
        this.state = state;
        this.time = time;
        warnings = ClientWarn.instance.get();
        beganMillis = currentTimeMillis();
        try
        {
            CQLStatement statement = prepared.statement;
            QueryProcessor.metrics.preparedStatementsExecuted.inc();
            statement.authorize(state.getClientState());
            statement.validate(state.getClientState());
            Response answer = begin();
            if (answer != null)
                return succeeded(answer);
            begun = true;
            asker.traffic().begun();
            return new ResultMessage.Void();
        }
        catch (Exception e)
        {
            return failed(e);
        }
    }

    /** The replicas have answered, or failed, so that nothing is waited for any more. From any thread, any number of times, and perhaps
     * before {@link #begin} returns. */
    final void answered()
    {
        if (answer.isForReplicas())
            endLate();
    }

    /** When its turn in the frame has come: its answer, or null when that comes late. The owner's. */
    final Response turn()
    {
        if (!answer.isForOwner())
            return null;
        if (isSlow())
        {
            endElsewhere();
            return null;
        }
        asker.traffic().ended();
        return ended();
    }

    @Override
    public final void overdue()
    {
        if (answer.isForTime())
            endElsewhere();
    }

    private void endLate()
    {
        if (isSlow())
            endElsewhere();
        else
            answer(asker::answerDeferred, ended());
    }

    /** What cannot be looked at fails where it may take its time. */
    private boolean isSlow()
    {
        try
        {
            return endsSlowly();
        }
        catch (Throwable t)
        {
            JVMStabilityInspector.inspectThrowable(t);
            return true;
        }
    }

    /** It counts as waiting until its answer is on its way: whoever closes the port waits for that. */
    private void answer(Consumer<Response> way, Response answer)
    {
        try
        {
            way.accept(answer);
        }
        finally
        {
            asker.traffic().ended();
        }
    }

    private void endElsewhere()
    {
        try
        {
            Dispatcher.requestExecutor.submit(new Ending());
        }
        catch (RuntimeException e)
        {
            slot.set(null);
            // Not Overloaded: its replicas may have the write, and a proxy repeats what was refused as Overloaded.
            String why = "The node is stopping: nobody knows the outcome of this query";
            answer(asker::answerDeferred, ReleaseBridge.refusal(new ServerError(why)));
        }
    }

    /** Never throws. */
    private Response ended()
    {
        slot.set(null);
        ClientWarn.State before = ClientWarn.instance.get();
        ClientWarn.instance.set(warnings);
        CoordinatorWarnings.init();
        Response answer;
        try
        {
            answer = succeeded(end());
            CoordinatorWarnings.done();
        }
        catch (Throwable t)
        {
            CoordinatorWarnings.done();
            answer = failed(t);
        }
        finally
        {
            CoordinatorWarnings.reset();
        }
        answer.setWarnings(ClientWarn.instance.getWarnings());
        ClientWarn.instance.set(before);
        answer.attach(connection());
        return answer;
    }

    /** Sends to the replicas; what goes to other nodes leaves with that of its neighbours. Never for what waits. */
    final void sends(Runnable send)
    {
        OutboundBatch batch = asker.batch();
        if (batch != null)
            batch.enter();
        try
        {
            send.run();
        }
        finally
        {
            OutboundBatch.leave();
        }
    }

    /** Does what waits: what its neighbours have sent goes first. */
    final <T> T waits(Supplier<T> waiting)
    {
        OutboundBatch batch = asker.batch();
        if (batch != null)
            batch.flush();
        return waiting.get();
    }

    /** As the query itself would have been: it counts in the age of what is queued, and is shown among the queries. */
    private final class Ending implements RunnableDebuggableTask
    {
        private final long createdNanos = MonotonicClock.Global.preciseTime.now();
        private volatile long startedNanos;

        @Override
        public void run()
        {
            startedNanos = MonotonicClock.Global.preciseTime.now();
            answer(asker::answerElsewhere, ended());
        }

        @Override
        public long creationTimeNanos()
        {
            return createdNanos;
        }

        @Override
        public long startTimeNanos()
        {
            return startedNanos;
        }

        @Override
        public String description()
        {
            return DeferredQuery.this.toString();
        }
    }

    private Response succeeded(Response answer)
    {
        QueryEvents.instance.notifyExecuteSuccess(prepared.statement, prepared.rawCQLStatement, options, state, beganMillis, answer);
        if (answer instanceof ResultMessage.Rows rows)
            describe(rows);
        return answer;
    }

    /** As {@link ExecuteMessage} leaves out what the client knows of the columns. */
    private void describe(ResultMessage.Rows rows)
    {
        var metadata = rows.result.metadata;
        if (options.getProtocolVersion().isGreaterOrEqualTo(ProtocolVersion.V5))
        {
            if (!metadata.getResultMetadataId().equals(resultMetadataId))
                metadata.setMetadataChanged();
            else if (options.skipMetadata())
                metadata.setSkipMetadata();
        }
        else if (options.skipMetadata() && prepared.resultMetadataId.equals(metadata.getResultMetadataId()))
            metadata.setSkipMetadata();
    }

    private Response failed(Throwable why)
    {
        if (why instanceof Exception e)
            QueryEvents.instance.notifyExecuteFailure(prepared, options, state, e);
        JVMStabilityInspector.inspectThrowable(why);
        return ReleaseBridge.failure(why);
    }

    /** Whether somebody is told of every query (audit, full query log), which may take time. */
    static boolean isListenedTo()
    {
        return QueryEvents.instance.listenerCount() > 0;
    }
}

package org.apache.cassandra.transport;

import static org.apache.cassandra.utils.Clock.Global.nanoTime;

import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.concurrent.Stage;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.cql3.statements.ModificationStatement;
import org.apache.cassandra.cql3.statements.StatementParts;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.db.IMutation;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.WriteType;
import org.apache.cassandra.db.guardrails.Guardrails;
import org.apache.cassandra.exceptions.OverloadedException;
import org.apache.cassandra.exceptions.UnavailableException;
import org.apache.cassandra.exceptions.WriteFailureException;
import org.apache.cassandra.exceptions.WriteTimeoutException;
import org.apache.cassandra.locator.AbstractReplicationStrategy;
import org.apache.cassandra.locator.LocalStrategy;
import org.apache.cassandra.locator.ReplicaPlan;
import org.apache.cassandra.metrics.ClientRequestSizeMetrics;
import org.apache.cassandra.metrics.ClientRequestsMetricsHolder;
import org.apache.cassandra.metrics.ClientWriteRequestMetrics;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.SchemaConstants;
import org.apache.cassandra.service.AbstractWriteResponseHandler;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.StorageProxy;
import org.apache.cassandra.service.WriteParts;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.ResultMessage;

/**
 * A write of one partition: {@code ModificationStatement.executeWithoutCondition} and {@code StorageProxy.mutate}, cut in two where
 * that waits.
 */
final class DeferredWrite extends DeferredQuery
{
    private final ModificationStatement statement;
    private List<? extends IMutation> mutations;
    private AbstractWriteResponseHandler<IMutation> handler;

    DeferredWrite(ExecuteMessage from, QueryHandler.Prepared prepared, Asker asker)
    {
        super(from, prepared, asker);
        statement = (ModificationStatement) prepared.statement;
    }

    /**
     * Whether it is a plain write, of one partition and nothing else. What Cassandra does in several steps, or after a look at the
     * data, waits on a thread.
     */
    static boolean fits(QueryHandler.Prepared prepared, ExecuteMessage execute, ClientState client)
    {
        if (!(prepared.statement instanceof ModificationStatement write) || !DeferredQuery.fits(prepared, execute, client))
            return false;
        if (write.hasConditions() || write.isVirtual() || write.isCounter() || write.requiresRead() || write.getRestrictions().keyIsInRelation()
            || execute.options.getConsistency() == ConsistencyLevel.ANY || execute.options.getConsistency() == ConsistencyLevel.NODE_LOCAL)
            return false;
        if (!write.metadata.triggers.isEmpty() || DatabaseDescriptor.getPartitionDenylistEnabled() && DatabaseDescriptor.getDenylistWritesEnabled())
            return false;
        Keyspace keyspace = Schema.instance.getKeyspaceInstance(write.metadata.keyspace);
        if (keyspace == null || keyspace.viewManager.forTable(write.metadata.id).iterator().hasNext())
            return false;
        AbstractReplicationStrategy replication = keyspace.getReplicationStrategy();
        return !(replication instanceof LocalStrategy) && !replication.hasTransientReplicas();
    }

    @Override
    Response begin()
    {
        ConsistencyLevel consistency = options.getConsistency();
        ClientState client = state().getClientState();
        Guardrails.writeConsistencyLevels.guard(EnumSet.of(consistency, options.getSerialConsistency()), client);
        consistency.validateForWrite();
        List<? extends IMutation> mutations = StatementParts.mutations(statement, state(), options, time());
        if (mutations.isEmpty())
            return new ResultMessage.Void();
        if (mutations.size() > 1 || !(mutations.get(0) instanceof Mutation mutation))
        {
            return waits(() ->
            {
                StorageProxy.mutateWithTriggers(mutations, consistency, false, time());
                recordSizes(mutations);
                return new ResultMessage.Void();
            });
        }
        long bytes = IMutation.dataSize(mutations);
        ClientRequestsMetricsHolder.writeMetrics.mutationSize.update(bytes);
        ClientRequestsMetricsHolder.writeMetricsForLevel(consistency).mutationSize.update(bytes);
        this.mutations = mutations;
        sends(() -> send(mutation, consistency));
        return null;
    }

    private void recordSizes(List<? extends IMutation> mutations)
    {
        if (!SchemaConstants.isSystemKeyspace(statement.metadata.keyspace))
            ClientRequestSizeMetrics.recordRowAndColumnCountMetrics(mutations);
    }

    private void send(Mutation mutation, ConsistencyLevel consistency)
    {
        boolean sent = false;
        try
        {
            StorageProxy.performWrite(mutation, consistency, DatabaseDescriptor.getLocalDataCenter(), this::send, null, WriteType.SIMPLE, time());
            sent = true;
        }
        catch (UnavailableException | OverloadedException e)
        {
            ClientRequestsMetricsHolder.writeMetrics.unavailables.mark();
            ClientRequestsMetricsHolder.writeMetricsForLevel(consistency).unavailables.mark();
            throw e;
        }
        finally
        {
            if (!sent)
                recordLatency();
        }
    }

    /** As {@code StorageProxy.standardWritePerformer}. */
    private void send(IMutation mutation, ReplicaPlan.ForWrite plan, AbstractWriteResponseHandler<IMutation> handler,
                      String localDataCenter, Dispatcher.RequestTime time)
    {
        this.handler = handler;
        WriteParts.whenAnswered(handler, this::answered);
        StorageProxy.sendToHintedReplicas((Mutation) mutation, plan, handler, localDataCenter, Stage.MUTATION, time);
    }

    @Override
    boolean endsSlowly()
    {
        return isListenedTo();
    }

    @Override
    Response end()
    {
        ClientWriteRequestMetrics level = ClientRequestsMetricsHolder.writeMetricsForLevel(options.getConsistency());
        try
        {
            handler.get(); // returns, or throws, at once
            recordSizes(mutations);
            return new ResultMessage.Void();
        }
        catch (WriteFailureException e)
        {
            ClientRequestsMetricsHolder.writeMetrics.failures.mark();
            level.failures.mark();
            throw e;
        }
        catch (WriteTimeoutException e)
        {
            ClientRequestsMetricsHolder.writeMetrics.timeouts.mark();
            level.timeouts.mark();
            throw e;
        }
        finally
        {
            recordLatency();
        }
    }

    private void recordLatency()
    {
        long latency = nanoTime() - time().startedAtNanos();
        ClientRequestsMetricsHolder.writeMetrics.addNano(latency);
        ClientRequestsMetricsHolder.writeMetricsForLevel(options.getConsistency()).addNano(latency);
        ColumnFamilyStore table = Schema.instance.getColumnFamilyStoreInstance(statement.metadata.id);
        if (table != null) // it may have been dropped since
            table.metric.coordinatorWriteLatency.update(latency, TimeUnit.NANOSECONDS);
    }

    @Override
    public long looksFirstAtNanos()
    {
        return time().computeDeadline(DatabaseDescriptor.getWriteRpcTimeout(TimeUnit.NANOSECONDS));
    }

    @Override
    public long look(long now)
    {
        long deadline = looksFirstAtNanos();
        return now - deadline >= 0 ? Long.MAX_VALUE : deadline;
    }
}

package org.apache.cassandra.transport;

import static org.apache.cassandra.utils.Clock.Global.nanoTime;

import com.google.common.collect.Iterables;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.cql3.restrictions.StatementRestrictions;
import org.apache.cassandra.cql3.selection.Selection.Selectors;
import org.apache.cassandra.cql3.statements.SelectStatement;
import org.apache.cassandra.cql3.statements.StatementParts;
import org.apache.cassandra.db.ColumnFamilyStore;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.ReadQuery;
import org.apache.cassandra.db.SinglePartitionReadCommand;
import org.apache.cassandra.db.filter.DataLimits;
import org.apache.cassandra.db.guardrails.Guardrails;
import org.apache.cassandra.db.partitions.PartitionIterator;
import org.apache.cassandra.exceptions.InvalidRequestException;
import org.apache.cassandra.exceptions.ReadAbortException;
import org.apache.cassandra.exceptions.ReadFailureException;
import org.apache.cassandra.exceptions.ReadTimeoutException;
import org.apache.cassandra.exceptions.UnavailableException;
import org.apache.cassandra.locator.LocalStrategy;
import org.apache.cassandra.metrics.ClientRequestMetrics;
import org.apache.cassandra.metrics.ClientRequestSizeMetrics;
import org.apache.cassandra.metrics.ClientRequestsMetricsHolder;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.SchemaConstants;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.StorageProxy;
import org.apache.cassandra.service.reads.AbstractReadExecutor;
import org.apache.cassandra.service.reads.ReadParts;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.ResultMessage;

/**
 * A read of one partition that several replicas answer: {@code SelectStatement.execute}, {@code StorageProxy.readRegular} and
 * {@code fetchRows}, cut in two where they wait. Which replicas are asked, what digests are compared, when one more is asked and how
 * a difference is repaired is Cassandra's {@link AbstractReadExecutor}'s.
 */
final class DeferredRead extends DeferredQuery
{
    /** What the replicas may have sent for the answer to be made by the thread that brings the last of it. */
    private static final long SHORT_BYTES = 4 << 10;

    private final SelectStatement statement;
    private SinglePartitionReadCommand command;
    private AbstractReadExecutor read;
    private Selectors selectors;
    private long nowInSec;
    private int userLimit;
    private long sentNanos;
    private final AtomicBoolean speculated = new AtomicBoolean();
    /** What the replicas sent is the same, and enough of them have. */
    private boolean agrees;

    DeferredRead(ExecuteMessage from, QueryHandler.Prepared prepared, Asker asker)
    {
        super(from, prepared, asker);
        statement = (SelectStatement) prepared.statement;
    }

    /**
     * Whether it reads one partition, needs the answers of several replicas, and has one page: because it can have one row at most, or
     * for its limits. Aggregates, indexes and pages are read on a thread.
     */
    static boolean fits(QueryHandler.Prepared prepared, ExecuteMessage execute, ClientState client)
    {
        if (!(prepared.statement instanceof SelectStatement select) || !DeferredQuery.fits(prepared, execute, client))
            return false;
        StatementRestrictions where = select.getRestrictions();
        // Masks ask for permissions, and may be functions that take their time.
        if (select.table.isVirtual() || select.table.hasMaskedColumns() || where.isKeyRange() || where.keyIsInRelation() || where.usesSecondaryIndexing() || where.isTopK()
            || execute.options.getPagingState() != null || select.getAggregationSpec(execute.options) != null)
            return false;
        Keyspace keyspace = Schema.instance.getKeyspaceInstance(select.table.keyspace);
        ConsistencyLevel consistency = execute.options.getConsistency();
        if (keyspace == null || keyspace.getReplicationStrategy() instanceof LocalStrategy
            || keyspace.getReplicationStrategy().hasTransientReplicas() || consistency == ConsistencyLevel.NODE_LOCAL
            || consistency.blockFor(keyspace.getReplicationStrategy()) <= 1)
            return false;
        if (DatabaseDescriptor.getPartitionDenylistEnabled() && DatabaseDescriptor.getDenylistReadsEnabled() || !StorageProxy.isSafeToPerformRead())
            return false;
        return hasOnePage(select, where, execute) && Iterables.isEmpty(select.getFunctions());
    }

    private static boolean hasOnePage(SelectStatement select, StatementRestrictions where, ExecuteMessage execute)
    {
        int pageSize = execute.options.getPageSize();
        if (pageSize <= 0)
            return true;
        // With a page of one row a full page leaves open whether there is another one.
        if (pageSize > 1 && where.hasAllPKColumnsRestrictedByEqualities() && !where.clusteringKeyRestrictionsHasIN())
            return true;
        try
        {
            return select.getLimit(execute.options) <= pageSize;
        }
        catch (InvalidRequestException e)
        {
            return false;
        }
    }

    @Override
    Response begin()
    {
        ConsistencyLevel consistency = options.getConsistency();
        ClientState client = state().getClientState();
        consistency.validateForRead();
        Guardrails.readConsistencyLevels.guard(EnumSet.of(consistency), client);
        nowInSec = options.getNowInSeconds(state());
        userLimit = statement.getLimit(options);
        int pageSize = options.getPageSize();
        selectors = statement.getSelection().newSelectors(options);
        ReadQuery query = statement.getQuery(options, client, selectors.getColumnFilter(), nowInSec, userLimit,
                                             statement.getPerPartitionLimit(options), pageSize, null);
        if (options.isReadThresholdsEnabled())
            query.trackWarnings();
        DataLimits limits = query.limits();
        if (pageSize > 0 && limits.count() > pageSize)
            Guardrails.pageSize.guard(pageSize, statement.table(), false, client);
        if (!(query instanceof SinglePartitionReadCommand.Group group) || group.queries.size() != 1)
        {
            // Nothing is there to be read: a slice that is empty, for example.
            return waits(() ->
            {
                try (PartitionIterator none = query.execute(consistency, client, time()))
                {
                    return answer(none);
                }
            });
        }
        command = group.queries.get(0);
        sends(() -> send(consistency));
        return null;
    }

    private void send(ConsistencyLevel consistency)
    {
        sentNanos = nanoTime();
        boolean sent = false;
        try
        {
            read = AbstractReadExecutor.getReadExecutor(command, consistency, time());
            (read.hasLocalRead() ? ClientRequestsMetricsHolder.readMetrics.localRequests
                                 : ClientRequestsMetricsHolder.readMetrics.remoteRequests).mark();
            ReadParts.whenAnswered(read, this::answered);
            read.executeAsync();
            sent = true;
        }
        catch (UnavailableException e)
        {
            ClientRequestsMetricsHolder.readMetrics.unavailables.mark();
            ClientRequestsMetricsHolder.readMetricsForLevel(consistency).unavailables.mark();
            StorageProxy.logRequestException(e, List.of(command));
            throw e;
        }
        finally
        {
            if (!sent)
                recordLatency();
        }
    }

    @Override
    boolean endsSlowly()
    {
        if (isListenedTo() || !ReadParts.isShort(read, SHORT_BYTES))
            return true;
        agrees = ReadParts.agrees(read);
        return !agrees;
    }

    @Override
    Response end()
    {
        ClientRequestMetrics level = ClientRequestsMetricsHolder.readMetricsForLevel(options.getConsistency());
        PartitionIterator partitions;
        try
        {
            if (agrees)
            {
                ReadParts.take(read);
            }
            else
            {
                speculate();
                ReadParts.await(read);
            }
            partitions = ReadParts.result(read);
        }
        catch (UnavailableException e)
        {
            ClientRequestsMetricsHolder.readMetrics.unavailables.mark();
            level.unavailables.mark();
            StorageProxy.logRequestException(e, List.of(command));
            throw e;
        }
        catch (ReadTimeoutException e)
        {
            ClientRequestsMetricsHolder.readMetrics.timeouts.mark();
            level.timeouts.mark();
            StorageProxy.logRequestException(e, List.of(command));
            throw e;
        }
        catch (ReadAbortException e)
        {
            StorageProxy.recordReadRegularAbort(options.getConsistency(), e);
            throw e;
        }
        catch (ReadFailureException e)
        {
            ClientRequestsMetricsHolder.readMetrics.failures.mark();
            level.failures.mark();
            throw e;
        }
        finally
        {
            recordLatency();
        }
        try (partitions)
        {
            return answer(partitions);
        }
    }

    private Response answer(PartitionIterator partitions)
    {
        ResultMessage.Rows rows = StatementParts.rows(statement, partitions, options, selectors, nowInSec, userLimit, true,
                                                      state().getClientState());
        if (!SchemaConstants.isSystemKeyspace(statement.table.keyspace))
            ClientRequestSizeMetrics.recordReadResponseMetrics(rows, statement.getRestrictions(), statement.getSelection());
        return rows;
    }

    private void recordLatency()
    {
        long latency = nanoTime() - sentNanos;
        ClientRequestsMetricsHolder.readMetrics.addNano(latency);
        ClientRequestsMetricsHolder.readMetricsForLevel(options.getConsistency()).addNano(latency);
        ColumnFamilyStore table = Schema.instance.getColumnFamilyStoreInstance(statement.table.id);
        if (table != null) // it may have been dropped since
            table.metric.coordinatorReadLatency.update(latency, TimeUnit.NANOSECONDS);
    }

    private long deadlineNanos()
    {
        return time().computeDeadline(DatabaseDescriptor.getReadRpcTimeout(TimeUnit.NANOSECONDS));
    }

    @Override
    public long looksFirstAtNanos()
    {
        return Math.min(deadlineNanos(), ReadParts.speculatesAtNanos(read));
    }

    @Override
    public long look(long now)
    {
        long deadline = deadlineNanos();
        if (now - deadline >= 0)
            return Long.MAX_VALUE;
        // The moment may have moved since: the latency that it hangs on is measured all the time.
        long moment = ReadParts.speculatesAtNanos(read);
        if (now < moment)
            return Math.min(moment, deadline);
        speculate();
        return deadline;
    }

    /** At the moment for it, or later, without waiting for it; a second time would ask yet another replica. */
    private void speculate()
    {
        if (speculated.compareAndSet(false, true))
            ReadParts.speculate(read);
    }
}

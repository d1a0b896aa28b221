package org.apache.cassandra.cql3.statements;

import com.google.common.collect.HashMultiset;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.cql3.selection.Selection.Selectors;
import org.apache.cassandra.db.IMutation;
import org.apache.cassandra.db.aggregation.AggregationSpecification;
import org.apache.cassandra.db.partitions.PartitionIterator;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.QueryState;
import org.apache.cassandra.transport.Dispatcher;
import org.apache.cassandra.transport.messages.ResultMessage;

/**
 * The halves of executing a statement: what comes before its replicas are asked, and what after they have answered. Cassandra
 * does both in one method, which waits in between.
 */
public final class StatementParts
{
    private static final MethodHandle PROCESS_RESULTS;

    static
    {
        try
        {
            MethodType type = MethodType.methodType(ResultMessage.Rows.class, PartitionIterator.class, QueryOptions.class, Selectors.class,
                                                    long.class, int.class, AggregationSpecification.class, boolean.class, ClientState.class);
            PROCESS_RESULTS = MethodHandles.privateLookupIn(SelectStatement.class, MethodHandles.lookup())
                                           .findVirtual(SelectStatement.class, "processResults", type);
        }
        catch (ReflectiveOperationException e)
        {
            throw new ExceptionInInitializerError(e);
        }
    }

    private StatementParts()
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

    /** What an unconditional statement changes, as {@code ModificationStatement.executeWithoutCondition} finds it. */
    public static List<? extends IMutation> mutations(ModificationStatement statement, QueryState state, QueryOptions options,
                                                      Dispatcher.RequestTime time)
    {
        ClientState client = state.getClientState();
        statement.validateDiskUsage(options, client);
        statement.validateTimestamp(state, options);
        List<ByteBuffer> keys = statement.buildPartitionKeyNames(options, client);
        SingleTableUpdatesCollector collector = new SingleTableUpdatesCollector(statement.metadata, statement.updatedColumns(), HashMultiset.create(keys));
        statement.addUpdates(collector, keys, client, options, false, options.getTimestamp(state), options.getNowInSeconds(state), time);
        return collector.toMutations(client);
    }

    /** The answer to a SELECT without aggregation, as {@code SelectStatement.execute} makes it of what the replicas had. */
    public static ResultMessage.Rows rows(SelectStatement statement, PartitionIterator partitions, QueryOptions options,
                                          Selectors selectors, long nowInSec, int userLimit, boolean unmask, ClientState client)
    {
        try
        {
            return (ResultMessage.Rows) PROCESS_RESULTS.invokeExact(statement, partitions, options, selectors, nowInSec, userLimit,
                                                                    (AggregationSpecification) null, unmask, client);
        }
        catch (RuntimeException | Error e)
        {
            throw e;
        }
        catch (Throwable e)
        {
            throw new IllegalStateException(e);
        }
    }
}

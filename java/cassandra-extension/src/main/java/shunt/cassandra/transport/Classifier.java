package shunt.cassandra.transport;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.cassandra.config.Config.CommitLogSync;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.cql3.restrictions.StatementRestrictions;
import org.apache.cassandra.cql3.statements.ModificationStatement;
import org.apache.cassandra.cql3.statements.SelectStatement;
import org.apache.cassandra.cql3.statements.UseStatement;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.db.Keyspace;
import org.apache.cassandra.db.marshal.ByteBufferAccessor;
import org.apache.cassandra.db.marshal.CompositeType;
import org.apache.cassandra.locator.AbstractReplicationStrategy;
import org.apache.cassandra.locator.EndpointsForToken;
import org.apache.cassandra.locator.LocalStrategy;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.utils.FBUtilities;

/**
 * Tells before its execution whether a query is short and local, so that it may run between others of its frame.
 * Everything else is handed over.
 *
 * <p>Nothing that is known to wait may run there: not for another node, nor, where {@code commitlog_sync} is batch or group,
 * for the commit log, whose waits would come one after the other instead of being shared.
 */
public final class Classifier
{
    /** Where a query is executed. */
    public enum Place
    {
        /** By Cassandra's request executor. */
        HANDED_OVER,
        /** On the frame's thread. */
        INLINE,
        /** On the frame's thread; it is a write that goes to other replicas too, of which one will do. */
        INLINE_AND_REMOTE,
        /** Begun on the frame's thread, and ended when its replicas have answered. */
        DEFERRED
    }

    private Classifier()
    {
    }

    /**
     * Inline when the statement reads or writes one partition that this node holds, and needs no answer from another node.
     * A statement that is invalid counts as short: it fails at once.
     */
    public static Place of(CQLStatement statement, QueryOptions options, ClientState client)
    {
        if (statement instanceof UseStatement)
            return Place.INLINE;
        if (statement.hasConditions())
            return Place.HANDED_OVER;
        if (statement instanceof SelectStatement select)
        {
            StatementRestrictions where = select.getRestrictions();
            if (select.table.isVirtual() || where.isKeyRange() || where.keyIsInRelation()
                || where.usesSecondaryIndexing() || where.isTopK())
                return Place.HANDED_OVER;
            return localReplicas(select.table, statement, where, options, client) > 0 ? Place.INLINE : Place.HANDED_OVER;
        }
        if (statement instanceof ModificationStatement modification)
        {
            StatementRestrictions where = modification.getRestrictions();
            if (modification.isVirtual() || where.keyIsInRelation() || modification.requiresRead() || waitsForLog(modification.metadata))
                return Place.HANDED_OVER;
            return write(localReplicas(modification.metadata, statement, where, options, client), modification.isCounter());
        }
        return Place.HANDED_OVER;
    }

    private static Place write(int replicas, boolean counter)
    {
        if (replicas == 1)
            return Place.INLINE;
        // The leader of a counter is any replica; only the one and only replica is certainly this node.
        return replicas == 0 || counter ? Place.HANDED_OVER : Place.INLINE_AND_REMOTE;
    }

    /** Whether writes of durable keyspaces return only when the commit log is on the disk. */
    public static boolean isLogWaitedFor()
    {
        return DatabaseDescriptor.getCommitLogSync() != CommitLogSync.periodic;
    }

    /** Whether a write of the table returns only when the commit log is on the disk. */
    private static boolean waitsForLog(TableMetadata table)
    {
        if (!isLogWaitedFor())
            return false;
        Keyspace keyspace = Schema.instance.getKeyspaceInstance(table.keyspace);
        return keyspace == null || keyspace.getMetadata().params.durableWrites;
    }

    /** The number of replicas when this node is one of them and the answer of one will do, else 0. */
    private static int localReplicas(TableMetadata table, CQLStatement statement, StatementRestrictions where,
                                     QueryOptions options, ClientState client)
    {
        Keyspace keyspace = Schema.instance.getKeyspaceInstance(table.keyspace);
        ConsistencyLevel consistency = options.getConsistency();
        if (keyspace == null || consistency == null || consistency.isSerialConsistency())
            return 0;
        AbstractReplicationStrategy strategy = keyspace.getReplicationStrategy();
        if (consistency.blockFor(strategy) > 1)
            return 0;
        if (strategy instanceof LocalStrategy)
            return 1;
        options.prepare(statement.getBindVariables());
        ByteBuffer key = key(statement, where, options, client);
        if (key == null)
            return 0;
        EndpointsForToken replicas = strategy.getNaturalReplicasForToken(table.partitioner.getToken(key));
        return replicas.contains(FBUtilities.getBroadcastAddressAndPort()) ? replicas.size() : 0;
    }

    /** The partition key, or null when there is not exactly one. */
    private static ByteBuffer key(CQLStatement statement, StatementRestrictions where, QueryOptions options,
                                  ClientState client)
    {
        short[] indexes = statement.getPartitionKeyBindVariableIndexes();
        if (indexes == null)
        {
            List<ByteBuffer> keys = where.getPartitionKeys(options, client);
            return keys.size() == 1 ? keys.get(0) : null;
        }
        List<ByteBuffer> values = options.getValues();
        if (indexes.length == 1)
            return values.get(indexes[0]);
        ByteBuffer[] components = new ByteBuffer[indexes.length];
        for (int i = 0; i < indexes.length; i++)
            components[i] = values.get(indexes[i]);
        return CompositeType.build(ByteBufferAccessor.instance, components);
    }
}

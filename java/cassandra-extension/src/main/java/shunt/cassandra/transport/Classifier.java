package shunt.cassandra.transport;

import java.nio.ByteBuffer;
import java.util.List;
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
 */
public final class Classifier
{
    private Classifier()
    {
    }

    /**
     * Whether the statement reads or writes one partition that this node holds, and needs no answer from another node.
     * A statement that is invalid counts as short: it fails at once.
     */
    public static boolean isInline(CQLStatement statement, QueryOptions options, ClientState client)
    {
        if (statement instanceof UseStatement)
            return true;
        if (statement.hasConditions())
            return false;
        if (statement instanceof SelectStatement select)
        {
            StatementRestrictions where = select.getRestrictions();
            return !select.table.isVirtual() && !where.isKeyRange() && !where.keyIsInRelation()
                   && !where.usesSecondaryIndexing() && !where.isTopK()
                   && isLocal(select.table, statement, where, options, client, false);
        }
        if (statement instanceof ModificationStatement modification)
        {
            StatementRestrictions where = modification.getRestrictions();
            return !modification.isVirtual() && !where.keyIsInRelation() && !modification.requiresRead()
                   && isLocal(modification.metadata, statement, where, options, client, modification.isCounter());
        }
        return false;
    }

    private static boolean isLocal(TableMetadata table, CQLStatement statement, StatementRestrictions where,
                                   QueryOptions options, ClientState client, boolean counter)
    {
        Keyspace keyspace = Schema.instance.getKeyspaceInstance(table.keyspace);
        ConsistencyLevel consistency = options.getConsistency();
        if (keyspace == null || consistency == null || consistency.isSerialConsistency())
            return false;
        AbstractReplicationStrategy strategy = keyspace.getReplicationStrategy();
        if (consistency.blockFor(strategy) > 1)
            return false;
        if (strategy instanceof LocalStrategy)
            return true;
        options.prepare(statement.getBindVariables());
        ByteBuffer key = key(statement, where, options, client);
        if (key == null)
            return false;
        EndpointsForToken replicas = strategy.getNaturalReplicasForToken(table.partitioner.getToken(key));
        // The leader of a counter is any replica; only the one and only replica is certainly this node.
        return replicas.contains(FBUtilities.getBroadcastAddressAndPort()) && (!counter || replicas.size() == 1);
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

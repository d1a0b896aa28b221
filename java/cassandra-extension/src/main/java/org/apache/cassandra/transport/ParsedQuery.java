package org.apache.cassandra.transport;

import static org.apache.cassandra.utils.Clock.Global.currentTimeMillis;

import java.util.List;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryEvents;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.exceptions.RequestExecutionException;
import org.apache.cassandra.exceptions.RequestValidationException;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.service.ClientWarn;
import org.apache.cassandra.service.QueryState;
import org.apache.cassandra.transport.messages.QueryMessage;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A QUERY whose text was parsed to classify it, so that it need not be parsed twice. Otherwise executed as
 * {@link QueryMessage} is.
 */
final class ParsedQuery extends QueryMessage
{
    private static final Logger LOGGER = LoggerFactory.getLogger(ParsedQuery.class);

    /** The statement. */
    final CQLStatement statement;
    private final List<String> parseWarnings;

    private ParsedQuery(QueryMessage query, CQLStatement statement, List<String> parseWarnings)
    {
        super(query.query, query.options);
        this.statement = statement;
        this.parseWarnings = parseWarnings;
        attach(query.connection());
        setSource(query.getSource());
        setCustomPayload(query.getCustomPayload());
    }

    /**
     * Parses. Warnings of the parser are kept for the execution.
     *
     * @throws RequestValidationException when the text is wrong
     */
    static ParsedQuery parse(QueryMessage query, ClientState client)
    {
        ClientWarn.instance.captureWarnings();
        try
        {
            CQLStatement statement = ClientState.getCQLQueryHandler().parse(query.query, new QueryState(client), query.options);
            return new ParsedQuery(query, statement, ClientWarn.instance.getWarnings());
        }
        finally
        {
            ClientWarn.instance.resetWarnings();
        }
    }

    @Override
    protected Message.Response execute(QueryState state, Dispatcher.RequestTime requestTime, boolean traceRequest)
    {
        if (traceRequest)
            return super.execute(state, requestTime, true);
        if (parseWarnings != null)
            parseWarnings.forEach(ClientWarn.instance::warn);
        try
        {
            if (options.getPageSize() == 0)
                throw new ProtocolException("The page size cannot be 0");
            long queryStartTime = currentTimeMillis();
            QueryHandler handler = ClientState.getCQLQueryHandler();
            Message.Response response = handler.process(statement, state, options, getCustomPayload(), requestTime);
            QueryEvents.instance.notifyQuerySuccess(statement, query, options, state, queryStartTime, response);
            if (options.skipMetadata() && response instanceof ResultMessage.Rows rows)
                rows.result.metadata.setSkipMetadata();
            return response;
        }
        catch (RuntimeException e)
        {
            QueryEvents.instance.notifyQueryFailure(statement, query, options, state, e);
            JVMStabilityInspector.inspectThrowable(e);
            if (!(e instanceof RequestValidationException || e instanceof RequestExecutionException))
                LOGGER.error("Unexpected error during query", e);
            return ReleaseBridge.failure(e);
        }
    }
}

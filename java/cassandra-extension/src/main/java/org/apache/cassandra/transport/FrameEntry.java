package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.util.EnumSet;
import java.util.List;
import java.util.function.Supplier;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryHandler;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.cql3.statements.SelectStatement;
import org.apache.cassandra.exceptions.InvalidRequestException;
import org.apache.cassandra.exceptions.OverloadedException;
import org.apache.cassandra.exceptions.RequestValidationException;
import org.apache.cassandra.metrics.ClientMetrics;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.transport.Envelope.Header.Flag;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.OptionsMessage;
import org.apache.cassandra.transport.messages.QueryMessage;
import org.apache.cassandra.utils.JVMStabilityInspector;
import org.apache.cassandra.utils.MonotonicClock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import shunt.cassandra.transport.AggregateMetrics;
import shunt.cassandra.transport.Classifier;
import shunt.cassandra.transport.Classifier.Place;
import shunt.cassandra.transport.FramePool;
import shunt.cassandra.transport.FrameTime;
import shunt.cassandra.transport.InlineStages;
import shunt.cassandra.transport.OutboundBatch;
import shunt.cassandra.transport.PeerTraffic;

/** One query of a frame. Whatever goes wrong with it is its own answer. */
final class FrameEntry implements FramePool.Piece, DeferredQuery.Asker
{
    private static final EnumSet<Message.Type> ALLOWED =
        EnumSet.of(Message.Type.QUERY, Message.Type.EXECUTE, Message.Type.PREPARE, Message.Type.BATCH, Message.Type.OPTIONS);

    private static final Logger LOGGER = LoggerFactory.getLogger(FrameEntry.class);

    final int index;
    private final FrameWork work;
    private final AggregateClient client;
    private final int stream;
    private final int clientId;
    private final int versionByte;
    private final int flags;
    private final int opcode;
    /**
     * What the request was decoded from, with a reference that is held until it is executed: parts of a request (its
     * paging state) read from there.
     */
    private ByteBuf body;
    private ProtocolVersion version = ProtocolVersion.V4;
    private Message.Response response;
    private Message.Request handOver;
    private DeferredQuery deferred;
    private volatile int kind = FrameTime.WRITE;
    /** Of the execution here; 0 without one. */
    private long tookNanos;
    private final boolean readsElsewhere;
    private final boolean writesElsewhere;
    private final boolean readsAreLong;
    private boolean batched = true;

    FrameEntry(FrameWork work, int index, int at)
    {
        this.work = work;
        this.index = index;
        AggregateFrame frame = work.frame;
        client = frame.clients[index];
        stream = frame.streamAt(at);
        clientId = frame.clientIdAt(at);
        versionByte = frame.versionAt(at);
        flags = frame.flagsAt(at);
        opcode = frame.opcodeAt(at);
        body = frame.bodyAt(at).retain();
        readsElsewhere = work.time.isOver(FrameTime.READ);
        writesElsewhere = work.time.isOver(FrameTime.WRITE);
        readsAreLong = work.time.areLong(FrameTime.READ);
    }

    @Override
    public void execute()
    {
        try
        {
            Message.Request request = decode();
            if (request == null)
                return;
            if (request.isTracingRequested())
                handOver = request;
            else
                executeOrHandOver(request);
        }
        catch (Throwable t)
        {
            JVMStabilityInspector.inspectThrowable(t);
            response = ReleaseBridge.failure(t, ExceptionHandlers.getUnexpectedExceptionHandler(work.link.connection.channel(), true));
        }
        finally
        {
            if (handOver == null)
                body.release();
        }
    }

    /** The request; null when it is refused, and then there is a response. */
    private Message.Request decode()
    {
        try
        {
            version = ProtocolVersion.decode(versionByte, DatabaseDescriptor.getNativeTransportAllowOlderProtocols());
            if (version.isBeta())
            {
                ProtocolVersion beta = version;
                version = ProtocolVersion.V4;
                throw new ProtocolException("Aggregated frames take versions 3 to 5, not " + beta);
            }
            if (index >= work.frame.refusedFrom)
                response = work.frame.refusal;
            else if (client == null)
                throw tooManyClients();
            else
                return message();
            return null;
        }
        catch (ProtocolException | IndexOutOfBoundsException | IOException e)
        {
            ProtocolException error = e instanceof ProtocolException protocol
                                      ? protocol
                                      : new ProtocolException("Cannot read the body of this query: " + e.getMessage());
            ProtocolErrorLog.query(work.link.connection.channel().remoteAddress(), error.getMessage());
            response = ReleaseBridge.refusal(error);
            return null;
        }
    }

    private OverloadedException tooManyClients()
    {
        AggregateContext context = work.link.context;
        context.metrics().refusedQueries.mark();
        return new OverloadedException(String.format("More than %d clients on one connection or %d in all (clients_max and clients_total_max of the Shunt extension)",
                                                     context.settings().clientsMax(), context.settings().clientsTotalMax()));
    }

    private Message.Request message() throws IOException
    {
        Message.Type type = Message.Type.fromOpcode(opcode, Message.Direction.REQUEST);
        if (!ALLOWED.contains(type))
            throw new ProtocolException(type + " cannot be sent in an aggregated frame");
        int size = body.readableBytes();
        if (size > AggregateContext.queryBytesMax())
            throw new InvalidRequestException(String.format("Request is too big: length %d exceeds maximum allowed length %d.",
                                                            size, AggregateContext.queryBytesMax()));
        Envelope envelope = Envelope.create(type, stream, version, Flag.deserialize(flags), body);
        if (!envelope.header.flags.contains(Flag.COMPRESSED) || version.isGreaterOrEqualTo(ProtocolVersion.V5))
            return message(envelope);
        Compressor compressor = work.link.connection.getCompressor();
        if (compressor == null)
            throw new ProtocolException("The query is compressed, and the connection's STARTUP agreed on no compression");
        // In a buffer of its own, since not every failing compressor gives its input back.
        ByteBuf packed = Unpooled.wrappedBuffer(ByteBufUtil.getBytes(body));
        Envelope plain = compressor.decompress(envelope.with(packed));
        body.release();
        body = plain.body;
        return message(plain);
    }

    private Message.Request message(Envelope envelope)
    {
        ServerConnection state = client.connection(version);
        Message.Request request = (Message.Request) Message.Decoder.decodeMessage(state.channel(), envelope);
        request.attach(state);
        return request;
    }

    private void executeOrHandOver(Message.Request request)
    {
        ClientState state = client.connection(version).getClientState();
        Message.Request known = request;
        Place place = request instanceof OptionsMessage ? Place.INLINE : Place.HANDED_OVER;
        boolean isRead = false;
        DeferredQuery candidate = null;
        if (request instanceof ExecuteMessage execute)
        {
            // One that is not known here is refused at once.
            QueryHandler.Prepared prepared = ClientState.getCQLQueryHandler().getPrepared(execute.statementId);
            place = prepared == null ? Place.INLINE : place(prepared.statement, execute.options, state);
            isRead = prepared != null && prepared.statement instanceof SelectStatement;
            if (prepared != null && (place == Place.HANDED_OVER || place == Place.INLINE_AND_REMOTE))
                candidate = deferred(execute, prepared, state);
        }
        else if (request instanceof QueryMessage query)
        {
            try
            {
                ParsedQuery parsed = ParsedQuery.parse(query, state);
                known = parsed;
                place = place(parsed.statement, query.options, state);
                isRead = parsed.statement instanceof SelectStatement;
            }
            catch (RequestValidationException e)
            {
                // It fails again when it is executed, and is answered and logged from there.
                place = Place.INLINE;
            }
        }
        // A read here has neither the coordinator's timeout nor its speculation, which a disk that hangs needs.
        boolean elsewhere = (isRead ? readsElsewhere : writesElsewhere) || work.link.context.pool().isCongested();
        if (elsewhere && !(request instanceof OptionsMessage))
            handOver = known;
        else if (candidate != null)
            begin(candidate, isRead);
        else if (place == Place.HANDED_OVER)
            handOver = known;
        else
            execute(known, place, isRead);
    }

    /** The query as one that no thread waits for, if it can be; else null. */
    private DeferredQuery deferred(ExecuteMessage execute, QueryHandler.Prepared prepared, ClientState client)
    {
        PeerTraffic traffic = traffic();
        try
        {
            if (traffic.defersWrites() && DeferredWrite.fits(prepared, execute, client))
                return new DeferredWrite(execute, prepared, this);
            if (traffic.defersReads() && DeferredRead.fits(prepared, execute, client))
                return new DeferredRead(execute, prepared, this);
        }
        catch (RuntimeException e)
        {
            // Its values are wrong; it fails for the same reason when it is executed.
        }
        return null;
    }

    private void begin(DeferredQuery query, boolean isRead)
    {
        // Cassandra asks the others before it reads itself, so that they do not wait for its disk.
        if (isRead && readsAreLong && work.batch != null)
        {
            batched = false;
            work.batch.flush();
        }
        execute(query, Place.DEFERRED, isRead);
        if (query.isBegun())
            deferred = query;
    }

    @Override
    public PeerTraffic traffic()
    {
        return work.link.context.traffic();
    }

    private static Place place(CQLStatement statement, QueryOptions options, ClientState state)
    {
        try
        {
            return Classifier.of(statement, options, state);
        }
        catch (RuntimeException e)
        {
            // Its values are wrong; it fails for the same reason when it is executed.
            return Place.INLINE;
        }
    }

    private void execute(Message.Request request, Place place, boolean isRead)
    {
        kind = isRead ? FrameTime.READ : FrameTime.WRITE;
        AggregateMetrics metrics = work.link.context.metrics();
        (place == Place.DEFERRED ? metrics.deferred : metrics.inline).mark();
        ClientMetrics.instance.markRequestDispatched();
        long now = MonotonicClock.Global.preciseTime.now();
        // Something is slow, perhaps the commit log; then the other replicas hear of the write first. A deferred write does not wait
        // for the log either, where writes do.
        boolean stalls = work.link.context.pool().slow() > 0;
        if (place == Place.INLINE_AND_REMOTE && stalls || place == Place.DEFERRED && (stalls || Classifier.isLogWaitedFor()))
            InlineStages.enterWithoutWrites();
        else
            InlineStages.enter();
        // It may wait, for another node or the disk, and what its neighbours have sent should not.
        if (work.batch != null && place != Place.DEFERRED)
            work.batch.flush();
        try
        {
            response = Dispatcher.processRequest(request.connection().channel(), request, work.frame.overload,
                                             new Dispatcher.RequestTime(work.frame.arrivedNanos, now));
        }
        finally
        {
            InlineStages.leave();
        }
        tookNanos = MonotonicClock.Global.preciseTime.now() - now;
    }

    @Override
    public void deliver()
    {
        if (handOver != null)
        {
            work.handOver(this, handOver);
            return;
        }
        if (tookNanos > 0)
            work.time.add(kind, tookNanos);
        if (work.batch != null)
            work.batch.flushIfDue();
        if (deferred != null)
        {
            response = deferred.turn();
            if (response == null)
            {
                work.awaits(deferred);
                return;
            }
        }
        work.append(this, response);
    }

    @Override
    public void deliverLate()
    {
        if (work.batch != null)
            work.batch.close();
        if (handOver != null)
            work.handOver(this, handOver);
        else if (deferred == null)
            answerLate(response);
        else
            deliverDeferredLate();
    }

    private void deliverDeferredLate()
    {
        Message.Response answer = deferred.turn();
        if (answer == null)
            work.link.context.overdue().add(List.of(deferred.slot));
        else
            answerLate(answer);
    }

    @Override
    public OutboundBatch batch()
    {
        return batched ? work.batch : null;
    }

    /** Of {@link FrameTime}; from any thread. */
    int kind()
    {
        return kind;
    }

    @Override
    public void answerElsewhere(Message.Response answer)
    {
        answerOrFail(() -> answer);
    }

    @Override
    public void answerDeferred(Message.Response answer)
    {
        work.link.answeredLate(work.frame, this, answer);
    }

    @Override
    public void failLate(Throwable why)
    {
        work.link.giveUpLate(work.frame);
        JVMStabilityInspector.inspectThrowable(why);
    }

    /**
     * The answer to a query that was handed over. Never throws: whatever becomes of the answer, the frame gets to know that the
     * query is done with, for its bytes count against everybody's until then.
     */
    void answerHandedOver(Supplier<Message.Response> answer)
    {
        answerOrFail(() ->
        {
            try
            {
                return answer.get();
            }
            finally
            {
                body.release();
            }
        });
    }

    private void answerOrFail(Supplier<Message.Response> answer)
    {
        try
        {
            answerLate(answer.get());
        }
        catch (Throwable t)
        {
            LOGGER.error("A query of an aggregated frame could not be answered, and its connection is closed", t);
            failLate(t);
        }
    }

    /** Sends an answer that the frame does not wait for. */
    private void answerLate(Message.Response answer)
    {
        ByteBuf out = CBUtil.allocator.buffer();
        boolean encoded = false;
        try
        {
            encode(out, answer);
            encoded = true;
        }
        finally
        {
            if (!encoded)
                out.release();
        }
        work.link.answeredLate(work.frame, out);
    }

    /** Appends the answer as an entry. */
    void encode(ByteBuf out, Message.Response answer)
    {
        AnswerEncoder.append(out, stream, clientId, version, answer, work.link.connection.getCompressor());
    }
}

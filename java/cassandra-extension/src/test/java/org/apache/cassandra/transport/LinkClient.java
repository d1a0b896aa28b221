package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.cassandra.cql3.QueryOptions;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.service.pager.PagingState;
import org.apache.cassandra.transport.messages.AuthResponse;
import org.apache.cassandra.transport.messages.ErrorMessage;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.PrepareMessage;
import org.apache.cassandra.transport.messages.QueryMessage;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.apache.cassandra.transport.messages.StartupMessage;
import org.apache.cassandra.transport.messages.SupportedMessage;
import org.apache.cassandra.utils.MD5Digest;
import shunt.cassandra.transport.CassandraProcess;
import shunt.cassandra.transport.FrameLayout;

/** A connection as a proxy makes it, over a plain socket, so that it can also do what no proxy should. */
public final class LinkClient implements AutoCloseable
{
    /** An answer: of an entry, or of an ordinary envelope (then the client is 0). */
    public record Answer(int stream, int client, int version, int flags, int opcode, byte[] body, int frame)
    {
        public Message.Response message()
        {
            ByteBuf in = Unpooled.wrappedBuffer(body);
            Message.Type type = Message.Type.fromOpcode(opcode, Message.Direction.RESPONSE);
            Envelope envelope = Envelope.create(type, stream, ProtocolVersion.decode(version, true),
                                                Envelope.Header.Flag.deserialize(flags), in);
            return (Message.Response) Message.Decoder.decodeMessage(null, envelope);
        }

        public String error()
        {
            return message() instanceof ErrorMessage error ? error.error.getMessage() : null;
        }

        public int code()
        {
            return message() instanceof ErrorMessage error ? error.error.code().value : -1;
        }

        public List<String> warnings()
        {
            return message().getWarnings();
        }

        /** The first column of all rows, as text. */
        public List<String> texts()
        {
            List<String> texts = new ArrayList<>();
            for (List<ByteBuffer> row : ((ResultMessage.Rows) message()).result.rows)
                texts.add(row.get(0) == null ? null : StandardCharsets.UTF_8.decode(row.get(0).duplicate()).toString());
            return texts;
        }
    }

    /** Only what never comes takes so long. */
    private static final int PATIENCE_MS = 180_000;

    private final Socket socket;
    private final DataInputStream in;
    private final OutputStream out;
    private final ByteArrayOutputStream entries = new ByteArrayOutputStream();
    private int count;
    private int frames;

    public LinkClient(Socket socket) throws IOException
    {
        this.socket = socket;
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(PATIENCE_MS);
        in = new DataInputStream(socket.getInputStream());
        out = socket.getOutputStream();
    }

    /** To the second port, not logged in. */
    public static LinkClient connect() throws IOException
    {
        return new LinkClient(new Socket(CassandraProcess.HOST, CassandraProcess.shared().port));
    }

    /** To the second port, as a user. */
    public static LinkClient login(String user, String password, String... startup) throws IOException
    {
        return connect().authenticate(4, user, password, startup);
    }

    public static LinkClient superuser(String... startup) throws IOException
    {
        return login("cassandra", "cassandra", startup);
    }

    public LinkClient authenticate(int version, String user, String password, String... startup) throws IOException
    {
        Map<String, String> options = new HashMap<>(Map.of(StartupMessage.CQL_VERSION, "3.0.0"));
        for (int i = 0; i < startup.length; i += 2)
            options.put(startup[i], startup[i + 1]);
        Answer answer = ask(version, new StartupMessage(options));
        if (answer.opcode != Message.Type.AUTHENTICATE.opcode)
            throw new IOException("STARTUP: " + answer);
        answer = ask(version, new AuthResponse(("\0" + user + "\0" + password).getBytes(StandardCharsets.UTF_8)));
        if (answer.opcode != Message.Type.AUTH_SUCCESS.opcode)
            throw new IOException("login: " + answer.error());
        return this;
    }

    public Map<String, List<String>> supported() throws IOException
    {
        byte[] header = {4, 0, 0, 1, 5, 0, 0, 0, 0};
        send(header);
        return ((SupportedMessage) read().message()).supported;
    }

    /** An ordinary request and its answer; the connection's first must not be compressed. */
    public Answer ask(int version, Message.Request request) throws IOException
    {
        send(1, version, request);
        return read();
    }

    /** An ordinary request, whose answer is not waited for. */
    public LinkClient send(int stream, int version, Message.Request request) throws IOException
    {
        Envelope envelope = request.encode(ProtocolVersion.decode(version, true), stream);
        ByteBuf header = envelope.encodeHeader();
        byte[] bytes = new byte[header.readableBytes() + envelope.body.readableBytes()];
        int size = header.readableBytes();
        header.readBytes(bytes, 0, size);
        envelope.body.readBytes(bytes, size, bytes.length - size);
        header.release();
        envelope.release();
        send(bytes);
        return this;
    }

    public Answer ask(String query) throws IOException
    {
        return ask(4, query(query));
    }

    public static Message.Request query(String text, ByteBuffer... values)
    {
        return new QueryMessage(text, QueryOptions.forInternalCalls(ConsistencyLevel.ONE, List.of(values)));
    }

    public static Message.Request page(String text, PagingState from, int rows)
    {
        return new QueryMessage(text, QueryOptions.create(ConsistencyLevel.ONE, List.of(), false, rows, from, null,
                                                          ProtocolVersion.V4, null));
    }

    public static Message.Request prepare(String text)
    {
        return new PrepareMessage(text, null);
    }

    public static Message.Request execute(ResultMessage.Prepared prepared, ByteBuffer... values)
    {
        MD5Digest metadata = prepared.resultMetadataId == null ? MD5Digest.compute("") : prepared.resultMetadataId;
        return new ExecuteMessage(prepared.statementId, metadata, QueryOptions.forInternalCalls(ConsistencyLevel.ONE, List.of(values)));
    }

    /** Adds an entry to the next frame. */
    public LinkClient add(int stream, int client, int version, Message.Request request)
    {
        Envelope envelope = request.encode(ProtocolVersion.decode(version, true), stream);
        byte[] body = new byte[envelope.body.readableBytes()];
        envelope.body.readBytes(body);
        envelope.release();
        return add(stream, client, version, Envelope.Header.Flag.serialize(envelope.header.flags), request.type.opcode, body);
    }

    public LinkClient add(int stream, int client, String query)
    {
        return add(stream, client, 4, query(query));
    }

    public LinkClient gone(int client)
    {
        return add(0, client, 4, 0, FrameLayout.CLIENT_GONE, new byte[0]);
    }

    public LinkClient add(int stream, int client, int version, int flags, int opcode, byte[] body)
    {
        ByteBuffer entry = ByteBuffer.allocate(13 + body.length);
        entry.putShort((short) stream).putInt(client).put((byte) version).put((byte) flags).put((byte) opcode);
        entry.putInt(body.length).put(body);
        entries.writeBytes(entry.array());
        count++;
        return this;
    }

    /** The bytes of the frame that was put together. */
    public byte[] frame()
    {
        byte[] body = entries.toByteArray();
        ByteBuffer frame = ByteBuffer.allocate(13 + body.length);
        frame.put((byte) 4).put((byte) 0).putShort((short) 0).put((byte) FrameLayout.OPCODE);
        frame.putInt(4 + body.length).putInt(count).put(body);
        entries.reset();
        count = 0;
        return frame.array();
    }

    /** Sends the frame that was put together. */
    public LinkClient sendFrame() throws IOException
    {
        send(frame());
        return this;
    }

    /** Sends the frame and waits for this number of answers; in any frames and any order, by stream. */
    public Map<Integer, Answer> answers(int expected) throws IOException
    {
        sendFrame();
        return collect(expected);
    }

    public Map<Integer, Answer> collect(int expected) throws IOException
    {
        Map<Integer, Answer> answers = new HashMap<>();
        while (answers.size() < expected)
        {
            for (Answer answer : readFrame())
            {
                if (answers.put(answer.stream, answer) != null)
                    throw new IOException("two answers for stream " + answer.stream);
            }
        }
        return answers;
    }

    /** The one answer to the one entry. */
    public Answer answer(int client, String query) throws IOException
    {
        return add(7, client, query).answers(1).get(7);
    }

    public void send(byte[] bytes) throws IOException
    {
        out.write(bytes);
        out.flush();
    }

    /** An ordinary envelope. */
    public Answer read() throws IOException
    {
        int version = in.readUnsignedByte();
        int flags = in.readUnsignedByte();
        int stream = in.readShort();
        int opcode = in.readUnsignedByte();
        byte[] body = new byte[in.readInt()];
        in.readFully(body);
        if ((version & 0x80) == 0)
            throw new IOException("a request where an answer should be");
        return new Answer(stream, 0, version & 0x7F, flags, opcode, body, 0);
    }

    /** Ordinary answers, in any order, by stream. */
    public Map<Integer, Answer> read(int expected) throws IOException
    {
        Map<Integer, Answer> answers = new HashMap<>();
        while (answers.size() < expected)
        {
            Answer answer = read();
            if (answers.put(answer.stream, answer) != null)
                throw new IOException("two answers for stream " + answer.stream);
        }
        return answers;
    }

    /** A frame of answers. */
    public List<Answer> readFrame() throws IOException
    {
        Answer frame = read();
        if (frame.opcode != FrameLayout.OPCODE || frame.version != 4 || frame.flags != 0)
            throw new IOException("not a frame but " + frame + " " + (frame.opcode == 0 ? frame.error() : ""));
        frames++;
        ByteBuffer body = ByteBuffer.wrap(frame.body);
        List<Answer> answers = new ArrayList<>();
        for (int left = body.getInt(); left > 0; left--)
        {
            int stream = body.getShort();
            int client = body.getInt();
            int version = body.get();
            int flags = body.get();
            int opcode = body.get();
            byte[] of = new byte[body.getInt()];
            body.get(of);
            answers.add(new Answer(stream, client, version, flags, opcode, of, frames));
        }
        if (body.hasRemaining())
            throw new IOException(body.remaining() + " bytes follow the entries");
        return answers;
    }

    /** Whether the node has closed the connection already. */
    public boolean isClosedNow()
    {
        try
        {
            int before = socket.getSoTimeout();
            socket.setSoTimeout(1);
            boolean closed = isClosed();
            socket.setSoTimeout(before);
            return closed;
        }
        catch (IOException e)
        {
            return true;
        }
    }

    /** Whether the node has closed the connection, waiting for it. */
    public boolean isClosed()
    {
        try
        {
            return in.read() < 0;
        }
        catch (java.net.SocketTimeoutException e)
        {
            return false;
        }
        catch (IOException e)
        {
            return true;
        }
    }

    @Override
    public void close() throws IOException
    {
        socket.close();
    }
}

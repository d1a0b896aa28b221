package shunt.cassandra.transport;

import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import net.jpountz.lz4.LZ4Factory;
import org.apache.cassandra.transport.LinkClient;

/** Logs in with compression by hand: requests stay plain, which is allowed, and answers come compressed. */
final class CompressedLink
{
    private final LinkClient link;

    CompressedLink() throws IOException
    {
        this(CassandraProcess.shared());
    }

    CompressedLink(CassandraProcess node) throws IOException
    {
        link = new LinkClient(new Socket(CassandraProcess.HOST, node.port));
        ByteBuffer startup = ByteBuffer.allocate(200).putShort((short) 2);
        put(startup, "CQL_VERSION");
        put(startup, "3.0.0");
        put(startup, "COMPRESSION");
        put(startup, "lz4");
        send(1, startup);
        link.read();
        byte[] token = "\0cassandra\0cassandra".getBytes(StandardCharsets.UTF_8);
        send(0x0F, ByteBuffer.allocate(100).putInt(token.length).put(token));
        if (link.read().opcode() != 0x10)
            throw new IOException("not logged in");
    }

    LinkClient link()
    {
        return link;
    }

    private void send(int opcode, ByteBuffer body) throws IOException
    {
        body.flip();
        ByteBuffer message = ByteBuffer.allocate(9 + body.remaining());
        message.put((byte) 4).put((byte) 0).putShort((short) 1).put((byte) opcode).putInt(body.remaining()).put(body);
        link.send(message.array());
    }

    private static void put(ByteBuffer out, String text)
    {
        out.putShort((short) text.length()).put(text.getBytes(StandardCharsets.UTF_8));
    }

    static byte[] compress(byte[] plain)
    {
        byte[] packed = LZ4Factory.safeInstance().fastCompressor().compress(plain);
        return ByteBuffer.allocate(4 + packed.length).putInt(plain.length).put(packed).array();
    }

    static byte[] decompress(byte[] body)
    {
        ByteBuffer in = ByteBuffer.wrap(body);
        byte[] plain = new byte[in.getInt()];
        LZ4Factory.safeInstance().fastDecompressor().decompress(body, 4, plain, 0, plain.length);
        return plain;
    }
}

package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.cassandra.transport.LinkClient;
import org.apache.cassandra.transport.LinkClient.Answer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Frames that are not sound, and peers that go away. */
class BadFramesTest
{
    private static final int PROTOCOL_ERROR = 0x0A;
    private static final String QUERY = "SELECT cluster_name FROM system.local WHERE key = 'local'";

    private static byte[] sound(int count)
    {
        try (LinkClient link = LinkClient.connect())
        {
            for (int stream = 0; stream < count; stream++)
                link.add(stream, 1, QUERY);
            return link.frame();
        }
        catch (IOException e)
        {
            throw new IllegalStateException(e);
        }
    }

    private static byte[] with(byte[] frame, int at, int value)
    {
        byte[] changed = frame.clone();
        changed[at] = (byte) value;
        return changed;
    }

    private static byte[] longer(byte[] frame)
    {
        byte[] longer = Arrays.copyOf(frame, frame.length + 3);
        ByteBuffer.wrap(longer).putInt(5, longer.length - 9);
        return longer;
    }

    static Stream<Arguments> badFrames()
    {
        byte[] sound = sound(2);
        int entry = 13 + QUERY.length() + 4 + 3;
        return Stream.of(
            Arguments.of("version", with(sound, 0, 5), "Aggregated frame: its header has version 0x05, not 0x04"),
            Arguments.of("answer", with(sound, 0, 0x84), "Aggregated frame: its header has version 0x84, not 0x04"),
            Arguments.of("flags", with(sound, 1, 1), "Aggregated frame: its header has flags 0x01, not 0"),
            Arguments.of("no count", new byte[] {4, 0, 0, 0, 0x64, 0, 0, 0, 3}, "Aggregated frame: its length is 3"),
            Arguments.of("negative length", new byte[] {4, 0, 0, 0, 0x64, -1, 0, 0, 3}, "Aggregated frame: its length is -16777213"),
            Arguments.of("more than there are", with(sound, 12, 3), "Aggregated frame: entry 3 of 3 begins 0 bytes before"),
            Arguments.of("fewer than there are", with(sound, 12, 1), "Aggregated frame: " + entry + " bytes follow its 1 entries"),
            Arguments.of("trailing bytes", longer(sound), "Aggregated frame: 3 bytes follow its 2 entries"),
            Arguments.of("count", with(sound, 9, 1), "Aggregated frame: count is 16777218, and may be from 0 to 64"),
            Arguments.of("one too many", sound(65), "Aggregated frame: count is 65, and may be from 0 to 64"),
            Arguments.of("client", with(sound, 13 + 5, 0), "Aggregated frame: entry 1 of 2 has client_id 0"),
            Arguments.of("entry's length", with(sound, 13 + 9, 1), "Aggregated frame: entry 1 of 2 has a length of 167772"),
            Arguments.of("too many bytes", with(with(Arrays.copyOf(sound, 70_000), 5, 0), 6, 2),
                         "Aggregated frame: 131230 bytes with a count of 2 are more than 65536"));
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("badFrames")
    void closesTheConnectionAndSaysWhy(String what, byte[] frame, String why) throws IOException
    {
        // What other tests sent before they closed theirs counts until the node has heard of the end.
        CassandraProcess.shared().awaitNoConnections();
        long refused = CassandraProcess.shared().metric("RefusedFrames", "Count");
        try (LinkClient link = LinkClient.superuser())
        {
            ByteBuffer.wrap(frame).putShort(2, (short) 17);
            link.send(frame);
            Answer answer = link.read();
            assertEquals(PROTOCOL_ERROR, answer.code());
            assertEquals(17, answer.stream());
            assertTrue(answer.error().startsWith(why), answer::error);
            assertTrue(link.isClosed());
        }
        assertEquals(refused + 1, CassandraProcess.shared().metric("RefusedFrames", "Count"));
    }

    @Test
    void beforeTheLoginNoFrameIsTaken() throws IOException
    {
        try (LinkClient link = LinkClient.connect())
        {
            link.send(sound(1));
            // So early Cassandra's own decoder is in place.
            assertEquals("Unknown opcode 100", link.read().error());
        }
        try (LinkClient link = LinkClient.connect())
        {
            ByteBuffer startup = ByteBuffer.allocate(9 + 22).put(new byte[] {4, 0, 0, 1, 1, 0, 0, 0, 22}).putShort((short) 1);
            startup.putShort((short) 11).put("CQL_VERSION".getBytes(StandardCharsets.UTF_8)).putShort((short) 5);
            link.send(startup.put("3.0.0".getBytes(StandardCharsets.UTF_8)).array());
            assertEquals(0x03, link.read().opcode());
            link.send(sound(1));
            assertEquals("Aggregated frame: the connection has not logged in", link.read().error());
            assertTrue(link.isClosed());
        }
    }

    @Test
    void aFrameMayComeInPieces() throws IOException, InterruptedException
    {
        try (LinkClient link = LinkClient.superuser())
        {
            for (byte octet : sound(1))
                link.send(new byte[] {octet});
            assertEquals(List.of("extension"), link.collect(1).get(0).texts());
        }
    }

    @Test
    void aPeerThatGoesAwayIsForgotten() throws IOException
    {
        CassandraProcess node = CassandraProcess.shared();
        byte[] frame = sound(20);
        for (int round = 0; round < 20; round++)
        {
            try (LinkClient link = LinkClient.superuser())
            {
                link.send(frame);
                link.send(frame);
                link.send(Arrays.copyOf(frame, frame.length * round / 20));
            }
        }
        CassandraProcess.await("no link is left", () -> node.metric("Links", "Count") == 0);
        CassandraProcess.await("no client is left", () -> node.metric("Clients", "Value") == 0);
        CassandraProcess.await("all bytes are given back", () -> node.metric("Client", "RequestsSize", "Value") == 0);
        CassandraProcess.await("no frame waits", () -> node.metric("WaitingFrames", "Value") == 0);
    }

    /** Whatever is sent: the node answers or closes, and goes on for others. */
    @Test
    void damagedFramesHurtNobodyElse() throws IOException
    {
        Random random = new Random(5);
        byte[] sound = sound(5);
        for (int round = 0; round < 100; round++)
        {
            byte[] damaged = sound.clone();
            for (int change = random.nextInt(3); change >= 0; change--)
                damaged[4 + random.nextInt(damaged.length - 4)] = (byte) random.nextInt();
            try (LinkClient link = LinkClient.superuser())
            {
                link.send(damaged);
            }
        }
        try (LinkClient link = LinkClient.superuser())
        {
            assertEquals(List.of("extension"), link.answer(1, QUERY).texts());
        }
    }
}

package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.transport.messages.ResultMessage;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import shunt.cassandra.transport.FrameLayout;

/**
 * Frames as the version that began their layout laid them out: the same files, with the same values, that {@code
 * crates/wire/tests/formats.rs} has for the proxy.
 */
class FrameFixturesTest
{
    private static final Path FIXTURES = Path.of("../../crates/wire/tests/fixtures/aggregate-1");
    private static final String CHANGED = "the layout has changed, and proxies have another version than the jars of their nodes: "
                                          + "raise its version (VERSION in FrameLayout.java, LAYOUT in crates/wire/src/aggregate/offer.rs), "
                                          + "keep this fixture, add one of the new version; see \"Changing a format\" in CONTRIBUTING.md";

    /** The fields of an entry, its body in hexadecimal digits. */
    private record Fields(int stream, int clientId, int version, int flags, int opcode, String body)
    {
    }

    @BeforeAll
    static void metrics()
    {
        DatabaseDescriptor.clientInitialization(false);
    }

    private static byte[] fixture(String name) throws IOException
    {
        return Files.readAllBytes(FIXTURES.resolve(name));
    }

    @Test
    void queriesOfAProxyAreRead() throws IOException
    {
        ByteBuf bytes = Unpooled.wrappedBuffer(fixture("queries"));
        assertEquals(FrameLayout.HEADER_VERSION, bytes.getByte(0), CHANGED);
        assertEquals(0, bytes.getByte(1), CHANGED);
        assertEquals(FrameLayout.OPCODE, bytes.getByte(4), CHANGED);
        ByteBuf body = bytes.skipBytes(FrameLayout.HEADER_BYTES).slice();
        assertEquals(body.readableBytes(), bytes.getInt(5), CHANGED);
        AggregateFrame frame = new AggregateFrame(body, FrameLayout.check(body, 100));
        List<Fields> read = new ArrayList<>();
        int at = frame.firstEntry();
        for (int entry = 0; entry < frame.count; entry++, at = frame.entryAfter(at))
            read.add(new Fields(frame.streamAt(at), frame.clientIdAt(at), frame.versionAt(at), frame.flagsAt(at),
                                frame.opcodeAt(at), ByteBufUtil.hexDump(frame.bodyAt(at))));
        String query = "0000000853454c4543542031" + "000100000000";
        assertEquals(List.of(new Fields(1, 9, 4, 0, 0x0A, "07".repeat(30)),
                             new Fields(-7, -2, 5, 2, 0x07, query),
                             new Fields(0, 9, 4, 0, FrameLayout.CLIENT_GONE, ""),
                             new Fields(32_767, 10, 3, 0, 0x0D, "000000000100"),
                             new Fields(2, 10, 4, 1, 0x09, "")), read, CHANGED);
    }

    @Test
    void answersAreWrittenAsProxiesReadThem() throws IOException
    {
        ByteBuf out = Unpooled.buffer();
        FrameLayout.reserveHeader(out);
        ResultMessage.Void slow = new ResultMessage.Void();
        slow.setWarnings(List.of("slow"));
        AnswerEncoder.append(out, 1, 9, ProtocolVersion.V4, new ResultMessage.Void(), null);
        AnswerEncoder.append(out, -7, -2, ProtocolVersion.V3, new ResultMessage.SetKeyspace("ks"), null);
        AnswerEncoder.append(out, 32_767, 10, ProtocolVersion.V5, slow, null);
        FrameLayout.completeHeader(out, 3);
        assertArrayEquals(fixture("answers"), ByteBufUtil.getBytes(out), CHANGED);
    }

    @Test
    void theOfferIsTheOneThatProxiesKnow() throws IOException
    {
        String offer = new String(fixture("offer"), StandardCharsets.UTF_8);
        assertEquals(offer, String.join("\n", FrameLayout.offer(64, 65_536, 9142)) + "\n", CHANGED);
    }
}

package shunt.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.util.Random;
import org.apache.cassandra.transport.ProtocolException;
import org.junit.jupiter.api.Test;

class FrameLayoutTest
{
    private static final int COUNT_MAX = 100;

    private static ByteBuf frame(int... bodyLengths)
    {
        ByteBuf body = Unpooled.buffer().writeInt(bodyLengths.length);
        for (int length : bodyLengths)
            body.writeShort(7).writeInt(3).writeByte(5).writeByte(0).writeByte(7).writeInt(length).writeZero(length);
        return body;
    }

    private static String refusal(ByteBuf body)
    {
        return assertThrows(ProtocolException.class, () -> FrameLayout.check(body, COUNT_MAX)).getMessage();
    }

    @Test
    void soundFramesAreCountedAndNotMoved()
    {
        ByteBuf body = frame(0, 10, 300);
        assertEquals(3, FrameLayout.check(body, COUNT_MAX));
        assertEquals(0, body.readerIndex());
        assertEquals(0, FrameLayout.check(frame(), COUNT_MAX));
    }

    @Test
    void errorsNameTheFault()
    {
        assertEquals("Aggregated frame: 3 bytes have no room for the count", refusal(Unpooled.buffer().writeZero(3)));
        assertEquals("Aggregated frame: count is 101, and may be from 0 to 100", refusal(frame(new int[101])));
        assertEquals("Aggregated frame: count is -1, and may be from 0 to 100", refusal(Unpooled.buffer().writeInt(-1)));
        assertEquals("Aggregated frame: entry 1 of 1 begins 2 bytes before the frame's end, its header has 13",
                     refusal(Unpooled.buffer().writeInt(1).writeZero(2)));
        assertEquals("Aggregated frame: entry 2 of 2 has client_id 0", refusal(frame(0, 4).setInt(4 + 13 + 2, 0)));
        assertEquals("Aggregated frame: entry 2 of 2 has a length of 5, and 4 bytes are left",
                     refusal(frame(0, 4).setInt(4 + 13 + 9, 5)));
        assertEquals("Aggregated frame: entry 1 of 1 has a length of -2, and 4 bytes are left", refusal(frame(4).setInt(4 + 9, -2)));
        assertEquals("Aggregated frame: 1 bytes follow its 1 entries", refusal(frame(4).writeByte(0)));
    }

    @Test
    void anAnswerHasAHeaderOfVersion4WithTheResponseBit()
    {
        ByteBuf out = Unpooled.buffer();
        FrameLayout.reserveHeader(out);
        out.writeBytes(new byte[] {1, 2, 3});
        FrameLayout.completeHeader(out, 1);
        assertArrayEquals(new byte[] {(byte) 0x84, 0, 0, 0, 0x64, 0, 0, 0, 7, 0, 0, 0, 1, 1, 2, 3}, ByteBufUtil.getBytes(out));
    }

    /** Random damage either goes unseen, and then every entry lies within the body, or is the protocol's own error. */
    @Test
    void damageIsFoundOrHarmless()
    {
        Random random = new Random(20);
        int refused = 0;
        for (int round = 0; round < 20_000; round++)
        {
            ByteBuf body = frame(random.nextInt(20), random.nextInt(3), random.nextInt(200));
            for (int change = random.nextInt(4); change >= 0; change--)
            {
                int at = random.nextInt(body.writerIndex());
                switch (random.nextInt(3))
                {
                    case 0 -> body.setByte(at, random.nextInt());
                    case 1 -> body.setByte(at, body.getByte(at) ^ 1 << random.nextInt(8));
                    default -> body.writerIndex(Math.max(1, at));
                }
            }
            try
            {
                int count = FrameLayout.check(body, COUNT_MAX);
                int end = 4;
                for (int entry = 0; entry < count; entry++)
                    end += 13 + body.getInt(end + 9);
                assertEquals(body.writerIndex(), end);
            }
            catch (ProtocolException e)
            {
                refused++;
            }
        }
        assertTrue(refused > 5_000, () -> "damage that was seen");
    }
}

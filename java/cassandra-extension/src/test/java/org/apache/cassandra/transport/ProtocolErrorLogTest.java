package org.apache.cassandra.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.utils.NoSpamLogger;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class ProtocolErrorLogTest
{
    @BeforeAll
    static void metrics()
    {
        ChannelPauseTest.metrics();
    }

    /** What Cassandra remembers of a logger's texts. */
    private static int remembered() throws ReflectiveOperationException
    {
        Field texts = NoSpamLogger.class.getDeclaredField("lastMessage");
        texts.setAccessible(true);
        NoSpamLogger logger = NoSpamLogger.getLogger(LoggerFactory.getLogger(ProtocolErrorLog.class), 1, TimeUnit.MINUTES);
        return ((Map<?, ?>) texts.get(logger)).size();
    }

    @Test
    void theMemoryOfErrorsDoesNotGrowWithThePeersInput() throws ReflectiveOperationException
    {
        InetSocketAddress peer = InetSocketAddress.createUnresolved("peer", 1);
        for (int length = 0; length < 100; length++)
        {
            ProtocolErrorLog.query(peer, "its length is " + length);
            ProtocolErrorLog.frame(peer, "its length is " + length);
        }
        assertEquals(2, remembered());
    }
}

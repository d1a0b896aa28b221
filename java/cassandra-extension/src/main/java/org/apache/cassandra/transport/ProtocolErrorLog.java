package org.apache.cassandra.transport;

import java.net.SocketAddress;
import java.util.concurrent.TimeUnit;
import org.apache.cassandra.metrics.ClientMetrics;
import org.apache.cassandra.utils.NoSpamLogger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Counts and logs what is wrong with what a peer has sent, at most once a minute for each kind. Cassandra's own
 * {@link ExceptionHandlers} keep the last time of each text for ever, and these texts have numbers in them that the peer chooses.
 */
final class ProtocolErrorLog
{
    private static final Logger LOGGER = LoggerFactory.getLogger(ProtocolErrorLog.class);

    private ProtocolErrorLog()
    {
    }

    /** A query that is refused in its answer. */
    static void query(SocketAddress peer, String why)
    {
        warn("A query in an aggregated frame from {} was refused: {}", peer, why);
    }

    /** A frame whose connection is closed for it. */
    static void frame(SocketAddress peer, String why)
    {
        warn("An aggregated frame from {} was refused, and its connection is closed: {}", peer, why);
    }

    private static void warn(String text, SocketAddress peer, String why)
    {
        ClientMetrics.instance.markProtocolException();
        NoSpamLogger.log(LOGGER, NoSpamLogger.Level.WARN, 1, TimeUnit.MINUTES, text, peer, why);
    }
}

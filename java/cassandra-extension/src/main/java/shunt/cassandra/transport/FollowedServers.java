package shunt.cassandra.transport;

import java.util.AbstractCollection;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import org.apache.cassandra.transport.Server;

/**
 * The servers of Cassandra's native transport and one more, in the place of the collection that it goes through to start,
 * stop and count them. The one more is not given what the others are: it follows them afterwards, so that whatever becomes
 * of it cannot keep them from starting or stopping.
 */
final class FollowedServers extends AbstractCollection<Server>
{
    private final Collection<Server> ordinary;
    private final List<Server> all;
    private final Server follower;
    private final Runnable start;
    private final LongConsumer stop;

    /**
     * @param stop is given when stopping the others began, by {@link System#nanoTime}
     */
    FollowedServers(Collection<Server> ordinary, Server follower, Runnable start, LongConsumer stop)
    {
        this.ordinary = ordinary;
        this.follower = follower;
        this.start = start;
        this.stop = stop;
        all = new ArrayList<>(ordinary);
        all.add(follower);
    }

    /** Starts or stops the follower when the others run, or do not. */
    void follow()
    {
        follow(System.nanoTime());
    }

    private synchronized void follow(long beganNanos)
    {
        boolean run = ordinary.stream().anyMatch(Server::isRunning);
        if (run && !follower.isRunning())
            start.run();
        else if (!run && follower.isRunning())
            stop.accept(beganNanos);
    }

    @Override
    public void forEach(Consumer<? super Server> action)
    {
        long beganNanos = System.nanoTime();
        ordinary.forEach(action);
        follow(beganNanos);
    }

    @Override
    public Iterator<Server> iterator()
    {
        return all.iterator();
    }

    @Override
    public int size()
    {
        return all.size();
    }
}

package org.apache.cassandra.transport;

import org.apache.cassandra.concurrent.DebuggableTask.RunnableDebuggableTask;
import org.apache.cassandra.transport.ClientResourceLimits.Overload;
import org.apache.cassandra.utils.MonotonicClock;

/** A query that Cassandra's request executor does, as it would one of an ordinary connection. */
final class HandedOver implements RunnableDebuggableTask
{
    private final FrameEntry entry;
    private final Message.Request request;
    private final long arrivedNanos;
    private final Overload overload;
    private volatile long startTimeNanos;

    HandedOver(FrameEntry entry, Message.Request request, long arrivedNanos, Overload overload)
    {
        this.entry = entry;
        this.request = request;
        this.arrivedNanos = arrivedNanos;
        this.overload = overload;
    }

    @Override
    public void run()
    {
        startTimeNanos = MonotonicClock.Global.preciseTime.now();
        Dispatcher.RequestTime time = new Dispatcher.RequestTime(arrivedNanos, startTimeNanos);
        entry.answerHandedOver(() -> Dispatcher.processRequest(request.connection().channel(), request, overload, time));
    }

    @Override
    public long creationTimeNanos()
    {
        return arrivedNanos;
    }

    @Override
    public long startTimeNanos()
    {
        return startTimeNanos;
    }

    @Override
    public String description()
    {
        return request.toString();
    }
}

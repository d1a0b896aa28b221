package org.apache.cassandra.transport;

import io.netty.buffer.ByteBuf;
import org.apache.cassandra.transport.ClientResourceLimits.Overload;
import org.apache.cassandra.utils.MonotonicClock;
import shunt.cassandra.transport.FrameLayout;

/** A frame that was found to be sound, from its arrival until the last of its queries is answered. */
final class AggregateFrame
{
    /** The frame's body. */
    final ByteBuf body;
    /** Entries in it. */
    final int count;
    /** Bytes of the body, as they count against Cassandra's limits. */
    final long bytes;
    /** When it had arrived, by Cassandra's precise clock. */
    final long arrivedNanos = MonotonicClock.Global.preciseTime.now();
    /** Whose each entry is; null at CLIENT_GONE and where a client is one too many. */
    final AggregateClient[] clients;
    /** What Cassandra's limits said, for the warning in the answers. */
    Overload overload = Overload.NONE;
    /** The first entry that is refused with {@link #refusal}. */
    int refusedFrom = Integer.MAX_VALUE;
    /** Why entries are refused. */
    Message.Response refusal;
    /** Entries without an answer, and one for the thread that executes the frame; the event loop's. */
    int left;

    AggregateFrame(ByteBuf body, int count)
    {
        this.body = body;
        this.count = count;
        this.bytes = body.readableBytes();
        this.left = count + 1;
        this.clients = new AggregateClient[count];
    }

    /** Where the first entry begins. */
    int firstEntry()
    {
        return body.readerIndex() + FrameLayout.COUNT_BYTES;
    }

    /** Where the entry after the one at {@code at} begins. */
    int entryAfter(int at)
    {
        return at + FrameLayout.ENTRY_HEADER_BYTES + body.getInt(at + 9);
    }

    /** Index of the entry that is the query with this number, from 0. */
    int indexOfQuery(int number)
    {
        int at = firstEntry();
        for (int index = 0, queries = 0; index < count; index++, at = entryAfter(at))
        {
            if (opcodeAt(at) != FrameLayout.CLIENT_GONE && queries++ == number)
                return index;
        }
        return count;
    }

    int streamAt(int at)
    {
        return body.getShort(at);
    }

    int clientIdAt(int at)
    {
        return body.getInt(at + 2);
    }

    int versionAt(int at)
    {
        return body.getUnsignedByte(at + 6);
    }

    int flagsAt(int at)
    {
        return body.getUnsignedByte(at + 7);
    }

    int opcodeAt(int at)
    {
        return body.getUnsignedByte(at + 8);
    }

    /** The body of the entry; holds no reference of its own. */
    ByteBuf bodyAt(int at)
    {
        return body.slice(at + FrameLayout.ENTRY_HEADER_BYTES, body.getInt(at + 9));
    }
}

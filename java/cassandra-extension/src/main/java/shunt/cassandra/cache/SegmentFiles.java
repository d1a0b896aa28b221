package shunt.cassandra.cache;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/** The segments' storage. Tests put faults in here. */
interface SegmentFiles extends Closeable
{
    /** Fills the buffer's remaining bytes from a segment, with one read of the device; many threads may do so at once. */
    void read(int segment, long at, ByteBuffer to) throws IOException;

    /** Writes the buffer's remaining bytes. One thread only. */
    void write(int segment, long at, ByteBuffer from) throws IOException;

    /** Gives the space back. */
    @Override
    void close();
}

package shunt.cassandra.cache;

import java.io.IOException;
import org.apache.cassandra.cache.IRowCacheEntry;
import org.apache.cassandra.cache.RowCacheKey;

/** Makes bytes of what Cassandra wants to have cached, and the other way round. */
interface RowCodec
{
    /**
     * A record's body.
     *
     * @param body bytes; the key is not among them
     * @param savedBytes what the catalogue's id saves in it
     */
    record Encoded(byte[] body, int savedBytes)
    {
    }

    /** The entry's body, or null if it cannot be cached. */
    Encoded encode(Generation generation, IRowCacheEntry entry) throws IOException;

    /** The entry of a body of this generation. */
    IRowCacheEntry decode(Generation generation, RowCacheKey key, byte[] body) throws IOException;
}

import java.nio.ByteBuffer;

import org.apache.cassandra.dht.Murmur3Partitioner;

/**
 * Prints Cassandra's own tokens of keys of 0 to 80 bytes, byte i of the key of n bytes being n * 31 + i * 97: the
 * content of tokens.txt. Run as Placement.java.
 */
public class Tokens
{
    public static void main(String[] arguments)
    {
        for (int n = 0; n <= 80; n++)
        {
            byte[] key = new byte[n];
            for (int i = 0; i < n; i++)
                key[i] = (byte) (n * 31 + i * 97);
            System.out.println(Murmur3Partitioner.instance.getToken(ByteBuffer.wrap(key)));
        }
        System.exit(0);
    }
}

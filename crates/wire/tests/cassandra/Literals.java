import java.nio.ByteBuffer;
import java.util.Scanner;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.*;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.transport.ProtocolVersion;
import org.apache.cassandra.utils.ByteBufferUtil;

/**
 * Serializes literals with Cassandra's own parser and types. Reads lines "type TAB literal", prints each with
 * TAB and the bytes in hexadecimal, or "refused". To renew literals.txt after adding lines to it:
 *
 *   cut -f1,2 literals.txt | java -Dlogback.configurationFile=tests/harness/logback-tools.xml \
 *       -cp 'target/cassandra-5.0.9/lib/*' crates/wire/tests/cassandra/Literals.java
 *
 * The time zone of the run is UTC, as in the file.
 */
public class Literals
{
    public static void main(String[] arguments)
    {
        java.util.TimeZone.setDefault(java.util.TimeZone.getTimeZone("UTC"));
        DatabaseDescriptor.clientInitialization();
        DatabaseDescriptor.setPartitionerUnsafe(Murmur3Partitioner.instance);
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine())
        {
            String[] line = lines.nextLine().split("\t");
            System.out.println(line[0] + '\t' + line[1] + '\t' + serialize(line[0], line[1]));
        }
        System.exit(0);
    }

    static String serialize(String typeName, String literal)
    {
        try
        {
            CQL3Type type = CQL3Type.Native.valueOf(typeName.toUpperCase());
            Term.Raw raw = CQLFragmentParser.parseAnyUnhandled(CqlParser::term, literal);
            ColumnSpecification column = new ColumnSpecification("ks", "t", new ColumnIdentifier("c", true), type.getType());
            ByteBuffer bytes = ((Term.Terminal) raw.prepare("ks", column)).get(ProtocolVersion.V4);
            type.getType().validate(bytes);
            return ByteBufferUtil.bytesToHex(bytes);
        }
        catch (Exception refused)
        {
            return "refused";
        }
    }
}

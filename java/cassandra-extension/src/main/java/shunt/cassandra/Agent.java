package shunt.cassandra;

import java.lang.instrument.Instrumentation;
import shunt.cassandra.transport.NativeTransportWait;

/**
 * Where the Java virtual machine enters before Cassandra's own main. Runs before Cassandra's logging is there, so it
 * speaks on standard error and only when something is wrong.
 */
public final class Agent
{
    private Agent()
    {
    }

    /**
     * Reads the settings, and waits in the background for Cassandra's native transport. A wrong setting ends the process:
     * a node that silently runs without what was asked for would be noticed too late.
     */
    public static void premain(String argument, Instrumentation instrumentation)
    {
        try
        {
            Settings.use(Settings.parse(argument));
            if (Settings.current().port() != 0)
                NativeTransportWait.begin(Settings.current());
        }
        catch (IllegalArgumentException e)
        {
            System.err.println("shunt-cassandra-extension: " + e.getMessage());
            System.exit(3);
        }
    }
}

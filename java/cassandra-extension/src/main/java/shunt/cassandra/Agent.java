package shunt.cassandra;

import java.lang.instrument.Instrumentation;

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
     * Reads the settings. A wrong one ends the process: a node that silently runs without what was asked for
     * would be noticed too late.
     */
    public static void premain(String argument, Instrumentation instrumentation)
    {
        try
        {
            Settings.use(Settings.parse(argument));
        }
        catch (IllegalArgumentException e)
        {
            System.err.println("shunt-cassandra-extension: " + e.getMessage());
            System.exit(3);
        }
    }
}

package shunt.cassandra.cache;

/** Remembers keys that left after a single use, by 32 bits of their hashes. A newer one takes the place of an older one. */
final class Ghosts
{
    private final int[] marks;

    /** @param count a power of two; 4 bytes each */
    Ghosts(int count)
    {
        marks = new int[count];
    }

    void add(long hash)
    {
        marks[at(hash)] = mark(hash);
    }

    /** Whether it is there; it is not afterwards. */
    boolean remove(long hash)
    {
        int at = at(hash);
        boolean there = marks[at] == mark(hash);
        if (there)
            marks[at] = 0;
        return there;
    }

    private int at(long hash)
    {
        return (int) (hash >>> 8) & marks.length - 1;
    }

    private static int mark(long hash)
    {
        return (int) (hash >>> 32) | 1;
    }
}

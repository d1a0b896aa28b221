package shunt.cassandra.cache;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.cassandra.dht.IPartitioner;
import org.apache.cassandra.dht.Token;
import org.apache.cassandra.io.sstable.format.SSTableReader;

/** The keys between the first and the last of some SSTables, each. */
final class TokenRanges implements KeyRanges
{
    /** More are taken for one that reaches from the first to the last. */
    static final int RANGES_MAX = 256;

    /** Both ends included. */
    record Range(Token first, Token last)
    {
    }

    private final IPartitioner partitioner;
    /** In order, none of them touching another. */
    private final List<Range> ranges;

    TokenRanges(IPartitioner partitioner, List<Range> any)
    {
        this.partitioner = partitioner;
        List<Range> merged = merge(any);
        ranges = merged.size() <= RANGES_MAX ? merged : List.of(new Range(merged.get(0).first, merged.get(merged.size() - 1).last));
    }

    /** The ranges of SSTables of one table, or null without any. */
    static TokenRanges of(Iterable<SSTableReader> sstables)
    {
        IPartitioner partitioner = null;
        List<Range> ranges = new ArrayList<>();
        for (SSTableReader sstable : sstables)
        {
            partitioner = sstable.getPartitioner();
            ranges.add(new Range(sstable.getFirst().getToken(), sstable.getLast().getToken()));
        }
        return partitioner == null ? null : new TokenRanges(partitioner, ranges);
    }

    private static List<Range> merge(List<Range> any)
    {
        List<Range> sorted = new ArrayList<>(any);
        sorted.sort(Comparator.comparing(Range::first));
        List<Range> merged = new ArrayList<>();
        for (Range range : sorted)
        {
            Range before = merged.isEmpty() ? null : merged.get(merged.size() - 1);
            if (before == null || before.last.compareTo(range.first) < 0)
                merged.add(range);
            else if (before.last.compareTo(range.last) < 0)
                merged.set(merged.size() - 1, new Range(before.first, range.last));
        }
        return merged;
    }

    int count()
    {
        return ranges.size();
    }

    @Override
    public boolean cover(byte[] key)
    {
        Token token = partitioner.getToken(ByteBuffer.wrap(key));
        int from = 0;
        int to = ranges.size();
        while (from < to)
        {
            int middle = (from + to) >>> 1;
            Range range = ranges.get(middle);
            if (token.compareTo(range.first) < 0)
                to = middle;
            else if (token.compareTo(range.last) > 0)
                from = middle + 1;
            else
                return true;
        }
        return false;
    }

    @Override
    public KeyRanges and(KeyRanges other)
    {
        List<Range> both = new ArrayList<>(ranges);
        both.addAll(((TokenRanges) other).ranges);
        return new TokenRanges(partitioner, both);
    }
}

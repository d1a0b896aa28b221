package shunt.cassandra.cache;

import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The schema catalogue: ids, increasing, and the columns they stand for, in memory and in a file beside the segments. The
 * file tells whoever looks at the segments what their records are, and nothing here reads it: when it cannot be written, it is
 * behind until it can. It is text, one id a line, columns as {@code name:type} in the order of the records' bitmaps, both
 * URL-encoded:
 *
 * <pre>
 * shunt row cache catalogue 1
 * 7 ks.users 5a1c395e-b41f-11e5-9f22-ba0be0483c18 static: regular:country:text,name:text
 * </pre>
 *
 * There is one id per generation of a table and none per set of columns: a record that has not all columns says so with a
 * bit per column, so columns that vary from row to row do not multiply ids.
 */
final class Catalogue
{
    static final String FILE = "catalogue";
    static final String HEAD = "shunt row cache catalogue 1";
    private static final Logger logger = LoggerFactory.getLogger(Catalogue.class);

    private final Optional<Path> file;
    private final AtomicInteger lastId = new AtomicInteger();
    private final TreeMap<Integer, Generation> entries = new TreeMap<>(Integer::compareUnsigned);
    /** Whether the file is behind, since it could not be written. */
    private boolean behind;

    /** @param directory where the file is; without one it is kept in memory only */
    Catalogue(Optional<Path> directory)
    {
        file = directory.map(path -> path.resolve(FILE));
        rewrite();
    }

    int nextId()
    {
        return lastId.incrementAndGet();
    }

    synchronized void add(Generation generation)
    {
        entries.put(generation.id(), generation);
        if (file.isEmpty() || behind)
            return;
        try
        {
            Files.writeString(file.get(), line(generation) + '\n', StandardOpenOption.APPEND);
        }
        catch (IOException e)
        {
            fail(e);
        }
    }

    /** Takes ids out which no record has any more; without any, it still writes the file if that is behind. */
    synchronized void reclaim(Collection<Generation> unused)
    {
        for (Generation generation : unused)
            entries.remove(generation.id());
        if (behind || !unused.isEmpty())
            rewrite();
    }

    synchronized List<Integer> ids()
    {
        return List.copyOf(entries.keySet());
    }

    private synchronized void rewrite()
    {
        if (file.isEmpty())
            return;
        try
        {
            Path next = file.get().resolveSibling(FILE + ".next");
            String lines = entries.values().stream().map(entry -> line(entry) + '\n').collect(Collectors.joining());
            Files.writeString(next, HEAD + '\n' + lines);
            Files.move(next, file.get(), StandardCopyOption.ATOMIC_MOVE);
            behind = false;
        }
        catch (IOException e)
        {
            fail(e);
        }
    }

    private void fail(IOException e)
    {
        // It is tried again every second or so.
        if (!behind)
            logger.warn("row cache: cannot write {}, which tells what is in the segments; the cache goes on without: {}", file.get(),
                        e.toString());
        behind = true;
    }

    private static String line(Generation generation)
    {
        return Integer.toUnsignedString(generation.id()) + ' ' + generation.tableName() + ' ' + generation.tableId()
               + " static:" + columns(generation.columns().statics()) + " regular:" + columns(generation.columns().regulars());
    }

    private static String columns(ColumnSet.Group group)
    {
        return group.columns().stream()
                    .map(column -> URLEncoder.encode(new String(column.name(), StandardCharsets.UTF_8), StandardCharsets.UTF_8)
                                   + ':' + URLEncoder.encode(column.type(), StandardCharsets.UTF_8))
                    .collect(Collectors.joining(","));
    }
}

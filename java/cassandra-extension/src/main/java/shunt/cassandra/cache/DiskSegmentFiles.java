package shunt.cassandra.cache;

import com.sun.jna.LastErrorException;
import com.sun.jna.Library;
import com.sun.jna.Native;
import com.sun.nio.file.ExtendedOpenOption;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.cassandra.utils.NativeLibrary;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Segments as files, all preallocated at the start, so that a disk that is too small is noticed before the first query.
 * Direct I/O where the file system has it: the tier then takes no page cache away from Cassandra's SSTables.
 */
final class DiskSegmentFiles implements SegmentFiles
{
    private static final Logger logger = LoggerFactory.getLogger(DiskSegmentFiles.class);
    private static final int NO_SPACE = 28;
    private static final int NOT_SUPPORTED = 95;
    private static final String PREFIX = "segment-";

    /** The C library's call, which keeps the blocks for the file. */
    private interface C extends Library
    {
        int posix_fallocate(int file, long offset, long length) throws LastErrorException;
    }

    private final Path directory;
    private final FileChannel lockChannel;
    private final AtomicReferenceArray<FileChannel> channels;
    private final boolean direct;
    private volatile boolean closed;

    DiskSegmentFiles(Path directory, int segments, long segmentBytes) throws IOException
    {
        this.directory = directory;
        Files.createDirectories(directory);
        lockChannel = lock(directory);
        channels = new AtomicReferenceArray<>(segments);
        try
        {
            int old = deleteSegments();
            if (old > 0)
                logger.info("row cache: {} segments of an earlier run deleted in {}; the SSD tier starts empty, because writes "
                            + "may have taken place that this cache was not told of", old, directory);
            direct = hasDirectIo();
            checkSpace(directory, segments, segmentBytes);
            for (int i = 0; i < segments; i++)
            {
                allocate(path(i), segmentBytes);
                channels.set(i, open(i));
            }
        }
        catch (IOException | RuntimeException e)
        {
            close();
            throw e;
        }
    }

    /** Before any is allocated: a file system gives a file all the blocks it has before it says that they are too few, and until they are given
     * back whoever else writes to that disk, Cassandra's commit log perhaps, is told that it is full. */
    private static void checkSpace(Path directory, int segments, long segmentBytes) throws IOException
    {
        long free = Files.getFileStore(directory).getUsableSpace();
        if (segmentBytes > free / segments)
            throw new IOException("cannot keep " + segments + " segments of " + segmentBytes + " bytes in " + directory + ": " + free
                                  + " bytes are free there (no space left on device)");
    }

    private static FileChannel lock(Path directory) throws IOException
    {
        FileChannel channel = FileChannel.open(directory.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        try
        {
            FileLock lock = channel.tryLock();
            if (lock != null)
                return channel;
        }
        catch (OverlappingFileLockException e)
        {
            logger.debug("the lock is held in this process", e);
        }
        channel.close();
        throw new IOException("another process has its row cache in " + directory);
    }

    boolean isDirect()
    {
        return direct;
    }

    private Path path(int segment)
    {
        return directory.resolve(String.format("%s%05d", PREFIX, segment));
    }

    private int deleteSegments() throws IOException
    {
        int deleted = 0;
        try (DirectoryStream<Path> found = Files.newDirectoryStream(directory, PREFIX + "*"))
        {
            for (Path segment : found)
            {
                Files.delete(segment);
                deleted++;
            }
        }
        return deleted;
    }

    private boolean hasDirectIo() throws IOException
    {
        Path probe = directory.resolve(PREFIX + "probe");
        try (FileChannel channel = FileChannel.open(probe, StandardOpenOption.CREATE, StandardOpenOption.WRITE,
                                                    ExtendedOpenOption.DIRECT))
        {
            return channel.isOpen() && Files.getFileStore(directory).getBlockSize() <= Page.BYTES;
        }
        catch (IOException | UnsupportedOperationException e)
        {
            logger.info("row cache: no direct I/O in {} ({}); its pages are in the page cache too", directory, e.getMessage());
            return false;
        }
        finally
        {
            Files.deleteIfExists(probe);
        }
    }

    private static void allocate(Path path, long bytes) throws IOException
    {
        try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE))
        {
            int error;
            try
            {
                error = Native.load("c", C.class).posix_fallocate(NativeLibrary.getfd(channel), 0, bytes);
            }
            catch (UnsatisfiedLinkError | RuntimeException e)
            {
                logger.debug("no posix_fallocate, the segment is written once instead", e);
                writeZeros(channel, bytes);
                return;
            }
            if (error == NOT_SUPPORTED)
                writeZeros(channel, bytes);
            else if (error != 0)
                throw new IOException("cannot keep " + bytes + " bytes for " + path + ": error " + error
                                      + (error == NO_SPACE ? " (no space left on device)" : ""));
        }
    }

    private static void writeZeros(FileChannel channel, long bytes) throws IOException
    {
        ByteBuffer zeros = ByteBuffer.allocateDirect(1 << 18);
        for (long at = 0; at < bytes; )
        {
            zeros.clear().limit((int) Math.min(zeros.capacity(), bytes - at));
            at += channel.write(zeros, at);
        }
    }

    private FileChannel open(int segment) throws IOException
    {
        Set<java.nio.file.OpenOption> options =
            new HashSet<>(EnumSet.of(StandardOpenOption.READ, StandardOpenOption.WRITE));
        if (direct)
            options.add(ExtendedOpenOption.DIRECT);
        return FileChannel.open(path(segment), options);
    }

    @Override
    public void read(int segment, long at, ByteBuffer to) throws IOException
    {
        transfer(segment, at, to, FileChannel::read, "reading");
    }

    @Override
    public void write(int segment, long at, ByteBuffer from) throws IOException
    {
        transfer(segment, at, from, FileChannel::write, "writing");
    }

    /** One read or write of a channel, which may do a part only. */
    private interface Step
    {
        int run(FileChannel channel, ByteBuffer bytes, long position) throws IOException;
    }

    /**
     * All of a read or write. Java closes a channel for everybody when one of the threads that use it is interrupted. That
     * thread fails; the others open it again and begin once more.
     */
    private void transfer(int segment, long at, ByteBuffer bytes, Step step, String doing) throws IOException
    {
        int start = bytes.position();
        while (true)
        {
            FileChannel channel = channels.get(segment);
            try
            {
                while (bytes.hasRemaining())
                {
                    long position = at + bytes.position() - start;
                    if (step.run(channel, bytes, position) <= 0)
                        throw new EOFException(doing + " " + path(segment) + " came to an end at " + position);
                }
                return;
            }
            catch (ClosedChannelException e)
            {
                reopen(segment, channel);
                if (closed || e instanceof ClosedByInterruptException)
                    throw e;
                bytes.position(start);
            }
        }
    }

    private synchronized void reopen(int segment, FileChannel closedChannel) throws IOException
    {
        if (!closed && channels.get(segment) == closedChannel)
        {
            boolean interrupted = Thread.interrupted();
            channels.set(segment, open(segment));
            if (interrupted)
                Thread.currentThread().interrupt();
        }
    }

    @Override
    public synchronized void close()
    {
        closed = true;
        try
        {
            for (int i = 0; i < channels.length(); i++)
                if (channels.get(i) != null)
                    channels.get(i).close();
            deleteSegments();
            lockChannel.close();
        }
        catch (IOException e)
        {
            logger.warn("row cache: cannot delete the segments in {}", directory, e);
        }
    }
}

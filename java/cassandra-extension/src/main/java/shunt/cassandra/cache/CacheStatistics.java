package shunt.cassandra.cache;

import java.util.concurrent.atomic.LongAdder;

/** Counts since the start. */
final class CacheStatistics
{
    final LongAdder memoryHits = new LongAdder();
    final LongAdder ssdHits = new LongAdder();
    /** Of the SSD's hits, those in its write buffer. */
    final LongAdder bufferHits = new LongAdder();
    final LongAdder misses = new LongAdder();
    final LongAdder ssdReads = new LongAdder();
    /** Reads of the SSD for a key that was not there. */
    final LongAdder falseReads = new LongAdder();
    /** Reads of the SSD that were void because the key was changed meanwhile. */
    final LongAdder racedReads = new LongAdder();
    /** Look-ups that took a record on the SSD for missing, because too many threads were reading there. */
    final LongAdder ssdBusy = new LongAdder();
    final LongAdder damaged = new LongAdder();
    final LongAdder undecodable = new LongAdder();
    final LongAdder cascaded = new LongAdder();
    final LongAdder cascadedBytes = new LongAdder();
    final LongAdder cascadesDropped = new LongAdder();
    /** Evicted rows that had not been read again. */
    final LongAdder notAdmitted = new LongAdder();
    /** Evicted rows that are too large for the SSD. */
    final LongAdder tooLarge = new LongAdder();
    final LongAdder ssdBytesWritten = new LongAdder();
    final LongAdder collections = new LongAdder();
    final LongAdder collectedBytesRead = new LongAdder();
    final LongAdder collectedKept = new LongAdder();
    final LongAdder collectedKeptBytes = new LongAdder();
    final LongAdder collectedDropped = new LongAdder();
    /** Streams after which rows on the SSD were outdated by range. */
    final LongAdder outdatedRanges = new LongAdder();
    /** Rows on the SSD that were found to be outdated. */
    final LongAdder outdated = new LongAdder();
    final LongAdder encoded = new LongAdder();
    final LongAdder encodedBytes = new LongAdder();
    final LongAdder catalogueSavedBytes = new LongAdder();

    /** Bytes written to the SSD for one byte of records that left memory; 0 before the first. */
    double writeAmplification()
    {
        long records = cascadedBytes.sum();
        return records == 0 ? 0 : (double) ssdBytesWritten.sum() / records;
    }
}

package shunt.cassandra;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest
{
    @Test
    void withoutArgumentsTheDefaultsHold()
    {
        assertEquals(Settings.DEFAULTS, Settings.parse(null));
        assertEquals(Settings.DEFAULTS, Settings.parse(" "));
    }

    @Test
    void everySettingIsRead()
    {
        Settings settings = Settings.parse("port=9999,threads=3,frame_queries_max=7,frame_bytes_max=64KiB,"
                                           + "row_cache_directory=/ssd/cache,row_cache_ssd_size=2GiB,"
                                           + "slow_query_ms=9,frame_time_ms=8,clients_max=77,clients_total_max=99,"
                                           + "batch_requests=off,defer_writes=on,defer_reads=off,deferred_max=5,gather_replica_requests=on,"
                                           + "inline_responses=off");
        assertEquals(new Settings(9999, 3, 7, 65536, Optional.of(Path.of("/ssd/cache")), 2L << 30, 9, 8, 77, 99,
                                  new Settings.Peers(false, true, false, 5, true, false)), settings);
    }

    /** A small part of the heap, on small nodes too. */
    @Test
    void clientsAreAsManyAsTheHeapHasRoomFor()
    {
        assertEquals(1 << 16, Settings.clientsFor(1L << 30));
        assertEquals(1 << 19, Settings.clientsFor(8L << 30));
        assertEquals(1 << 20, Settings.clientsFor(1L << 40));
        assertEquals(Settings.clientsFor(Runtime.getRuntime().maxMemory()), Settings.DEFAULTS.clientsTotalMax());
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '`', value = {
        "port | 'port' is not name=value",
        "prot=1 | there is no setting 'prot'; there are batch_requests, clients_max, clients_total_max, defer_reads, defer_writes, deferred_max, frame_bytes_max, frame_queries_max, frame_time_ms, gather_replica_requests, inline_responses, port, row_cache_directory, row_cache_ssd_size, slow_query_ms, threads",
        "port=1,port=2 | port is given twice",
        "port=70000 | port has to be from 0 to 65535, not '70000'",
        "threads=many | threads has to be a whole number, not 'many'",
        "clients_total_max=0 | clients_total_max has to be from 1 to 1073741824, not '0'",
        "frame_bytes_max=1000 | frame_bytes_max has to be a size with one of the units B, KiB, MiB, GiB, TiB, not '1000'",
        "frame_bytes_max=1B | frame_bytes_max has to be from 1024B to 268435456B, not '1B'",
        "row_cache_directory=/ssd | row_cache_directory and row_cache_ssd_size belong together",
    })
    void errorsNameTheFault(String argument, String message)
    {
        var error = assertThrows(IllegalArgumentException.class, () -> Settings.parse(argument));
        assertEquals(message, error.getMessage());
    }
}

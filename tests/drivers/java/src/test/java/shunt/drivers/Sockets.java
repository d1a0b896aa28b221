package shunt.drivers;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** The TCP connections of this process as the kernel lists them, whatever the driver says about itself. */
final class Sockets {
  private static final String ESTABLISHED = "01";

  private Sockets() {}

  /** The remote ends of all established connections of this process. */
  static Set<InetSocketAddress> remoteAddresses() throws IOException {
    Set<String> own = ownInodes();
    Set<InetSocketAddress> remote = new HashSet<>();
    for (String table : new String[] {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
      Files.lines(Path.of(table))
          .skip(1)
          .map(line -> line.trim().split("\\s+"))
          .filter(column -> column[3].equals(ESTABLISHED) && own.contains(column[9]))
          .forEach(column -> remote.add(parse(column[2])));
    }
    return remote;
  }

  private static Set<String> ownInodes() throws IOException {
    Set<String> inodes = new HashSet<>();
    try (var descriptors = Files.newDirectoryStream(Path.of("/proc/self/fd"))) {
      for (Path descriptor : descriptors) {
        try {
          String target = Files.readSymbolicLink(descriptor).toString();
          if (target.startsWith("socket:[")) {
            inodes.add(target.substring(8, target.length() - 1));
          }
        } catch (NoSuchFileException closedMeanwhile) {
          // A descriptor that went away while we were listing is not a connection any more.
        }
      }
    }
    return inodes;
  }

  /** Hexadecimal address:port; the address is made of 32-bit words in the machine's (little-endian) order. */
  private static InetSocketAddress parse(String field) {
    String[] parts = field.split(":");
    byte[] address = new byte[parts[0].length() / 2];
    for (int i = 0; i < address.length; i++) {
      int inWord = (i & ~3) + (3 - (i & 3));
      address[i] = (byte) Integer.parseInt(parts[0].substring(2 * inWord, 2 * inWord + 2), 16);
    }
    try {
      // An IPv4 address mapped into IPv6 becomes an IPv4 address here.
      return new InetSocketAddress(InetAddress.getByAddress(address), Integer.parseInt(parts[1], 16));
    } catch (IOException e) {
      throw new IllegalStateException(Arrays.toString(parts), e);
    }
  }
}

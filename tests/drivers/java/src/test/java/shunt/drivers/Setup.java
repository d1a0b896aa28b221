package shunt.drivers;

import com.datastax.oss.driver.api.core.DefaultProtocolVersion;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;

/** The ways in which every scenario connects: what is set explicitly, all else being the driver's default. */
enum Setup {
  /** Nothing set: the driver negotiates, and must end at the highest version both sides have. */
  NEGOTIATED(DefaultProtocolVersion.V5, null, null),
  V4_LZ4(DefaultProtocolVersion.V4, "V4", "lz4"),
  V5_LZ4(DefaultProtocolVersion.V5, "V5", "lz4");

  final DefaultProtocolVersion expected;
  private final String version;
  private final String compression;

  Setup(DefaultProtocolVersion expected, String version, String compression) {
    this.expected = expected;
    this.version = version;
    this.compression = compression;
  }

  void configure(ProgrammaticDriverConfigLoaderBuilder config) {
    if (version != null) {
      config.withString(DefaultDriverOption.PROTOCOL_VERSION, version);
    }
    if (compression != null) {
      config.withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression);
    }
  }

  /** Suffix that keeps the schema objects of one setup apart from those of the others. */
  String suffix() {
    return name().toLowerCase();
  }
}

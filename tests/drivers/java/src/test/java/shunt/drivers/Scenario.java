package shunt.drivers;

import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.Row;
import java.util.UUID;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** What every group of scenarios has: it runs once per {@link Setup}, on that setup's shared session. */
@ParameterizedClass(name = "{0}")
@EnumSource(Setup.class)
abstract class Scenario {
  /** One error tells it; the rest is skipped. */
  private static boolean schemaFailed;

  @Parameter Setup setup;

  CqlSession session;

  /** A partition key nobody else uses. */
  String key;

  @BeforeEach
  void connect() {
    assumeFalse(schemaFailed, "the schema could not be created");
    schemaFailed = true;
    session = Store.shared(setup);
    schemaFailed = false;
    key = UUID.randomUUID().toString();
  }

  /**
   * Skips all setups but the first: changes of the schema take nodes seconds, and what setups differ in, version and
   * compression, is around what is said of them. SHUNT_EVERY_SETUP=1 skips none.
   */
  void oneSetup() {
    assumeTrue(setup == Setup.values()[0] || "1".equals(System.getenv("SHUNT_EVERY_SETUP")), "for SHUNT_EVERY_SETUP=1");
  }

  Row one(String query, Object... values) {
    return session.execute(query, values).one();
  }
}

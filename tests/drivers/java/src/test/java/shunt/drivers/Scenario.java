package shunt.drivers;

import static org.junit.jupiter.api.Assumptions.assumeFalse;

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

  Row one(String query, Object... values) {
    return session.execute(query, values).one();
  }
}

package shunt.drivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.CqlVector;
import com.datastax.oss.driver.api.core.data.TupleValue;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import com.datastax.oss.driver.api.core.type.reflect.GenericType;
import com.datastax.oss.driver.api.core.uuid.Uuids;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import org.junit.jupiter.api.Test;

/** Values of every type, and large ones, come back as they were sent. */
class ValuesTest extends Scenario {
  private static final int FIVE_MEGABYTES = 5 * 1024 * 1024;

  @Test
  void scalarsOfEveryType() throws Exception {
    Object[] values = {
      key, "ascii", Long.MIN_VALUE, ByteBuffer.wrap(new byte[] {0, 1, -1}), true, LocalDate.of(2024, 2, 29),
      new BigDecimal("-12345678901234567890.0987654321"), Math.PI, CqlDuration.from("1mo2d3h"), 1.5f,
      InetAddress.getByName("2001:db8::1"), Integer.MIN_VALUE, Short.MAX_VALUE,
      LocalTime.of(23, 59, 59, 999_999_999), Instant.ofEpochMilli(1_700_000_000_123L), Uuids.timeBased(),
      Byte.MIN_VALUE, UUID.randomUUID(), "z\u00fcrich \ud83d\ude82", BigInteger.TWO.pow(200).negate()
    };
    String columns = "key, a, bi, bl, bo, d, de, dbl, du, f, ip, i, si, t, ts, tu, ti, u, vc, vi";
    session.execute(
        session
            .prepare("INSERT INTO scalars (" + columns + ") VALUES (?" + ", ?".repeat(values.length - 1) + ")")
            .bind(values));
    Row row = one("SELECT " + columns + " FROM scalars WHERE key = ?", key);
    for (int i = 0; i < values.length; i++) {
      assertEquals(values[i], row.getObject(i), row.getColumnDefinitions().get(i).toString());
    }
  }

  @Test
  void collectionsTupleAndVector() {
    PreparedStatement insert =
        session.prepare("INSERT INTO collected (key, l, s, m, t, n, v) VALUES (?, ?, ?, ?, ?, ?, ?)");
    var nested = Map.of(1, List.of(Set.of(1, 2), Set.of(3)), 2, List.<Set<Integer>>of());
    var tupleType =
        (com.datastax.oss.driver.api.core.type.TupleType) insert.getVariableDefinitions().get("t").getType();
    TupleValue tuple = tupleType.newValue(1, "two", null);
    CqlVector<Float> vector = CqlVector.newInstance(0.5f, -1f, 2.25f);
    session.execute(
        insert.bind(key, List.of(3, 1, 2), Set.of("a", "b"), Map.of("x", 1L, "y", -1L), tuple, nested, vector));
    Row row = one("SELECT l, s, m, t, n, v FROM collected WHERE key = ?", key);
    assertEquals(List.of(3, 1, 2), row.getList("l", Integer.class));
    assertEquals(Set.of("a", "b"), row.getSet("s", String.class));
    assertEquals(Map.of("x", 1L, "y", -1L), row.getMap("m", String.class, Long.class));
    assertEquals(tuple, row.getTupleValue("t"));
    assertEquals(nested, row.get("n", new GenericType<Map<Integer, List<Set<Integer>>>>() {}));
    assertEquals(vector, row.getVector("v", Float.class));
  }

  @Test
  void collectionsAreChangedInPlace() {
    session.execute("INSERT INTO collected (key, l, m) VALUES (?, [1], {'a': 1})", key);
    session.execute("UPDATE collected SET l = l + [2], m['b'] = 2, s = s + {'new'} WHERE key = ?", key);
    Row row = one("SELECT l, s, m FROM collected WHERE key = ?", key);
    assertEquals(List.of(1, 2), row.getList("l", Integer.class));
    assertEquals(Set.of("new"), row.getSet("s", String.class));
    assertEquals(Map.of("a", 1L, "b", 2L), row.getMap("m", String.class, Long.class));
  }

  @Test
  void userDefinedTypesNestedInEachOtherAndInCollections() {
    UserDefinedType personType = type("person");
    UdtValue home =
        type("address").newValue().setString("street", "Ring").setInt("number", 3).setSet("tags", Set.of("x"), String.class);
    UdtValue person =
        personType.newValue().setString("name", "Ada").setUdtValue("home", home).setList("phones", List.of("1", "2"), String.class);
    UdtValue homeless = personType.newValue().setString("name", "Bob");
    session.execute(
        session
            .prepare("INSERT INTO people (key, who, known, homes) VALUES (?, ?, ?, ?)")
            .bind(key, person, List.of(homeless, person), Map.of("main", home)));
    Row row = one("SELECT who, known, homes FROM people WHERE key = ?", key);
    assertEquals(person, row.getUdtValue("who"));
    assertEquals(List.of(homeless, person), row.getList("known", UdtValue.class));
    assertNull(row.getList("known", UdtValue.class).get(0).getUdtValue("home"));
    assertEquals(Map.of("main", home), row.getMap("homes", String.class, UdtValue.class));
  }

  private UserDefinedType type(String name) {
    return session
        .getMetadata()
        .getKeyspace(Store.KEYSPACE)
        .flatMap(keyspace -> keyspace.getUserDefinedType(CqlIdentifier.fromCql(name)))
        .orElseThrow();
  }

  @Test
  void emptyStringAndEmptyBlobAreNotNull() {
    session.execute("INSERT INTO scalars (key, vc, bl) VALUES (?, '', 0x)", key);
    Row row = one("SELECT vc, bl, a FROM scalars WHERE key = ?", key);
    assertEquals("", row.getString(0));
    assertEquals(0, row.getByteBuffer(1).remaining());
    assertTrue(row.isNull(2));
  }

  @Test
  void fiveMegabytesThatDoNotCompress() {
    byte[] body = new byte[FIVE_MEGABYTES];
    new Random(5).nextBytes(body);
    roundTrip(body);
  }

  @Test
  void fiveMegabytesThatCompressWell() {
    roundTrip(new byte[FIVE_MEGABYTES]);
  }

  private void roundTrip(byte[] body) {
    session.execute(session.prepare("INSERT INTO blobs (key, body) VALUES (?, ?)").bind(key, ByteBuffer.wrap(body)));
    Row row = session.execute(session.prepare("SELECT body FROM blobs WHERE key = ?").bind(key)).one();
    assertEquals(ByteBuffer.wrap(body), row.getByteBuffer(0));
  }

  @Test
  void valuesAroundTheSizeOfASegment() {
    // A v5 segment carries at most 131,071 bytes; an envelope just below, at and above that
    // travels in one segment or in several.
    PreparedStatement insert = session.prepare("INSERT INTO blobs (key, body) VALUES (?, ?)");
    PreparedStatement select = session.prepare("SELECT body FROM blobs WHERE key = ?");
    Random random = new Random(7);
    for (int size = 130_900; size < 131_200; size += 13) {
      byte[] body = new byte[size];
      random.nextBytes(body);
      session.execute(insert.bind(key, ByteBuffer.wrap(body)));
      assertEquals(ByteBuffer.wrap(body), session.execute(select.bind(key)).one().getByteBuffer(0));
    }
  }
}

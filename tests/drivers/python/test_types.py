"""Every kind of value survives the way there and back: simple types, collections, tuples, user-defined types."""

import datetime
import decimal
import ipaddress
import uuid
from collections import namedtuple

import pytest
from cassandra.util import Date, Duration, SortedSet, Time

SIMPLE = {
    "ascii": ["plain", ""],
    "text": ["ünïcödé ✓", "", "x" * 70_000],
    "bigint": [2**63 - 1, -(2**63), 0],
    "int": [2**31 - 1, -(2**31), 0],
    "smallint": [32767, -32768],
    "tinyint": [127, -128],
    "varint": [10**40, -(10**40), 0],
    "decimal": [decimal.Decimal("-12345.6789"), decimal.Decimal("0.0000000001")],
    "double": [1.7976931348623157e308, -0.0],
    "float": [0.5, -2.25],
    "boolean": [True, False],
    "blob": [bytes(range(256)), b""],
    "uuid": [uuid.UUID(int=2**128 - 1)],
    "timeuuid": [uuid.uuid1()],
    "inet": [ipaddress.ip_address("10.1.2.3"), ipaddress.ip_address("2001:db8::1")],
    "timestamp": [datetime.datetime(1969, 7, 20, 20, 17, 40, 500_000)],
    "date": [Date(datetime.date(2024, 2, 29))],
    "time": [Time(86_399_999_999_999)],
    "duration": [Duration(14, 3, 5), Duration(-1, -2, -3)],
    "list<int>": [[3, 1, 2, 1]],
    "set<text>": [SortedSet(["b", "a"])],
    "map<text, int>": [{"a": 1, "b": 2}],
    "frozen<list<frozen<map<int, text>>>>": [[{1: "a"}, {2: "b", 3: "c"}]],
    "tuple<int, text, boolean>": [(1, "a", True), (1, None, False)],
    "vector<float, 3>": [[1.0, 2.5, -3.0]],
}


def same(expected, got) -> bool:
    if isinstance(expected, (ipaddress.IPv4Address, ipaddress.IPv6Address)):
        return str(expected) == got
    if isinstance(expected, dict):
        return expected == dict(got)
    if isinstance(expected, list):
        return len(expected) == len(got) and all(map(same, expected, got))
    return expected == got


@pytest.fixture(scope="module")
def columns(shared, keyspace):
    """One table with a column of every type."""
    session = shared.session(keyspace)
    names = {kind: f"c{number}" for number, kind in enumerate(SIMPLE)}
    session.execute("CREATE TABLE kinds (id int PRIMARY KEY, "
                    + ", ".join(f"{name} {kind}" for kind, name in names.items()) + ")")
    return names


@pytest.mark.parametrize("kind", SIMPLE, ids=lambda kind: kind.replace(" ", ""))
def test_value_of_type(session, columns, kind):
    column = columns[kind]
    insert = session.prepare(f"INSERT INTO kinds (id, {column}) VALUES (?, ?)")
    select = session.prepare(f"SELECT {column} FROM kinds WHERE id = ?")
    for number, value in enumerate(SIMPLE[kind]):
        session.execute(insert, (number, str(value) if kind == "inet" else value))
        assert same(value, session.execute(select, (number,)).one()[0])


@pytest.mark.parametrize("version", [4], ids=["v4"], indirect=True)
@pytest.mark.parametrize("kind", ["ascii", "text", "bigint", "int", "smallint", "tinyint", "varint", "decimal", "double",
                                  "boolean", "blob", "uuid", "timeuuid", "inet", "timestamp", "date", "time"])
def test_partition_key_of_type(session, table, kind):
    """Routing has to serialize the key as the ring does; a value is found again whichever way it was written."""
    name = table(f"k {kind} PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT v FROM {name} WHERE k = ?")
    values = [str(value) if kind == "inet" else value for value in SIMPLE[kind] if 0 < len(str(value)) < 1000]
    for number, value in enumerate(value for value in values if value != b""):
        session.execute(insert, (value, number))
        assert session.execute(select, (value,)).one().v == number
        assert session.execute(f"SELECT v FROM {name} WHERE k = %s", (value,)).one().v == number


def test_collections_are_updated_in_place(session, table):
    name = table("id int PRIMARY KEY, l list<int>, s set<int>, m map<text, int>")
    session.execute(f"INSERT INTO {name} (id, l, s, m) VALUES (1, [1, 2], {{1}}, {{'a': 1}})")
    session.execute(f"UPDATE {name} SET l = l + [3], s = s + {{2, 3}}, m['b'] = 2 WHERE id = 1")
    session.execute(f"UPDATE {name} SET l[0] = 9, s = s - {{1}}, m = m - {{'a'}} WHERE id = 1")
    row = session.execute(f"SELECT l, s, m FROM {name} WHERE id = 1").one()
    assert (list(row.l), set(row.s), dict(row.m)) == ([9, 2, 3], {2, 3}, {"b": 2})


def test_user_defined_types(connect, version, session, keyspace, table):
    session.execute("CREATE TYPE IF NOT EXISTS street (name text, number int)")
    session.execute("CREATE TYPE IF NOT EXISTS person (name text, homes frozen<list<frozen<street>>>)")
    name = table("id int PRIMARY KEY, owner person, homes map<text, frozen<street>>", own=True)
    Street, Person = namedtuple("Street", "name number"), namedtuple("Person", "name homes")
    own = connect(version)
    used = own.connect(keyspace)
    own.register_user_type(keyspace, "street", Street)
    own.register_user_type(keyspace, "person", Person)
    home = Street("Elm", 3)
    insert = used.prepare(f"INSERT INTO {name} (id, owner, homes) VALUES (?, ?, ?)")
    used.execute(insert, (1, Person("Ann", [home, Street("Oak", None)]), {"old": home}))
    row = used.execute(f"SELECT owner, homes FROM {name} WHERE id = 1").one()
    assert row.owner == Person("Ann", [home, Street("Oak", None)])
    assert dict(row.homes) == {"old": home}
    session.execute("ALTER TYPE street ADD floor int")
    assert used.execute(f"SELECT owner.name AS n FROM {name} WHERE id = 1").one().n == "Ann"

"""Tables with the mode `conditional`: the proxies decide conditional statements by rows that they keep in memory."""

import threading
import time
import uuid

import pytest
from cassandra import InvalidRequest
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, SimpleStatement

from harness.waits import DEADLINE_SECONDS, Late, until
from locks.fleet import VERSIONS

from .conftest import KEYSPACE, insistent, once_served, prepare
from .known import wait_until_schema_is_known, wait_until_taken

LEASES = "CREATE TABLE {} (name text PRIMARY KEY, owner text, until timestamp, fence bigint)"
ROWS = "CREATE TABLE {} (k int, c text, v int, w frozen<list<int>>, t text, PRIMARY KEY (k, c))"
ONE_ROW = "k = 0 AND c = 'nobody'"
SHORT_SECONDS = 5


def name():
    return f"{KEYSPACE}.t{uuid.uuid4().hex[:10]}"


def change_mode(session, mode, tables, keyspace=KEYSPACE):
    """Once the row of each table says so, which some 15 seconds have to pass for."""
    for table in tables:
        once_served(session, f"ALTER TABLE {table} WITH transactional_mode = '{mode}'")
    found, names = {}, [table.split(".")[1] for table in tables]
    question = "SELECT table_name, mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = %s"

    def have_it():
        rows = once_served(session, question, (keyspace,))
        found.update(dict.fromkeys(names, "off"))
        found.update((row["table_name"], row["mode"]) for row in rows)
        return all(found[name] == mode for name in names)

    until(have_it, f"{names} have the mode {mode}", every_seconds=0.3, told=lambda: found)


@pytest.fixture(scope="module")
def tables(fleet, nodes):
    """(leases, rows, leases of nodes, rows of nodes, leases that are made anew): the third and the
    fourth have no mode."""
    session = insistent(fleet.connect())
    prepare(session, nodes[1])
    names = [name() for _ in range(5)]
    for table, text in zip(names, [LEASES, ROWS, LEASES, ROWS, LEASES]):
        session.execute(text.format(table))
    decided = names[0], names[1], names[4]
    change_mode(session, "conditional", decided)
    wait_until_taken(fleet, names[0], names[4])
    wait_until_taken(fleet, names[1], where=ONE_ROW)
    yield names
    session.cluster.shutdown()


@pytest.fixture
def leases(session, tables):
    session.execute(f"TRUNCATE {tables[0]}")
    session.execute(f"TRUNCATE {tables[2]}")
    return tables[0], tables[2]


def answer(session, statement, values=None):
    """The parts of an answer that a client can see."""
    result = session.execute(statement, values)
    return result.column_names, [str(of) for of in result.column_types or []], result.current_rows


SEQUENCE = [
    ("INSERT INTO {} (k, c, v, w, t) VALUES (1, 'a', 10, [1, 2], 'x') IF NOT EXISTS", ()),
    ("INSERT INTO {} (k, c, v) VALUES (1, 'a', 11) IF NOT EXISTS", ()),
    ("UPDATE {} SET v = 12 WHERE k = 1 AND c = 'a' IF v = 10", ()),
    ("UPDATE {} SET v = 13 WHERE k = 1 AND c = 'a' IF v = 10", ()),
    ("UPDATE {} SET v = ?, t = ? WHERE k = ? AND c = ? IF v IN ? AND w = ?", (14, "y", 1, "a", [12, 13], [1, 2])),
    ("UPDATE {} SET v = ?, t = ? WHERE k = ? AND c = ? IF t = ? AND v < ? AND t = ?", (15, None, 1, "a", "y", 14, "y")),
    ("UPDATE {} SET v = ? WHERE k = ? AND c = ? IF t = ? AND v <= ?", (16, 1, "a", "y", 14)),
    ("UPDATE {} SET v = 1 WHERE k = 1 AND c = 'b' IF EXISTS", ()),
    ("UPDATE {} SET v = 1 WHERE k = 1 AND c = 'b' IF v = 5", ()),
    ("UPDATE {} SET v = 1 WHERE k = 1 AND c = 'b' IF v = null AND w[0] = null", ()),
    ("UPDATE {} SET v = 2 WHERE k = 1 AND c = 'b' IF v != 2 AND t != 'z'", ()),
    ("INSERT INTO {} (k, c, v) VALUES (1, 'b', 2) IF NOT EXISTS", ()),
    ("UPDATE {} SET v = null WHERE k = 1 AND c = 'b' IF EXISTS", ()),
    ("INSERT INTO {} (k, c, v) VALUES (1, 'b', 3) IF NOT EXISTS", ()),
    ("DELETE v FROM {} WHERE k = 1 AND c = 'b' IF v = 4", ()),
    ("DELETE v FROM {} WHERE k = 1 AND c = 'b' IF v = 3", ()),
    ("DELETE FROM {} WHERE k = 1 AND c = 'b' IF EXISTS", ()),
    ("DELETE FROM {} WHERE k = ? AND c = ? IF EXISTS", (1, "b")),
    ("DELETE FROM {} WHERE k = 1 AND c = 'a' IF w[1] = 3", ()),
    ("UPDATE {} SET v = 20 WHERE k = 1 AND c = 'a'", ()),
    ("INSERT INTO {} (k, c, t) VALUES (1, 'a', 'plain')", ()),
    ("DELETE w FROM {} WHERE k = 1 AND c = 'a'", ()),
    ("DELETE FROM {} WHERE k = 1 AND c = 'a' IF v = 20 AND t = 'plain' AND w = null", ()),
    ("INSERT INTO {} (k, c) VALUES (2, 'a') IF NOT EXISTS", ()),
    ("INSERT INTO {} (k, c) VALUES (2, 'a') IF NOT EXISTS", ()),
    ("UPDATE {} SET v = 1 WHERE k = 2 AND c = 'a' IF v = null", ()),
    ("DELETE v FROM {} WHERE k = 2 AND c = 'a' IF EXISTS", ()),
    ("DELETE FROM {} WHERE k = 2 AND c = 'a' IF v = 1", ()),
    ("DELETE FROM {} WHERE k = 2 AND c = 'a' IF v = null", ()),
]


@pytest.mark.parametrize("session", VERSIONS, indirect=True)
@pytest.mark.parametrize("prepared", [False, True], ids=["text", "prepared"])
def test_answers_are_those_of_nodes(session, tables, prepared):
    session.execute(f"TRUNCATE {tables[1]}")
    session.execute(f"TRUNCATE {tables[3]}")
    for text, values in SEQUENCE:
        both = []
        for table in (tables[1], tables[3]):
            statement = text.format(table)
            if prepared or values:
                both.append(answer(session, session.prepare(statement), values))
            else:
                both.append(answer(session, statement))
        assert both[0] == both[1], text
    found = [sorted(map(str, session.execute(f"SELECT * FROM {table}"))) for table in (tables[1], tables[3])]
    assert found[0] == found[1]


def test_a_value_with_a_time_to_live_is_there_until_then(session, leases):
    take = session.prepare(f"INSERT INTO {leases[0]} (name, owner) VALUES ('a', ?) IF NOT EXISTS USING TTL ?")
    renew = session.prepare(f"UPDATE {leases[0]} USING TTL ? SET owner = ? WHERE name = 'a' IF owner = ?")
    begun = time.monotonic()
    assert session.execute(take, ("one", 5)).one()["[applied]"]
    until(lambda: session.execute(take, ("two", 3_600)).one()["[applied]"], "the value expires")
    # Seconds count from the node's whole one. A pause makes it later, and never earlier.
    assert time.monotonic() - begun > 3.5
    assert session.execute(renew, (3_600, "two", "two")).one()["[applied]"]
    assert not session.execute(renew, (3_600, "one", "one")).one()["[applied]"]
    delete = f"DELETE FROM {leases[0]} WHERE name = 'a' IF owner = 'two'"
    assert session.execute(delete).one()["[applied]"]
    assert session.execute(take, ("three", 2)).one()["[applied]"]
    session.execute(renew, (1, "three", "three"))  # if it is there still
    until(lambda: session.execute(renew, (1, "two", "nobody")).one() == {"[applied]": False},
          "it has expired by itself, and no row is shown")


def test_a_row_that_is_made_anew_is_what_it_was(session, leases, past_the_proxies):
    """A proxy does so when it touches a row for the first time: values, what is left of their times to live, and whether the row outlives them."""
    rows = ("inserted", "updated", "whole", "both", "bare", "empty", "none")

    def make(some, seconds):
        for table in leases:
            for text in ("INSERT INTO {} (name, owner) VALUES ('{}inserted', 'a')",
                         "UPDATE {} USING TTL {seconds} SET owner = 'b' WHERE name = '{}inserted'",
                         "UPDATE {} USING TTL {seconds} SET owner = 'b' WHERE name = '{}updated'",
                         "INSERT INTO {} (name, owner) VALUES ('{}whole', 'a') USING TTL {seconds}",
                         "INSERT INTO {} (name, owner, fence) VALUES ('{}both', 'a', 7)",
                         "UPDATE {} USING TTL {seconds} SET owner = 'b' WHERE name = '{}both'",
                         "UPDATE {} USING TTL 1000 SET until = 5 WHERE name = '{}both'",
                         "INSERT INTO {} (name) VALUES ('{}bare')",
                         "INSERT INTO {} (name, owner) VALUES ('{}empty', '')"):
                past_the_proxies.execute(text.format(table, some, seconds=seconds))
        for row in rows:
            for table in leases:
                touch = "UPDATE {} SET fence = 1 WHERE name = '{}' IF owner = 'nobody'"
                assert not session.execute(touch.format(table, some + row)).one()["[applied]"]

    def both(row):
        question = ("SELECT owner, fence, until, TTL(owner) AS owner_left, TTL(until) AS until_left "
                    "FROM {} WHERE name = '{}'")
        found = [session.execute(question.format(table, row)).one() for table in leases]
        for one in filter(None, found):
            left = [one.pop("owner_left"), one.pop("until_left")]
            assert all(900 < seconds <= 1000 for seconds in left if seconds is not None), row
        return found

    make("long ", 1000)
    for row in rows:
        assert (found := both(f"long {row}"))[0] == found[1], row
    make("short ", SHORT_SECONDS)
    # By the nodes' clock they have expired then, however long the machine stands still.
    time.sleep(SHORT_SECONDS + 2)
    for some in ("long ", "short "):
        for row in rows:
            assert (found := both(some + row))[0] == found[1], row
            touch = "UPDATE {} SET fence = 2 WHERE name = '{}' IF EXISTS"
            exists = [session.execute(touch.format(table, some + row)).one() for table in leases]
            assert exists[0] == exists[1], row
    there = [both(f"short {row}")[0] is not None for row in ("inserted", "updated", "bare")]
    assert there == [True, False, True]


def test_truncate_forgets_all_rows(session, leases):
    for number in range(20):
        assert session.execute(f"INSERT INTO {leases[0]} (name, owner) VALUES ('{number}', 'a') IF NOT EXISTS").one()["[applied]"]
    session.execute(f"TRUNCATE {leases[0]}")
    for number in range(20):
        assert session.execute(f"INSERT INTO {leases[0]} (name, owner) VALUES ('{number}', 'b') IF NOT EXISTS").one()["[applied]"]
    session.execute(session.prepare(f"TRUNCATE TABLE {leases[0]}"))
    assert session.execute(f"SELECT * FROM {leases[0]}").one() is None
    assert session.execute(f"UPDATE {leases[0]} SET owner = 'c' WHERE name = '1' IF owner = null").one()["[applied]"]


def test_a_column_that_was_added_is_not_lost(session, tables):
    """A row is made anew when a proxy writes to it for the first time, with all its columns."""
    column = f"more{session.version}"
    for number in range(6):
        session.execute(f"INSERT INTO {tables[0]} (name, owner) VALUES ('added-{number}', 'a')")
    update = session.prepare(f"UPDATE {tables[0]} SET owner = ? WHERE name = ? IF owner = ?")
    assert session.execute(update, ("b", "added-0", "a")).one()["[applied]"]
    session.execute(f"ALTER TABLE {tables[0]} ADD {column} int")
    for number in range(6):
        session.execute(f"UPDATE {tables[0]} SET {column} = {number} WHERE name = 'added-{number}'")
        before = "b" if number == 0 else "a"
        assert session.execute(update, ("c", f"added-{number}", before)).one()["[applied]"]
        found = session.execute(f"SELECT owner, {column} FROM {tables[0]} WHERE name = 'added-{number}'").one()
        assert found == {"owner": "c", column: number}
        assert session.execute(f"UPDATE {tables[0]} SET owner = 'd' WHERE name = 'added-{number}' IF {column} = {number}").one()["[applied]"]


@pytest.mark.parametrize("statement, shown", [
    ("BEGIN TRANSACTION UPDATE {} SET owner = 'a' WHERE name = 'r'; COMMIT TRANSACTION", "no batch and no transaction"),
    ("BEGIN BATCH INSERT INTO {} (name) VALUES ('r') IF NOT EXISTS APPLY BATCH", "own conditions|no batch and no transaction"),
    ("BEGIN BATCH INSERT INTO {} (name) VALUES ('r') APPLY BATCH", "no batch and no transaction"),
    ("INSERT INTO {} (name) VALUES ('r') USING TIMESTAMP 5", "custom timestamps"),
    ("INSERT INTO {} JSON '{{\"name\": \"r\"}}' IF NOT EXISTS", "INSERT JSON"),
    ("UPDATE {} SET fence = fence + 1 WHERE name = 'r'", "compute a value from the row"),
    ("UPDATE {} SET owner = 'a' WHERE name IN ('r', 's')", "one row|one value"),
    ("UPDATE {} SET until = to_timestamp(now()) WHERE name = 'r' IF EXISTS", "now"),
    ("UPDATE {} SET owner = 'a' WHERE name = 'r' IF until < to_timestamp(now())", "now"),
    ("DELETE FROM {} WHERE name = 'r' IF until IN (to_timestamp(now()))", "now"),
    ("INSERT INTO {} (name) VALUES ('r') IF NOT EXISTS USING TTL -1", "TTL"),
    ("INSERT INTO {} (name, nothing) VALUES ('r', 1) IF NOT EXISTS", "nothing"),
    ("UPDATE {} SET owner = 'a' WHERE name = 'r' IF name = 'r'", "PRIMARY KEY"),
    ("INSERT INTO {} (name, owner) VALUES (null, 'a') IF NOT EXISTS", "null"),
])
def test_unsuitable_statements_are_refused(session, leases, statement, shown):
    try:
        with pytest.raises((InvalidRequest, SyntaxException), match=shown):
            session.execute(statement.format(leases[0]))
    finally:
        assert session.execute(f"SELECT * FROM {leases[0]}").one() is None


def test_guards_keys_and_protocol_batches_are_refused(session, leases):
    batch = BatchStatement()
    batch.add(SimpleStatement(f"INSERT INTO {leases[0]} (name) VALUES ('b')"))
    with pytest.raises(InvalidRequest, match="no batch"):
        session.execute(batch)
    if session.version >= 4:
        with pytest.raises(InvalidRequest, match="guards and keys"):
            session.execute(f"INSERT INTO {leases[0]} (name) VALUES ('b')", custom_payload={"shunt-idempotency": b"k"})


@pytest.mark.parametrize("made, shown", [
    ("(k int PRIMARY KEY, n counter)", "counters"),
    ("(k int, c int, s int static, v int, PRIMARY KEY (k, c))", "static"),
    ("(k int PRIMARY KEY, v list<int>)", "not frozen"),
    ("(k int PRIMARY KEY)", "no column beside its key"),
    ("(k int PRIMARY KEY, v int) WITH default_time_to_live = 5", "default_time_to_live"),
    ("(k int PRIMARY KEY, v int) WITH gc_grace_seconds = 60", "gc_grace_seconds = 60"),
])
def test_tables_that_cannot_have_the_mode(session, made, shown):
    table = name()
    session.execute(f"CREATE TABLE {table} {made}")
    with pytest.raises(InvalidRequest, match=shown):
        session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'conditional'")
    session.execute(f"DROP TABLE {table}")


def test_a_table_made_anew_has_none_of_the_rows_of_the_former(fleet, session, tables):
    """The mode stays, because it belongs to the name."""
    table = tables[4]
    for attempt in range(3):
        assert session.execute(f"INSERT INTO {table} (name, owner) VALUES ('a', '{attempt}') IF NOT EXISTS").one()["[applied]"]
        session.execute(f"DROP TABLE {table}")
        session.execute(LEASES.format(table))
        wait_until_schema_is_known(fleet)


def test_each_of_many_clients_counts(session, leases):
    """Without a lock: each replaces the number it has read by the next."""
    clients, times = 8, 15
    session.execute(f"INSERT INTO {leases[0]} (name, fence) VALUES ('n', 0) IF NOT EXISTS")
    add = session.prepare(f"UPDATE {leases[0]} SET fence = ? WHERE name = 'n' IF fence = ?")
    faults = []

    def count():
        seen = 0
        for _ in range(times):
            while not (found := session.execute(add, (seen + 1, seen)).one())["[applied]"]:
                seen = found["fence"]
            seen += 1

    def work():
        try:
            count()
        except Exception as error:  # noqa: BLE001 (told by the test)
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    if any(thread.is_alive() for thread in threads):
        raise Late("clients go on")
    if faults:
        raise faults[0]
    read = f"SELECT fence FROM {leases[0]} WHERE name = 'n'"
    assert session.execute(read).one() == {"fence": clients * times}

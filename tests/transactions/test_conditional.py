"""Tables with the mode `conditional`: the proxies decide conditional statements by rows that they keep in memory."""

import threading
import time
import uuid

import pytest
from cassandra import InvalidRequest
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, SyntaxException
from cassandra.query import BatchStatement, SimpleStatement

from .chains import Chains
from .conftest import KEYSPACE, prepare

HELD_SECONDS = 15  # between the nodes' deciding and the proxies'
LEASES = "CREATE TABLE {} (name text PRIMARY KEY, owner text, until timestamp, fence bigint)"
ROWS = "CREATE TABLE {} (k int, c text, v int, w frozen<list<int>>, t text, PRIMARY KEY (k, c))"


def name():
    return f"{KEYSPACE}.t{uuid.uuid4().hex[:10]}"


def change_mode(session, mode, tables, keyspace=KEYSPACE):
    for table in tables:
        session.execute(f"ALTER TABLE {table} WITH transactional_mode = '{mode}'")
    wanted = {table.split(".")[1]: mode for table in tables}
    deadline = time.monotonic() + HELD_SECONDS + 90
    while True:
        found = {row["table_name"]: row["mode"] for row in session.execute(
            "SELECT table_name, mode FROM shunt_meta.transactional WHERE keyspace_name = %s", (keyspace,))}
        if all(found.get(table, "off") == mode for table, mode in wanted.items()):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.3)


def wait_until_served(session, table, statement="DELETE FROM {} WHERE name = 'nobody' IF EXISTS"):
    """Until each core of each proxy has read the mode: before that what writes is refused."""
    deadline, served = time.monotonic() + 90, 0
    while served < 24:
        try:
            session.execute(statement.format(table))
            served += 1
        except Exception as error:  # noqa: BLE001 (a driver that has asked all hosts has its own form of it)
            errors = list(getattr(error, "errors", {}).values()) or [error]
            assert all(isinstance(one, (IsBootstrappingErrorMessage, OverloadedErrorMessage)) for one in errors), errors
            assert time.monotonic() < deadline, errors
            served = 0
            time.sleep(0.2)


@pytest.fixture(scope="module")
def tables(fleet, nodes):
    """(leases, rows, leases of nodes, rows of nodes): the latter two have no mode."""
    session = fleet.connect()
    prepare(session, nodes[1])
    names = [name() for _ in range(4)]
    for table, text in zip(names, [LEASES, ROWS] * 2):
        session.execute(text.format(table))
    change_mode(session, "conditional", names[:2])
    wait_until_served(session, names[0])
    yield names
    session.cluster.shutdown()


@pytest.fixture
def leases(session, tables):
    session.execute(f"TRUNCATE {tables[0]}")
    session.execute(f"TRUNCATE {tables[2]}")
    return tables[0], tables[2]


def answer(session, statement, values=None):
    """All that a client can see of an answer."""
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
    refused = 0
    while not session.execute(take, ("two", 60)).one()["[applied]"]:
        refused += 1
        assert time.monotonic() < begun + 90
        time.sleep(0.1)
    # Seconds count from the node's whole one.
    assert refused > 0 and time.monotonic() - begun > 3.5
    assert session.execute(renew, (3, "two", "two")).one()["[applied]"]
    assert not session.execute(renew, (3, "one", "one")).one()["[applied]"]
    deadline = time.monotonic() + 90
    while session.execute(renew, (1, "two", "nobody")).one() != {"[applied]": False}:
        assert time.monotonic() < deadline, "it has expired by itself, and no row is shown"
        time.sleep(0.1)


def test_a_row_that_is_made_anew_is_what_it_was(session, leases, past_the_proxies):
    """A proxy does so when it touches a row for the first time: values, what is left of their times to live, and whether the row outlives them."""
    for table in leases:
        for text in ("INSERT INTO {} (name, owner) VALUES ('inserted', 'a')", "UPDATE {} USING TTL 10 SET owner = 'b' WHERE name = 'inserted'",
                     "UPDATE {} USING TTL 10 SET owner = 'b' WHERE name = 'updated'", "INSERT INTO {} (name, owner) VALUES ('whole', 'a') USING TTL 10",
                     "INSERT INTO {} (name, owner, fence) VALUES ('both', 'a', 7)", "UPDATE {} USING TTL 10 SET owner = 'b' WHERE name = 'both'",
                     "UPDATE {} USING TTL 1000 SET until = 5 WHERE name = 'both'", "INSERT INTO {} (name) VALUES ('bare')",
                     "INSERT INTO {} (name, owner) VALUES ('empty', '')"):
            past_the_proxies.execute(text.format(table))
    names = ("inserted", "updated", "whole", "both", "bare", "empty", "none")
    for row in names:
        for table in leases:
            assert not session.execute(f"UPDATE {table} SET fence = 1 WHERE name = '{row}' IF owner = 'nobody'").one()["[applied]"]
    question = "SELECT owner, fence, until, TTL(until) AS seconds FROM {} WHERE name = '{}'"

    def both(row):
        found = [session.execute(question.format(table, row)).one() for table in leases]
        left = [one.pop("seconds", None) for one in found if one]
        assert all(900 < seconds <= 1000 for seconds in left if seconds is not None)
        return found

    for row in names:
        assert (found := both(row))[0] == found[1], row
    time.sleep(12)
    for row in names:
        assert (found := both(row))[0] == found[1], row
        exists = [session.execute(f"UPDATE {table} SET fence = 2 WHERE name = '{row}' IF EXISTS").one() for table in leases]
        assert exists[0] == exists[1], row
    assert both("inserted")[0] is not None and both("updated")[0] is None and both("bare")[0] is not None


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
    ("UPDATE {} SET fence = fence + 1 WHERE name = 'r'", "computed from the row"),
    ("UPDATE {} SET owner = 'a' WHERE name IN ('r', 's')", "one row|one value"),
    ("UPDATE {} SET until = to_timestamp(now()) WHERE name = 'r' IF EXISTS", "now"),
    ("UPDATE {} SET owner = 'a' WHERE name = 'r' IF until < to_timestamp(now())", "now"),
    ("DELETE FROM {} WHERE name = 'r' IF until IN (to_timestamp(now()))", "now"),
    ("INSERT INTO {} (name) VALUES ('r') IF NOT EXISTS USING TTL -1", "TTL"),
    ("INSERT INTO {} (name, nothing) VALUES ('r', 1) IF NOT EXISTS", "nothing"),
    ("UPDATE {} SET owner = 'a' WHERE name = 'r' IF name = 'r'", "PRIMARY KEY"),
    ("INSERT INTO {} (name, owner) VALUES (null, 'a') IF NOT EXISTS", "null"),
])
def test_what_is_refused(session, leases, statement, shown):
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
])
def test_tables_that_cannot_have_the_mode(session, made, shown):
    table = name()
    session.execute(f"CREATE TABLE {table} {made}")
    with pytest.raises(InvalidRequest, match=shown):
        session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'conditional'")
    session.execute(f"DROP TABLE {table}")


def test_a_table_made_anew_has_none_of_the_rows_of_the_former(session, tables, nodes):
    """Its mode stays, by its name."""
    if session.version != 4:
        pytest.skip("once is enough")
    table = name()
    session.execute(LEASES.format(table))
    change_mode(session, "conditional", [table])
    wait_until_served(session, table)
    for attempt in range(3):
        assert session.execute(f"INSERT INTO {table} (name, owner) VALUES ('a', '{attempt}') IF NOT EXISTS").one()["[applied]"]
        session.execute(f"DROP TABLE {table}")
        session.execute(LEASES.format(table))
        time.sleep(1.5)
    change_mode(session, "off", [table])
    session.execute(f"DROP TABLE {table}")


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
        thread.join(120)
    assert not faults and session.execute(f"SELECT fence FROM {leases[0]} WHERE name = 'n'").one() == {"fence": clients * times}


@pytest.fixture
def chains(fleet, session, tables):
    fleet.wait_until_settled(len(fleet.proxies))
    rows = [f"chain-{uuid.uuid4().hex[:6]}-{number}" for number in range(4)]
    chains = Chains(fleet, tables[0], rows, 8).begin()
    yield chains


@pytest.mark.parametrize("fault", ["kill", "pause", "stop"])
def test_nothing_that_was_applied_is_lost(fleet, session, tables, chains, fault):
    if session.version != 4:
        pytest.skip("clients of other versions see the same owner")
    with chains:
        chains.wait_for(200)
        for one in fleet.proxies:
            if fault == "kill":
                one.kill()
            elif fault == "pause":
                one.pause()
                time.sleep(5)
                one.resume()
            else:
                one.stop()
            time.sleep(4.5)
            if fault != "pause":
                one.start()
            fleet.wait_until_settled(3)
            chains.wait_for(50)
    check_at_rest(fleet, chains)


def check_at_rest(fleet, chains):
    session = fleet.connect()
    applied, in_doubt = chains.check(session)
    print(f"{applied} applied, {in_doubt} in doubt, {chains.errors}")
    assert applied > 100
    session.cluster.shutdown()


def test_the_mode_changes_under_load(fleet, session):
    """From nodes to proxies and back: what was answered as applied stays so."""
    if session.version != 4:
        pytest.skip("once is enough")
    table = name()
    session.execute(LEASES.format(table))
    chains = Chains(fleet, table, ["a", "b"], 4).begin()
    with chains:
        for mode in ("conditional", "off"):
            chains.wait_for(50)
            change_mode(session, mode, [table])
            chains.wait_for(50)
    check_at_rest(fleet, chains)

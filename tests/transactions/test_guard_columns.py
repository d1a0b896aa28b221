"""Locks that statements rely on, named where their conditions stand: what a client of any version of the protocol can send."""

import uuid

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from locks.fleet import VERSIONS

from .conftest import KEYSPACE, insistent, prepare
from .known import wait_until_taken
from .test_guards import (  # noqa: F401 (`number` is a fixture)
    RUNS, acquire, balance, counting_on, granted, lost_updates, number, release)
from .test_modes import was_transaction

GUARD = 'IF "shunt:lock" = {} AND "shunt:fence" = {}'
MODES = ("unsafe", "mixed_reads", "full")


@pytest.fixture(scope="module")
def tables(fleet, nodes):
    """The names of tables, by their modes. Sessions of all versions come and go meanwhile."""
    session = insistent(fleet.connect())
    prepare(session, nodes[1])
    names = {mode: f"{mode}_{uuid.uuid4().hex[:8]}" for mode in MODES}
    for mode, name in names.items():
        session.execute(f"CREATE TABLE {KEYSPACE}.{name} (k int, c text, v int, "
                        "n map<text, int>, PRIMARY KEY (k, c))")
        session.execute(f"ALTER TABLE {KEYSPACE}.{name} WITH transactional_mode = '{mode}'")
    # Of the mode `unsafe` nobody needs to know: what names a lock is a transaction by its text.
    taken = [f"{KEYSPACE}.{names[mode]}" for mode in MODES[1:]]
    wait_until_taken(fleet, *taken, where="k = 0 AND c = 'nobody'")
    yield names
    for name in names.values():
        session.execute(f"ALTER TABLE {KEYSPACE}.{name} WITH transactional_mode = 'off'")
        session.execute(f"DROP TABLE {KEYSPACE}.{name}")
    session.cluster.shutdown()


@pytest.fixture(params=MODES)
def table(tables, request):
    return tables[request.param]


def values(session, table, k):
    return {row["c"]: row["v"] for row in session.execute(f"SELECT c, v FROM {table} WHERE k = {k} LIMIT 100")}


@pytest.mark.parametrize("session", VERSIONS, indirect=True)
def test_prepared_statements_have_markers_for_it(session, table):
    k, name = uuid.uuid4().int % 2_000_000_000, f"prepared {table}"
    fence = acquire(session, name)
    for text in (f"UPDATE {table} SET v = ?, n[?] = 1 WHERE k = ? AND c = ? " + GUARD.format("?", "?"),
                 f"UPDATE {KEYSPACE}.{table} SET v = :v, n[:n] = 1 WHERE k = :k AND c = :c " + GUARD.format(":l", ":f")):
        update = session.prepare(text)
        named = ["v", "key(n)", "k", "c", "shunt:lock", "shunt:fence"] if "?" in text else ["v", "n", "k", "c", "l", "f"]
        markers = update.column_metadata
        assert [marker.name for marker in markers] == named
        assert [marker.type.typename for marker in markers] == ["int", "varchar", "int", "varchar", "varchar", "bigint"]
        assert {(marker.keyspace_name, marker.table_name) for marker in markers} == {(KEYSPACE, table)}
        session.execute(update, (7, "x", k, "a", name, fence))
        assert values(session, table, k) == {"a": 7}
        for bad, shown in (((8, "x", k, "a", name, fence - 1), "does not count"), ((8, "x", k, "a", "other", fence), "does not count"),
                           ((8, "x", k, "a", None, fence), "no value is bound"), ((8, "x", k, "a", "", fence), "1 to 1024 bytes"),
                           ((8, "x", k, "a", "l" * 1025, fence), "1 to 1024 bytes")):
            with pytest.raises(InvalidRequest, match=shown):
                session.execute(update, bad)
    delete = session.prepare(f"DELETE v FROM {table} WHERE k = ? AND c = ? " + GUARD.format(f"'{name}'", "?"))
    assert [marker.name for marker in delete.column_metadata] == ["k", "c", "shunt:fence"]
    session.execute(delete, (k, "a", fence))
    assert values(session, table, k) == {"a": None}
    release(session, name)


def test_one_statement_of_a_batch_speaks_for_all(session, table):
    k, name = uuid.uuid4().int % 2_000_000_000, f"batch {table}"
    fence = acquire(session, name)
    insert = session.prepare(f"INSERT INTO {table} (k, c, v) VALUES (?, ?, ?)")
    update = session.prepare(f"UPDATE {table} SET v = ? WHERE k = ? AND c = ? " + GUARD.format("?", "?"))

    def batch(kind, fence, of_text):
        batch = BatchStatement(kind)
        batch.add(insert, (k, "a", 1))
        batch.add(update, (2, k, "b", name, fence))
        batch.add(SimpleStatement(f"DELETE FROM {table} WHERE k = {k} AND c = 'c' " + GUARD.format(f"'{name}'", of_text)))
        batch.add(insert, (k, "d", 4))
        return batch

    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        with pytest.raises(InvalidRequest, match="fence 1 of lock"):
            session.execute(batch(kind, 1, 1))
        with pytest.raises(InvalidRequest, match="guarded by one lock"):
            session.execute(batch(kind, fence, 1))
        assert values(session, table, k) == {}
        session.execute(batch(kind, fence, fence))
        assert values(session, table, k) == {"a": 1, "b": 2, "d": 4}
        session.execute(f"BEGIN BATCH DELETE FROM {table} WHERE k = {k} AND c = 'a' {GUARD.format(repr(name), fence)}; "
                        f"DELETE FROM {table} WHERE k = {k} AND c = 'b' DELETE FROM {table} WHERE k = {k} AND c = 'd' APPLY BATCH")
        assert values(session, table, k) == {}
    text = session.prepare(f"BEGIN BATCH UPDATE {table} SET v = ? WHERE k = ? AND c = 'x' {GUARD.format('?', '?')} "
                           f"INSERT INTO {table} (k, c, v) VALUES (?, 'y', ?) APPLY BATCH")
    assert [marker.name for marker in text.column_metadata] == ["v", "k", "shunt:lock", "shunt:fence", "k", "v"]
    session.execute(text, (1, k, name, fence, k, 2))
    assert values(session, table, k) == {"x": 1, "y": 2}
    release(session, name)


@pytest.mark.parametrize("condition, shown", [
    ("\"shunt:lock\" = 'a'", "a guard is IF"),
    ("\"shunt:fence\" = 1", "a guard is IF"),
    ("\"shunt:lock\" = 'a' AND \"shunt:fast_lock\" = 'a' AND \"shunt:fence\" = 1", "each once"),
    ("\"shunt:lock\" = 'a' AND \"shunt:fence\" > 1", "a guard is IF"),
    ("\"shunt:lock\" = 'a' AND \"shunt:fence\" = 1 AND v = 3", "may not specify their own conditions: there is one on v"),
    ("\"shunt:locks\" = 'a'", 'there is no "shunt:locks"'),
    ("\"Shunt:Lock\" = 'a' AND \"shunt:fence\" = 1", 'there is no "Shunt:Lock"'),
])
def test_unknown_guards_are_refused_by_name(session, table, condition, shown):
    update = f"UPDATE {table} SET v = 1 WHERE k = 1 AND c = 'none' IF {condition}"
    for text in (update, f"BEGIN BATCH {update} APPLY BATCH"):
        for ask in (session.execute, session.prepare):
            with pytest.raises(InvalidRequest, match=shown):
                ask(text)
    batch = BatchStatement()
    batch.add(SimpleStatement(update))
    with pytest.raises(InvalidRequest, match=shown):
        session.execute(batch)
    assert session.execute(f"SELECT * FROM {table} WHERE k = 1 AND c = 'none'").one() is None


def test_statements_that_take_no_guard_refuse_it(session, table):
    name = f"refused {table}"
    guard = GUARD.format(f"'{name}'", acquire(session, name))
    session.execute("CREATE TABLE IF NOT EXISTS modeless (k int PRIMARY KEY, v int)")
    for text, shown in ((f"UPDATE modeless SET v = 1 WHERE k = 1 {guard}", "takes part in no transactions"),
                        (f"INSERT INTO {table} (k, c) VALUES (1, 'none') {guard}", "line 1"),
                        (f"UPDATE {table} USING TTL 3 SET v = 1 WHERE k = 1 AND c = 'none' {guard}", "custom ttls"),
                        (f"BEGIN TRANSACTION UPDATE {table} SET v = 1 WHERE k = 1 AND c = 'none' {guard}; COMMIT TRANSACTION", "their own conditions"),
                        (f"DELETE FROM {table} WHERE k = 1 {guard}", "writes one row"),
                        (f"UPDATE shunt.locks USING TTL 5 SET owner = 'x' WHERE name = 'a' {guard}", "a lock is renewed by")):
        with pytest.raises((InvalidRequest, SyntaxException), match=shown):
            session.execute(text)
    release(session, name)
    # A table may have columns of such names; what is no condition on them is nothing of ours.
    name = f"odd_{uuid.uuid4().hex[:8]}"
    session.execute(f'CREATE TABLE {name} (k int PRIMARY KEY, "shunt:lock" text)')
    session.execute(f"INSERT INTO {name} (k, \"shunt:lock\") VALUES (1, 'x') IF NOT EXISTS")
    session.execute(f"UPDATE {name} SET \"shunt:lock\" = 'IF \"shunt:lock\"' WHERE k = 1 IF EXISTS")
    assert session.execute(f"SELECT \"shunt:lock\" FROM {name}").one() == {"shunt:lock": 'IF "shunt:lock"'}
    session.execute(f"DROP TABLE {name}")


def test_payload_and_text_name_the_same_lock(session, number):  # noqa: F811
    if session.version < 4:
        pytest.skip("custom payloads came with version 4")
    name = f"both {number}"
    fence = acquire(session, name)
    update = f"UPDATE accounts SET balance = balance + 1 WHERE id = {number} " + GUARD.format(f"'{name}'", fence)
    once = {"shunt-idempotency": uuid.uuid4().bytes, "shunt-lock": f"{name}={fence}".encode()}
    for _ in range(2):
        session.execute(update, custom_payload=once)
    assert balance(session, number) == 11
    with pytest.raises(InvalidRequest, match="guarded by one lock"):
        session.execute(update, custom_payload={"shunt-lock": f"{name}={fence + 1}".encode()})
    release(session, name)


def test_no_update_of_a_client_that_was_stopped_past_its_lock_is_lost(session, number):  # noqa: F811
    def execute(text, name, fence):
        guard = GUARD.format(f"'{name}'", fence)
        if not text.startswith("SELECT"):
            return session.execute(f"{text} {guard}")
        # A SELECT has no place for it: a write comes first, behind which nothing comes that has an earlier fence.
        session.execute(f"UPDATE accounts SET balance = {fence % 1_000} WHERE id = {number} {guard}")
        return session.execute(SimpleStatement(text, consistency_level=ConsistencyLevel.QUORUM))

    for _ in range(RUNS):
        session.execute(f"BEGIN TRANSACTION UPDATE accounts SET owner = '' WHERE id = {number}; COMMIT TRANSACTION")
        assert lost_updates(session, number, guard=True, execute=execute) == []


# Last: locks in memory may be granted only some seconds after the fleet has begun.
@pytest.mark.parametrize("locks, column", [("locks", "shunt:lock"), ("fast_locks", "shunt:fast_lock")])
def test_a_statement_is_carried_out_only_while_its_lock_is_held(session, table, locks, column):
    k, name = uuid.uuid4().int % 2_000_000_000, f"it's {table} {locks}"
    quoted = name.replace("'", "''")
    first = granted(session, name, "a", locks)
    update = f"UPDATE {table} SET v = 1 WHERE k = {k} AND c = 'a' IF \"{column}\" = '{quoted}' AND \"shunt:fence\" = {{}}"
    with counting_on(session, name, first, locks):
        result = session.execute(update.format(first))
    assert was_transaction(result) == (session.version >= 4) and result.one() is None
    for wrong in (first - 1, first + 1, 0, -1):
        with pytest.raises(InvalidRequest, match=f"fence {wrong} of lock '{name}'"):
            session.execute(update.format(wrong).replace("v = 1", "v = 2"))
    release(session, name, "a", locks)
    second = granted(session, name, "b", locks)
    with pytest.raises(InvalidRequest, match=f"fence {first} of lock"):
        session.execute(update.format(first).replace("v = 1", "v = 3"))
    assert values(session, table, k) == {"a": 1}
    with counting_on(session, name, second, locks):
        session.execute(f"DELETE FROM {table} WHERE k = {k} AND c = 'a' IF \"shunt:fence\" = {second} AND \"{column}\" = '{quoted}'")
    assert values(session, table, k) == {}
    release(session, name, "b", locks)

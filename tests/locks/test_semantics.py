"""Locks for an application, through three proxies and the Python driver."""

import os
import queue

import pytest
from cassandra import InvalidRequest
from cassandra.query import BatchStatement

from harness import cql
from harness.waits import Late, until
from locks.conftest import MEMORY_TTL_MS, WAIT_MAX_MS
from locks.fleet import VERSIONS, insistent

# Longer than any test that finds a lock held. Who waits does so for longer than a test waits for
# anything.
TTL, WAIT_MS = 550, WAIT_MAX_MS
FRAMED_IN_EACH_VERSION = pytest.mark.parametrize("session", VERSIONS, indirect=True)


def acquire(session, name, owner, table="locks", wait_ms=0, ttl=TTL):
    text = f"INSERT INTO shunt.{table} (name, owner, wait_ms) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL %s"
    return session.execute(text, (name, owner, wait_ms, ttl)).one()


def release(session, name, owner, table="locks"):
    return session.execute(f"DELETE FROM shunt.{table} WHERE name = %s IF owner = %s", (name, owner)).one()


def share(session, name, owner, mode, table="rwlocks", wait_ms=0):
    text = f"INSERT INTO shunt.{table} (name, owner, mode, wait_ms) VALUES (%s, %s, %s, %s) IF NOT EXISTS USING TTL {TTL}"
    return session.execute(text, (name, owner, mode, wait_ms)).one()


def waits_for(table):
    insert = f"INSERT INTO shunt.{table} (name, owner, wait_ms) VALUES (%s, %s, {WAIT_MS})"
    return f"{insert} IF NOT EXISTS USING TTL {TTL}"


def see_waiters(session, name, count, table="locks"):
    """Waits until so many wait for a lock that is held."""
    text = f"SELECT waiters FROM shunt.{table} WHERE name = %s"
    until(
        lambda: session.execute(text, (name,)).one()["waiters"] >= count,
        f"{count} wait for {name}",
        every_seconds=0.005,
    )


@FRAMED_IN_EACH_VERSION
@pytest.mark.parametrize("table", ["locks", "fast_locks"])
def test_a_lock_is_held_by_one_and_its_fences_rise(session, name, table):
    fences = []
    for owner in ("ann", "bob", "ann"):
        row = acquire(session, name, owner, table)
        assert (row["[applied]"], row["name"], row["owner"], row["waiters"]) == (True, name, owner, 0)
        assert 0 < row["ttl_ms"] <= TTL * 1000
        fences.append(row["fence"])
        again = acquire(session, name, owner, table)
        assert (again["[applied]"], again["owner"], again["fence"]) == (False, owner, row["fence"]), "a lost reply is found again"
        other = acquire(session, name, "eve", table)
        assert (other["[applied]"], other["owner"], other["fence"]) == (False, owner, row["fence"])
        assert not release(session, name, "eve", table)["[applied]"]
        assert release(session, name, owner, table)["[applied]"]
        assert not release(session, name, owner, table)["[applied]"]
    assert fences == sorted(set(fences))


@FRAMED_IN_EACH_VERSION
def test_prepared_statements_do_what_texts_do(session, name):
    insert = session.prepare("INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?")
    renew = session.prepare("UPDATE shunt.locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ? AND fence = ?")
    look = session.prepare("SELECT owner, fence AS seen, ttl_ms FROM shunt.locks WHERE name = ?")
    drop = session.prepare("DELETE FROM shunt.locks WHERE name = ? IF owner = ? AND fence = ?")
    fence = session.execute(insert, (name, "ann", 0, TTL)).one()["fence"]
    assert session.execute(renew, (2 * TTL, "ann", name, "ann", fence)).one()["[applied]"]
    assert not session.execute(renew, (2 * TTL, "ann", name, "ann", fence - 1)).one()["[applied]"]
    seen = session.execute(look, (name,)).one()
    assert (seen["owner"], seen["seen"]) == ("ann", fence) and seen["ttl_ms"] > TTL * 1000
    assert not session.execute(drop, (name, "ann", fence + 1)).one()["[applied]"]
    assert session.execute(drop, (name, "ann", fence)).one()["[applied]"]
    assert session.execute(look, (name,)).one() is None


def test_a_lock_ends_with_its_time(session, name):
    first = acquire(session, name, "ann", ttl=1)
    row = acquire(session, name, "bob", wait_ms=WAIT_MS, ttl=TTL)
    assert row["[applied]"] and row["fence"] > first["fence"]
    assert row["ttl_ms"] > TTL * 1000 - WAIT_MS - 1000
    release(session, name, "bob")


@pytest.mark.parametrize("table", ["locks", "fast_locks"])
def test_many_wait_over_three_proxies_and_are_granted_in_order(fleet, name, table):
    count = 40
    sessions = [insistent(fleet.connect(to=number, timeout_seconds=TTL)) for number in range(3)]
    try:
        assert acquire(sessions[0], name, "first", table)["[applied]"]
        text = waits_for(table)
        answers = queue.Queue()
        for number in range(count):
            owner = f"{number:03}"
            future = sessions[number % 3].execute_async(text, (name, owner))
            future.add_callbacks(
                lambda rows, owner: answers.put((owner, rows[0])),
                lambda error, owner: answers.put((owner, error)),
                callback_args=(owner,),
                errback_args=(owner,),
            )
            # The order is that of arrival at the lock's owner, so each has arrived before the next is sent.
            see_waiters(sessions[0], name, number + 1, table)
        release(sessions[1], name, "first", table)
        granted = []
        while len(granted) < count:
            try:
                owner, row = answers.get(timeout=180)
            except queue.Empty:
                raise Late(f"{len(granted)} of {count} were granted") from None
            if isinstance(row, Exception):
                raise row
            assert row["[applied]"], (owner, row)
            granted.append((owner, row["fence"]))
            assert release(sessions[len(granted) % 3], name, owner, table)["[applied]"]
        assert [owner for owner, _ in granted] == [f"{number:03}" for number in range(count)]
        fences = [fence for _, fence in granted]
        assert fences == sorted(set(fences))
    finally:
        for one in sessions:
            one.cluster.shutdown()


@pytest.mark.parametrize("table", ["rwlocks", "fast_rwlocks"])
def test_readers_share_and_queue_behind_a_writer(session, name, table):
    assert share(session, name, "r1", "S", table)["[applied]"]
    assert share(session, name, "r2", "S", table)["[applied]"]
    writer = session.execute_async(
        f"INSERT INTO shunt.{table} (name, owner, mode, wait_ms) "
        f"VALUES (%s, 'w', 'X', {WAIT_MS}) IF NOT EXISTS USING TTL {TTL}",
        (name,),
    )
    fast = "true" if "fast" in table else "false"
    look = f"SELECT owner, mode, state FROM shunt.lock_queue WHERE name = %s AND fast = {fast}"
    until(
        lambda: len(session.execute(look, (name,)).all()) == 3,
        "the writer waits",
        every_seconds=0.01,
    )
    late = share(session, name, "r3", "S", table)
    assert not late["[applied]"], "a reader that does not wait does not overtake the writer"
    states = [(row["owner"], row["mode"], row["state"]) for row in session.execute(look, (name,))]
    assert states == [("r1", "S", "held"), ("r2", "S", "held"), ("w", "X", "waiting")]
    holders = session.execute(f"SELECT owner FROM shunt.{table} WHERE name = %s", (name,)).all()
    assert [row["owner"] for row in holders] == ["r1", "r2"]
    for reader in ("r1", "r2"):
        gone = session.execute(f"DELETE FROM shunt.{table} WHERE name = %s AND owner = %s IF EXISTS", (name, reader)).one()
        assert gone["[applied]"]
    assert writer.result().one()["[applied]"]
    gone = session.execute(f"DELETE FROM shunt.{table} WHERE name = %s AND owner = 'w' IF EXISTS", (name,)).one()
    assert gone["[applied]"]


@pytest.mark.parametrize("table", ["rwlocks", "fast_rwlocks"])
def test_a_renewal_does_not_change_the_mode(fleet, session, name, table):
    """Whichever proxy it goes to: the owner of the lock knows its mode."""
    renew = f"UPDATE shunt.{table} USING TTL {TTL} SET mode = %s WHERE name = %s AND owner = %s IF EXISTS"
    for held, other in (("S", "X"), ("X", "S")):
        assert share(session, name, held, held, table)["[applied]"]
        for _ in fleet.proxies:
            with pytest.raises(InvalidRequest, match="renew the lock in its mode, or release it first"):
                session.execute(renew, (other, name, held))
            assert session.execute(renew, (held, name, held)).one()["[applied]"]
        gone = session.execute(f"DELETE FROM shunt.{table} WHERE name = %s AND owner = %s IF EXISTS", (name, held)).one()
        assert gone["[applied]"]


def test_the_lock_of_a_client_that_is_gone_goes_to_the_next(fleet, name, session):
    assert acquire(session, name, "holder")["[applied]"]
    for to in range(3):
        leaving = fleet.connect(to=to)
        waits = waits_for("locks")
        leaving.execute_async(waits, (name, f"leaves-{to}"))
        see_waiters(session, name, 1)
        stays = session.execute_async(waits, (name, f"stays-{to}"))
        leaving.cluster.shutdown()
        see_waiters(session, name, 1)
        previous = "holder" if to == 0 else f"stays-{to - 1}"
        assert release(session, name, previous)["[applied]"]
        assert stays.result().one()["[applied]"]
    release(session, name, "stays-2")


@pytest.mark.parametrize("table", ["locks", "fast_locks"])
def test_a_client_that_is_gone_leaves_the_queue_whichever_proxy_it_had_asked(fleet, name, session, table):
    """Two of the three had asked a proxy that does not own the lock. Their waits would last longer than this test looks."""
    name = f"{name}-{table}"
    fast = "true" if table == "fast_locks" else "false"

    def queue():
        return [row["owner"] for row in session.execute(f"SELECT * FROM shunt.lock_queue WHERE name = %s AND fast = {fast}", (name,))]

    def see(expected):
        until(
            lambda: queue() == expected, f"the queue is {expected}", every_seconds=0.01, told=queue
        )

    assert acquire(session, name, "holder", table)["[applied]"]
    waits = waits_for(table)
    leaving, owners = [fleet.connect(to=to) for to in range(3)], ["holder"]
    for to, one in enumerate(leaving):
        owners.append(f"leaves-{to}")
        one.execute_async(waits, (name, owners[-1]))
        see(owners)
    stays = session.execute_async(waits, (name, "stays"))
    see([*owners, "stays"])
    for one in leaving:
        one.cluster.shutdown()
    see(["holder", "stays"])
    assert release(session, name, "holder", table)["[applied]"]
    assert stays.result().one()["[applied]"]
    assert queue() == ["stays"]
    assert release(session, name, "stays", table)["[applied]"]


@FRAMED_IN_EACH_VERSION
@pytest.mark.parametrize("prepared", [False, True])
def test_several_locks_are_taken_all_or_none(session, name, prepared):
    names = [f"{name}-{prepared}-{number}" for number in range(8)]

    def all_of(owner, order):
        if not prepared:
            children = "; ".join(f"INSERT INTO shunt.locks (name, owner) VALUES ('{one}', '{owner}') IF NOT EXISTS USING TTL {TTL}"
                                 for one in order)
            return session.execute(f"BEGIN BATCH {children}; APPLY BATCH").all()
        insert = session.prepare(f"INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL {TTL}")
        batch = BatchStatement()
        for one in order:
            batch.add(insert, (one, owner))
        return session.execute(batch).all()

    rows = all_of("ann", names)
    assert [(row["[applied]"], row["name"], row["owner"]) for row in rows] == [(True, one, "ann") for one in names]
    for one in names[:3] + names[4:]:
        assert release(session, one, "ann")["[applied]"]
    refused = all_of("bob", list(reversed(names)))
    assert [(row["[applied]"], row["name"], row["owner"]) for row in refused] == [(False, names[3], "ann")]
    for one in names[:3] + names[4:]:
        assert session.execute("SELECT owner FROM shunt.locks WHERE name = %s", (one,)).one() is None, "nothing is left of it"
    release(session, names[3], "ann")


REFUSED = (
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o')",
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') USING TTL 5",
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS",
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 5 AND TIMESTAMP 5",
    "INSERT INTO shunt.locks (name, owner, fence) VALUES ('n', 'o', 1) IF NOT EXISTS USING TTL 5",
    "INSERT INTO shunt.locks JSON '{\"name\": \"n\"}'",
    "INSERT INTO shunt.locks (name, owner) VALUES ('', 'o') IF NOT EXISTS USING TTL 5",
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', null) IF NOT EXISTS USING TTL 5",
    "INSERT INTO shunt.locks (name, owner, wait_ms) VALUES ('n', 'o', 4500) IF NOT EXISTS USING TTL 5",
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 100000",
    "INSERT INTO shunt.fast_locks (name, owner) VALUES ('n', 'o') "
    f"IF NOT EXISTS USING TTL {MEMORY_TTL_MS // 1000 + 1}",
    "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES ('n', 'o', 'R') IF NOT EXISTS USING TTL 5",
    "UPDATE shunt.locks SET owner = 'x' WHERE name = 'n'",
    "UPDATE shunt.locks USING TTL 5 SET owner = 'x' WHERE name = 'n' IF owner = 'y'",
    "UPDATE shunt.locks USING TTL 5 SET fence = 7 WHERE name = 'n' IF owner = 'y'",
    "DELETE FROM shunt.locks WHERE name = 'n'",
    "DELETE FROM shunt.locks WHERE name = 'n' IF EXISTS",
    "DELETE owner FROM shunt.locks WHERE name = 'n' IF owner = 'o'",
    "SELECT * FROM shunt.locks WHERE name IN ('a', 'b')",
    "SELECT count(*) FROM shunt.locks WHERE name = 'n'",
    "SELECT writetime(owner) FROM shunt.locks WHERE name = 'n'",
    "TRUNCATE shunt.locks",
    "TRUNCATE TABLE shunt.fast_rwlocks",
    "DROP TABLE shunt.locks",
    "drop table if exists \"shunt\" . LOCKS ;",
    "ALTER TABLE shunt.fast_locks ADD more int",
    "-- a comment\nALTER /* another */ TABLE Shunt.rwlocks WITH gc_grace_seconds = 0",
    "CREATE TABLE IF NOT EXISTS shunt.locks (name text PRIMARY KEY)",
    "CREATE INDEX IF NOT EXISTS by_owner ON shunt.locks (owner)",
    "CREATE TRIGGER t ON shunt.locks USING 'org.example.Trigger'",
    "DROP KEYSPACE shunt",
    "ALTER KEYSPACE shunt WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "INSERT INTO shunt.lock_queue (name, fast, position) VALUES ('n', false, 1) IF NOT EXISTS",
    "BEGIN BATCH INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 5; "
    "INSERT INTO system_auth.roles (role) VALUES ('x'); APPLY BATCH",
    "BEGIN BATCH INSERT INTO system_auth.roles (role) VALUES ('x'); "
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 5; APPLY BATCH",
    "BEGIN BATCH INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 5; "
    "DELETE FROM shunt.locks WHERE name = 'm' IF owner = 'o'; APPLY BATCH",
    "BEGIN BATCH INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS USING TTL 5; "
    "INSERT INTO shunt.locks (name, owner) VALUES ('n', 'p') IF NOT EXISTS USING TTL 5; APPLY BATCH",
    "insert into SHUNT.\"locks\" (name, owner) values ('n', 'o')",
)


@pytest.mark.parametrize("text", REFUSED)
def test_unsupported_statements_on_locks_are_refused_and_change_nothing(session, nodes, text):
    with pytest.raises(InvalidRequest):
        session.execute(text)
    if "BEGIN" not in text or text.count("system_auth") == 0:
        with pytest.raises(InvalidRequest):
            session.execute(session.prepare(text))
    # Nothing came through to the tables themselves, which no proxy looks at.
    contact = nodes[0].split(",")[0].rsplit(":", 1)
    with cql.Session(contact[0], int(contact[1])) as direct:
        for table in ("locks", "fast_locks", "rwlocks", "fast_rwlocks", "lock_queue"):
            assert not direct.query(f"SELECT name FROM shunt.{table}"), table


def test_changes_of_the_tables_are_refused_with_what_to_do_and_others_are_not(fleet, session, nodes):
    inside = fleet.connect(version=session.version)
    inside.set_keyspace("shunt")
    contact, port = nodes[0].split(",")[0].rsplit(":", 1)
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'shunt'"
    with cql.Session(contact, int(port)) as direct:
        there = direct.query(tables)
    made = f"made_{session.version}_{os.getpid()}"  # one that failed has not dropped its own
    for text, says in (("DROP TABLE locks", "DROP TABLE shunt.locks is refused"), ("ALTER TABLE lock_queue ADD a int", "shunt fleet init"),
                       ("CREATE INDEX ON fast_locks (owner)", "shunt locks"), ("DROP TABLE guards", "DELETE removes a rule"), ("TRUNCATE rwlocks", "DELETE")):
        for ask in (inside.execute, inside.prepare):
            with pytest.raises(InvalidRequest) as caught:
                ask(text)
            assert says in str(caught.value)
    assert inside.execute("SELECT name FROM lock_queue WHERE name = 'none'").one() is None, "the connection is kept"
    # What is not one of the tables is the nodes' business, in this keyspace too.
    inside.execute(f"CREATE TABLE {made} (locks text PRIMARY KEY)")
    inside.execute(f"ALTER TABLE {made} ADD more int")
    inside.execute(f"DROP TABLE {made}")
    inside.cluster.shutdown()
    with cql.Session(contact, int(port)) as direct:
        # A node hears of a change of the schema from others.
        until(
            lambda: direct.query(tables) == there,
            "a node has the tables that were there",
            told=lambda: direct.query(tables),
        )


def test_use_and_the_tables_metadata(fleet, session):
    own = insistent(fleet.connect(version=session.version, schema_metadata_enabled=True))
    try:
        tables = own.cluster.metadata.keyspaces["shunt"].tables
        assert {"locks", "fast_locks", "rwlocks", "fast_rwlocks", "lock_queue"} <= set(tables)
        own.set_keyspace("shunt")
        name = f"unqualified-{session.version}-{os.getpid()}"
        assert own.execute(
            "INSERT INTO locks (name, owner) VALUES (%s, 'o') IF NOT EXISTS USING TTL 300", (name,)
        ).one()["[applied]"]
        prepared = own.prepare("DELETE FROM locks WHERE name = ? IF owner = ?")
        assert own.execute(prepared, (name, "o")).one()["[applied]"]
    finally:
        own.cluster.shutdown()


def test_drivers_see_all_proxies(fleet, session):
    def seen() -> set:
        return {str(host.address) for host in session.cluster.metadata.all_hosts()}

    # One that has just become a member again is told of by an event.
    until(lambda: seen() == {one.host for one in fleet.proxies}, "the driver sees all", told=seen)

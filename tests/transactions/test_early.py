"""Statements on `full` tables are told when they are committed: what is told must be written, whatever was changed before they were asked."""

import struct
import time
import uuid

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import NoHostAvailable
from cassandra.policies import FallthroughRetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import SimpleStatement

from harness import cql
from harness.verdicts import BUSY_CODES
from harness.waits import Late, until

from .bank import TOLD_EARLY, metric
from .conftest import KEYSPACE, answered, insistent
from .known import page, wait_until_schema_is_known, wait_until_taken
from .test_hostile import Raw, long

TESTS = 4  # that use tables


@pytest.fixture(scope="module")
def pairs(fleet, session):
    """Two tables for each test, whose statements are told early by now."""
    names = [f"early_{uuid.uuid4().hex[:8]}" for _ in range(2 * TESTS)]
    for name in names:
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int, w int)")
        session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'full'")
    wait_until_taken(fleet, *(f"{KEYSPACE}.{name}" for name in names), where="k = -1")
    for name in names:
        until(lambda: is_told_early(fleet, session, name), f"clients of {name} are told early")
    return [names[place:place + 2] for place in range(0, len(names), 2)]


@pytest.fixture
def names(pairs):
    return pairs.pop()


def is_told_early(fleet, session, name):
    before = told_early(fleet)
    session.execute(f"DELETE FROM {name} WHERE k = -1")
    return told_early(fleet) > before


def told_early(fleet):
    return sum(metric(page(one, "/metrics"), TOLD_EARLY) for one in fleet.proxies)


def test_a_transaction_that_names_a_dropped_column_is_refused(fleet, session, names):
    """The client must not hear "applied" of a transaction that is given up 30 s later, in which nobody reads its row."""
    insert = f"INSERT INTO {names[0]} (k, v) VALUES (1, 1)"
    session.execute(insert)
    session.execute(f"ALTER TABLE {names[0]} DROP v")
    wait_until_schema_is_known(fleet)
    with pytest.raises(InvalidRequest):
        session.execute(insert)
    session.execute(f"INSERT INTO {names[0]} (k, w) VALUES (1, 1)")


def test_no_half_of_a_batch_is_told_as_applied(fleet, session, past_the_proxies, names):
    batch = "BEGIN BATCH " + "; ".join(f"INSERT INTO {name} (k, v) VALUES (1, {{0}})" for name in names) + " APPLY BATCH"
    prepared = session.prepare(batch.replace("{0}", "?"))
    session.execute(prepared, (0, 0))
    session.execute(f"ALTER TABLE {names[1]} DROP v")
    wait_until_schema_is_known(fleet)
    with pytest.raises(InvalidRequest):
        session.execute(prepared, (77, 77))
    read = f"SELECT v FROM {KEYSPACE}.{names[0]} WHERE k = 1"
    assert until(lambda: past_the_proxies.execute(read).one(), "what was told is there")["v"] == 0


def test_a_commit_reported_after_its_table_was_recreated_is_in_the_new_table(session, past_the_proxies, names):
    """A single INSERT reads nothing: it must not go by what a node has said of the name before the table was dropped."""
    insert = session.prepare(f"INSERT INTO {names[0]} (k, v) VALUES (?, 1)")
    for number in range(12):
        session.execute(insert, (100 + number,))
        session.execute(f"DROP TABLE {names[0]}")
        session.execute(f"CREATE TABLE {names[0]} (k int PRIMARY KEY, v int, w int)")
        session.execute(insert, (number,))
        read = f"SELECT v FROM {KEYSPACE}.{names[0]} WHERE k = {number}"
        until(lambda: past_the_proxies.execute(read).one(), f"row {number} is there")
        time.sleep(0.6)  # what is known of a name grows old


def insists(what):
    """The outcome of a statement, once no refusal is temporary any more."""
    refused = OverloadedErrorMessage, IsBootstrappingErrorMessage, NoHostAvailable
    return answered(what, refused, "a statement")


def test_a_table_that_loses_the_mode_is_not_read_from_nodes_before_what_was_told_is_there(fleet, session, names):
    """The next one may read from any node, and nobody knows when the last told write is made but its owner."""
    alone = insistent(fleet.connect(to=0, version=session.version))
    select = SimpleStatement(f"SELECT v FROM {KEYSPACE}.{names[0]} WHERE k = 1", retry_policy=FallthroughRetryPolicy())
    insert = SimpleStatement(f"INSERT INTO {KEYSPACE}.{names[0]} (k, v) VALUES (1, 5)", retry_policy=FallthroughRetryPolicy())
    insists(lambda: alone.execute(insert))
    alone.execute(f"ALTER TABLE {KEYSPACE}.{names[0]} WITH transactional_mode = 'unsafe'")

    def mode() -> str:
        of_table = f"SELECT mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = '{KEYSPACE}' AND table_name = '{names[0]}'"
        return alone.execute(of_table).one()["mode"]

    refused = set()
    while mode().startswith("leaving:unsafe:"):
        for statement in (select, insert):
            try:
                alone.execute(statement)
            except OverloadedErrorMessage as error:
                assert "is being changed" in str(error)
                refused.add(statement)
            except IsBootstrappingErrorMessage:
                pass  # its lease has ended, on a machine that stood still
        time.sleep(0.5)
    assert refused == {select, insert} and mode() == "unsafe"
    assert insists(lambda: alone.execute(select)).one()["v"] == 5
    insists(lambda: alone.execute(insert))
    alone.cluster.shutdown()


def test_at_a_proxy_that_stood_still_nobody_is_sent_to_nodes_before_it_knows_the_modes(fleet, session):
    victim, plain = fleet.proxies[1], f"{KEYSPACE}.plain_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE TABLE {plain} (k int PRIMARY KEY, v int)")
    session.execute(f"INSERT INTO {plain} (k, v) VALUES (1, 6)")
    of_nodes = "SELECT keyspace_name FROM system_schema.keyspaces"
    texts = f"SELECT v FROM {plain} WHERE k = 1", of_nodes
    clients = [Raw(victim) for _ in texts]
    messages = [long(text) + struct.pack(">HB", cql.QUORUM, 0) for text in texts]
    for raw, message in zip(clients, messages):
        until(lambda: raw.ask(cql.QUERY, message)[0] == cql.RESULT, f"{victim.listen} serves")

    def held_up() -> int:
        return metric(page(victim, "/metrics"), 'shunt_client_stalls_total{reason="stood_still"}')

    before = held_up()
    with fleet.without(victim):
        for raw, message in zip(clients, messages):
            raw.send(cql.QUERY, message)
    # It waits for no longer than that takes, and nobody sees more of it.
    answers = [raw.receive()[1:] for raw in clients]
    if any(opcode == cql.ERROR and struct.unpack(">i", body[:4])[0] in BUSY_CODES for opcode, body in answers):
        raise Late(f"the node is late: {answers}")
    assert [opcode for opcode, _ in answers] == [cql.RESULT] * 2
    assert cql.rows(answers[0][1]) == [{"v": 6}] and cql.rows(answers[1][1])
    assert held_up() > before
    fleet.wait_until_settled(len(fleet.proxies))
    waiting = 'shunt_clients_stalled{reason="stood_still"}'
    until(lambda: metric(page(victim, "/metrics"), waiting) == 0, "nobody waits")
    for raw in clients:
        raw.socket.close()

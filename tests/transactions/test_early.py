"""Statements on `full` tables are told when they are committed: what is told must be written, whatever was changed before they were asked."""

import time
import uuid

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import NoHostAvailable
from cassandra.policies import FallthroughRetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import SimpleStatement

from .bank import metric
from .conftest import KEYSPACE
from .test_modes import SEEN_SECONDS


@pytest.fixture
def names(session):
    found = [f"early_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for name in found:
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int, w int)")
        session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'full'")
    time.sleep(SEEN_SECONDS)
    yield found
    for name in found:
        session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'off'")
        session.execute(f"DROP TABLE {name}")


def test_what_names_a_column_that_was_dropped_is_refused(session, names):
    """And not told as applied, to be given up after 30 s for which nobody reads its row."""
    insert = f"INSERT INTO {names[0]} (k, v) VALUES (1, 1)"
    session.execute(insert)
    session.execute(f"ALTER TABLE {names[0]} DROP v")
    time.sleep(2)
    with pytest.raises(InvalidRequest):
        session.execute(insert)
    session.execute(f"INSERT INTO {names[0]} (k, w) VALUES (1, 1)")


def test_no_half_of_a_batch_is_told_as_applied(session, past_the_proxies, names):
    batch = "BEGIN BATCH " + "; ".join(f"INSERT INTO {name} (k, v) VALUES (1, {{0}})" for name in names) + " APPLY BATCH"
    prepared = session.prepare(batch.replace("{0}", "?"))
    session.execute(prepared, (0, 0))
    session.execute(f"ALTER TABLE {names[1]} DROP v")
    time.sleep(2)
    with pytest.raises(InvalidRequest):
        session.execute(prepared, (77, 77))
    assert past_the_proxies.execute(f"SELECT v FROM {KEYSPACE}.{names[0]} WHERE k = 1").one()["v"] == 0


def test_what_is_told_after_its_table_was_made_anew_is_in_that(session, past_the_proxies, names):
    """A single INSERT reads nothing: it must not go by what a node has said of the name before the table was dropped."""
    insert = session.prepare(f"INSERT INTO {names[0]} (k, v) VALUES (?, 1)")
    for number in range(12):
        session.execute(insert, (100 + number,))
        session.execute(f"DROP TABLE {names[0]}")
        session.execute(f"CREATE TABLE {names[0]} (k int PRIMARY KEY, v int, w int)")
        session.execute(insert, (number,))
        deadline = time.monotonic() + 30
        while past_the_proxies.execute(f"SELECT v FROM {KEYSPACE}.{names[0]} WHERE k = {number}").one() is None:
            assert time.monotonic() < deadline, number
            time.sleep(0.1)
        time.sleep(0.6)


def insists(what, within_seconds=120):
    """What a statement does, once it is not refused for the moment."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            return what()
        except (OverloadedErrorMessage, IsBootstrappingErrorMessage, NoHostAvailable) as error:
            assert time.monotonic() < deadline, error
            time.sleep(0.3)


def test_a_table_that_loses_the_mode_is_not_read_from_nodes_before_what_was_told_is_there(fleet, session, names):
    """The next one may read from any node, and nobody knows when the last told write is made but its owner."""
    alone = fleet.connect(to=0, version=session.version)
    select = SimpleStatement(f"SELECT v FROM {KEYSPACE}.{names[0]} WHERE k = 1", retry_policy=FallthroughRetryPolicy())
    insert = SimpleStatement(f"INSERT INTO {KEYSPACE}.{names[0]} (k, v) VALUES (1, 5)", retry_policy=FallthroughRetryPolicy())
    alone.execute(insert)
    alone.execute(f"ALTER TABLE {KEYSPACE}.{names[0]} WITH transactional_mode = 'unsafe'")

    def mode() -> str:
        of_table = f"SELECT mode FROM shunt_meta.transactional WHERE keyspace_name = '{KEYSPACE}' AND table_name = '{names[0]}'"
        return alone.execute(of_table).one()["mode"]

    refused = set()
    while mode().startswith("leaving:unsafe:"):
        for statement in (select, insert):
            try:
                alone.execute(statement)
            except OverloadedErrorMessage as error:
                assert "is being changed" in str(error)
                refused.add(statement)
        time.sleep(0.5)
    assert refused == {select, insert} and mode() == "unsafe"
    assert insists(lambda: alone.execute(select)).one()["v"] == 5
    insists(lambda: alone.execute(insert))
    alone.cluster.shutdown()


def test_at_a_proxy_that_stood_still_nobody_is_sent_to_nodes_before_it_knows_the_modes(fleet, session, names):
    victim = fleet.connect(to=1, version=session.version, heartbeat_seconds=120)
    plain = f"plain_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE TABLE {plain} (k int PRIMARY KEY, v int)")
    session.execute(f"INSERT INTO {plain} (k, v) VALUES (1, 6)")
    select = SimpleStatement(f"SELECT v FROM {KEYSPACE}.{plain} WHERE k = 1", retry_policy=FallthroughRetryPolicy())
    of_nodes = SimpleStatement("SELECT keyspace_name FROM system_schema.keyspaces", retry_policy=FallthroughRetryPolicy())
    insists(lambda: victim.execute(select))

    def held_up() -> int:
        return metric(fleet.proxies[1].get("/metrics")[1], 'shunt_client_stalls_total{reason="stood_still"}')

    before = held_up()
    with fleet.without(fleet.proxies[1]):
        time.sleep(1)
        asked, allowed = victim.execute_async(select), victim.execute_async(of_nodes)
        time.sleep(2)
    # It waits for no longer than that takes, and nobody sees more of it.
    assert allowed.result().one() and asked.result().one()["v"] == 6
    assert held_up() > before
    fleet.wait_until_settled(len(fleet.proxies))
    assert metric(fleet.proxies[1].get("/metrics")[1], 'shunt_clients_stalled{reason="stood_still"}') == 0
    victim.cluster.shutdown()
    session.execute(f"DROP TABLE {plain}")

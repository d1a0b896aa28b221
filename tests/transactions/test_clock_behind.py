"""Proxies whose wall clocks are behind: a row that an ordinary client wrote before, by a right clock, hides no transaction that was acknowledged."""

import uuid

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from harness.waits import until

from . import wall_clock
from .bank import metric
from .conftest import KEYSPACE, once_served
from .known import page, status, wait_until_taken

BEHIND_SECONDS = 120
BEHIND = "behind the nodes' clocks"


@pytest.fixture
def table(fleet, session):
    """A table with the mode `full`."""
    name = f"behind_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
    session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'full'")
    wait_until_taken(fleet, f"{KEYSPACE}.{name}", where="k = -1")
    yield name
    session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'off'")


@pytest.fixture
def behind(fleet):
    """The clocks of all proxies are behind until this is called."""
    if not wall_clock.can_jump():
        pytest.skip("the wall clock of a process is set on x86-64 only")

    def jump(seconds):
        for one in fleet.proxies:
            wall_clock.jump(one.process.pid, seconds)

    jump(-BEHIND_SECONDS)
    yield lambda: jump(0)
    jump(0)


def value(session, table):
    return once_served(session, f"SELECT v FROM {table} WHERE k = 1").one()["v"]


def refused(session, text):
    """The error of a statement, once the clock is its reason. The session asks each statement once."""
    def ask():
        try:
            session.execute(text)
        except NoHostAvailable as error:
            said = " ".join(map(str, error.errors.values()))
            return said if BEHIND in said else None
        raise AssertionError(f"it was carried out: {text}")

    return until(ask, "it is refused for the clock")


def test_earlier_writes_hide_no_acknowledged_transaction(fleet, session, table, past_the_proxies, behind):
    ordinary = SimpleStatement(f"INSERT INTO {KEYSPACE}.{table} (k, v) VALUES (1, 1)", consistency_level=ConsistencyLevel.ALL)
    past_the_proxies.execute(ordinary)
    update = f"UPDATE {table} SET v = 2 WHERE k = 1"
    once = fleet.connect()
    once.execute(f"USE {KEYSPACE}")
    for text in (update, f"BEGIN TRANSACTION {update}; COMMIT TRANSACTION"):
        assert "nothing was written" in refused(once, text)
    once.cluster.shutdown()
    assert value(session, table) == 1
    for one in fleet.proxies:
        until(lambda: any("ms behind" in alert for alert in status(one)["fleet"]["alerts"]), "/status says so")
        assert metric(page(one, "/metrics"), "shunt_clock_behind_seconds") > BEHIND_SECONDS / 2
    behind()
    once_served(session, update)
    assert value(session, table) == 2
    for one in fleet.proxies:
        until(lambda: metric(page(one, "/metrics"), "shunt_clock_behind_seconds") < 1, "the clock is right")

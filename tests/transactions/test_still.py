"""A proxy that stands still, more than once, sends nothing that clients ask afterwards to nodes by the modes that it knew before."""

import struct
import time
import uuid

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement

from harness.waits import until

from .conftest import KEYSPACE, connected, insistently, once_served, prepare
from .known import wait_until_schema_is_known, wait_until_taken
from .test_hostile import Raw, long

ROWS = 8


@pytest.fixture(scope="module")
def session(fleet, nodes):
    with connected(fleet, to=0, heartbeat_seconds=120) as session:
        prepare(session, nodes[1])
        session.execute(f"USE {KEYSPACE}")
        yield session


def mode_of(session, table):
    row = once_served(session, f"SELECT mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = '{KEYSPACE}' AND table_name = '{table}'").one()
    return row and row["mode"]


def become_conditional(fleet, session, table, proxies):
    """Makes a table conditional, and waits until these proxies know it."""
    once_served(session, f"ALTER TABLE {table} WITH transactional_mode = 'conditional'")
    until(lambda: mode_of(session, table) == "conditional", "the table is conditional")
    wait_until_taken(fleet, f"{KEYSPACE}.{table}", proxies=proxies)


# The times here shape the fault: with others it is one that must do no harm either.
def stops_again_while_it_joins(fleet, victim):
    """The proxy was declared dead during the first pause, and is no member when it wakes up from the second."""
    victim.pause()
    fleet.wait_until_settled(2)
    victim.resume()
    time.sleep(1)
    victim.pause()


def stops_again_before_it_has_read_the_modes(_, victim):
    victim.pause()
    time.sleep(4)
    victim.resume()
    time.sleep(0.002)
    victim.pause()


@pytest.mark.parametrize("stop", [stops_again_while_it_joins, stops_again_before_it_has_read_the_modes])
def test_there_are_no_two_holders_after_a_second_stop(fleet, session, past_the_proxies, stop):
    victim = fleet.proxies[1]
    fleet.wait_until_settled(3)
    table = f"still_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE TABLE {table} (name text PRIMARY KEY, owner text)")
    wait_until_schema_is_known(fleet)
    for number in range(ROWS):
        past_the_proxies.execute(f"INSERT INTO {KEYSPACE}.{table} (name, owner) VALUES ('{number}', 'nobody')")
    raws = [Raw(victim) for _ in range(ROWS)]
    stop(fleet, victim)
    try:
        fleet.wait_until_settled(2)
        others = [one for one in fleet.proxies if one is not victim]
        become_conditional(fleet, session, table, others)
        for number in range(ROWS):
            assert once_served(session, f"UPDATE {table} SET owner = 'a' WHERE name = '{number}' IF owner = 'nobody'").one()["[applied]"]
        for number, raw in enumerate(raws):
            raw.send(7, long(f"UPDATE {KEYSPACE}.{table} SET owner = 'b' WHERE name = '{number}' IF owner = 'a'") + struct.pack(">HB", 4, 0))
    finally:
        victim.resume()
    for raw in raws:
        raw.receive()
        raw.socket.close()
    for number in range(ROWS):
        read = SimpleStatement(f"SELECT owner FROM {KEYSPACE}.{table} WHERE name = '{number}'", consistency_level=ConsistencyLevel.SERIAL)
        is_others = past_the_proxies.execute(read).one()["owner"] == "b"
        is_still_held = once_served(session, f"UPDATE {table} SET owner = 'c' WHERE name = '{number}' IF owner = 'a'").one()["[applied]"]
        assert not (is_others and is_still_held), f"row {number} has two holders"
    fleet.wait_until_settled(3)


def test_a_table_that_is_held_is_given_back_while_another_of_its_keyspace_is_used(fleet, session):
    used, table = (f"still_{uuid.uuid4().hex[:8]}" for _ in range(2))
    for name, mode in ((used, "full"), (table, "off")):
        session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
        session.execute(f"ALTER TABLE {name} WITH transactional_mode = '{mode}'")
    wait_until_taken(fleet, f"{KEYSPACE}.{used}", where="k = -1")
    once_served(session, f"ALTER TABLE {table} WITH transactional_mode = 'conditional'")

    def is_given_back():
        once_served(session, f"SELECT v FROM {used} WHERE k = 1")
        return mode_of(session, table) == "conditional"

    until(is_given_back, "a table is held no more although another is used")


def test_a_transaction_may_write_to_as_many_tables_as_it_may_have_statements(session):
    names = [f"many_{uuid.uuid4().hex[:6]}_{number}" for number in range(80)]
    for one in names:
        insistently(session, f"CREATE TABLE IF NOT EXISTS {one} (k int PRIMARY KEY, v int)")
        insistently(session, f"ALTER TABLE {one} WITH transactional_mode = 'unsafe'")
    rows = " ".join(f"INSERT INTO {KEYSPACE}.{one} (k, v) VALUES (1, 1);" for one in names)
    once_served(session, f"BEGIN TRANSACTION {rows} COMMIT TRANSACTION")
    assert once_served(session, f"SELECT v FROM {names[-1]} WHERE k = 1").one()["v"] == 1

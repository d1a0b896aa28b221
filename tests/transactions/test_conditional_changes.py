"""Tables with the mode `conditional`, or `observe`, that are changed while their rows are known to
the proxies, and proxies that fail meanwhile; and rows whose keys are one in several spellings."""

import threading
import time
import uuid

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.policies import ConstantReconnectionPolicy
from cassandra.query import SimpleStatement

from harness.waits import until

from .chains import Chains, check_at_rest
from .conftest import connected, insistent, prepare
from .known import (
    Modes, observed, observed_by, wait_until_left_to_nodes, wait_until_observed,
    wait_until_schema_is_known, wait_until_taken)
from .test_conditional import LEASES, change_mode, name


@pytest.fixture(scope="module")
def session(fleet, nodes):
    # Proxies that it knows are killed: it is to see at once that they are there again.
    session = insistent(fleet.connect(reconnection_policy=ConstantReconnectionPolicy(0.5)))
    prepare(session, nodes[1])
    yield session
    session.cluster.shutdown()


@pytest.fixture(scope="module")
def tables(fleet, session):
    """(leases, keys, columns, long, chained, observed): the first changes its mode, the second has
    keys that can be spelt in several ways. The last two are leases whose proxies fail."""
    names = [name() for _ in range(6)]
    session.execute(LEASES.format(names[0]))
    session.execute(f"CREATE TABLE {names[1]} (k int, c decimal, d varint, t frozen<tuple<int, text>>, owner text, PRIMARY KEY (k, c, d, t))")
    session.execute(f"CREATE TABLE {names[2]} (name text PRIMARY KEY, owner text, n int)")
    session.execute(f"CREATE TABLE {names[3]} (name text PRIMARY KEY, a text, b text, c text)")
    session.execute(LEASES.format(names[4]))
    session.execute(LEASES.format(names[5]))
    session.execute(f"ALTER TABLE {names[5]} WITH transactional_mode = 'observe'")
    change_mode(session, "conditional", names[:5])
    wait_until_taken(fleet, names[0], *names[2:5])
    wait_until_taken(fleet, names[1], where="k = 0 AND c = 0 AND d = 0 AND t = (0, '')")
    return names


@pytest.fixture(scope="module")
def read_modes(fleet, session):
    return Modes(fleet, name())


def test_a_row_is_one_however_its_key_is_spelt(session, tables):
    """To nodes 1.0 and 1.00 are one row, and so are numbers with zeros in front, and tuples without their last nulls."""
    table = tables[1]
    insert = session.prepare(f"INSERT INTO {table} (k, c, d, t, owner) VALUES (1, ?, ?, ?, ?) IF NOT EXISTS")
    update = session.prepare(f"UPDATE {table} SET owner = ? WHERE k = 1 AND c = ? AND d = ? AND t = ? IF owner = ?")
    spelt = [(bytes([0, 0, 0, 1, 10]), bytes([5]), bytes([0, 0, 0, 4, 0, 0, 0, 1]) + b"\xff" * 4),
             (bytes([0, 0, 0, 2, 100]), bytes([5]), bytes([0, 0, 0, 4, 0, 0, 0, 1]) + b"\xff" * 4),
             (bytes([0, 0, 0, 1, 10]), bytes([0, 5]), bytes([0, 0, 0, 4, 0, 0, 0, 1]) + b"\xff" * 4),
             (bytes([0, 0, 0, 1, 10]), bytes([5]), bytes([0, 0, 0, 4, 0, 0, 0, 1]))]

    def bound(statement, values):
        one = statement.bind(())
        one.values = list(values)
        return session.execute(one).one()

    holders = [number for number, key in enumerate(spelt) if bound(insert, (*key, str(number).encode()))["[applied]"]]
    assert holders == [0], "one row has one who has inserted it"
    for number, key in enumerate(spelt[1:]):
        assert bound(update, (str(number + 1).encode(), *key, str(number).encode()))["[applied]"], key
    assert [row["owner"] for row in session.execute(f"SELECT owner FROM {table} WHERE k = 1")] == ["3"]


def test_rows_known_before_nodes_decided_are_not_known_after(fleet, session, tables):
    """Writes are under way when a proxy reads that it is to decide no more. What it knows of them must not count when it decides again."""
    table, rows = tables[0], [f"known-{number}" for number in range(48)]
    insert = session.prepare(f"INSERT INTO {table} (name, owner) VALUES (?, 'first') IF NOT EXISTS")
    update = session.prepare(f"UPDATE {table} SET owner = ? WHERE name = ?")
    for row in rows:
        assert session.execute(insert, (row,)).one()["[applied]"]
    going, ended = threading.Event(), [threading.Event() for _ in rows]
    written, refused = dict.fromkeys(range(len(rows)), 0), set()

    def write(_, number):
        """The next one, once the one before is answered; with an error too."""
        written[number] += 1
        if going.is_set():
            ended[number].set()
        else:
            asked = session.execute_async(update, (str(time.monotonic()), rows[number]))
            asked.add_callbacks(write, refuse, (number,), errback_args=(number,))

    def refuse(error, number):
        if "is being changed" in str(getattr(error, "errors", error)):
            refused.add(number)
        write(error, number)

    for number in range(len(rows)):
        write(None, number)
    until(lambda: min(written.values()) > 2, "each row is written to")
    session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'off'")
    refused.clear()
    until(lambda: len(refused) == len(rows), "a write to each row is refused")
    going.set()
    until(lambda: all(one.is_set() for one in ended), "all writes are answered")
    change_mode(session, "off", [table])
    wait_until_left_to_nodes(fleet, table)
    for row in rows:
        session.execute(update, ("of nodes", row))
    change_mode(session, "conditional", [table])
    wait_until_taken(fleet, table)
    replace = session.prepare(f"UPDATE {table} SET owner = 'last' WHERE name = ? IF owner = 'of nodes'")
    answers = {row: session.execute(replace, (row,)).one() for row in rows}
    assert {row: answer for row, answer in answers.items() if not answer["[applied]"]} == {}


def test_values_of_a_column_that_was_dropped_are_gone(fleet, session, tables):
    table = tables[2]
    assert session.execute(f"INSERT INTO {table} (name, owner, n) VALUES ('a', 'one', 1) IF NOT EXISTS").one()["[applied]"]
    update = f"UPDATE {table} SET n = 2 WHERE name = 'a' IF owner = 'one'"
    assert session.execute(update).one()["[applied]"]
    session.execute(f"ALTER TABLE {table} DROP owner")
    session.execute(f"ALTER TABLE {table} ADD owner text")
    wait_until_schema_is_known(fleet)
    seen = SimpleStatement(f"SELECT owner FROM {table} WHERE name = 'a'", consistency_level=ConsistencyLevel.QUORUM)
    assert session.execute(seen).one() == {"owner": None}
    assert session.execute(update).one() == {"[applied]": False, "owner": None}


def test_a_column_that_is_dropped_refuses_no_statement_that_does_not_name_it(session, tables):
    """A row is made anew with all of them, and one may go just before that."""
    table, going, faults, count = tables[2], threading.Event(), [], [0]

    def insert(number):
        text = session.prepare(f"INSERT INTO {table} (name, n) VALUES (?, 1) IF NOT EXISTS")
        turn = 0
        while not going.is_set():
            turn += 1
            count[0] += 1
            try:
                session.execute(text, (f"{number} {turn}",))
            except InvalidRequest as error:
                faults.append(str(error))
            except Exception:  # noqa: BLE001 (it may be asked again)
                pass

    clients = [threading.Thread(target=insert, args=(number,)) for number in range(8)]
    for one in clients:
        one.start()
    try:
        for number in range(12):
            for change in (f"ADD goes{number} int", f"DROP goes{number}"):
                session.execute(f"ALTER TABLE {table} {change}")
                asked = count[0]
                until(lambda: count[0] > asked + 20 or faults, "statements meet the change")
    finally:
        going.set()
        for one in clients:
            one.join()
    assert not faults


def test_an_answer_that_no_proxy_can_pass_on_is_refused_by_name(fleet, session, tables):
    """One of another proxy that is longer ends the connection between the two, and with it all that others have asked over it."""
    table = tables[3]
    for column in ("a", "b"):
        session.execute(session.prepare(f"UPDATE {table} SET {column} = ? WHERE name = 'long'"), ("x" * 2_500_000,))
    for to in range(3):
        with connected(fleet, to=to) as other:
            with pytest.raises(InvalidRequest, match="part of the row in the answer has 5000... bytes"):
                other.execute(f"INSERT INTO {table} (name) VALUES ('long') IF NOT EXISTS")
            update = f"UPDATE {table} SET a = '' WHERE name = 'long' IF c = 'nothing'"
            assert not other.execute(update).one()["[applied]"]
    assert session.execute(f"UPDATE {table} SET a = '' WHERE name = 'long' IF EXISTS").one()["[applied]"]


def test_a_row_that_a_deletion_did_not_reach_is_there(session, tables, past_the_proxies):
    """The value has a timestamp in the future, after that of the deletion."""
    table, in_an_hour = tables[3], int(time.time() + 3600) * 1_000_000
    past_the_proxies.execute(f"INSERT INTO {table} (name, c) VALUES ('later', 'x') USING TIMESTAMP {in_an_hour}")
    session.execute(f"DELETE FROM {table} WHERE name = 'later'")
    with pytest.raises(InvalidRequest, match="in the future"):
        session.execute(f"INSERT INTO {table} (name, c) VALUES ('later', 'y') IF NOT EXISTS")


@pytest.mark.parametrize("fault", ["kill", "pause", "stop"])
def test_no_applied_statement_is_lost_and_nothing_differs(fleet, tables, read_modes, fault):
    """Proxies decide some of these rows, and observe the others."""
    fleet.wait_until_settled(len(fleet.proxies))
    wait_until_observed(fleet, tables[5])
    expected = different(fleet)
    rows = [f"chain-{uuid.uuid4().hex[:6]}-{number}" for number in range(4)]
    both = [Chains(fleet, table, rows, 5).begin() for table in tables[4:]]
    with both[0], both[1]:
        wait_for(both, 60)
        for one in fleet.proxies:
            if fault != "pause":
                assert different(fleet) == expected
                expected[one.listen] = 0  # what a proxy has counted goes with it
            fail_and_come_back(fleet, both, one, fault)
        before = observed(fleet)["same"]
        until(lambda: observed(fleet)["same"] > before, "an answer is compared")
    for chains in both:
        check_at_rest(fleet, chains)
    read_modes()
    assert different(fleet) == expected


def different(fleet):
    """By proxy, how many answers differed from those that it would have given."""
    return {one.listen: observed_by(one)["different"] for one in fleet.proxies}


def wait_for(both, more):
    for chains in both:
        chains.wait_for(more)


def fail_and_come_back(fleet, both, one, fault):
    """Clients go on without it, and with it."""
    if fault == "pause":
        with fleet.without(one):
            wait_for(both, 20)
    else:
        one.kill() if fault == "kill" else one.stop()
        fleet.wait_until_settled(len(fleet.proxies) - 1)
        wait_for(both, 20)
        one.start()
    fleet.wait_until_settled(len(fleet.proxies))
    wait_for(both, 20)


def test_the_mode_changes_while_proxies_stand_still_and_die(fleet):
    """Modes change while statements run. A statement answered as applied stays applied, and no value has two successors."""
    table = name()
    with connected(fleet) as session:
        session.execute(LEASES.format(table))
    chains = Chains(fleet, table, ["a", "b"], 4).begin()
    with chains:
        for mode in ("conditional", "off"):
            chains.wait_for(50)
            change_mode_begins(fleet, table, mode)
            for victim in fleet.proxies:
                # Shorter than its lease, twice, and then for good. Longer is a fault as good.
                for _ in range(2):
                    victim.pause()
                    time.sleep(1.5)
                    victim.resume()
                    time.sleep(0.1)
                victim.kill()
                time.sleep(1)
                victim.start()
            fleet.wait_until_settled(len(fleet.proxies))
            with connected(fleet) as reader:
                change_mode(reader, mode, [table])
            chains.wait_for(50)
    check_at_rest(fleet, chains)


def change_mode_begins(fleet, table, mode):
    with connected(fleet) as session:
        session.execute(f"ALTER TABLE {table} WITH transactional_mode = '{mode}'")

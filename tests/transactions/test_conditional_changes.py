"""Tables with the mode `conditional` that are changed while their rows are known to the proxies, and rows whose keys are one in several spellings."""

import threading
import time

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import SimpleStatement

from .chains import Chains
from .conftest import once_served, prepare
from .test_conditional import LEASES, change_mode, check_at_rest, name, wait_until_served

SCHEMA_SECONDS = 2  # until each core has heard of a change of the schema


@pytest.fixture(scope="module")
def session(fleet, nodes):
    session = fleet.connect()
    prepare(session, nodes[1])
    yield session
    session.cluster.shutdown()


@pytest.fixture(scope="module")
def tables(session):
    """(leases, keys, columns, long): the first changes its mode, the second has keys that can be spelt in several ways."""
    names = name(), name(), name(), name()
    session.execute(LEASES.format(names[0]))
    session.execute(f"CREATE TABLE {names[1]} (k int, c decimal, d varint, t frozen<tuple<int, text>>, owner text, PRIMARY KEY (k, c, d, t))")
    session.execute(f"CREATE TABLE {names[2]} (name text PRIMARY KEY, owner text, n int)")
    session.execute(f"CREATE TABLE {names[3]} (name text PRIMARY KEY, a text, b text, c text)")
    change_mode(session, "conditional", names)
    wait_until_served(session, names[0])
    yield names
    change_mode(session, "off", names)


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


def test_what_was_known_before_nodes_decided_is_not_known_after(fleet, session, tables):
    """Writes are under way when a proxy reads that it is to decide no more. What it knows of them must not count when it decides again."""
    table, rows = tables[0], [f"known-{number}" for number in range(48)]
    insert = session.prepare(f"INSERT INTO {table} (name, owner) VALUES (?, 'first') IF NOT EXISTS")
    update = session.prepare(f"UPDATE {table} SET owner = ? WHERE name = ?")
    for row in rows:
        assert session.execute(insert, (row,)).one()["[applied]"]
    going, ended = threading.Event(), [threading.Event() for _ in rows]

    def write(_, number):
        """The next one, once the one before is answered; with an error too."""
        if going.is_set():
            ended[number].set()
        else:
            session.execute_async(update, (str(time.monotonic()), rows[number])).add_callbacks(write, write, (number,), errback_args=(number,))

    for number in range(len(rows)):
        write(None, number)
    time.sleep(1)
    session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'off'")
    time.sleep(5)
    going.set()
    assert all(one.wait(90) for one in ended)
    change_mode(session, "off", [table])
    wait_until_served(session, table)
    for row in rows:
        session.execute(update, ("of nodes", row))
    change_mode(session, "conditional", [table])
    wait_until_served(session, table)
    replace = session.prepare(f"UPDATE {table} SET owner = 'last' WHERE name = ? IF owner = 'of nodes'")
    answers = {row: session.execute(replace, (row,)).one() for row in rows}
    assert {row: answer for row, answer in answers.items() if not answer["[applied]"]} == {}


def test_values_of_a_column_that_was_dropped_are_gone(session, tables):
    table = tables[2]
    assert session.execute(f"INSERT INTO {table} (name, owner, n) VALUES ('a', 'one', 1) IF NOT EXISTS").one()["[applied]"]
    update = f"UPDATE {table} SET n = 2 WHERE name = 'a' IF owner = 'one'"
    assert session.execute(update).one()["[applied]"]
    session.execute(f"ALTER TABLE {table} DROP owner")
    session.execute(f"ALTER TABLE {table} ADD owner text")
    time.sleep(SCHEMA_SECONDS)
    seen = SimpleStatement(f"SELECT owner FROM {table} WHERE name = 'a'", consistency_level=ConsistencyLevel.QUORUM)
    assert session.execute(seen).one() == {"owner": None}
    assert session.execute(update).one() == {"[applied]": False, "owner": None}


def test_a_column_that_is_dropped_refuses_no_statement_that_does_not_name_it(session, tables):
    """A row is made anew with all of them, and one may go just before that."""
    table, going, faults, count = tables[2], threading.Event(), [], [0]

    def insert(number):
        text = session.prepare(f"INSERT INTO {table} (name, n) VALUES (?, 1) IF NOT EXISTS")
        while not going.is_set():
            count[0] += 1
            try:
                session.execute(text, (f"{number} {count[0]}",))
            except InvalidRequest as error:
                faults.append(str(error))
            except Exception:  # noqa: BLE001 (it may be asked again)
                pass

    clients = [threading.Thread(target=insert, args=(number,)) for number in range(8)]
    for one in clients:
        one.start()
    for number in range(12):
        session.execute(f"ALTER TABLE {table} ADD goes{number} int")
        time.sleep(0.3)
        session.execute(f"ALTER TABLE {table} DROP goes{number}")
        time.sleep(0.1)
    going.set()
    for one in clients:
        one.join()
    assert not faults and count[0] > 50, faults


def test_an_answer_that_no_proxy_can_pass_on_is_refused_by_name(fleet, session, tables):
    """One of another proxy that is longer ends the connection between the two, and with it all that others have asked over it."""
    table = tables[3]
    for column in ("a", "b"):
        session.execute(session.prepare(f"UPDATE {table} SET {column} = ? WHERE name = 'long'"), ("x" * 2_500_000,))
    for to in range(3):
        other = fleet.connect(to=to)
        with pytest.raises(InvalidRequest, match="told of its row has 5000... bytes"):
            other.execute(f"INSERT INTO {table} (name) VALUES ('long') IF NOT EXISTS")
        assert not other.execute(f"UPDATE {table} SET a = '' WHERE name = 'long' IF c = 'nothing'").one()["[applied]"]
        other.cluster.shutdown()
    assert session.execute(f"UPDATE {table} SET a = '' WHERE name = 'long' IF EXISTS").one()["[applied]"]


def test_a_row_that_a_deletion_did_not_reach_is_there(session, tables, past_the_proxies):
    """Its value has a timestamp in the future, and is later than the deletion."""
    table, in_an_hour = tables[3], int(time.time() + 3600) * 1_000_000
    past_the_proxies.execute(f"INSERT INTO {table} (name, c) VALUES ('later', 'x') USING TIMESTAMP {in_an_hour}")
    session.execute(f"DELETE FROM {table} WHERE name = 'later'")
    with pytest.raises(InvalidRequest, match="in the future"):
        session.execute(f"INSERT INTO {table} (name, c) VALUES ('later', 'y') IF NOT EXISTS")


def test_the_mode_changes_while_proxies_stand_still_and_die(fleet, session):
    """Who decides changes while it is decided who does. What was answered as applied stays so, and no value has two successors."""
    table = name()
    once_served(session, LEASES.format(table))
    chains = Chains(fleet, table, ["a", "b"], 4).begin()
    with chains:
        for mode in ("conditional", "off"):
            chains.wait_for(100)
            once_served(session, f"ALTER TABLE {table} WITH transactional_mode = '{mode}'")
            for victim in fleet.proxies:
                # Shorter than its lease, twice, and then for good.
                for _ in range(2):
                    victim.pause()
                    time.sleep(1.5)
                    victim.resume()
                    time.sleep(0.1)
                victim.kill()
                time.sleep(1)
                victim.start()
            fleet.wait_until_settled(3)
            wait_for_mode(fleet, table, mode)
            chains.wait_for(100)
    check_at_rest(fleet, chains)


def wait_for_mode(fleet, table, mode):
    # The session of the test may have lost all hosts that it knew.
    reader = fleet.connect()
    change_mode(reader, mode, [table])
    reader.cluster.shutdown()

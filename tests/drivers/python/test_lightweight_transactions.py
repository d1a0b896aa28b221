"""Conditional statements: decided by the ring, passed on unchanged, never repeated by the proxy."""

from cassandra import ConsistencyLevel, WriteTimeout
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement


def test_insert_if_not_exists(session, table):
    name = table("id int PRIMARY KEY, v text")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?) IF NOT EXISTS")
    assert session.execute(insert, (1, "first")).was_applied
    refused = session.execute(insert, (1, "second"))
    assert not refused.was_applied
    assert refused.one().v == "first"


def test_update_if(session, table):
    name = table("id int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 1) IF NOT EXISTS")
    assert session.execute(f"UPDATE {name} SET v = 2 WHERE id = 1 IF v = 1").was_applied
    refused = session.execute(f"UPDATE {name} SET v = 3 WHERE id = 1 IF v = 1")
    assert (refused.was_applied, refused.one().v) == (False, 2)
    assert session.execute(f"DELETE FROM {name} WHERE id = 1 IF EXISTS").was_applied


def test_serial_read(session, table):
    name = table("id int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 1) IF NOT EXISTS")
    read = SimpleStatement(f"SELECT v FROM {name} WHERE id = 1", consistency_level=ConsistencyLevel.SERIAL)
    assert session.execute(read).one().v == 1


def test_local_serial_consistency_is_passed_on(session, table):
    name = table("id int PRIMARY KEY, v int")
    insert = SimpleStatement(f"INSERT INTO {name} (id, v) VALUES (1, 1) IF NOT EXISTS",
                             serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL)
    assert session.execute(insert).was_applied
    assert not session.execute(insert).was_applied


def test_at_most_one_of_many_wins(session, table):
    """Under contention the ring may answer with a timeout, which leaves open whether the write took place."""
    name = table("id int PRIMARY KEY, winner int")
    insert = session.prepare(f"INSERT INTO {name} (id, winner) VALUES (1, ?) IF NOT EXISTS")
    results = execute_concurrent_with_args(session, insert, [(n,) for n in range(6)], concurrency=3,
                                           raise_on_first_error=False)
    applied = [number for number, (fine, result) in enumerate(results) if fine and result.was_applied]
    timeouts = [result for fine, result in results if not fine]
    for error in timeouts:
        if not isinstance(error, WriteTimeout):
            raise error
    assert len(applied) == 1 or (timeouts and not applied)
    read = SimpleStatement(f"SELECT winner FROM {name} WHERE id = 1", consistency_level=ConsistencyLevel.SERIAL)
    winner = session.execute(read).one().winner
    assert not applied or winner == applied[0]

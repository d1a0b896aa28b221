"""Logged, unlogged and counter batches, of prepared and plain statements."""

import pytest
from cassandra.query import BatchStatement, BatchType, SimpleStatement


@pytest.mark.parametrize("kind", [BatchType.LOGGED, BatchType.UNLOGGED], ids=["logged", "unlogged"])
def test_batch_of_prepared_and_plain_statements(session, table, kind):
    name = table("id int PRIMARY KEY, v text")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    batch = BatchStatement(kind)
    for number in range(20):
        batch.add(insert, (number, f"prepared {number}"))
    batch.add(f"INSERT INTO {name} (id, v) VALUES (20, 'plain')")
    batch.add(SimpleStatement(f"INSERT INTO {name} (id, v) VALUES (%s, %s)"), (21, "with values"))
    session.execute(batch)
    rows = dict(session.execute(f"SELECT id, v FROM {name}").all())
    assert len(rows) == 22
    assert (rows[7], rows[20], rows[21]) == ("prepared 7", "plain", "with values")


def test_counter_batch(session, table):
    name = table("id int PRIMARY KEY, hits counter")
    add = session.prepare(f"UPDATE {name} SET hits = hits + ? WHERE id = ?")
    for _ in range(3):
        batch = BatchStatement(BatchType.COUNTER)
        for number in range(5):
            batch.add(add, (number, number))
        session.execute(batch)
    assert dict(session.execute(f"SELECT id, hits FROM {name}").all()) == {number: 3 * number for number in range(5)}


def test_batch_as_text(session, table):
    name = table("id int PRIMARY KEY, v text")
    session.execute(f"BEGIN UNLOGGED BATCH INSERT INTO {name} (id, v) VALUES (1, 'a'); "
                    f"INSERT INTO {name} (id, v) VALUES (2, 'b'); DELETE FROM {name} WHERE id = 1; APPLY BATCH")
    assert session.execute(f"SELECT id FROM {name} WHERE id = 2").one().id == 2


def test_conditional_batch(session, table):
    name = table("id int, part int, v text, PRIMARY KEY (id, part)")
    batch = BatchStatement()
    batch.add(f"INSERT INTO {name} (id, part, v) VALUES (1, 1, 'a') IF NOT EXISTS")
    batch.add(f"INSERT INTO {name} (id, part, v) VALUES (1, 2, 'b')")
    assert session.execute(batch).was_applied
    again = BatchStatement()
    again.add(f"INSERT INTO {name} (id, part, v) VALUES (1, 1, 'c') IF NOT EXISTS")
    again.add(f"INSERT INTO {name} (id, part, v) VALUES (1, 2, 'd')")
    assert not session.execute(again).was_applied
    assert {row.v for row in session.execute(f"SELECT v FROM {name} WHERE id = 1")} == {"a", "b"}


def test_batch_prepared_on_this_session_run_on_a_fresh_one(connect, version, session, keyspace, table):
    """A batch whose statements are known to the ring under their id, but were never prepared on this connection."""
    name = table("id int PRIMARY KEY, v text")
    insert = session.prepare(f"INSERT INTO {keyspace}.{name} (id, v) VALUES (?, ?)")
    batch = BatchStatement()
    for number in range(10):
        batch.add(insert, (number, "x"))
    other = connect(version).connect()
    other.execute(batch)
    assert len(session.execute(f"SELECT id FROM {name}").all()) == 10

"""Schema changes: seen by the session that makes them at once, and by other sessions through events."""

import os

import pytest
from cassandra import WriteFailure

from harness import waits

TURNS = int(os.environ.get("SHUNT_SCHEMA_TURNS", "2"))


def eventually(condition, what: str) -> None:
    waits.until(condition, f"another session sees {what}")


@pytest.fixture
def watcher(connect, version):
    """Another application's cluster object, with its own control connection."""
    cluster = connect(version, schema_event_refresh_window=0, max_schema_agreement_wait=180)
    cluster.connect()
    return cluster


def test_table_created_altered_and_dropped(session, keyspace, watcher):
    def tables():
        return watcher.metadata.keyspaces[keyspace].tables

    session.execute("CREATE TABLE changing (id int PRIMARY KEY)")
    session.execute("INSERT INTO changing (id) VALUES (1)")
    eventually(lambda: "changing" in tables(), "the table")
    session.execute("ALTER TABLE changing ADD extra text")

    def is_written():
        # The proxy, as drivers do, waits for 10 s at most until all nodes have the column.
        try:
            return session.execute("UPDATE changing SET extra = 'x' WHERE id = 1") is not None
        except WriteFailure as failure:
            if "INCOMPATIBLE_SCHEMA" not in str(failure):
                raise

    waits.until(is_written, "all nodes have the column")
    eventually(lambda: "extra" in tables()["changing"].columns, "the column")
    session.execute("DROP TABLE changing")
    eventually(lambda: "changing" not in tables(), "that the table is gone")


def test_index_created_and_dropped(session, keyspace, watcher):
    def tables():
        return watcher.metadata.keyspaces[keyspace].tables

    def indexes():
        return tables()["indexed"].indexes

    session.execute("CREATE TABLE indexed (id int PRIMARY KEY, extra text)")
    eventually(lambda: "indexed" in tables(), "the table")
    session.execute("CREATE INDEX indexed_extra ON indexed (extra)")
    eventually(lambda: "indexed_extra" in indexes(), "the index")
    session.execute("DROP INDEX indexed_extra")
    eventually(lambda: "indexed_extra" not in indexes(), "that the index is gone")
    session.execute("DROP TABLE indexed")


def test_keyspace_created_and_dropped(backend, session, version, watcher):
    name = f"python_passing_v{version}"
    copies = min(2, backend.copies)
    session.execute(f"CREATE KEYSPACE {name} WITH replication = "
                    f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}")
    eventually(lambda: name in watcher.metadata.keyspaces, "the keyspace")
    session.execute(f"CREATE TABLE {name}.t (id int PRIMARY KEY, v int)")
    for number in range(20):
        session.execute(f"INSERT INTO {name}.t (id, v) VALUES ({number}, 1)")
    assert len(session.execute(f"SELECT id FROM {name}.t").all()) == 20
    session.execute(f"DROP KEYSPACE {name}")
    eventually(lambda: name not in watcher.metadata.keyspaces, "that the keyspace is gone")


def test_type_created_and_dropped(session, keyspace, watcher):
    session.execute("CREATE TYPE passing (a int)")
    def types():
        return watcher.metadata.keyspaces[keyspace].user_types

    eventually(lambda: "passing" in types(), "the type")
    session.execute("DROP TYPE passing")
    eventually(lambda: "passing" not in types(), "that the type is gone")


def test_the_schema_is_agreed_upon_when_the_answer_arrives(session):
    """The driver compares the versions in system.local and system.peers and notes what it found in the response."""
    future = session.execute_async("CREATE TABLE agreed (id int PRIMARY KEY)")
    future.result()
    assert future.is_schema_agreed
    session.execute("DROP TABLE agreed")


def test_a_table_made_by_one_session_is_used_by_another_at_once(connect, version, keyspace, session):
    other = connect(version).connect(keyspace)
    for turn in range(TURNS):
        session.execute(f"CREATE TABLE turn_{turn} (id int PRIMARY KEY, v int)")
        insert = other.prepare(f"INSERT INTO turn_{turn} (id, v) VALUES (?, ?)")
        other.execute(insert, (turn, turn))
        session.execute(f"DROP TABLE turn_{turn}")


def test_a_table_dropped_and_made_again_with_other_columns(session):
    for kind, value in (("int", 7), ("text", "seven")):
        session.execute(f"CREATE TABLE reborn (id {kind} PRIMARY KEY, v int)")
        insert = session.prepare("INSERT INTO reborn (id, v) VALUES (?, 1)")
        session.execute(insert, (value,))
        assert session.execute("SELECT id FROM reborn").one().id == value
        session.execute("DROP TABLE reborn")

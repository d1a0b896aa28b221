"""Prepared and plain statements, values by position, by name, null and unset, keyspaces by USE."""

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.query import UNSET_VALUE, SimpleStatement, dict_factory


def test_insert_and_select_prepared(session, table):
    name = table("id int PRIMARY KEY, name text, weight double")
    insert = session.prepare(f"INSERT INTO {name} (id, name, weight) VALUES (?, ?, ?)")
    select = session.prepare(f"SELECT name, weight FROM {name} WHERE id = ?")
    for number in range(200):
        session.execute(insert, (number, f"name {number}", number / 4))
    for number in range(200):
        row = session.execute(select, (number,)).one()
        assert (row.name, row.weight) == (f"name {number}", number / 4)
    assert session.execute(select, (1000,)).one() is None


def test_update_and_delete(session, table):
    name = table("id int PRIMARY KEY, name text")
    session.execute(f"INSERT INTO {name} (id, name) VALUES (1, 'one')")
    session.execute(f"UPDATE {name} SET name = 'uno' WHERE id = 1")
    assert session.execute(f"SELECT name FROM {name} WHERE id = 1").one().name == "uno"
    session.execute(f"DELETE FROM {name} WHERE id = 1")
    assert session.execute(f"SELECT name FROM {name} WHERE id = 1").one() is None


def test_literals_of_every_notation(session, table):
    name = table('"Key" text, part int, note text, PRIMARY KEY (("Key", part))')
    for key in ("plain", "it''s", "ключ", "$", "--", "/* */"):
        session.execute(f"INSERT INTO {name} (\"Key\", part, note) VALUES ('{key}', 7, $$it's; -- this$$) -- {key}\n")
        row = session.execute(f"SELECT * FROM {name} WHERE part = 7 /* either order */ AND \"Key\" = '{key}'").one()
        assert row.note == "it's; -- this"


def test_values_with_a_simple_statement(session, table):
    name = table("id int PRIMARY KEY, note text")
    session.execute(f"INSERT INTO {name} (id, note) VALUES (%s, %s)", (5, "quote ' and % sign"))
    rows = session.execute(f"SELECT note FROM {name} WHERE id = %(id)s", {"id": 5})
    assert rows.one().note == "quote ' and % sign"


def test_named_values(session, table):
    name = table("id int PRIMARY KEY, first text, second text")
    insert = session.prepare(f"INSERT INTO {name} (id, first, second) VALUES (:id, :a, :b)")
    session.execute(insert, {"b": "second", "id": 3, "a": "first"})
    select = session.prepare(f"SELECT first, second FROM {name} WHERE id = :id")
    assert session.execute(select, {"id": 3}).one() == ("first", "second")


def test_null_deletes_and_unset_leaves_alone(session, table):
    name = table("id int PRIMARY KEY, first text, second text")
    insert = session.prepare(f"INSERT INTO {name} (id, first, second) VALUES (?, ?, ?)")
    session.execute(insert, (1, "one", "two"))
    session.execute(insert, (1, UNSET_VALUE, None))
    assert session.execute(f"SELECT first, second FROM {name} WHERE id = 1").one() == ("one", None)


def test_prepared_again_and_by_another_session(connect, version, session, keyspace, table):
    name = table("id int PRIMARY KEY, v int")
    text = f"INSERT INTO {keyspace}.{name} (id, v) VALUES (?, ?)"
    first = session.prepare(text)
    other = connect(version).connect()
    second = other.prepare(text)
    session.execute(first, (1, 10))
    other.execute(second, (2, 20))
    assert {tuple(row) for row in session.execute(f"SELECT id, v FROM {name}")} == {(1, 10), (2, 20)}


def test_prepared_statement_follows_a_changed_table(session, table):
    """The metadata of the result changes after an ALTER TABLE; in v5 the server says so, in v4 columns are named."""
    name = table("id int PRIMARY KEY, a int", own=True)
    session.execute(f"INSERT INTO {name} (id, a) VALUES (1, 2)")
    select = session.prepare(f"SELECT id, a FROM {name} WHERE id = ?")
    assert session.execute(select, (1,)).one() == (1, 2)
    session.execute(f"ALTER TABLE {name} ADD b int")
    session.execute(f"INSERT INTO {name} (id, a, b) VALUES (1, 3, 4)")
    assert session.execute(select, (1,)).one() == (1, 3)
    assert session.execute(f"SELECT * FROM {name} WHERE id = 1").one() == (1, 3, 4)


def test_star_select_prepared_before_a_column_was_added(session, version, table):
    """v5 has result-metadata ids. Before it drivers decode by the columns of the day of PREPARE, unless they are told to prepare
    again, as the node tells them that forgot the statement with the change."""
    name = table("id int PRIMARY KEY, a int", own=True)
    session.execute(f"INSERT INTO {name} (id, a) VALUES (1, 2)")
    select = session.prepare(f"SELECT * FROM {name} WHERE id = ?")
    before = select.result_metadata_id
    assert session.execute(select, (1,)).one() == (1, 2)
    session.execute(f"ALTER TABLE {name} ADD b int")
    session.execute(f"UPDATE {name} SET b = 4 WHERE id = 1")
    for _ in range(10):
        assert session.execute(select, (1,)).one()._asdict() == {"id": 1, "a": 2, "b": 4}
    # With the old id each answer would carry all metadata; this driver learns the new one only by preparing again.
    assert version < 5 or select.result_metadata_id != before


def test_use_changes_the_keyspace_of_this_session_alone(connect, version, session, keyspace, table):
    name = table("id int PRIMARY KEY, v text")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 'here')")
    used, other = connect(version).connect(), connect(version).connect()
    other.execute("USE system")
    used.execute(f"USE {keyspace}")
    assert used.keyspace == keyspace
    assert used.execute(f"SELECT v FROM {name} WHERE id = 1").one().v == "here"
    for _ in range(20):
        assert other.execute("SELECT key FROM local").one().key == "local"
        assert used.execute(f"SELECT v FROM {name}").one().v == "here"
    prepared = used.prepare(f"SELECT v FROM {name} WHERE id = ?")
    assert used.execute(prepared, (1,)).one().v == "here"


def test_keyspace_in_the_query_message(session, version, keyspace, table):
    """Protocol v5 can name the keyspace in each QUERY."""
    if version < 5:
        pytest.skip("v5 and newer")
    name = table("id int PRIMARY KEY")
    session.execute(f"INSERT INTO {name} (id) VALUES (1)")
    other = session.cluster.connect()
    assert other.execute(SimpleStatement(f"SELECT id FROM {name}", keyspace=keyspace)).one().id == 1


def test_client_timestamps_decide(session, table):
    name = table("id int PRIMARY KEY, v text")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 'new') USING TIMESTAMP 2000")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 'old') USING TIMESTAMP 1000")
    assert session.execute(f"SELECT v, writetime(v) FROM {name} WHERE id = 1").one() == ("new", 2000)


def test_dictionaries_as_rows(session, table):
    name = table("id int PRIMARY KEY, v text")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 'x')")
    profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=dict_factory)
    rows = session.execute(f"SELECT * FROM {name}", execution_profile=profile)
    assert rows.all() == [{"id": 1, "v": "x"}]

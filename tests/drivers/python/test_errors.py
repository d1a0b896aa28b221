"""Errors of the server arrive as the exception the driver has for them, with their details."""

import pytest
from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest, Unavailable
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import BatchStatement, SimpleStatement


def test_syntax_error(session):
    with pytest.raises(SyntaxException, match="line 1"):
        session.execute("SELEKT everything")


def test_syntax_error_while_preparing(session):
    with pytest.raises(SyntaxException):
        session.prepare("INSERT INTO")


def test_unknown_table(session):
    with pytest.raises(InvalidRequest, match="nowhere"):
        session.execute("SELECT * FROM nowhere")


def test_unknown_keyspace(session):
    with pytest.raises(InvalidRequest, match="no_such_keyspace"):
        session.execute("USE no_such_keyspace")
    assert session.execute("SELECT key FROM system.local").one().key == "local"


def test_value_of_the_wrong_type(session, table):
    name = table("id int PRIMARY KEY, v int")
    with pytest.raises(InvalidRequest):
        session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 'text')")


def test_already_exists(session, keyspace, table):
    name = table("id int PRIMARY KEY")
    with pytest.raises(AlreadyExists) as caught:
        session.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    assert (caught.value.keyspace, caught.value.table) == (keyspace, name)


def test_configuration_error(session, version):
    with pytest.raises((ConfigurationException, InvalidRequest)):
        session.execute(f"CREATE KEYSPACE wrong_v{version} WITH replication = {{'class': 'NoSuchStrategy'}}")


def unavailable(session, statement, arguments=None) -> Unavailable:
    """The error that the server answered. The driver's default policy wants to ask another host once, and when it knows
    only one, as behind a proxy, it reports that it has no more hosts, with the server's error inside."""
    with pytest.raises((Unavailable, NoHostAvailable)) as caught:
        session.execute(statement, arguments)
    if isinstance(caught.value, Unavailable):
        return caught.value
    for error in caught.value.errors.values():
        if isinstance(error, Unavailable):
            return error
    raise caught.value


def test_unavailable(backend, session, version):
    """More replicas than there are nodes: the coordinator refuses before it tries."""
    name = f"unavailable_v{version}"
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 5}}")
    try:
        session.execute(f"CREATE TABLE {name}.t (id int PRIMARY KEY)")
        write = SimpleStatement(f"INSERT INTO {name}.t (id) VALUES (1)", consistency_level=ConsistencyLevel.ALL)
        error = unavailable(session, write)
        assert (error.required_replicas, error.alive_replicas) == (5, len(backend.nodes))
        assert error.consistency == ConsistencyLevel.ALL
        prepared = session.prepare(f"SELECT id FROM {name}.t WHERE id = ?")
        prepared.consistency_level = ConsistencyLevel.ALL
        assert unavailable(session, prepared, (1,)).alive_replicas == len(backend.nodes)
        enough = ConsistencyLevel.QUORUM if len(backend.nodes) >= 3 else ConsistencyLevel.ONE
        session.execute(SimpleStatement(f"INSERT INTO {name}.t (id) VALUES (1)", consistency_level=enough))
    finally:
        session.execute(f"DROP KEYSPACE {name}")


def test_an_error_in_a_batch(session, table):
    name = table("id int PRIMARY KEY, v int")
    batch = BatchStatement()
    batch.add(f"INSERT INTO {name} (id, v) VALUES (1, 1)")
    batch.add(f"INSERT INTO {name} (id, nothing) VALUES (1, 1)")
    with pytest.raises(InvalidRequest):
        session.execute(batch)
    assert session.execute(f"SELECT id FROM {name}").one() is None


def test_filtering_is_refused(session, table):
    name = table("id int PRIMARY KEY, v int")
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        session.execute(f"SELECT * FROM {name} WHERE v = 1")


def test_a_statement_of_a_table_that_is_gone(session):
    session.execute("CREATE TABLE leaving (id int PRIMARY KEY)")
    insert = session.prepare("INSERT INTO leaving (id) VALUES (?)")
    session.execute(insert, (1,))
    session.execute("DROP TABLE leaving")
    with pytest.raises(InvalidRequest):
        session.execute(insert, (2,))


def test_errors_do_not_disturb_what_runs_beside_them(session, table):
    name = table("id int PRIMARY KEY, v int")
    futures = []
    for number in range(200):
        futures.append((number, session.execute_async(f"INSERT INTO {name} (id, v) VALUES ({number}, {number})")))
        futures.append((None, session.execute_async("SELECT wrong syntax from")))
    for number, future in futures:
        if number is None:
            with pytest.raises(SyntaxException):
                future.result()
        else:
            future.result()
    assert len(session.execute(f"SELECT id FROM {name}").all()) == 200

"""The embedded node refuses what it deliberately lacks as Invalid, by name. Cassandra has all of it."""

import pytest
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider

CASES = [
    ("CREATE CUSTOM INDEX by_v ON {table} (v) USING 'org.apache.cassandra.index.sasi.SASIIndex'", "SASI indexes are disabled"),
    ("CREATE CUSTOM INDEX by_e ON {table} (e) USING 'StorageAttachedIndex'", "Vector indexes are not supported"),
    ("CREATE MATERIALIZED VIEW by_v AS SELECT * FROM {table} WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)",
     "Materialized views are not supported"),
    ("CREATE FUNCTION twice (n int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return n;'",
     "User-defined functions are not supported"),
    ("CREATE AGGREGATE total (int) SFUNC twice STYPE int", "User-defined aggregates are not supported"),
    ("CREATE TRIGGER audit ON {table} USING 'com.example.Audit'", "Triggers are not supported"),
    ("CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true", "CREATE ROLE is not supported by this node, which knows no roles"),
    ("CREATE USER ann WITH PASSWORD 'secret'", "CREATE USER is not supported"),
    ("GRANT SELECT ON KEYSPACE {keyspace} TO ann", "GRANT PERMISSION is not supported"),
    ("LIST ROLES", "LIST ROLES is not supported"),
    ("ALTER TABLE {table} ALTER v MASKED WITH DEFAULT", "Data masking is not supported"),
]


@pytest.fixture(autouse=True)
def on_the_node(backend):
    if not backend.embedded:
        pytest.skip("Cassandra has all of it")


@pytest.mark.parametrize(("statement", "message"), CASES, ids=[" ".join(text.split()[:3]) for text, _ in CASES])
def test_refused_by_name(session, keyspace, table, statement, message):
    name = table("id int PRIMARY KEY, v int, e vector<float, 2>")
    with pytest.raises(InvalidRequest, match=message):
        session.execute(statement.format(table=name, keyspace=keyspace))
    assert session.execute(f"SELECT id FROM {name}").all() == []


def test_a_login_is_not_asked_for(connect, version):
    """The node is AllowAllAuthenticator: clients that bring credentials get in with any."""
    cluster = connect(version, auth_provider=PlainTextAuthProvider("anybody", "any password"))
    assert cluster.connect().execute("SELECT key FROM system.local").one().key == "local"

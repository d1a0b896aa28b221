"""Secondary indexes: Cassandra and an embedded node answer each statement alike, errors to the letter. With the older indexes
and with storage-attached ones.
"""

from __future__ import annotations

import os

import pytest

from differential import servers
from differential.endpoint import Endpoint
from harness import waits

KEYSPACE = "indexes"
TARGETS = ("i", "j", "v", "s", "keys(m)", "m", "entries(m)", "st", "full(fl)", "c1", "c2", "p2")
TABLE = """CREATE TABLE {t} (p1 int, p2 int, c1 int, c2 int, s text static, i int, j int, v text, m map<text, int>, st set<int>,
    fl frozen<list<int>>, b blob, ve vector<float, 2>, d duration, z int, PRIMARY KEY ((p1, p2), c1, c2))"""
ROWS = (
    "1, 1, 1, 1, 'a', 1, 1, 'x', {'a': 1, 'b': 2}, {1, 2}, [1], 1",
    "1, 1, 1, 2, 'a', 2, 1, 'y', {'a': 2}, {2}, [2], 2",
    "1, 1, 2, 1, 'a', 1, 2, '', {'b': 1}, {3}, [1], 3",
    "1, 2, 1, 1, 'b', 1, 3, 'x', {'c': 1}, {1}, [1, 2], 4",
    "2, 1, 1, 1, 'a', 3, 1, 'z', {'a': 1}, {4}, [], 5",
)
CONDITIONS = (
    "i = 1", "i = 1 LIMIT 2", "i = 1 PER PARTITION LIMIT 1", "i = null", "i IN (1)", "i IN (1, 2)", "i > 1", "i >= 1 AND i < 3",
    "i > 1 ALLOW FILTERING", "i = 1 AND j = 1", "i = 1 AND j = 1 ALLOW FILTERING", "i = 1 AND j > 1", "i = 1 AND z = 1",
    "i = 1 AND z = 1 ALLOW FILTERING", "z = 1", "v = 'x'", "v = ''", "v > 'x'", "s = 'a'", "s = 'a' AND i = 1",
    "m CONTAINS KEY 'a'", "m CONTAINS 1", "m CONTAINS 1 AND m CONTAINS 2", "m CONTAINS 1 AND m CONTAINS KEY 'a'", "m['a'] = 1",
    "m['a'] = 1 AND m['b'] = 2", "m['a'] = 1 AND m CONTAINS 2", "m['a'] > 1", "m = {'a': 1}", "st CONTAINS 1",
    "st CONTAINS 1 AND st CONTAINS 2", "fl = [1]", "fl = []", "fl > [1]", "fl CONTAINS 1", "c1 = 1", "c1 > 1", "c2 = 1", "c2 > 1",
    "c1 IN (1, 2)", "c2 IN (1)", "c1 = 1 AND c2 = 1", "(c1, c2) = (1, 1)", "(c1, c2) > (1, 1)", "(c1, c2) IN ((1, 1))",
    "(c1, c2) IN ((1, 1), (1, 2))", "c1 = 1 AND i = 1", "c2 = 1 AND i = 1", "c2 = 1 AND z = 1", "p2 = 1", "p2 = 3", "p1 = 1",
    "p1 = 1 AND p2 > 1", "p2 = 1 AND i = 1", "p1 = 1 AND i = 1", "p1 = 1 AND p2 = 1 AND i = 1", "p1 = 1 AND p2 = 1 AND i > 1",
    "p1 = 1 AND p2 = 1 AND i = 1 AND j = 1", "p1 = 1 AND p2 = 1 AND c1 = 1 AND i = 1", "p1 = 1 AND p2 = 1 AND c1 > 0 AND i = 1",
    "p1 = 1 AND p2 = 1 AND c2 = 1 AND i = 1", "p1 = 1 AND p2 = 1 AND c2 = 1", "p1 = 1 AND p2 = 1 AND c2 > 0",
    "p1 = 1 AND p2 IN (1, 2) AND i = 1", "p1 = 1 AND p2 IN (1) AND i = 1", "p1 = 1 AND p2 IN (1, 2) AND i = 1 ALLOW FILTERING",
    "p1 = 1 AND p2 = 1 AND i = 1 ORDER BY c1 DESC", "i = 1 ORDER BY c1 DESC", "i = 1 ORDER BY i", "token(p1, p2) > 0 AND i = 1",
    "token(p1, p2) > 0 AND c1 = 1", "token(p1, p2) > 0 AND i = 1 AND z = 1", "i = 1 AND i = 2", "i = 1 AND i > 2", "i > 1 AND i = 1",
    "i > 1 AND i > 2", "i IN (1, 2) AND i = 1", "fl CONTAINS 1 AND fl = [1] ALLOW FILTERING", "expr(nope, '1')",
)
CHANGES = (
    "CREATE INDEX ON {t} (nope)", "CREATE INDEX ON {t} ()", "CREATE INDEX ON {t} (i, v)", "CREATE INDEX ON {t} (d)",
    "CREATE INDEX ON {t} (fl)", "CREATE INDEX ON {t} (full(m))", "CREATE INDEX ON {t} (keys(st))", "CREATE INDEX ON {t} (values(i))",
    "CREATE INDEX \"we ird\" ON {t} (z)", "CREATE CUSTOM INDEX ON {t} (z)", "CREATE INDEX ON {t} (z) USING 'nonsense'",
    "CREATE INDEX ON {t} (z) WITH OPTIONS = {'a': 'b'}", "CREATE INDEX ON {t} (b) USING 'sai'",
    "CREATE INDEX ON {t} (z) USING 'sai' WITH OPTIONS = {'zz': '1'}",
    "CREATE INDEX ON {t} (z) USING 'sai' WITH OPTIONS = {'normalize': 'true'}",
    "CREATE CUSTOM INDEX ON {t} (z) USING 'org.apache.cassandra.index.sasi.SASIIndex'", "CREATE INDEX {t}_i_idx ON {t} (z)",
    "CREATE INDEX again ON {t} (i){class}", "CREATE INDEX IF NOT EXISTS again ON {t} (i){class}", "ALTER TABLE {t} DROP i",
    "ALTER TABLE {t} RENAME c1 TO cc", "DESCRIBE INDEX {t}_m_idx", "DESCRIBE INDEX nope", "DROP INDEX nope", "DROP INDEX IF EXISTS nope",
    "SELECT * FROM system_schema.indexes WHERE keyspace_name = '" + KEYSPACE + "'", "DROP INDEX {t}_i_idx", "SELECT z FROM {t} WHERE i = 1",
    "DROP TABLE {t}", "SELECT * FROM system_schema.indexes WHERE keyspace_name = '" + KEYSPACE + "'",
)


# Both refusals begin so. The rest is the remedy: Cassandra names its configuration file, which an embedded node lacks.
SASI_REFUSED = "SASI indexes are disabled"


@pytest.fixture(scope="module")
def endpoints():
    with servers.both(os.environ.get("SHUNT_NODE"), os.environ.get("SHUNT_CASSANDRA")) as contacts:
        both = [Endpoint(contact, KEYSPACE, connections=1) for contact in contacts]
        for endpoint in both:
            done(endpoint, f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
            done(endpoint, f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
            done(endpoint, f"USE {KEYSPACE}")
        yield both
        for endpoint in both:
            endpoint.close()


def done(endpoint, text):
    outcome = endpoint.execute(text)
    assert outcome.kind != "error", (text, outcome)
    return outcome


def told(outcome):
    """The parts that a client sees of an answer."""
    message = outcome.message
    if message and message.startswith(SASI_REFUSED):
        message = SASI_REFUSED
    return outcome.kind, outcome.columns, outcome.rows, outcome.error if outcome.kind == "error" else "", message


def are_built(endpoint):
    """Cassandra builds an index after it has answered."""
    built = done(endpoint, f"SELECT index_name FROM system.\"IndexInfo\" WHERE table_name = '{KEYSPACE}'").rows
    return len(built) >= len(TARGETS)


@pytest.mark.parametrize(("table", "using"), [("older", ""), ("attached", " USING 'sai'")])
def test_an_index_answers_as_cassandras_does(endpoints, table, using):
    def statement(text):
        return text.replace("{t}", table).replace("{class}", using)

    for endpoint in endpoints:
        done(endpoint, statement(TABLE))
        for row in ROWS:
            done(endpoint, f"INSERT INTO {table} (p1, p2, c1, c2, s, i, j, v, m, st, fl, z) VALUES ({row})")
        done(endpoint, f"INSERT INTO {table} (p1, p2, s) VALUES (3, 3, 'a')")
        for target in TARGETS:
            done(endpoint, f"CREATE INDEX ON {table} ({target}){using}")
        waits.until(lambda: are_built(endpoint), "indexes that are built")
    texts = [f"SELECT p1, p2, z FROM {table} WHERE {condition}" for condition in CONDITIONS]
    texts += [f"SELECT DISTINCT p1, p2, s FROM {table} WHERE s = 'a'", f"SELECT count(*) FROM {table} WHERE i = 1",
              f"SELECT sum(z) FROM {table} WHERE i = 1 GROUP BY p1, p2", f"SELECT s FROM {table} WHERE c1 = 1"]
    texts += [statement(text) for text in CHANGES]
    differences = []
    for text in texts:
        ours, cassandra = (told(endpoint.execute(text)) for endpoint in endpoints)
        if ours != cassandra:
            differences.append(f"{text}\n  ours      {ours}\n  Cassandra {cassandra}")
    assert not differences, "\n".join(differences)

"""cqlsh from PyPI, unmodified: DESCRIBE, COPY both ways, tracing, paging, errors."""

import csv

import pytest

from harness import cqlsh as program

KEYSPACE = "shell"
ROWS = 3000


@pytest.fixture(scope="module")
def cqlsh(backend, tmp_path_factory):
    """Runs statements as a file, as a user would with -f, and returns what was printed."""
    directory = tmp_path_factory.mktemp("cqlsh")

    def run(script: str, *options: str, fails: bool = False) -> str:
        return program.run(script, backend.host, backend.port, directory, options, fails)

    return run


@pytest.fixture(scope="module", autouse=True)
def schema(backend, cqlsh, tmp_path_factory):
    rows = tmp_path_factory.mktemp("rows") / "rows.csv"
    with open(rows, "w", newline="") as output:
        csv.writer(output).writerows((n, n % 7, f"note, \"{n}\"", n / 8, f"{{'k{n}': {n}}}") for n in range(ROWS))
    copies = min(2, backend.copies)
    cqlsh(f"""
        DROP KEYSPACE IF EXISTS {KEYSPACE};
        DROP KEYSPACE IF EXISTS {KEYSPACE}2;
        CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {copies}}};
        CREATE TYPE {KEYSPACE}.pair (a int, b text);
        CREATE TABLE {KEYSPACE}.items (id int, part int, note text, weight double, tags map<text, int>,
            PRIMARY KEY (id, part)) WITH comment = 'things';
        CREATE INDEX items_note ON {KEYSPACE}.items (note);
        CREATE TABLE {KEYSPACE}.copied (id int, part int, note text, weight double, tags map<text, int>,
            PRIMARY KEY (id, part));
        CONSISTENCY ALL;
        COPY {KEYSPACE}.items (id, part, note, weight, tags) FROM '{rows}';
    """)
    yield rows
    cqlsh(f"DROP KEYSPACE {KEYSPACE};")


def test_cqlsh_names_its_server(cqlsh):
    assert "Cassandra 5.0." in cqlsh("SHOW VERSION;")


def test_describe_tables_and_keyspaces(cqlsh):
    text = cqlsh("DESCRIBE TABLES; DESCRIBE KEYSPACES;", "-k", KEYSPACE)
    assert "items" in text
    assert KEYSPACE in text


def test_describe_a_table(cqlsh):
    text = cqlsh(f"DESCRIBE TABLE {KEYSPACE}.items;")
    assert f"CREATE TABLE {KEYSPACE}.items" in text
    assert "comment = 'things'" in text


def test_describe_an_index(cqlsh):
    index = f"CREATE INDEX items_note ON {KEYSPACE}.items"
    text = cqlsh(f"DESCRIBE TABLE {KEYSPACE}.items; DESCRIBE INDEX {KEYSPACE}.items_note;")
    assert text.count(index) == 2


def test_describe_a_keyspace_is_a_script_that_makes_it(cqlsh):
    text = cqlsh(f"DESCRIBE KEYSPACE {KEYSPACE};")
    script = "\n".join(line for line in text.splitlines() if not line.startswith("WARNING"))
    script = script.replace(f"{KEYSPACE}.", f"{KEYSPACE}2.")
    script = script.replace(f"KEYSPACE {KEYSPACE} ", f"KEYSPACE {KEYSPACE}2 ")
    again = cqlsh(f"{script}\nDESCRIBE KEYSPACE {KEYSPACE}2; DROP KEYSPACE {KEYSPACE}2;")
    assert again.replace(f"{KEYSPACE}2", KEYSPACE) == text


def test_describe_a_type_and_the_cluster(cqlsh):
    text = cqlsh(f"DESCRIBE TYPE {KEYSPACE}.pair; DESCRIBE CLUSTER;")
    assert "CREATE TYPE shell.pair" in text
    assert "Murmur3Partitioner" in text


def test_copy_from_brought_every_row(cqlsh):
    text = cqlsh(f"CONSISTENCY ALL; SELECT count(*) FROM {KEYSPACE}.items; "
                 f"SELECT note, tags FROM {KEYSPACE}.items WHERE id = 1234;")
    assert f" {ROWS}\n" in text
    assert 'note, "1234"' in text and "{'k1234': 1234}" in text


def test_copy_to_and_back(cqlsh, schema, tmp_path):
    out = tmp_path / "out.csv"
    text = cqlsh(f"CONSISTENCY ALL; COPY {KEYSPACE}.items (id, part, note, weight, tags) TO '{out}'; "
                 f"COPY {KEYSPACE}.copied (id, part, note, weight, tags) FROM '{out}'; "
                 f"SELECT count(*) FROM {KEYSPACE}.copied;")
    assert f"{ROWS} rows exported to 1 files" in text
    assert f" {ROWS}\n" in text

    def read(path):
        with open(path, newline="") as file:
            return sorted((int(i), int(part), note, float(weight), tags.replace(" ", ""))
                          for i, part, note, weight, tags in csv.reader(file, escapechar="\\"))

    assert [row[0] for row in read(out)] == list(range(ROWS))
    assert [row[:2] + row[3:] for row in read(out)] == [row[:2] + row[3:] for row in read(schema)]


def test_tracing(cqlsh):
    text = cqlsh(f"TRACING ON; SELECT note FROM {KEYSPACE}.items WHERE id = 5;")
    assert "Tracing session:" in text
    assert "Request complete" in text


def test_paging(cqlsh):
    text = cqlsh(f"PAGING 100; SELECT id FROM {KEYSPACE}.items;")
    assert f"({ROWS} rows)" in text


def test_errors_are_shown(cqlsh):
    text = cqlsh(f"SELEKT;\nSELECT * FROM {KEYSPACE}.nothing;", fails=True)
    assert "SyntaxException" in text
    assert "InvalidRequest" in text


def test_lightweight_transaction_and_batch(cqlsh):
    text = cqlsh(f"BEGIN BATCH INSERT INTO {KEYSPACE}.items (id, part, note) VALUES (-1, 0, 'a'); "
                 f"INSERT INTO {KEYSPACE}.items (id, part, note) VALUES (-1, 1, 'b'); APPLY BATCH; "
                 f"INSERT INTO {KEYSPACE}.items (id, part, note) VALUES (-1, 0, 'c') IF NOT EXISTS; "
                 f"DELETE FROM {KEYSPACE}.items WHERE id = -1;")
    assert "False" in text

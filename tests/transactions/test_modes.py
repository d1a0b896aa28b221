"""Tables whose statements are transactions whatever their text says: `mixed_reads` and `full`."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import BatchStatement, SimpleStatement

from harness.waits import until
from locks.fleet import VERSIONS, insistent

from .conftest import KEYSPACE, insistently
from .known import wait_until_taken


def one_of_each(fleet, session, modes, columns):
    """The names of tables, by their modes, for as long as they are needed."""
    names = {mode: f"{mode}_{uuid.uuid4().hex[:8]}" for mode in modes}
    for mode, name in names.items():
        session.execute(f"CREATE TABLE {name} ({columns})")
        session.execute(f"ALTER TABLE {name} WITH transactional_mode = '{mode}'")
    wait_until_taken(fleet, *(f"{KEYSPACE}.{name}" for name in names.values()), where="k = -1")
    yield names
    for name in names.values():
        session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'off'")
        session.execute(f"DROP TABLE {name}")


@pytest.fixture(scope="module")
def tables(fleet, session):
    columns = "k int PRIMARY KEY, v int, s set<int>, n map<int, int>"
    yield from one_of_each(fleet, session, ("mixed_reads", "full"), columns)


@pytest.fixture(params=["mixed_reads", "full"])
def table(session, tables, request):
    name = tables[request.param]
    for number in range(1, 6):
        session.execute(f"DELETE FROM {name} WHERE k = {number}")
    return name


def was_transaction(result):
    """True if an answer is that of a transaction (from version 4 on it says so)."""
    return "shunt-applied" in (result.response_future.custom_payload or {})


@pytest.mark.parametrize("session", VERSIONS, indirect=True)
def test_statements_become_transactions(session, table):
    is_full = table.startswith("full")
    says = session.version >= 4
    insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT v FROM {table} WHERE k = ?")
    qualified = f"INSERT INTO {KEYSPACE}.{table} (k, v) VALUES (2, 20)"
    batch = BatchStatement()
    batch.add(insert, (3, 30))
    batch.add(SimpleStatement(f"INSERT INTO {table} (k, v) VALUES (4, 40)"))
    text_batch = f"BEGIN BATCH INSERT INTO {table} (k, v) VALUES (5, 50) UPDATE {table} SET v = v + 1 WHERE k = 1 APPLY BATCH"
    writes = [session.execute(insert, (1, 10)), session.execute(qualified), session.execute(batch), session.execute(text_batch),
              session.execute(session.prepare(f"BEGIN BATCH DELETE FROM {table} WHERE k = ? APPLY BATCH"), (4,)),
              session.execute(f"UPDATE {table} SET s = s + {{1}} WHERE k = 1")]
    assert [was_transaction(write) for write in writes] == [says] * len(writes)
    reads = [session.execute(select, (1,)), session.execute(f"SELECT v FROM {table} WHERE k = 1")]
    assert [was_transaction(read) for read in reads] == [says and is_full] * 2
    assert [read.one() for read in reads] == [{"v": 11}] * 2
    found = {number: row["v"] for number in range(1, 6) if (row := session.execute(select, (number,)).one())}
    assert found == {1: 11, 2: 20, 3: 30, 5: 50}


@pytest.mark.parametrize("statement, shown", [
    ("INSERT INTO {} (k, v) VALUES (1, 1) USING TIMESTAMP 5", "custom timestamps"),
    ("UPDATE {} USING TTL 5 SET v = 1 WHERE k = 1", "custom ttls"),
    ("INSERT INTO {} (k, v) VALUES (1, 1) IF NOT EXISTS", "their own conditions"),
    ("DELETE n[NULL] FROM {} WHERE k = 1", "null"),
    ("DELETE n[(int)blob_as_int(0x00000001)], v FROM {} WHERE k = 1 IF EXISTS", "their own conditions"),
])
def test_unsuitable_statements_do_not_go_past_transactions(session, table, statement, shown):
    for ask in (session.execute, lambda text: session.execute(session.prepare(text))):
        with pytest.raises(InvalidRequest, match=shown):
            ask(statement.format(table))
    assert session.execute(f"SELECT * FROM {table} WHERE k = 1").one() is None


@pytest.mark.parametrize("statement, values", [
    ("UPDATE {} SET v = blob_as_int(?) WHERE k = 1", (b"1",)),
    ("UPDATE {} SET v = from_json(?) WHERE k = 1", ("x",)),
    ("UPDATE {} SET v = 10 / (int)? WHERE k = 1", (0,)),
    ("INSERT INTO {} (k, v) VALUES (1, 10 % ?)", (0,)),
])
def test_values_that_a_node_would_compute_are_refused_before_the_commit(session, table, statement, values):
    """Else it would be committed, and refused by each node, each time."""
    try:
        prepared = session.prepare(statement.format(table))
    except InvalidRequest:
        prepared = session.prepare(statement.replace("blob_as_int", "blobAsInt").replace("from_json", "fromJson").format(table))
    with pytest.raises(InvalidRequest, match="bind what comes of it"):
        session.execute(prepared, values)
    session.execute(f"UPDATE {table} SET v = 1 WHERE k = 1")


def test_a_batch_with_another_table_is_refused(session, table):
    session.execute("CREATE TABLE IF NOT EXISTS modeless (k int PRIMARY KEY, v int)")
    batch = BatchStatement()
    batch.add(SimpleStatement("INSERT INTO modeless (k, v) VALUES (1, 1)"))
    batch.add(SimpleStatement(f"INSERT INTO {table} (k, v) VALUES (1, 1)"))
    with pytest.raises(InvalidRequest, match="modeless takes part in no transactions"):
        session.execute(batch)


def test_an_increment_by_a_plain_statement_and_one_by_a_transaction_both_count(session, table):
    session.execute(f"INSERT INTO {table} (k, v) VALUES (1, 0)")
    add = f"UPDATE {table} SET v = v + 1 WHERE k = 1"
    in_transaction = f"BEGIN TRANSACTION {add}; COMMIT TRANSACTION"
    futures = [session.execute_async(text) for _ in range(30) for text in (add, in_transaction)]
    for future in futures:
        future.result()
    assert session.execute(f"SELECT v FROM {table} WHERE k = 1").one() == {"v": 60}


def test_a_full_read_sees_no_part_of_a_transaction(session, table):
    if not table.startswith("full"):
        pytest.skip("only reads of a table with mode full are transactions")
    for number in (1, 2):
        session.execute(f"INSERT INTO {table} (k, v) VALUES ({number}, 0)")
    seen, ended = set(), threading.Event()

    def write():
        value = 0
        while not ended.is_set():
            value += 1
            session.execute(f"BEGIN BATCH UPDATE {table} SET v = {value} WHERE k = 1; UPDATE {table} SET v = {value} WHERE k = 2 APPLY BATCH")

    writer = threading.Thread(target=write)
    writer.start()
    both = (f"BEGIN TRANSACTION LET a = (SELECT v FROM {table} WHERE k = 1); LET b = (SELECT v FROM {table} WHERE k = 2); "
            f"SELECT a.v, b.v; COMMIT TRANSACTION")
    plain = SimpleStatement(f"SELECT v FROM {table} WHERE k = 2", consistency_level=ConsistencyLevel.ONE)
    last = [0]

    def have_seen_many():
        # A plain read of the one is not older than a transaction's of both that ended before it.
        pair = list(session.execute(both).one().values())
        assert pair[0] == pair[1]
        alone = session.execute(plain).one()["v"]
        assert last[0] <= pair[0] <= alone
        last[0] = alone
        seen.add(alone)
        return len(seen) > 20

    try:
        until(have_seen_many, "many values", every_seconds=0, told=lambda: seen)
    finally:
        ended.set()
        writer.join()


@pytest.mark.parametrize("option", ["default_time_to_live = 60", "gc_grace_seconds = 60"])
def test_a_table_that_forgets_too_soon_is_read_and_not_written_to(session, option):
    """Nodes expire rows by their own clocks, and a late write is hidden for as long as they remember a deletion."""
    name = f"soon_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int) WITH {option}")
    for mode in ("mixed_reads", "full"):
        with pytest.raises(InvalidRequest, match=option):
            session.execute(f"ALTER TABLE {name} WITH transactional_mode = '{mode}'")
    session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'unsafe'")
    session.execute(f"INSERT INTO {name} (k, v) VALUES (1, 5)")
    with pytest.raises(InvalidRequest, match=option):
        session.execute(f"BEGIN TRANSACTION UPDATE {name} SET v = 6 WHERE k = 1; COMMIT TRANSACTION")
    read = session.execute(f"BEGIN TRANSACTION SELECT v FROM {name} WHERE k = 1; COMMIT TRANSACTION")
    assert read.one()["v"] == 5
    session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'off'")
    session.execute(f"DROP TABLE {name}")


def test_a_table_made_anew_is_written_to_at_once_by_the_text_that_the_former_knew(session):
    """An earlier answer of a node about a name counts for the decision too, unless it concerns another table than the plan's."""
    name = f"anew_{uuid.uuid4().hex[:8]}"
    create = f"CREATE TABLE {name} (k int PRIMARY KEY, v int)"
    session.execute(create)
    session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'unsafe'")
    text = (f"BEGIN TRANSACTION LET was = (SELECT v FROM {name} WHERE k = 1); SELECT was.v; "
            f"IF was IS NULL THEN INSERT INTO {name} (k, v) VALUES (1, 1); END IF COMMIT TRANSACTION")
    for _ in range(8):
        session.execute(text)
        assert session.execute(f"SELECT v FROM {name} WHERE k = 1").one()["v"] == 1
        session.execute(f"DROP TABLE {name}")
        session.execute(create)
    session.execute(f"ALTER TABLE {name} WITH transactional_mode = 'off'")
    session.execute(f"DROP TABLE {name}")


def test_changes_of_two_keyspaces_at_a_time_are_all_made(fleet, session, nodes):
    """Operators change the modes of several tables, in two keyspaces, through each of the proxies at the
    same time. Every mode is a row of one partition."""
    keyspaces = [f"modes_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for keyspace in keyspaces:
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {nodes[1]}}}")
    tables = [f"{keyspaces[number % 2]}.t{number}" for number in range(6)]
    for table in tables:
        session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v int)")

    def modes():
        question = "SELECT keyspace_name, table_name, mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = %s"
        read = [row for keyspace in keyspaces for row in session.execute(question, (keyspace,))]
        return {f"{row['keyspace_name']}.{row['table_name']}": row["mode"] for row in read}

    operators = [insistent(fleet.connect(to=number)) for number in range(3)]
    for mode, left in (("unsafe", dict.fromkeys(tables, "unsafe")), ("mixed_reads", dict.fromkeys(tables, "mixed_reads"))):
        with ThreadPoolExecutor(len(tables)) as pool:
            changed = [pool.submit(insistently, operators[number % 3], f"ALTER TABLE {table} WITH transactional_mode = '{mode}'")
                       for number, table in enumerate(tables)]
            [change.result() for change in changed]
        assert modes() == left
    for operator in operators:
        operator.cluster.shutdown()
    for table in tables:
        session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'off'")
    until(lambda: not modes(), "no table has a mode", told=modes)
    for keyspace in keyspaces:
        session.execute(f"DROP KEYSPACE {keyspace}")

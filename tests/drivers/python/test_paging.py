"""Paging over 6,000 rows, more than the driver asks for at once by default."""

import pytest
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement

ROWS = 6_000
PARTITIONS = 10


@pytest.fixture(scope="module")
def filled(shared, keyspace):
    session = shared.session(keyspace)
    session.execute("CREATE TABLE paged (part int, number int, note text, PRIMARY KEY (part, number))")
    insert = session.prepare("INSERT INTO paged (part, number, note) VALUES (?, ?, ?)")
    arguments = [(number % PARTITIONS, number, f"row {number}") for number in range(ROWS)]
    execute_concurrent_with_args(session, insert, arguments, concurrency=200)
    yield "paged"
    shared.session(keyspace).execute("DROP TABLE paged")


@pytest.mark.parametrize("page", [None, 100, 999], ids=["default-page", "page-100", "page-999"])
def test_all_rows_arrive_once(session, filled, page):
    statement = SimpleStatement(f"SELECT number FROM {filled}")
    if page:
        statement.fetch_size = page
    numbers = [row.number for row in session.execute(statement)]
    assert len(numbers) == ROWS
    assert set(numbers) == set(range(ROWS))


def test_prepared_and_bound_to_one_partition(session, filled):
    select = session.prepare(f"SELECT number FROM {filled} WHERE part = ?")
    select.fetch_size = 64
    numbers = [row.number for row in session.execute(select, (3,))]
    assert numbers == list(range(3, ROWS, PARTITIONS))


def test_paging_state_continues_in_another_session(connect, version, keyspace, session, filled):
    statement = SimpleStatement(f"SELECT number FROM {keyspace}.{filled}", fetch_size=1500)
    numbers, state, pages = set(), None, 0
    while True:
        result = connect(version).connect().execute(statement, paging_state=state) if pages == 1 else \
            session.execute(statement, paging_state=state)
        numbers.update(row.number for row in result.current_rows)
        pages, state = pages + 1, result.paging_state
        if state is None:
            break
    assert numbers == set(range(ROWS))
    assert pages >= 4


def test_sorted_and_limited(session, filled):
    statement = SimpleStatement(f"SELECT number FROM {filled} WHERE part = 0 ORDER BY number DESC LIMIT 150", fetch_size=40)
    assert [row.number for row in session.execute(statement)] == list(range(ROWS - 10, ROWS - 1510, -PARTITIONS))

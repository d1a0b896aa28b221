"""1,000 queries outstanding on one session: each gets its own answer."""

from cassandra.concurrent import execute_concurrent_with_args

OUTSTANDING = 1000


def test_one_thousand_concurrent_queries(session, table):
    name = table("id int PRIMARY KEY, v text")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT id, v FROM {name} WHERE id = ?")
    for future in [session.execute_async(insert, (n, f"value {n}")) for n in range(OUTSTANDING)]:
        future.result()
    futures = [session.execute_async(select, (number,)) for number in range(OUTSTANDING)]
    for number, future in enumerate(futures):
        assert future.result().one() == (number, f"value {number}")


def test_prepared_and_plain_mixed_over_several_sessions(connect, version, keyspace, session, table):
    name = table("id int PRIMARY KEY, v int")
    sessions = [session, *(connect(version).connect(keyspace) for _ in range(3))]
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    futures = []
    for number in range(OUTSTANDING):
        used = sessions[number % len(sessions)]
        futures.append(used.execute_async(insert, (number, -number)) if number % 3 else used.execute_async(
            f"INSERT INTO {name} (id, v) VALUES ({number}, {-number})"))
    for future in futures:
        future.result()
    select = session.prepare(f"SELECT v FROM {name} WHERE id = ?")
    found = execute_concurrent_with_args(session, select, [(n,) for n in range(OUTSTANDING)], concurrency=OUTSTANDING)
    assert [rows.one().v for _, rows in found] == [-number for number in range(OUTSTANDING)]

"""Parts in front of a response body, trace ids and warnings, and the custom payload of a request."""

from cassandra import ConsistencyLevel
from cassandra.query import BatchStatement, BatchType


def trace_of(future):
    """The last trace with all of its events. Each counts as written when one replica has it, the last
    one too, so another replica may lack some that came before."""
    return future.get_query_trace(max_wait=180, query_cl=ConsistencyLevel.ALL)


def test_trace_of_a_query(session, table):
    name = table("id int PRIMARY KEY, v int")
    result = session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 1)", trace=True)
    trace = trace_of(result.response_future)
    assert trace.request_type == "Execute CQL3 query"
    assert trace.parameters["query"].startswith("INSERT INTO")
    assert len(trace.events) > 3


def test_trace_of_a_prepared_statement(session, table):
    name = table("id int PRIMARY KEY, v int")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    ids = set()
    for number in range(3):
        trace = trace_of(session.execute(insert, (number, 1), trace=True).response_future)
        assert trace.request_type == "Execute CQL3 prepared query"
        ids.add(trace.trace_id)
    assert len(ids) == 3


def test_warning_of_a_large_batch(session, table):
    """batch_size_warn_threshold is 5 KB; a batch that touches several partitions and is larger is warned about."""
    name = table("id int PRIMARY KEY, v text")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    batch = BatchStatement(BatchType.UNLOGGED)
    for number in range(8):
        batch.add(insert, (number, "x" * 1024))
    future = session.execute_async(batch)
    future.result()
    assert any("exceeding specified threshold" in warning for warning in future.warnings)


def test_warning_of_an_aggregation_without_key(session, table):
    name = table("id int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 1)")
    future = session.execute_async(f"SELECT count(*) FROM {name}")
    assert future.result().one().count == 1
    assert future.warnings == ["Aggregation query used without partition key"]
    plain = session.execute_async(f"SELECT v FROM {name} WHERE id = 1")
    plain.result()
    assert not plain.warnings


def test_warnings_and_trace_together(session, table):
    name = table("id int PRIMARY KEY, v int")
    session.execute(f"INSERT INTO {name} (id, v) VALUES (1, 1)")
    future = session.execute_async(f"SELECT count(*) FROM {name}", trace=True)
    assert future.result().one().count == 1
    assert future.warnings
    assert trace_of(future).trace_id


def test_custom_payload_is_taken(session, table):
    """Cassandra's own query handler ignores the payload; what matters is that the body behind it is understood."""
    name = table("id int PRIMARY KEY, v int")
    payload = {"who": b"an application", "empty": b""}
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    session.execute(insert, (1, 2), custom_payload=payload)
    session.execute(f"INSERT INTO {name} (id, v) VALUES (2, 3)", custom_payload=payload)
    batch = BatchStatement()
    batch.add(insert, (3, 4))
    session.execute(batch, custom_payload=payload)
    rows = session.execute(f"SELECT id, v FROM {name}", custom_payload=payload, trace=True)
    assert {tuple(row) for row in rows} == {(1, 2), (2, 3), (3, 4)}

"""Values of 5 MB: far more than one v5 segment, one read, or one buffer."""

import hashlib
import random

import pytest
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.connection import ConnectionBusy, ConnectionException

from harness import waits

MEGABYTES = 5


def noise(seed: int, count: int = MEGABYTES * 1024 * 1024) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(count)


@pytest.mark.parametrize("value", [noise(1), b"\0" * MEGABYTES * 1024 * 1024], ids=["random", "zeros"])
def test_value_of_five_megabytes(session, table, value):
    name = table("id int PRIMARY KEY, v blob")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    session.execute(insert, (1, value))
    got = session.execute(f"SELECT v FROM {name} WHERE id = 1").one().v
    assert hashlib.sha256(got).digest() == hashlib.sha256(value).digest()


def test_small_queries_between_large_ones(session, table):
    """A large value on the way does not break or starve the small ones around it."""
    name = table("id int PRIMARY KEY, v blob")
    insert = session.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    select = session.prepare(f"SELECT v FROM {name} WHERE id = ?")
    small = [(number, b"%d" % number) for number in range(100, 400)]
    large = [(number, noise(number, 1024 * 1024)) for number in range(6)]
    futures = []
    for number, value in small:
        futures.append(((number, value), session.execute_async(insert, (number, value))))
        if number % 50 == 0:
            row = large[(number - 100) // 50]
            futures.append((row, session.execute_async(insert, row)))

    def is_written(future) -> bool:
        """While the connection takes no more of a large value, the driver refuses queries by itself."""
        try:
            future.result()
        except NoHostAvailable as error:
            if not all(isinstance(cause, ConnectionBusy) for cause in error.errors.values()):
                raise
            return False
        return True

    for row, future in futures:
        if not is_written(future):
            waits.until(lambda row=row: is_written(session.execute_async(insert, row)), f"row {row[0]} is written")
    results = execute_concurrent_with_args(session, select, [(number,) for number, _ in large + small], concurrency=20)
    for (_, expected), (_, rows) in zip(large + small, results):
        assert rows.one().v == expected


def test_value_above_the_servers_limit(connect, version, keyspace, table):
    """16 MB is Cassandra's own default limit. The query fails; the session goes on, if only after reconnecting."""
    name = table("id int PRIMARY KEY, v blob")
    own = connect(version).connect(keyspace)
    insert = own.prepare(f"INSERT INTO {name} (id, v) VALUES (?, ?)")
    with pytest.raises((DriverException, NoHostAvailable, ConnectionException)):
        own.execute(insert, (1, b"\0" * 17 * 1024 * 1024))

    def goes_on() -> bool:
        try:
            own.execute(insert, (2, b"small"))
        except (NoHostAvailable, ConnectionException):
            return False  # the connection is lost, or not there again
        return True

    waits.until(goes_on, "the session goes on", every_seconds=0.2)
    assert own.execute(f"SELECT id, v FROM {name}").all() == [(2, b"small")]

"""One connection of the Python driver, with large and small queries in flight at once, all of which are checked byte for byte."""

import hashlib
import json
import random
import sys

from cassandra.cluster import Cluster, ExecutionProfile, EXEC_PROFILE_DEFAULT

SMALL = 200
MIB = 1 << 20


class Wrong(Exception):
    """An answer is. All other errors say that there was none."""

    EXIT_CODE = 3


def content(number: int, size: int) -> bytes:
    return random.Random(number * 1_000_003 + size).randbytes(size)


def main(contact: str, port: int, version: int, compression: str, sizes: list, rounds: int, reads: int = 0) -> dict:
    """Writes and reads at once, so many rounds; before that each of the values by itself, so often. Small ones are there for rounds alone."""
    profile = ExecutionProfile(request_timeout=180)
    cluster = Cluster([contact], port=port, protocol_version=version, compression={"off": False, "on": True}[compression],
                      execution_profiles={EXEC_PROFILE_DEFAULT: profile}, control_connection_timeout=180, connect_timeout=180,
                      idle_heartbeat_timeout=180)
    session = cluster.connect()
    session.execute("CREATE KEYSPACE IF NOT EXISTS moved WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE IF NOT EXISTS moved.blobs (k int PRIMARY KEY, v blob)")
    insert = session.prepare("INSERT INTO moved.blobs (k, v) VALUES (?, ?)")
    select = session.prepare("SELECT v FROM moved.blobs WHERE k = ?")
    for number, size in enumerate(sizes):
        session.execute(insert, (number, content(number, size)))
    small = range(1000, 1000 + SMALL if rounds else 1000)
    for future in [session.execute_async(insert, (key, content(key, 100))) for key in small]:
        future.result()
    checked = 0
    for _ in range(reads):
        for number, size in enumerate(sizes):
            if list(session.execute(select, (number,)))[0].v != content(number, size):
                raise Wrong(f"value {number} is not the one asked for")
            checked += 1
    for turn in range(rounds):
        under_way = []
        for number, size in enumerate(sizes):
            under_way.append((session.execute_async(select, (number,)), content(number, size)))
            for other in range(20):
                key = 1000 + (turn * 7 + number * 20 + other) % SMALL
                under_way.append((session.execute_async(select, (key,)), content(key, 100)))
            # What the client sends while its connection is away.
            written = 5000 + number
            session.execute_async(insert, (written, content(written, MIB))).result()
            under_way.append((session.execute_async(select, (written,)), content(written, MIB)))
        for future, expected in under_way:
            rows = list(future.result())
            if len(rows) != 1 or hashlib.sha256(rows[0].v).digest() != hashlib.sha256(expected).digest():
                raise Wrong(f"an answer is not the one asked for: {len(rows)} rows, {len(expected)} bytes expected")
            checked += 1
    cluster.shutdown()
    return {"checked": checked}


if __name__ == "__main__":
    contact, port, version, compression, sizes, rounds, reads = sys.argv[1:]
    try:
        print(json.dumps(main(contact, int(port), int(version), compression, json.loads(sizes), int(rounds), int(reads))))
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        sys.exit(Wrong.EXIT_CODE)

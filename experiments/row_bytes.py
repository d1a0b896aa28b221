"""Bytes per row of Cassandra's own files, for the data that `cargo run --example catalogue` measures the node's with.

`experiments/run row_bytes [ROWS]`: one node, both sets of data, uncompressed and with
Zstandard, after flush and major compaction.
"""

import random
import sys

from cassandra.cluster import Cluster as Driver
from cassandra.concurrent import execute_concurrent

from harness.cluster import Cluster

PARTS = ("cpu", "mem", "disk", "net", "jvm", "http", "gc", "db")
KINDS = ("utilization_percent", "bytes_read_total", "queue_depth", "latency_p99_micros", "errors_total")
COMPRESSION = {"uncompressed": "{'enabled': false}", "zstd": "{'class': 'ZstdCompressor'}"}


def paper(rows: int, chance: random.Random):
    """5 to 10 of 10 columns, names of 5 bytes, values of 10."""
    names = [f"fiel{number}" for number in range(10)]
    for _ in range(rows):
        chosen = chance.sample(names, 10 - chance.randrange(6))
        yield {name: "".join(chr(32 + chance.randrange(95)) for _ in range(10)) for name in chosen}


def telemetry(rows: int, chance: random.Random):
    """Hosts of 64 kinds, each with its own 20 to 40 of 40 columns, three of them missing at times."""
    names = [f"{part}_{kind}" for part in PARTS for kind in KINDS]
    hosts = [chance.sample(names, 40 - kind % 21) for kind in range(64)]
    for _ in range(rows):
        host = chance.randrange(2000)
        chosen = list(hosts[host % 64])
        if chance.randrange(10) == 0:
            chosen = chance.sample(chosen, len(chosen) - 3)
        value = (lambda: f"{chance.randrange(100)}.{chance.randrange(100):02}",
                 lambda: str(1_000_000 + host * 7919 + chance.randrange(5000)),
                 lambda: str(chance.randrange(16)), lambda: str(200 + chance.randrange(3000)))
        yield {name: value[names.index(name) % 4]() for name in chosen}


def bytes_per_row(ring: Cluster, session, name: str, compression: str, rows: list) -> float:
    table = f"{name}_{compression}"
    columns = sorted({column for row in rows for column in row})
    session.execute(f"CREATE TABLE bytes.{table} (k text PRIMARY KEY, {', '.join(f'{column} text' for column in columns)}) "
                    f"WITH compression = {COMPRESSION[compression]}")
    statements = {}
    work = []
    for number, row in enumerate(rows):
        given = tuple(sorted(row))
        if given not in statements:
            marks = ", ".join("?" * (len(given) + 1))
            statements[given] = session.prepare(f"INSERT INTO bytes.{table} (k, {', '.join(given)}) VALUES ({marks})")
        work.append((statements[given], (f"user{number:020}", *(row[column] for column in given))))
    execute_concurrent(session, work, concurrency=64)
    for step in (("flush", "bytes"), ("compact", "bytes", table)):
        ring.nodetool(1, *step).check_returncode()
    files = ring.nodes[0].directory.glob(f"**/bytes/{table}-*/*-Data.db")
    return sum(file.stat().st_size for file in files) / len(rows)


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    ring = Cluster("bytes", nodes=1)
    ring.start()
    try:
        host, port = ring.contacts.rsplit(":", 1)
        driver = Driver([host], port=int(port))
        session = driver.connect()
        session.execute("DROP KEYSPACE IF EXISTS bytes", timeout=60)
        session.execute("CREATE KEYSPACE bytes WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        for name, make in (("paper", paper), ("telemetry", telemetry)):
            rows = list(make(count if name == "paper" else count // 4, random.Random(7)))
            for compression in COMPRESSION:
                print(f"{name:10} {compression:13} {bytes_per_row(ring, session, name, compression, rows):8.1f} bytes/row",
                      flush=True)
        driver.shutdown()
    finally:
        ring.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Many clients count up in one row by compare-and-set. Nothing that was acknowledged is lost, and nothing is counted twice.
`SHUNT_COUNT_TIMES` says how often each of them does.
"""

import asyncio
import os

from harness import cql, waits
from harness.proxy import Proxy

CLIENTS = 32
TIMES = int(os.environ.get("SHUNT_COUNT_TIMES", "4"))
SERIAL = 0x08
ANSWER_SECONDS = 180
# Time-out of a write, and version 5's word for a conditional one of which nobody knows.
OPEN = (0x1100, 0x1700)
# Unavailable, Overloaded: on a machine that stood still for long, nodes take each other for down.
NOT_TAKEN = (0x1000, 0x1001)
TABLE = "CREATE TABLE IF NOT EXISTS faults.counts (key text PRIMARY KEY, n int)"


def test_counting_up_in_one_row(ring):
    key = "counted"
    read = f"SELECT n FROM faults.counts WHERE key = '{key}'"

    async def one(proxy) -> tuple:
        """Numbers of its steps that were acknowledged, and of those in doubt."""
        connection = await cql.Connection.open(
            proxy.host, proxy.port, timeout_seconds=ANSWER_SECONDS)
        found, acknowledged, unknown = 0, 0, 0
        while acknowledged + unknown < TIMES:
            update = f"UPDATE faults.counts SET n = {found + 1} WHERE key = '{key}' IF n = {found}"
            try:
                row, = await connection.query(update, cql.QUORUM, timeout_seconds=ANSWER_SECONDS)
            except cql.CqlError as error:
                if error.code in NOT_TAKEN:
                    raise waits.Late(str(error)) from error
                assert error.code in OPEN, error
                unknown += 1
                continue
            if row["[applied]"]:
                acknowledged, found = acknowledged + 1, found + 1
            else:
                found = row["n"]
        connection.close()
        return acknowledged, unknown

    async def all_at_once(proxy) -> tuple:
        results = await asyncio.gather(*(one(proxy) for _ in range(CLIENTS)))
        return sum(result[0] for result in results), sum(result[1] for result in results)

    options = ["--cores", "2", "--query-timeout-ms", "60000"]
    with Proxy(ring.contacts, "127.0.0.1:9047", "127.0.0.1:9185", options) as proxy:
        with cql.Session(proxy.host, proxy.port, timeout_seconds=ANSWER_SECONDS) as session:
            session.query(TABLE)
            session.query(f"INSERT INTO faults.counts (key, n) VALUES ('{key}', 0) IF NOT EXISTS", cql.QUORUM)
            acknowledged, unknown = asyncio.run(all_at_once(proxy))
            counted = session.query(read, SERIAL)[0]["n"]
    print(f"{acknowledged} acknowledged, {unknown} unknown, {counted} counted")
    assert acknowledged <= counted <= acknowledged + unknown
    if acknowledged <= CLIENTS:
        raise waits.Late(f"the nodes gave up {unknown} statements: too few are left")

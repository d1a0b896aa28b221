"""5,000 clients connect at once. Each is served, and the ring sees a handful of connections."""

import asyncio
import resource
from pathlib import Path

import pytest

from harness import cql
from harness.load import OF_A_LOST_REPLICA, answered

CLIENTS = 5000
ANSWER_SECONDS = 180
KEYS = 100
RESIDENT_BYTES_MAX = 400 * 1024 * 1024
LINKS_MAX = 60


def test_five_thousand_at_once(front, whole):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < CLIENTS + 500:
        pytest.skip(f"this machine allows {soft} open files")

    async def one(number: int):
        connection = await cql.Connection.open(
            front.host, front.port, timeout_seconds=ANSWER_SECONDS)
        return connection, await ask(connection, number)

    async def ask(connection, number: int):
        query = f"SELECT value FROM faults.writes WHERE key = 'many-{number % KEYS}'"
        # A node that is slow with so many at once gives some of them up.
        rows = await answered(lambda: connection.query(query, timeout_seconds=ANSWER_SECONDS),
                              lambda error: getattr(error, "code", None) in OF_A_LOST_REPLICA)
        return [row["value"] for row in rows]

    async def scenario():
        writer = await cql.Connection.open(front.host, front.port)
        for key in range(KEYS):
            await writer.query(f"INSERT INTO faults.writes (key, value) VALUES ('many-{key}', '{key}')", cql.ALL)
        writer.close()
        results = await asyncio.gather(*(one(number) for number in range(CLIENTS)), return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        if failed:
            print(f"{len(failed)} of {CLIENTS} failed: {failed[:5]}")
            raise failed[0]
        resident, links = front.resident_bytes(), node_connections(front.process.pid, whole)
        print(f"{CLIENTS} clients: {resident / 2**20:.0f} MB resident, {links} connections to {len(whole.nodes)} nodes")
        connections = [connection for connection, _ in results]
        again = await asyncio.gather(*(ask(connection, number) for number, connection in enumerate(connections)))
        lost = [connection.lost.result() for connection in connections if connection.lost.done()]
        for connection in connections:
            connection.close()
        assert not lost, lost[:5]
        expected = [[str(number % KEYS)] for number in range(CLIENTS)]
        assert [answer for _, answer in results] == expected
        assert again == expected
        assert resident < RESIDENT_BYTES_MAX
        assert links < LINKS_MAX

    asyncio.run(scenario())


def node_connections(pid: int, ring) -> int:
    """Established TCP connections of the process to the CQL port of the nodes."""
    port = f":{ring.nodes[0].settings.cql_port:04X}"
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(port) and fields[3] == "01":
            inodes.add(f"socket:[{fields[9]}]")
    held = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held += str(entry.readlink()) in inodes
        except OSError:
            pass  # closed meanwhile
    return held

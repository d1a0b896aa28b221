"""5,000 clients connect at once. Each is served, and the ring sees a handful of connections."""

import asyncio
import resource
from pathlib import Path

import pytest

from ring import cql

CLIENTS = 5000
RESIDENT_BYTES_MAX = 400 * 1024 * 1024
LINKS_MAX = 60


def test_five_thousand_at_once(front, whole):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < CLIENTS + 500:
        pytest.skip(f"this machine allows {soft} open files")

    async def one(number: int):
        connection = await cql.Connection.open(front.host, front.port, timeout_seconds=120)
        key = f"many-{number}"
        await connection.query(f"INSERT INTO faults.writes (key, value) VALUES ('{key}', '{number}')", cql.QUORUM, 120)
        return connection

    async def scenario():
        connections = await asyncio.gather(*(one(number) for number in range(CLIENTS)), return_exceptions=True)
        failed = [repr(result) for result in connections if isinstance(result, BaseException)]
        assert not failed, f"{len(failed)} of {CLIENTS}: {failed[:5]}"
        resident, links = front.resident_bytes(), node_connections(front.process.pid, whole)
        print(f"{CLIENTS} clients: {resident / 2**20:.0f} MB resident, {links} connections to {len(whole.nodes)} nodes")
        assert resident < RESIDENT_BYTES_MAX
        assert links < LINKS_MAX
        answers = await asyncio.gather(*(
            connection.query(f"SELECT value FROM faults.writes WHERE key = 'many-{number}'", cql.QUORUM, 120)
            for number, connection in enumerate(connections)))
        lost = [connection.lost.result() for connection in connections if connection.lost.done()]
        for connection in connections:
            connection.close()
        assert not lost, lost[:5]
        assert [rows[0]["value"] for rows in answers] == [str(number) for number in range(CLIENTS)]

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

"""Clients of a Unix socket beside those of a port: in clear text, with TLS, and with the Python driver."""

import asyncio
import os
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from cassandra.cluster import Cluster
from cassandra.connection import UnixSocketEndPoint

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, Connection
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.proxy import binary
from harness.waits import until

QUERY = "SELECT rpc_address, rpc_port FROM system.local"


@pytest.fixture
def path():
    # The directories of pytest may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="shunt-") as directory:
        yield Path(directory) / "cql.sock"


@pytest.fixture
def both(start, path):
    return start("optional", "--unix-mode", "0600", listen=f"unix:{path},127.0.0.1:{free_port()}")


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(ANSWER_SECONDS)
    client.connect(str(path))
    return client


async def ask(proxy, path: Path, tls=None) -> list:
    connection = await Connection.open(proxy.host, proxy.port, tls=tls, connected=connected(path))
    try:
        rows = await connection.query(QUERY)
        own = {group["address"] for group in proxy.client_groups()}
        assert own == {f"unix:uid={os.getuid()}"}, own
        return rows
    finally:
        connection.close()


@pytest.mark.parametrize("has_tls", [False, True], ids=["clear text", "TLS"])
def test_clients_of_the_socket_see_the_address_of_the_port(both, path, authority, has_tls):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rows = asyncio.run(ask(both, path, client_context(authority.ca) if has_tls else None))
    assert [(str(row["rpc_address"]), row["rpc_port"]) for row in rows] == [(both.host, both.port)]


def test_python_driver(both, path):
    cluster = Cluster([UnixSocketEndPoint(str(path))], protocol_version=4, **UNDISTURBED)
    try:
        session, keyspace = cluster.connect(), f"unix_{both.port}"
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        session.set_keyspace(keyspace)
        session.execute("CREATE TABLE items (k int PRIMARY KEY, v blob)")
        insert = session.prepare("INSERT INTO items (k, v) VALUES (?, ?)")
        for key in range(20):
            session.execute(insert, (key, bytes(10_000 * key)))
        found = {row.k: len(row.v) for row in session.execute("SELECT k, v FROM items")}
        assert found == {key: 10_000 * key for key in range(20)}
        assert {group["address"] for group in both.client_groups()} == {f"unix:uid={os.getuid()}"}
    finally:
        cluster.shutdown()


def test_the_file_of_a_dead_process_is_replaced_and_no_other(start, both, path):
    other = free_port()
    refused = subprocess.run([binary(), "proxy", "--listen", f"unix:{path},127.0.0.1:{other}", "--admin", "off",
                              "--contact-points", both.contact_points], capture_output=True, text=True)
    assert refused.returncode == 3 and "another process listens there" in refused.stderr, refused
    both.kill()
    assert path.exists()
    again = start("off", listen=f"unix:{path},127.0.0.1:{other}")
    assert len(asyncio.run(ask(again, path))) == 1
    assert again.stop() == 0
    until(lambda: not path.exists(), "the file is gone")

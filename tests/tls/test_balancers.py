"""Balancers that name their clients by the PROXY protocol, before clear text and before TLS on the same port."""

import asyncio
import socket
import subprocess

import pytest
from cassandra.cluster import Cluster

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, Connection, CqlError
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.programs import only_with
from harness.waits import until

BALANCER = "127.0.0.2"
CLIENT = "192.0.2.7"
TEXT = f"PROXY TCP4 {CLIENT} 10.0.0.1 58400 9042\r\n".encode()
BINARY = (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10" + socket.inet_aton(CLIENT) + socket.inet_aton("10.0.0.1")
          + b"\xe4\x20\x23\x52" + b"\x04\0\x01\xff")
QUERY = "SELECT cluster_name FROM system.local"

HAPROXY = """
defaults
    mode tcp
    timeout connect 60s
    timeout client 600s
    timeout server 600s
listen cql
    bind 127.0.0.1:{port}
    server shunt {target} source {source} send-proxy-v2 check inter 500ms
"""


@pytest.fixture(scope="module")
def balanced(start):
    return start("optional", "--proxy-protocol-from", f"{BALANCER},10.0.8.0/24")


def begun(proxy, source: str, *parts: bytes) -> socket.socket:
    """A connection from this address that has sent these parts."""
    client = socket.create_connection(proxy.address, ANSWER_SECONDS, source_address=(source, 0))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for part in parts:
        client.sendall(part)
    return client


async def ask(proxy, connected: socket.socket, tls=None) -> Connection:
    connection = await Connection.open(proxy.host, proxy.port, tls=tls, connected=connected)
    assert len(await connection.query(QUERY)) == 1
    return connection


def addresses(proxy) -> set:
    return {group["address"] for group in proxy.client_groups()}


@pytest.mark.parametrize("header", [TEXT, BINARY], ids=["version 1", "version 2"])
@pytest.mark.parametrize("has_tls", [False, True], ids=["clear text", "TLS"])
def test_the_header_names_the_client(balanced, authority, header, has_tls):
    context = client_context(authority.ca) if has_tls else None

    splits = (0, 1, 5, 14, 16, 20, len(header) - 1)

    def shown() -> list:
        return [(group["address"], group["clients"]) for group in balanced.client_groups()]

    async def clients() -> None:
        connections = [await ask(balanced, begun(balanced, BALANCER, header[:split], header[split:]), context) for split in splits]
        until(lambda: shown() == [(CLIENT, len(splits))], "the page shows the clients", told=shown)
        for connection in connections:
            connection.close()

    asyncio.run(clients())
    until(lambda: shown() == [], "the clients are gone", told=shown)


def test_a_balancer_must_send_the_header(balanced):
    with pytest.raises(CqlError) as refused:
        asyncio.run(ask(balanced, begun(balanced, BALANCER)))
    assert "PROXY header" in refused.value.message
    balanced.wait_until_it_says("without a valid PROXY header", "does not begin with a PROXY header", BALANCER)
    assert balanced.metric("shunt_proxy_headers_total", result="refused") >= 1


@pytest.mark.parametrize("header", [TEXT, BINARY], ids=["version 1", "version 2"])
def test_nobody_else_is_believed(balanced, header):
    client = begun(balanced, "127.0.0.3", header)
    received = b""
    while more := client.recv(4096):
        received += more
    assert b"proxy_protocol_from" in received
    balanced.wait_until_it_says("closed a client", "this looks like a PROXY header", "127.0.0.3")


def test_a_header_that_never_ends(start):
    proxy = start("off", "--proxy-protocol-from", BALANCER, "--handshake-timeout-ms", "1000")
    for part in (b"", TEXT[:20], BINARY[:14], TEXT):
        assert begun(proxy, BALANCER, part).recv(1) == b""
    proxy.wait_until_it_says("without a valid PROXY header", "the handshake took too long")
    proxy.wait_until_it_says("closed a client before its first request", CLIENT)


@only_with("http", "haproxy")
def test_haproxy(balanced, tmp_path):
    port, settings = free_port(), tmp_path / "haproxy.cfg"
    settings.write_text(HAPROXY.format(port=port, target=f"{balanced.host}:{balanced.port}", source=BALANCER))
    haproxy = subprocess.Popen(["haproxy", "-db", "-f", settings])
    try:
        # Its health checks speak for themselves.
        until(lambda: balanced.metric("shunt_proxy_headers_total", result="own") > 0, "HAProxy checks the proxy")
        before = balanced.metric("shunt_proxy_headers_total", result="ok")
        cluster = Cluster(["127.0.0.1"], port=port, protocol_version=4, **UNDISTURBED)
        try:
            assert len(cluster.connect().execute(QUERY).all()) == 1
            assert balanced.metric("shunt_proxy_headers_total", result="ok") > before
            until(lambda: addresses(balanced) == {"127.0.0.1"}, "the page shows the client", told=balanced.client_groups)
        finally:
            cluster.shutdown()
    finally:
        haproxy.terminate()
        haproxy.wait()

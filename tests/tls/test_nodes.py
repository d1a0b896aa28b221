"""TLS to nodes: to a second proxy that stands for a node, which has TLS in front of the embedded node."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from cassandra.cluster import Cluster

from harness.certificates import client_context, place
from harness.cql import Connection
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.waits import until

MIB = 1 << 20
QUERY = "SELECT cluster_name FROM system.local"


@pytest.fixture(scope="module")
def server(start, authority, application, clients_ca):
    """The proxy that stands for a node. It requires a certificate."""
    return start("required", *clients_ca, client=client_context(authority.ca, application))


@pytest.fixture(scope="module")
def front(server, secured, tmp_path_factory):
    """Starts proxies in front of that one."""
    proxies = []

    def begin(*options, contact: str = None, ready: bool = True) -> Proxy:
        listen, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        log = tmp_path_factory.mktemp("front") / "proxy.log"
        proxy = secured(contact or server.listen, listen, admin,
                        ["--cores", "1", *UNDISTURBED_PROXY, *map(str, options)], log)
        proxies.append(proxy)
        return proxy.start() if ready else launch(proxy)

    yield begin
    for proxy in proxies:
        proxy.stop()


def launch(proxy: Proxy) -> Proxy:
    """Starts a proxy that will not be ready."""
    command = [str(binary()), "proxy", "--listen", proxy.listen, "--admin", proxy.admin, "--contact-points", proxy.contact_points,
               *proxy.options]
    with open(proxy.log, "wb") as log:
        proxy.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                         start_new_session=True)
    return proxy


def mutual(authority, pair) -> list:
    return ["--node-tls", "on", "--node-tls-ca", authority.ca, "--node-tls-certificate", pair.certificate, "--node-tls-key", pair.key]


def work(proxy, version: int) -> None:
    """A schema, small rows, a value of many records, and prepared statements."""
    cluster = Cluster([proxy.host], port=proxy.port, protocol_version=version, **UNDISTURBED)
    try:
        session, keyspace = cluster.connect(), f"nodes_{proxy.port}_{version}"
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        session.set_keyspace(keyspace)
        session.execute("CREATE TABLE items (k int PRIMARY KEY, v blob)")
        insert, large = session.prepare("INSERT INTO items (k, v) VALUES (?, ?)"), bytes(range(256)) * (MIB // 256)
        for key, value in ((0, b""), (1, b"small"), (2, large)):
            session.execute(insert, (key, value))
        assert {row.k: row.v for row in session.execute("SELECT k, v FROM items")} == {0: b"", 1: b"small", 2: large}
    finally:
        cluster.shutdown()


async def ask(proxy) -> int:
    connection = await Connection.open(proxy.host, proxy.port)
    try:
        return len(await connection.query(QUERY))
    finally:
        connection.close()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_links_and_control_connection_have_tls(front, server, authority, application, version):
    proxy = front(*mutual(authority, application))
    work(proxy, version)
    # The server has no client in clear text, and the control connection and a link are its clients.
    assert {group["tls"] for group in server.client_groups()} == {"TLSv1.3"}
    assert proxy.metric("shunt_certificate_expires_seconds", use="nodes") > 0


def test_a_node_that_returns_gets_new_links(front, start, authority, application):
    server = start("required", client=client_context(authority.ca))
    proxy = front("--node-tls", "on", "--node-tls-ca", authority.ca, contact=server.listen)
    assert asyncio.run(ask(proxy)) == 1
    server.stop()
    server.start()
    # A query may still fail until the proxy has found the node again.
    until(lambda: answers(proxy), "the proxy serves queries again", told=proxy.log_tail)


def answers(proxy) -> bool:
    try:
        return asyncio.run(ask(proxy)) == 1
    except Exception:  # whatever it is, the next attempt shows whether it lasts
        return False


def test_new_links_use_new_files(front, start, authority, stranger, tmp_path):
    """The authority's file is read again: a server with a certificate of the new one is reached, without a restart."""
    server = start("required", client=client_context(authority.ca))
    trusted = tmp_path / "ca.crt"
    place(authority.ca.read_bytes(), trusted)
    proxy = front("--node-tls", "on", "--node-tls-ca", trusted, contact=server.listen)
    assert asyncio.run(ask(proxy)) == 1
    server.stop()
    stranger.server().install(server.directory)
    server.tls = client_context(stranger.ca)
    server.start()
    proxy.wait_until_it_says("the CA of the peer's certificate is unknown")
    place(stranger.ca.read_bytes(), trusted)
    proxy.reload()
    until(lambda: answers(proxy), "the proxy serves queries again", told=proxy.log_tail)


HANDSHAKES = "shunt_outgoing_tls_handshakes_total"
RENEWED = "shunt_node_links_renewed_total"


def test_links_are_renewed_when_files_change(front, start, authority, stranger, tmp_path):
    """A second authority in the file: links that exist are replaced, and no query fails."""
    server = start("required", client=client_context(authority.ca))
    trusted = tmp_path / "ca.crt"
    place(authority.ca.read_bytes(), trusted)
    proxy = front("--node-tls", "on", "--node-tls-ca", trusted, contact=server.listen)
    assert asyncio.run(ask(proxy)) == 1
    # Files that were written anew with the same content renew nothing.
    place(authority.ca.read_bytes(), trusted)
    unchanged = proxy.metric("shunt_tls_reloads_total", result="unchanged")
    proxy.reload()
    until(lambda: proxy.metric("shunt_tls_reloads_total", result="unchanged") > unchanged, "the proxy has read the files")
    place(authority.ca.read_bytes() + stranger.ca.read_bytes(), trusted)
    assert proxy.metric(RENEWED) == 0
    before = proxy.metric(HANDSHAKES, use="nodes", result="ok")
    proxy.reload()

    def is_renewed() -> bool:
        # A query that fails ends the test.
        return asyncio.run(ask(proxy)) == 1 and proxy.metric(RENEWED) > 0

    until(is_renewed, "links are renewed", told=proxy.log_tail)
    assert proxy.metric(HANDSHAKES, use="nodes", result="ok") > before
    assert proxy.metric("shunt_node_links_lost_total") == 0


def test_links_stay_when_the_node_refuses_the_new_certificate(front, server, authority, application, stranger, tmp_path):
    """TLS 1.3: the node verifies the certificate after the proxy's side of the handshake is over."""
    pair = application.install(tmp_path)
    proxy = front(*mutual(authority, pair))
    assert asyncio.run(ask(proxy)) == 1
    stranger.client().install(tmp_path)
    proxy.reload()
    proxy.wait_until_it_says("a link could not be renewed", "the former one stays in use")
    for _ in range(10):
        assert asyncio.run(ask(proxy)) == 1
    assert proxy.metric(RENEWED) == 0
    assert proxy.metric(HANDSHAKES, use="nodes", result="failed") > 0
    assert proxy.metric("shunt_node_links_lost_total") == 0
    application.install(tmp_path)
    proxy.reload()
    until(lambda: proxy.metric(RENEWED) > 0, "links are renewed", told=proxy.log_tail)
    assert asyncio.run(ask(proxy)) == 1


@pytest.mark.parametrize("options, words", [
    (["--node-tls-ca", "stranger"], "the CA of the peer's certificate is unknown"),
    (["--node-tls-ca", "authority", "--node-tls-name", "cassandra.example"], "the peer's certificate is for another name"),
    (["--node-tls-ca", "authority"], "the peer requires a certificate from us")])
def test_failures_say_why(front, authority, stranger, options, words):
    named = {"stranger": stranger.ca, "authority": authority.ca}
    proxy = front("--node-tls", "on", *[named.get(option, option) for option in options], ready=False)
    proxy.wait_until_it_says("no contact point could be reached", words)


def test_sides_that_do_not_match_say_so(front, node, server, authority):
    clear = front("--node-tls", "on", "--node-tls-ca", authority.ca, contact=node.contact, ready=False)
    clear.wait_until_it_says("no contact point could be reached", "TLS failed: the peer does not speak TLS")
    encrypted = front(contact=server.listen, ready=False)
    encrypted.wait_until_it_says("no contact point could be reached", "requires TLS")


def test_commands(server, authority, stranger, application):
    def doctor(*options) -> str:
        done = subprocess.run([binary(), "doctor", "--contact-points", server.listen, *map(str, options)], capture_output=True,
                              text=True, timeout=120, check=False)
        return done.stdout + done.stderr

    pair = ["--tls-certificate", application.certificate, "--tls-key", application.key]
    # It got as far as to learn that the server is no node.
    assert "is a proxy" in doctor("--tls-ca", authority.ca, *pair)
    assert "is a proxy" in doctor("--tls-verify", "none", *pair)
    assert "requires a certificate" in doctor("--tls-ca", authority.ca)
    assert "is unknown" in doctor("--tls-ca", stranger.ca, *pair)
    assert "for another name" in doctor("--tls-ca", authority.ca, "--tls-name", "cassandra.example", *pair)
    assert "--tls-ca" in doctor("--tls-ca", Path("nowhere"))
    assert "requires TLS" in doctor()

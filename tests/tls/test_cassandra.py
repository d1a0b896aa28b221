"""TLS to Cassandra with `client_encryption_options`, mutual and required, and with the Cassandra extension."""

import asyncio
import socket
import ssl
import subprocess

import pytest
from cassandra.cluster import Cluster

from harness import cluster as ring
from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, HEADER, OPTIONS, SUPPORTED, Connection
from harness.driver import UNDISTURBED
from harness.extension import AGGREGATE_PORT
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, binary
from harness.waits import until

PASSWORD = "secret"


@pytest.fixture(scope="module")
def cassandra(authority, application, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    cluster = ring.Cluster("tls", nodes=1, in_memory=True, patient=True, extended=1)
    pair = authority.server("cassandra", [f"IP:{cluster.nodes[0].address}"])
    store = pair.store(directory / "store.p12", PASSWORD)
    trusted = authority.truststore(directory / "trusted.p12", PASSWORD)
    settings = cluster.nodes[0].settings
    settings.tls = client_context(authority.ca, application)
    settings.more_yaml = f"""\
client_encryption_options:
  enabled: true
  optional: false
  keystore: {store}
  keystore_password: {PASSWORD}
  require_client_auth: true
  truststore: {trusted}
  truststore_password: {PASSWORD}
  store_type: PKCS12
"""
    node = cluster.nodes[0]
    cluster.stop(wipe=True)
    try:
        node.start()
        node.wait_ready()
        yield node
    finally:
        cluster.stop(wipe=True)


@pytest.fixture(scope="module")
def proxy(cassandra, secured, authority, application, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    pair = authority.server().install(directory)
    options = ["--tls", "required", "--tls-certificate", pair.certificate, "--tls-key", pair.key,
               "--node-tls", "on", "--node-tls-ca", authority.ca,
               "--node-tls-certificate", application.certificate, "--node-tls-key", application.key]
    with secured(cassandra.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}",
                 [*map(str, options), "--cores", "2", *UNDISTURBED_PROXY], directory / "proxy.log",
                 tls=client_context(authority.ca)) as started:
        yield started


def session_of(proxy, authority, version: int) -> Cluster:
    return Cluster([proxy.host], port=proxy.port, ssl_context=client_context(authority.ca), protocol_version=version, **UNDISTURBED)


def test_driver_to_proxy_to_cassandra(proxy, cassandra, authority):
    """Every version of the protocol, and the same prepared statements after a restart of the node."""
    clusters = {version: session_of(proxy, authority, version) for version in (3, 4, 5)}
    try:
        prepared = {}
        for version, cluster in clusters.items():
            session, keyspace = cluster.connect(), f"tls_{version}"
            session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
            session.set_keyspace(keyspace)
            session.execute("CREATE TABLE items (k int PRIMARY KEY, v blob)")
            insert, large = session.prepare("INSERT INTO items (k, v) VALUES (?, ?)"), bytes(range(256)) * 4096
            for key, value in ((0, b""), (1, b"small"), (2, large)):
                session.execute(insert, (key, value))
            assert {row.k: row.v for row in session.execute("SELECT k, v FROM items")} == {0: b"", 1: b"small", 2: large}
            prepared[version] = session, session.prepare("SELECT v FROM items WHERE k = ?")
        cassandra.stop()
        cassandra.start()
        cassandra.wait_ready()
        for session, select in prepared.values():
            until(lambda: answers(session, select), "the proxy serves queries again", told=proxy.log_tail)
    finally:
        for cluster in clusters.values():
            cluster.shutdown()


def answers(session, select) -> bool:
    try:
        return session.execute(select, (1,)).one().v == b"small"
    except Exception:  # whatever it is, the next attempt shows whether it lasts
        return False


def offers(address: str, context: ssl.SSLContext = None) -> bool:
    """Whether the extension's port answers a client."""
    with socket.create_connection((address, AGGREGATE_PORT), ANSWER_SECONDS) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client = client if context is None else context.wrap_socket(client, server_hostname=address)
            client.sendall(HEADER.pack(4, 0, 1, OPTIONS, 0))
            answer = client.recv(HEADER.size)
        except (ssl.SSLError, ConnectionError):
            return False
        # A port with TLS answers clear text with an alert at most.
        return len(answer) == HEADER.size and HEADER.unpack(answer)[3] == SUPPORTED


def test_aggregated_frames_travel_over_tls(proxy, cassandra, authority, application):
    """The port of the extension has the node's own TLS: it offers nothing in clear text, or without a certificate."""
    cluster = session_of(proxy, authority, 4)
    try:
        session = cluster.connect()
        select = session.prepare("SELECT key FROM system.local WHERE key = ?")

        def are_aggregated() -> bool:
            """The first queries may go over a link that does not carry frames yet."""
            for pending in [session.execute_async(select, ("local",)) for _ in range(50)]:
                assert pending.result().one().key == "local"
            return proxy.metric("shunt_node_links_aggregated") > 0 and proxy.metric("shunt_aggregated_frames_total") > 0

        until(are_aggregated, "queries share frames", told=proxy.log_tail)
    finally:
        cluster.shutdown()
    own = client_context(authority.ca, application)
    rows = asyncio.run(ask(cassandra, own, "SELECT address, ssl_enabled FROM system_views.clients"))
    assert rows and all(row["ssl_enabled"] for row in rows), rows
    assert offers(cassandra.address, own)
    assert not offers(cassandra.address) and not offers(cassandra.address, client_context(authority.ca))


async def ask(node, context: ssl.SSLContext, query: str) -> list:
    connection = await Connection.open(node.address, node.settings.cql_port, tls=context)
    try:
        return await connection.query(query)
    finally:
        connection.close()


def test_commands_to_a_node(cassandra, authority, application):
    """`shunt fleet`, `doctor` and `bench load` show the node a certificate."""
    def run(*arguments, tls=True) -> tuple:
        pair = ["--tls-ca", authority.ca, "--tls-certificate", application.certificate, "--tls-key", application.key]
        command = [binary(), *arguments, *(pair if tls else [])]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    contact = ["--contact-points", cassandra.contact]
    # The doctor's exit code says that the commit log is periodic.
    for command, words in ((["fleet", "init", "--replicas", "1"], ""), (["fleet", "status"], ""), (["doctor"], "1 nodes agree")):
        code, said = run(*command, *contact)
        assert words in said if words else code == 0, said
    load = ["bench", "load", "--target", cassandra.contact, "--connections", "2", "--keys", "100", "--warm-up", "0", "--duration", "0.2",
            "--create", "--populate"]
    code, said = run(*load)
    assert code == 0, said
    for command in (["fleet", "status", *contact], load):
        code, said = run(*command, tls=False)
        assert code != 0, said

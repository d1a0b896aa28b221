"""TLS to Cassandra with `client_encryption_options`, mutual and required."""

import pytest
from cassandra.cluster import Cluster

from harness import cluster as ring
from harness.certificates import client_context
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY
from harness.waits import until

PASSWORD = "secret"


@pytest.fixture(scope="module")
def cassandra(authority, application, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    cluster = ring.Cluster("tls", nodes=1, in_memory=True, patient=True)
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

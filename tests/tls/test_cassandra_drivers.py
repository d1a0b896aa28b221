"""Unmodified drivers with certificates for logins, before a Cassandra that requires TLS, certificates and passwords.

A driver shows its certificate to the proxy and has no password. The proxy shows the node a certificate of its own, and
logs in with the password of the driver's identity.
"""

import asyncio

import pytest
from cassandra.cluster import Cluster

from harness import cluster as ring
from harness.certificates import client_context, place
from harness.cql import Connection
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY
from harness.secured_drivers import PASSWORD, SecuredDrivers
from harness.waits import until

VERSIONS = [3, 4, 5]
ROLE, LOGIN = "application", "application secret"
ENCRYPTION = """\
client_encryption_options:
  enabled: true
  optional: false
  keystore: {store}
  keystore_password: {password}
  require_client_auth: true
  truststore: {trusted}
  truststore_password: {password}
  store_type: PKCS12
"""
IDENTITY = """\
[[identity]]
match = "spiffe://test/application"
username = "{role}"
password_file = "{file}"
"""


@pytest.fixture(scope="module")
def proxys_own(authority):
    """The certificate that the proxy shows to the node."""
    return authority.client("proxy")


@pytest.fixture(scope="module")
def cassandra(authority, proxys_own, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    cluster = ring.Cluster("secured-drivers", nodes=1, authentication=True, fleeting=True, patient=True)
    node = cluster.nodes[0]
    store = authority.server("cassandra", [f"IP:{node.address}"]).store(directory / "store.p12", PASSWORD)
    trusted = authority.truststore(directory / "trusted.p12", PASSWORD)
    node.settings.tls = client_context(authority.ca, proxys_own)
    node.settings.more_yaml = ENCRYPTION.format(store=store, trusted=trusted, password=PASSWORD)
    cluster.stop(wipe=True)
    try:
        node.start()
        node.wait_ready()
        yield node
    finally:
        cluster.stop(wipe=True)


@pytest.fixture(scope="module")
def at_node(cassandra):
    """Carries out statements at the node itself, as its superuser."""
    async def run(statements: tuple) -> list:
        connection = await Connection.open(cassandra.address, cassandra.settings.cql_port, credentials=ring.SUPERUSER,
                                           tls=cassandra.settings.tls)
        try:
            return [await connection.query(statement) for statement in statements][-1]
        finally:
            connection.close()

    return lambda *statements: asyncio.run(run(statements))


@pytest.fixture(scope="module")
def proxy(cassandra, at_node, secured, authority, application, proxys_own, clients_ca, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    # The node makes the superuser's role when it serves already.
    until(lambda: accepts(at_node), "the node has its superuser", told=cassandra.log_tail)
    at_node(f"CREATE ROLE {ROLE} WITH PASSWORD = '{LOGIN}' AND LOGIN = true", f"GRANT ALL PERMISSIONS ON ALL KEYSPACES TO {ROLE}")
    place(f"{LOGIN}\n".encode(), directory / ROLE)
    place(IDENTITY.format(role=ROLE, file=directory / ROLE).encode(), directory / "shunt.toml")
    pair, (user, password) = authority.server().install(directory), ring.SUPERUSER
    options = ["--config", directory / "shunt.toml", "--username", user, "--password", password,
               "--tls", "required", "--tls-certificate", pair.certificate, "--tls-key", pair.key, *clients_ca,
               "--node-tls", "on", "--node-tls-ca", authority.ca,
               "--node-tls-certificate", proxys_own.certificate, "--node-tls-key", proxys_own.key, "--cores", "2", *UNDISTURBED_PROXY]
    with secured(cassandra.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", list(map(str, options)),
                 directory / "proxy.log", tls=client_context(authority.ca, application)) as started:
        yield started


def accepts(at_node) -> bool:
    try:
        return len(at_node("SELECT role FROM system_auth.roles")) == 1
    except Exception:  # whatever it is, the next attempt shows whether it lasts
        return False


@pytest.fixture(scope="module")
def drivers(proxy, at_node, authority, application):
    (row,) = at_node("SELECT data_center FROM system.local")
    return SecuredDrivers(proxy, authority, application, row["data_center"])


@pytest.mark.parametrize("version", VERSIONS)
def test_python_driver(drivers, version):
    drivers.python(version)


def test_cqlsh(drivers, tmp_path):
    drivers.cqlsh(tmp_path)


def test_go_drivers(drivers):
    drivers.go()


def test_java_driver(drivers, tmp_path):
    drivers.java(tmp_path)


def test_rust_driver(drivers):
    drivers.rust()


def test_node_driver(drivers):
    drivers.node()


def test_the_node_knows_the_drivers_by_their_role(proxy, at_node, authority, application):
    """Every connection of the proxy has TLS, and those that carry drivers' queries the role of their certificate."""
    cluster = Cluster([proxy.host], port=proxy.port, ssl_context=client_context(authority.ca, application), protocol_version=4,
                      **UNDISTURBED)
    try:
        cluster.connect().execute("SELECT cluster_name FROM system.local")
        rows = at_node("SELECT username, ssl_enabled FROM system_views.clients")
    finally:
        cluster.shutdown()
    assert all(row["ssl_enabled"] for row in rows) and ROLE in {row["username"] for row in rows}

"""Unmodified drivers with certificates for logins, before a Cassandra that takes nothing but certificates (MutualTlsAuthenticator).

A driver shows its certificate to the proxy, and the proxy shows the node another one for the driver's identity. Nobody has a
password. Without any role that has a certificate, such a node lets nobody in: so it starts with passwords beside certificates.
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
ROLE = "application"
AUTHENTICATOR = "{{class_name: {}, parameters: {{validator_class_name: org.apache.cassandra.auth.SpiffeCertificateValidator}}}}"
ENCRYPTION = """\
client_encryption_options:
  enabled: true
  optional: {optional}
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
certificate = "{pair.certificate}"
key = "{pair.key}"
"""


@pytest.fixture(scope="module")
def certificates(authority) -> dict:
    """The certificates that the node sees, by role."""
    return {role: authority.client(f"{role}-at-nodes") for role in (ROLE, "operator", "proxy")}


async def carry_out(node, statements, **login) -> list:
    connection = await Connection.open(node.address, node.settings.cql_port, **login)
    try:
        return [await connection.query(statement) for statement in statements][-1]
    finally:
        connection.close()


@pytest.fixture(scope="module")
def cassandra(authority, certificates, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    cluster = ring.Cluster("certificate-drivers", nodes=1, authentication=True, in_memory=True, patient=True)
    node = cluster.nodes[0]
    stores = {"store": authority.server("cassandra", [f"IP:{node.address}"]).store(directory / "store.p12", PASSWORD),
              "trusted": authority.truststore(directory / "trusted.p12", PASSWORD), "password": PASSWORD}
    cluster.stop(wipe=True)
    try:
        node.settings.authenticator = AUTHENTICATOR.format("MutualTlsWithPasswordFallbackAuthenticator")
        node.settings.more_yaml = ENCRYPTION.format(optional="true", **stores)
        node.start()
        node.wait_ready()
        until(lambda: has_roles(node), "the node has the roles", told=node.log_tail)
        node.stop()
        node.settings.authenticator = AUTHENTICATOR.format("MutualTlsAuthenticator")
        node.settings.more_yaml = ENCRYPTION.format(optional="false", **stores)
        node.settings.tls = client_context(authority.ca, certificates["operator"])
        node.start()
        node.wait_ready()
        yield node
    finally:
        cluster.stop(wipe=True)


def has_roles(node) -> bool:
    """Makes the roles; the node makes the superuser's own when it serves already."""
    roles = [(ROLE, ""), ("operator", " AND SUPERUSER = true"), ("proxy", "")]
    statements = [f"CREATE ROLE IF NOT EXISTS {role} WITH LOGIN = true{more}" for role, more in roles]
    statements += [f"ADD IDENTITY IF NOT EXISTS 'spiffe://test/{role}-at-nodes' TO ROLE '{role}'" for role, _ in roles]
    try:
        asyncio.run(carry_out(node, [*statements, f"GRANT ALL PERMISSIONS ON ALL KEYSPACES TO {ROLE}"], credentials=ring.SUPERUSER))
    except Exception:  # whatever it is, the next attempt shows whether it lasts
        return False
    return True


@pytest.fixture(scope="module")
def at_node(cassandra):
    """Carries out a statement at the node itself, as the operator."""
    return lambda statement: asyncio.run(carry_out(cassandra, [statement], tls=cassandra.settings.tls))


@pytest.fixture(scope="module")
def proxy(cassandra, secured, authority, application, certificates, clients_ca, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    place(IDENTITY.format(pair=certificates[ROLE]).encode(), directory / "shunt.toml")
    pair, own = authority.server().install(directory), certificates["proxy"]
    options = ["--config", directory / "shunt.toml", "--tls", "required", "--tls-certificate", pair.certificate, "--tls-key", pair.key,
               *clients_ca, "--node-tls", "on", "--node-tls-ca", authority.ca, "--node-tls-certificate", own.certificate,
               "--node-tls-key", own.key, "--cores", "2", *UNDISTURBED_PROXY]
    with secured(cassandra.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", list(map(str, options)),
                 directory / "proxy.log", tls=client_context(authority.ca, application)) as started:
        yield started


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
    cluster = Cluster([proxy.host], port=proxy.port, ssl_context=client_context(authority.ca, application), protocol_version=4,
                      **UNDISTURBED)
    try:
        cluster.connect().execute("SELECT cluster_name FROM system.local")
        rows = at_node("SELECT username, ssl_enabled FROM system_views.clients")
    finally:
        cluster.shutdown()
    assert all(row["ssl_enabled"] for row in rows) and {row["username"] for row in rows} == {ROLE, "operator", "proxy"}

"""The Python driver and cqlsh, unmodified, through a proxy with TLS: every version of the protocol, and mutual TLS."""

import pytest
from cassandra.cluster import Cluster

from harness import cqlsh
from harness.certificates import client_context
from harness.driver import UNDISTURBED
from harness.waits import until

VERSIONS = [3, 4, 5]
MIB = 1 << 20
TLS_VERSION = "TLSv1.3"


@pytest.fixture(scope="module")
def one_sided(start):
    return start()


@pytest.fixture(scope="module")
def mutual(start, authority, application, clients_ca):
    return start("required", *clients_ca, client=client_context(authority.ca, application))


def work(proxy, context, version: int) -> None:
    """A schema, small rows, a value of many records, and a prepared statement."""
    cluster = Cluster([proxy.host], port=proxy.port, ssl_context=context, protocol_version=version, **UNDISTURBED)
    try:
        session, keyspace = cluster.connect(), f"tls_{proxy.port}_{version}"
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        session.set_keyspace(keyspace)
        session.execute("CREATE TABLE items (k int PRIMARY KEY, v blob)")
        insert, large = session.prepare("INSERT INTO items (k, v) VALUES (?, ?)"), bytes(range(256)) * (MIB // 256)
        for key, value in ((0, b""), (1, b"small"), (2, large)):
            session.execute(insert, (key, value))
        found = {row.k: row.v for row in session.execute("SELECT k, v FROM items")}
        assert found == {0: b"", 1: b"small", 2: large}
        until(lambda: any(group["tls"] == TLS_VERSION and group["protocol_version"] == version
                          for group in proxy.client_groups()), "the status page shows the version of TLS", told=proxy.client_groups)
        assert proxy.metric("shunt_tls_connections") > 0
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("version", VERSIONS)
def test_python_driver(one_sided, authority, version):
    work(one_sided, client_context(authority.ca), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_python_driver_with_a_certificate_of_its_own(mutual, authority, application, version):
    work(mutual, client_context(authority.ca, application), version)


def test_cqlsh(one_sided, authority, tmp_path):
    settings = f"[ssl]\ncertfile = {authority.ca}\nvalidate = true\n"
    said = cqlsh.run("SELECT cluster_name FROM system.local;", one_sided.host, one_sided.port, tmp_path, ["--ssl"],
                     more_settings=settings)
    assert "(1 rows)" in said, said


def test_cqlsh_with_a_certificate_of_its_own(mutual, authority, application, tmp_path):
    settings = (f"[ssl]\ncertfile = {authority.ca}\nvalidate = true\nuserkey = {application.key}\n"
                f"usercert = {application.certificate}\n")
    said = cqlsh.run("SELECT cluster_name FROM system.local;", mutual.host, mutual.port, tmp_path, ["--ssl"],
                     more_settings=settings)
    assert "(1 rows)" in said, said

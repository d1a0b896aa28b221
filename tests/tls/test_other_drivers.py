"""The Go, Java, Rust and Node.js drivers, unmodified, with mutual TLS. Their programs are in tests/drivers."""

import pytest

from harness.certificates import client_context
from harness.cql import Session
from harness.secured_drivers import SecuredDrivers


@pytest.fixture(scope="module")
def drivers(node, start, authority, application, clients_ca):
    proxy = start("required", *clients_ca, client=client_context(authority.ca, application))
    host, port = node.contact.rsplit(":", 1)
    with Session(host, int(port)) as session:
        (row,) = session.query("SELECT data_center FROM system.local")
    return SecuredDrivers(proxy, authority, application, row["data_center"])


def test_go_drivers(drivers):
    drivers.go()


def test_java_driver(drivers, tmp_path):
    drivers.java(tmp_path)


def test_rust_driver(drivers):
    drivers.rust()


def test_node_driver(drivers):
    drivers.node()

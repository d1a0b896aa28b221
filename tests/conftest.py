"""Servers of the whole-system tests.

SHUNT_CONTACT (host:port of the proxy) and SHUNT_RING (host:port of the nodes behind it, separated by
commas) name servers that run already. SHUNT_RF is the number of copies that the nodes keep of a row.
SHUNT_STORE is the kind of the nodes: `cassandra` (the default) or `node`, the embedded one.

Without SHUNT_CONTACT, the run starts a ring and a proxy, or an embedded node, and stops them at its
end.
"""

import os
from dataclasses import dataclass

import pytest

from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.proxy import LISTEN, UNDISTURBED_PROXY, Proxy


@dataclass
class Backend:
    """The address of the tests, and the nodes behind it."""

    host: str
    port: int
    nodes: list
    copies: int
    store: str

    @property
    def through_proxy(self) -> bool:
        """False while a test is tried directly against a node."""
        return f"{self.host}:{self.port}" not in self.nodes

    @property
    def embedded(self) -> bool:
        return self.store == "node"

    def needs(self, feature: str) -> None:
        """Skips the test where there is no such thing; that the node says so has tests of its own."""
        if self.embedded:
            pytest.skip(f"the embedded node has no {feature}")


@pytest.fixture(scope="session")
def backend():
    contact, nodes = os.environ.get("SHUNT_CONTACT"), os.environ.get("SHUNT_RING")
    store = os.environ.get("SHUNT_STORE", "cassandra")
    assert store in ("cassandra", "node"), f"SHUNT_STORE {store!r}: cassandra or node"
    if contact and nodes:
        yield _backend(contact, nodes, store)
        return
    if store == "node":
        with Embedded.direct() as node:
            yield _backend(node.contact, node.contact, store)
        return
    ring = Cluster.load("ring") or Cluster("ring", patient=True)
    ours = not any(node.pid() for node in ring.nodes)
    ring.start()
    try:
        with Proxy(ring.contacts, options=UNDISTURBED_PROXY):
            yield _backend(LISTEN, ring.contacts, store)
    finally:
        if ours:
            ring.stop()


def _backend(contact: str, nodes: str, store: str) -> Backend:
    host, port = contact.rsplit(":", 1)
    copies = int(os.environ.get("SHUNT_RF", "1" if store == "node" else "3"))
    return Backend(host, int(port), nodes.split(","), copies, store)

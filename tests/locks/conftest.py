"""A fleet of three proxies: before the ring that SHUNT_RING names, or before an embedded node."""

import pytest

from locks import fleet as fleets
from locks.fleet import LEASE_MS, VERSIONS, Fleet


@pytest.fixture(scope="session")
def nodes():
    """(contact points, replicas of the fleet's tables)"""
    with fleets.nodes("locks", 9147) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(nodes, request):
    contact, replicas = nodes
    name = request.module.__name__.rsplit(".", 1)[-1]
    # So long no locks in memory are granted after a proxy has died, which is what the tests of faults wait for.
    port, lease_ms, memory_ttl_ms = (9360, LEASE_MS, 5_000) if name in ("test_faults", "test_histories") else (9350, 6_000, 30_000)
    fleet = Fleet(contact, name, replicas, port, lease_ms, memory_ttl_ms, query_timeout_ms=4_000 if port == 9360 else 30_000)
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture(scope="module", params=VERSIONS)
def session(fleet, request):
    """A driver's, in each of these versions of the protocol. A module whose tests need only one has its own."""
    session = fleet.connect(version=request.param)
    session.version = request.param
    yield session
    session.cluster.shutdown()


@pytest.fixture
def name(request, session):
    """Of a lock that no other test takes."""
    return f"{request.node.name}-{session.version}"

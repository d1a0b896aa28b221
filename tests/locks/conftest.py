"""A fleet of three proxies: before the ring that SHUNT_RING names, or before an embedded node."""

import os

import pytest

from locks import fleet as fleets
from locks.fleet import LEASE_MS, NODE_SILENCE, STEADY_LEASE_MS, Fleet, insistent

# Their tests wait for a lease to end, and for locks in memory to be granted again after that.
OF_FAULTS = ("test_faults", "test_formats", "test_histories")
# The most that a lock in memory is held for, and that a request waits for a lock. No test waits
# for so long: it is late before that.
MEMORY_TTL_MS, WAIT_MAX_MS = 600_000, 500_000


@pytest.fixture(scope="session")
def nodes():
    """(contact points, replicas of the fleet's tables)"""
    with fleets.nodes("locks", 9147) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(nodes, request):
    contact, replicas = nodes
    name = request.module.__name__.rsplit(".", 1)[-1]
    if name in OF_FAULTS:
        fleet = Fleet(contact, name, replicas, 9360, LEASE_MS, memory_ttl_ms=5_000)
    else:
        fleet = steady(contact, name, replicas, 9350)
    try:
        yield fleet.start()
    finally:
        fleet.stop()


def steady(contact: str, name: str, replicas: int, port: int, **more) -> Fleet:
    """A fleet that goes on as it is while the machine stands still for some seconds."""
    more = {"query_timeout_ms": 120_000, "lock_wait_max_ms": WAIT_MAX_MS, **more}
    more["more"] = [*NODE_SILENCE, *more.get("more", ())]
    return Fleet(
        contact, name, replicas, port, STEADY_LEASE_MS, memory_ttl_ms=MEMORY_TTL_MS, **more
    )


@pytest.fixture(scope="module")
def session(fleet, request):
    """A driver's, in version 4 of the protocol. What versions differ in is framing, so a few tests
    are enough for the others: @pytest.mark.parametrize("session", VERSIONS, indirect=True)"""
    version = getattr(request, "param", 4)
    session = insistent(fleet.connect(version=version, timeout_seconds=MEMORY_TTL_MS / 1000))
    session.version = version
    yield session
    session.cluster.shutdown()


@pytest.fixture
def name(request, session):
    """The name of a lock that no other test takes, and no later run of this one."""
    return f"{request.node.name}-{session.version}-{os.getpid()}"

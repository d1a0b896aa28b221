"""Backends for lock code of applications: the nodes themselves, and a fleet of proxies."""

import pytest

from locks import fleet as fleets
from locks.fleet import Fleet


@pytest.fixture(scope="session")
def nodes():
    """(contact points, replicas of the tables)"""
    with fleets.nodes("lock-code", 9347) as found:
        yield found


@pytest.fixture(scope="session")
def fleet(nodes):
    contact, replicas = nodes
    fleet = Fleet(contact, "lock-code", replicas, 9480, lease_ms=3_000, memory_ttl_ms=5_000)
    try:
        yield fleet.start()
    finally:
        fleet.stop()

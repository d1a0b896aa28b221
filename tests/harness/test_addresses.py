"""No two rings have an address, or a port for JMX, in common."""

import pytest

from harness.addresses import RINGS, first_of
from harness.cluster import Cluster


def test_no_number_belongs_to_two_rings():
    owners = {}
    for ring, (first, nodes) in RINGS.items():
        for number in range(first, first + nodes):
            assert 0 < number < 255 and number not in owners, f"{number}: {ring} and {owners.get(number)}"
            owners[number] = ring


def test_a_ring_has_the_numbers_of_its_name():
    assert [node.address for node in Cluster("quorum").nodes] == [f"127.0.0.{first_of('quorum') + index}" for index in range(3)]


def test_a_ring_without_numbers_is_refused():
    with pytest.raises(ValueError, match="'unknown' has no addresses"):
        Cluster("unknown")


def test_a_ring_has_no_more_nodes_than_numbers():
    with pytest.raises(ValueError, match="'tls' has 1 address"):
        Cluster("tls", nodes=2)

"""Proxies that ask Cassandra if they are alive, where others go by their leases: the same holds, whoever dies or stands still."""

import uuid

import pytest

from locks.fleet import Fleet

from . import test_conditional, test_faults
from .chains import Chains, check_at_rest
from .known import wait_until_taken

transfers = test_faults.transfers


@pytest.fixture(scope="module")
def fleet(nodes):
    contact, replicas = nodes
    fleet = Fleet(contact, "test_without_clocks", replicas, 9380, lease_ms=3_000, memory_ttl_ms=5_000, more=["--transaction-commit", "lwt"])
    try:
        yield fleet.start()
    finally:
        fleet.stop()


def test_no_transfer_is_lost_when_proxies_die(fleet, transfers):
    for victim in fleet.proxies[:2]:
        victim.kill()
        fleet.wait_until_settled(2)
        transfers.wait_for(40)
        victim.start()
        transfers.wait_until_all_are_known()


def test_nor_when_they_stand_still(fleet, transfers):
    for victim in fleet.proxies:
        with fleet.without(victim):
            transfers.wait_for(30)
        transfers.wait_until_all_are_known()


def test_values_decided_by_rows_in_memory_have_one_successor(fleet, session):
    table = test_conditional.name()
    session.execute(test_conditional.LEASES.format(table))
    test_conditional.change_mode(session, "conditional", [table])
    wait_until_taken(fleet, table)
    chains = Chains(fleet, table, [f"{uuid.uuid4().hex[:6]}-{number}" for number in range(4)], 8).begin()
    with chains:
        chains.wait_for(100)
        for victim in fleet.proxies:
            with fleet.without(victim):
                chains.wait_for(25)
            fleet.wait_until_settled(3)
    check_at_rest(fleet, chains)

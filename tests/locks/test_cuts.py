"""Proxies that cannot reach each other or the ring, one way or both, while clients take locks: what docs/fleet.md says of it under
Failures, nobody holds a lock that another holds, fences rise, and the fleet recovers by itself."""

import os
import shutil
import time

import pytest
from cassandra import OperationTimedOut, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import IsBootstrappingErrorMessage

from harness.embedded import Embedded
from locks.fleet import LEASE_MS, Fleet, Workers
from locks.network import NODE, Network

# So many that each proxy owns some.
NAMES = [f"cut-{number}" for number in range(24)]
NOT_SERVED, IN_DOUBT, NOTHING_NOTED = "0x1002", "write timeout", "no host"


@pytest.fixture(scope="module")
def network():
    if os.environ.get("SHUNT_RING"):
        pytest.skip("the nodes of the ring are on loopback addresses, which no other network namespace reaches")
    if os.geteuid() or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("network namespaces need root, and the commands ip, unshare and nsenter")
    network = Network(3)
    yield network
    network.close()


@pytest.fixture(scope="module")
def fleet(network):
    contact = f"{NODE}:9149"
    with Embedded("locks-cuts", contact, ["node", "--listen", contact, "--admin", "off", "--insecure"], [contact]):
        fleet = Fleet(contact, "cuts", 1, 9380, LEASE_MS, memory_ttl_ms=5_000, hosts=network.hosts)
        try:
            yield fleet.start()
        finally:
            fleet.stop()


@pytest.fixture
def workers(fleet, network):
    """Of both kinds of locks."""
    fleet.wait_until_settled(len(fleet.proxies))
    with Workers(fleet, "locks", 6, 3, ttl_seconds=4) as durable, Workers(fleet, "fast_locks", 6, 3, ttl_seconds=4) as of_memory:
        both = (durable, of_memory)
        try:
            wait_for_grants(both, 50)
            yield both
        finally:
            network.mend()
        # Whatever could not be reached, all is served again.
        fleet.wait_until_settled(len(fleet.proxies))
        wait_for_grants(both, 100)
        for to in range(len(fleet.proxies)):
            wait_until_all_answered(fleet, to)
    assert [one.grants.faults for one in both] == [[], []]


def wait_for_grants(workers: tuple, more: int) -> None:
    for one in workers:
        one.wait_for_grants(more)


@pytest.fixture(params=["both ways", "one way", "the other way"])
def cut(network, request):
    """Cuts one off from another, the hosts given by their addresses."""
    def between(one: str, other: str) -> None:
        if request.param != "the other way":
            network.lose(one, other)
        if request.param != "one way":
            network.lose(other, one)

    return between


class Client:
    """A session with all proxies, or with one of them. No connection of it is cut, so heartbeats would only find a busy machine."""

    def __init__(self, fleet, to: int | None = None):
        self.session = fleet.connect(to=to, heartbeat_seconds=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session.cluster.shutdown()

    def ask(self, owner: str = "asks", table: str = "locks", names=NAMES) -> dict:
        """Asks for all locks at once. By name: who has it with which fence, or what was said instead."""
        text = f"INSERT INTO shunt.{table} (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL {3600 if table == 'locks' else 5}"
        answers, left, deadline = {}, list(names), time.monotonic() + 60
        while left and time.monotonic() < deadline:
            asked = {name: self.session.execute_async(text, (name, owner)) for name in left}
            answers |= {name: outcome(future) for name, future in asked.items()}
            # The driver notes what a host has said after it has gone to the next; where there is none, it may be late.
            left = [name for name in left if answers[name] == NOTHING_NOTED]
        return answers


def outcome(future) -> str:
    try:
        row = future.result().one()
        return f"{row['owner']} {row['fence']}"
    except NoHostAvailable as error:
        served = [one for one in error.errors.values() if not isinstance(one, IsBootstrappingErrorMessage)]
        return repr(error) if served else NOT_SERVED if error.errors else NOTHING_NOTED
    except WriteTimeout:
        return IN_DOUBT
    except (OperationTimedOut, ConnectionException) as error:
        return repr(error)


def wait_until(what: str, is_so, within_seconds: float = 60) -> None:
    deadline = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def wait_until_all_answered(fleet, to: int) -> None:
    """One proxy, asked for each lock, knows who has it."""
    with Client(fleet, to) as client:
        wait_until(f"proxy {to} does not answer for all locks", lambda: all(one.startswith("holds") for one in client.ask().values()))


def hold(fleet) -> dict:
    """All locks are held from now on; what is answered to whoever asks for them."""
    with Client(fleet) as client:
        held = client.ask("holds")
    assert all(answer.startswith("holds") for answer in held.values()), held
    return held


def test_proxies_that_cannot_reach_each_other_serve_what_they_own(fleet, workers, cut):
    held = hold(fleet)
    shards = fleet.shards()
    with Client(fleet, 0) as first, Client(fleet, 1) as second, Client(fleet) as of_all:
        cut(fleet.proxies[0].host, fleet.proxies[1].host)
        # What was on its way may have been done: that is in doubt. From then on each says what it cannot reach.
        seen = []

        def each_knows() -> bool:
            seen[:] = [first.ask(), second.ask()]
            for one in seen:
                assert not set(one.values()) - {NOT_SERVED, IN_DOUBT, *held.values()}
            return all(NOT_SERVED in one.values() and IN_DOUBT not in one.values() for one in seen)

        wait_until("there is no end of the doubt", each_knows)
        # Each has its own, and that of the third, whom both reach; so all are to be had of one or of the other.
        for name in NAMES:
            assert {one[name] for one in seen} - {NOT_SERVED} == {held[name]}, name
        # The driver asks the next. It is connected to other cores of the proxies, which have doubts of their own at first.
        wait_until("a client of all does not find all", lambda: of_all.ask() == held)
        assert fleet.shards() == shards, "both reach the ring: nobody has lost anything"
        wait_for_grants(workers, 20)


def test_a_proxy_that_has_lost_the_ring_grants_nothing_and_comes_back(fleet, workers, cut):
    held = hold(fleet)
    alone = fleet.proxies[0]
    with Client(fleet, 0) as client, Client(fleet, 1) as of_another:
        cut(alone.host, NODE)
        wait_until("it goes on with its lease", lambda: "\nshunt_fleet_lease 0" in alone.get("/metrics")[1])
        fleet.wait_until_settled(2)
        answers = client.ask()
        # What it forwards is another's answer.
        assert NOT_SERVED in answers.values()
        assert all(answer in (NOT_SERVED, IN_DOUBT, held[name]) for name, answer in answers.items()), answers
        assert NOT_SERVED in client.ask(table="fast_locks").values()
        wait_until("the others have not taken all over", lambda: of_another.ask() == held)
        wait_for_grants(workers, 20)


def test_nothing_is_granted_without_the_ring(fleet, network, workers):
    held = hold(fleet)
    with Client(fleet) as client:
        for one in fleet.proxies:
            network.lose(one.host, NODE)
        for one in fleet.proxies:
            wait_until("it goes on with its lease", lambda one=one: "\nshunt_fleet_lease 0" in one.get("/metrics")[1])
        granted = [one.grants.count for one in workers]
        for table in ("locks", "fast_locks"):
            answers = set(client.ask(table=table, names=[f"new-{name}" for name in NAMES]).values())
            assert answers <= {NOT_SERVED, IN_DOUBT} and NOT_SERVED in answers, table
        assert [one.grants.count for one in workers] == granted
        network.mend()
        fleet.wait_until_settled(len(fleet.proxies))
        wait_until("what was held is not", lambda: client.ask() == held)

"""Proxies that cannot reach each other or the ring, one way or both, while clients take locks: what docs/fleet.md says of it under
Failures, nobody holds a lock that another holds, fences rise, and the fleet recovers by itself."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage

from harness.embedded import Embedded
from harness.waits import until
from locks.fleet import LEASE_MS, STEADY_LEASE_MS, Fleet, Workers
from locks.network import NODE, Network

# So many that each proxy owns some.
NAMES = [f"cut-{number}" for number in range(24)]
NOT_SERVED, IN_DOUBT, NOTHING_NOTED = "0x1002", "write timeout", "no host"
# A proxy waits for so long, and for three seconds more, for another that it has forwarded a request
# to. Clients ask again what nodes did not answer in this time.
QUERY_TIMEOUT_MS = 1_000


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
def node(network):
    contact = f"{NODE}:9149"
    with Embedded("locks-cuts", contact, ["node", "--listen", contact, "--admin", "off", "--insecure"], [contact]):
        yield contact


@pytest.fixture(scope="module", params=[LEASE_MS])
def fleet(network, node, request):
    """One after the other. Where no lease is to end, leases last while the machine stands still."""
    fleet = Fleet(
        node,
        f"cuts-{request.param}",
        1,
        9380,
        request.param,
        memory_ttl_ms=5_000,
        hosts=network.hosts,
        query_timeout_ms=QUERY_TIMEOUT_MS,
    )
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture
def workers(fleet, network):
    """Workers on both kinds of locks."""
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
        answers, left = {}, list(names)

        def all_are_noted() -> bool:
            asked = {name: self.session.execute_async(text, (name, owner)) for name in left}
            answers.update({name: outcome(future) for name, future in asked.items()})
            # The driver notes what a host has said after it has gone to the next; where there is none, it may be late.
            left[:] = [name for name in left if answers[name] == NOTHING_NOTED]
            return not left

        until(all_are_noted, "the driver notes what hosts have said")
        return answers


def outcome(future) -> str:
    try:
        row = future.result().one()
        return f"{row['owner']} {row['fence']}"
    except NoHostAvailable as error:
        said = [
            one for one in error.errors.values() if not isinstance(one, IsBootstrappingErrorMessage)
        ]
        if said and not any(isinstance(one, ErrorMessage) for one in said):
            # The driver's own errors: it closed a pool, for example, and opens another.
            return NOTHING_NOTED
        return repr(error) if said else NOT_SERVED if error.errors else NOTHING_NOTED
    except WriteTimeout:
        return IN_DOUBT


def are_all_held(answers: dict) -> bool:
    assert all(
        answer in (NOT_SERVED, IN_DOUBT) or answer.startswith("holds ")
        for answer in answers.values()
    ), answers
    return not {NOT_SERVED, IN_DOUBT} & set(answers.values())


def wait_until_all_answered(fleet, to: int) -> None:
    """One proxy, asked for each lock, knows who has it."""
    with Client(fleet, to) as client:
        until(lambda: are_all_held(client.ask()), f"proxy {to} answers for all locks")


def hold(fleet) -> dict:
    """Waits until every lock is held; returns the answers to the requests for them."""
    held = {}

    def are_held() -> bool:
        held.update(client.ask("holds"))
        return are_all_held(held)

    with Client(fleet) as client:
        until(are_held, "all locks are held")
    return held


def finds(client: Client, held: dict) -> bool:
    """Whether it is told of all; what it is told is right in any case."""
    answers = client.ask()
    assert all(answer in (NOT_SERVED, IN_DOUBT, held[name]) for name, answer in answers.items()), (
        answers,
        held,
    )
    return answers == held


def lease_is_lost(one) -> None:
    until(
        lambda: "\nshunt_fleet_lease 0" in one.get("/metrics")[1],
        f"{one.listen} goes on without a lease",
    )


# "The other way" is the same as "one way" here: the test asks each of the two what it knows.
@pytest.mark.parametrize("fleet", [STEADY_LEASE_MS], indirect=True)
@pytest.mark.parametrize("cut", ["both ways", "one way"], indirect=True)
def test_proxies_that_cannot_reach_each_other_serve_what_they_own(fleet, workers, cut):
    held = hold(fleet)
    shards = fleet.shards()
    with (
        Client(fleet, 0) as first,
        Client(fleet, 1) as second,
        Client(fleet) as of_all,
        ThreadPoolExecutor(2) as together,
    ):
        cut(fleet.proxies[0].host, fleet.proxies[1].host)
        # What was on its way may have been done: that is in doubt. From then on each says what it cannot reach.
        seen = []

        def each_knows() -> bool:
            seen[:] = together.map(Client.ask, (first, second))
            for one in seen:
                for name, answer in one.items():
                    assert answer in (NOT_SERVED, IN_DOUBT, held[name]), (name, answer, held[name])
            # Each has its own, and that of the third, whom both reach unless that stood still; so
            # all are to be had of one or of the other.
            is_whole = all(held[name] in {one[name] for one in seen} for name in NAMES)
            in_doubt = any(IN_DOUBT in one.values() for one in seen)
            return is_whole and not in_doubt and all(NOT_SERVED in one.values() for one in seen)

        until(each_knows, "there is an end of the doubt", told=lambda: seen)
        # The driver asks the next. It is connected to other cores of the proxies, which have doubts of their own at first.
        until(lambda: finds(of_all, held), "a client of all finds all")
        assert fleet.shards() == shards, "both reach the ring: nobody has lost anything"
        wait_for_grants(workers, 20)


def test_a_proxy_that_has_lost_the_ring_grants_nothing_and_comes_back(fleet, workers, cut):
    held = hold(fleet)
    alone = fleet.proxies[0]
    with Client(fleet, 0) as client, Client(fleet, 1) as of_another:
        cut(alone.host, NODE)
        lease_is_lost(alone)
        fleet.wait_until_settled(2)
        answers = client.ask()
        # What it forwards is another's answer.
        assert NOT_SERVED in answers.values()
        assert all(answer in (NOT_SERVED, IN_DOUBT, held[name]) for name, answer in answers.items()), answers
        assert NOT_SERVED in client.ask(table="fast_locks").values()
        until(lambda: finds(of_another, held), "the others have taken all over")
        wait_for_grants(workers, 20)


def test_nothing_is_granted_without_the_ring(fleet, network, workers):
    held = hold(fleet)
    with Client(fleet) as client:
        for one in fleet.proxies:
            network.lose(one.host, NODE)
        for one in fleet.proxies:
            lease_is_lost(one)
        # What was granted before has been told by then.
        for one in workers:
            one.wait_for_turns()
        granted = [one.grants.count for one in workers]
        for table in ("locks", "fast_locks"):
            answers = set(client.ask(table=table, names=[f"new-{name}" for name in NAMES]).values())
            assert answers <= {NOT_SERVED, IN_DOUBT} and NOT_SERVED in answers, table
        assert [one.grants.count for one in workers] == granted
        network.mend()
        fleet.wait_until_settled(len(fleet.proxies))
        until(lambda: finds(client, held), "what was held is held")

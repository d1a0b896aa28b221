"""Transfers over a thousand accounts while everything fails that a fleet promises to outlive: proxies are killed, also a second one while
it takes over from the first, stand still, cannot reach each other or the nodes; a node is killed and comes back; wall clocks jump. The total is
right in every transaction that reads it and after every fault; each transfer was made once or not at all, as its client was told.

With SHUNT_TRANSFERS_RING=1 on a ring of three Cassandra nodes of its own, else on an embedded node. SHUNT_TRANSFERS_ROUNDS is how often each fault
comes, once by default.

A proxy that stands still past its lease loses its shards, on a machine that pauses too. Where a
test says that a fault costs nobody a shard, it sees that in one of four attempts
(`until_it_stays`)."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from harness.addresses import first_of
from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.waits import Late, until
from locks.fleet import LEASE_MS, NETWORK, Fleet
from locks.network import Network

from . import wall_clock
from .bank import COMMITTED, IN_DOUBT, REFUSED, Bank, Clients, metric, page
from .conftest import insistent, past_the_proxies_of

ROUNDS = range(int(os.environ.get("SHUNT_TRANSFERS_ROUNDS", "1")))
ON_A_RING = os.environ.get("SHUNT_TRANSFERS_RING") == "1"
LONG = ON_A_RING or len(ROUNDS) > 1
NODES = tuple(first_of("bank") + index for index in range(3 if ON_A_RING else 1))
NODE_PORT = 9349
HOUR_SECONDS = 3600
ATTEMPTS_MAX = 20  # to see a proxy while it takes over
BOTH_WAYS, ONE_WAY, OTHER_WAY = WAYS = ("both ways", "one way", "the other way")


@pytest.fixture(scope="module")
def network():
    """Namespaces, beside those of other tests; None where there are none, and nobody is cut off then."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        yield None
        return
    network = Network(3, "10.75", "shunt-bank", NODES)
    yield network
    network.close()


class OneNode:
    """An embedded node, which is all there is: nothing goes on without it."""

    replicas, lease_ms = 1, LEASE_MS
    still_seconds, going_seconds = 0.15, 0.005  # while it is slow

    def __init__(self, network):
        contact = f"{network.nodes[0] if network else NETWORK + '.10'}:{NODE_PORT}"
        arguments = ["node", "--listen", contact, "--admin", "off", *(["--insecure"] if network else [])]
        self.addresses, self.contacts = [contact.rsplit(":", 1)[0]], contact
        self.node = Embedded(f"bank-{NETWORK}", contact, arguments, [contact])

    def start(self):
        self.node.start()
        return self

    def kill(self) -> None:
        self.node.kill()

    def come_back(self) -> None:
        self.node.start(wipe=False)

    @property
    def pids(self) -> list:
        return [self.node.process.pid]

    def signal(self, number: int) -> None:
        self.node.process.send_signal(number)

    def stop(self) -> None:
        self.node.stop()


class Three:
    """A ring of three Cassandra nodes, of which two are enough. The lease is the default one: a link to a node that says nothing is given up
    after five seconds."""

    replicas, lease_ms = 3, 6_000
    still_seconds, going_seconds = 0.1, 0.05

    def __init__(self, network):
        self.ring = Cluster("bank", nodes=3, network=network.nodes[0].rsplit(".", 1)[0] if network else "127.0.0")
        self.addresses, self.contacts = [node.address for node in self.ring.nodes], self.ring.contacts

    def start(self):
        self.ring.start(wipe=True)
        return self

    def kill(self) -> None:
        self.ring.nodes[0].kill()

    def come_back(self) -> None:
        self.ring.nodes[0].start()
        self.ring.nodes[0].wait_ready()
        self.ring.wait_up()

    @property
    def pids(self) -> list:
        return [node.pid() for node in self.ring.nodes]

    def signal(self, number: int) -> None:
        for node in self.ring.nodes:
            node.signal(number)

    def stop(self) -> None:
        self.ring.stop(wipe=True)


@pytest.fixture(scope="module")
def nodes(network):
    found = (Three if ON_A_RING else OneNode)(network)
    try:
        yield found.start()
    finally:
        found.stop()


@pytest.fixture(scope="module")
def fleet(network, nodes):
    hosts = network.hosts if network else None
    fleet = Fleet(nodes.contacts, "bank", nodes.replicas, 9390, nodes.lease_ms, memory_ttl_ms=5_000, hosts=hosts)
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def accounts(fleet, nodes):
    bank = Bank(fleet, nodes.replicas)
    yield bank
    assert bank.told_early > 0


@pytest.fixture
def bank(fleet, network, nodes, accounts):
    """Clients go on while the test does something to the servers. Then all is mended, each proxy serves, and the books are checked."""
    with Clients(accounts):
        try:
            accounts.wait_for(60)
            yield accounts
        finally:
            if network:
                network.mend()
        fleet.wait_until_settled(len(fleet.proxies))
        for number in range(len(fleet.proxies)):
            accounts.wait_for(20, number)
        audits = len(accounts.audits)
        accounts.wait_until("auditors go on", lambda: len(accounts.audits) > audits + 5)
    assert accounts.faults == []
    with past_the_proxies_of(nodes.contacts) as session:
        accounts.check(session)


def needs(network) -> None:
    if network is None:
        pytest.skip("network namespaces need root, and the commands ip, unshare and nsenter")


def cut(network, way: str, one: str, other: str) -> None:
    if way != OTHER_WAY:
        network.lose(one, other)
    if way != ONE_WAY:
        network.lose(other, one)


def has_lease(proxy) -> bool:
    return "\nshunt_fleet_lease 1" in page(proxy)


def until_it_stays(attempt) -> None:
    """`attempt` does something, mends it, and says whether all shards have stayed where they were.
    A fault that takes them away does so each time; a proxy that happens to stand still, seldom."""
    if not any(attempt() for _ in range(4)):
        raise Late("a shard was lost in each of four attempts")


def test_the_proxy_that_carries_them_out_is_killed(fleet, bank):
    for _ in ROUNDS:
        victim = bank.owner()
        troubles = bank.troubles_of(victim)
        fleet.proxies[victim].kill()
        fleet.wait_until_settled(2)
        bank.wait_for(60)
        assert bank.owner() != victim
        bank.wait_until("clients miss it",
                        lambda of=victim, before=troubles: bank.troubles_of(of) > before)
        fleet.proxies[victim].start()
        fleet.wait_until_settled(3)


def has_doubts(bank, victim: int, before: int) -> bool:
    """True if a client had asked a proxy that stands still for something. Each learns it after its time-out, which is 6 s."""
    try:
        until(lambda: bank.troubles_of(victim, IN_DOUBT) > before, "a client is in doubt", within_seconds=20)
    except Late:
        return False
    return True


def test_the_proxy_that_carries_them_out_stands_still_and_goes_on(fleet, bank):
    for _ in ROUNDS:
        for _ in range(10):
            victim = bank.owner()
            doubts, resolved = bank.troubles_of(victim, IN_DOUBT), bank.resolved
            others = [number for number in range(3) if number != victim]
            committed = sum(map(bank.committed, others))
            with fleet.without(fleet.proxies[victim]):
                bank.wait_for(60)
                bank.wait_until("another carries them out", lambda: sum(map(bank.committed, others)) > committed)
                in_doubt = has_doubts(bank, victim, doubts)
                if in_doubt:
                    bank.wait_until("they ask again, and are told", lambda: bank.resolved > resolved)
            fleet.wait_until_settled(3)
            if in_doubt:
                break
        else:
            raise Late("nobody doubts what it has done")


def test_a_second_proxy_is_killed_while_it_takes_over_from_the_first(fleet, nodes, bank):
    for _ in ROUNDS:
        for attempt in range(ATTEMPTS_MAX):
            first = bank.owner()
            fleet.proxies[first].kill()
            # Who is not seen at it on a busy machine is when it takes longer.
            still_seconds = nodes.still_seconds * (1 + attempt / ATTEMPTS_MAX)
            second = kill_who_takes_over(bank, nodes, first, still_seconds)
            fleet.wait_until_settled(2 if second is None else 1)
            bank.wait_for(40)
            for number in (first, second):
                if number is not None:
                    fleet.proxies[number].start()
            fleet.wait_until_settled(3)
            if second is not None:
                break
        else:
            raise Late("nobody was seen taking over")


def kill_who_takes_over(bank, nodes, first: int, still_seconds: float) -> int | None:
    """Kills the proxy that is finding out what the first has left undone, and cannot end that; None if it was not caught at it."""
    try:
        with slow(nodes, still_seconds):
            second = who_takes_over(bank, first)
        nodes.signal(signal.SIGSTOP)
        # It tells of itself four times a second. If later, one that has just taken over dies
        # instead, which is a fault as well.
        time.sleep(1)
        if second is None or not opens(page(bank.fleet.proxies[second])):
            return None
        bank.fleet.proxies[second].kill()
        return second
    finally:
        nodes.signal(signal.SIGCONT)


def opens(text: str) -> bool:
    return metric(text, "shunt_transactions_opening") > 0


# A thread of this process would wait for those of the clients, and the nodes would go on meanwhile.
SLOW = """
import os, signal, sys, time
still, going, *pids = sys.argv[1:]
while True:
    for number, seconds in ((signal.SIGSTOP, still), (signal.SIGCONT, going)):
        for pid in pids:
            os.kill(int(pid), number)
        time.sleep(float(seconds))
"""


@contextmanager
def slow(nodes, still_seconds: float):
    """Nodes stand still for most of the time, so that what takes some questions to them takes long
    enough to be seen. They may stand still at the end."""
    words = [still_seconds, nodes.going_seconds, *nodes.pids]
    process = subprocess.Popen([sys.executable, "-S", "-E", "-c", SLOW, *map(str, words)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def who_takes_over(bank, first: int) -> int | None:
    """A proxy that has the shard, and is finding out what was left undone; None if one commits before that is seen."""
    others = [number for number in range(3) if number != first]
    counts = {number: bank.committed(number) for number in others}
    seen = []

    def looks() -> bool:
        for number in others:
            text = page(bank.fleet.proxies[number])
            if opens(text):
                seen.append(number)
            elif metric(text, COMMITTED) > counts[number]:
                seen.append(None)
        return bool(seen)

    bank.wait_until("one of the others takes over", looks)
    return seen[0]


@pytest.mark.parametrize("way", WAYS if LONG else [BOTH_WAYS])
def test_proxies_are_cut_off_from_each_other(fleet, network, bank, way):
    needs(network)

    def cut_off() -> bool:
        owner = bank.owner()
        one, third = (number for number in range(3) if number != owner)
        shards, refused = fleet.shards(), bank.troubles_of(one, REFUSED)
        cut(network, way, fleet.proxies[owner].host, fleet.proxies[one].host)
        # What was on its way is in doubt; then it says that it cannot reach the owner.
        bank.wait_until("clients are refused", lambda: bank.troubles_of(one, REFUSED) > refused)
        for number in (owner, third):
            bank.wait_for(10, number)
        # Both reach the nodes: nobody has lost anything.
        has_stayed = bank.owner() == owner and fleet.shards() == shards
        network.mend()
        bank.wait_for(10, one)
        fleet.wait_until_settled(3)
        return has_stayed

    for _ in ROUNDS:
        until_it_stays(cut_off)


# By default what is written arrives, and nobody is told.
@pytest.mark.parametrize("way", WAYS if LONG else [OTHER_WAY])
def test_the_proxy_that_carries_them_out_is_cut_off_from_the_nodes(fleet, network, nodes, bank, way):
    needs(network)
    for _ in ROUNDS:
        victim = bank.owner()
        for address in nodes.addresses:
            cut(network, way, fleet.proxies[victim].host, address)
        bank.wait_until("its lease ends", lambda victim=victim: not has_lease(fleet.proxies[victim]))
        fleet.wait_until_settled(2)
        bank.wait_for(60)
        assert bank.owner() != victim
        network.mend()
        fleet.wait_until_settled(3)


@pytest.mark.parametrize("way", WAYS if LONG else [BOTH_WAYS])
def test_the_proxy_that_carries_them_out_is_cut_off_from_one_node(fleet, network, nodes, bank, way):
    needs(network)
    if len(nodes.addresses) == 1:
        pytest.skip("there is one node: that is a test of its own")

    def cut_off() -> bool:
        owner = bank.owner()
        lost = f'shunt_node_links_lost_total{{node="{nodes.addresses[0]}'
        before = metric(page(fleet.proxies[owner]), lost)
        cut(network, way, fleet.proxies[owner].host, nodes.addresses[0])
        bank.wait_until("its links are given up",
                        lambda: metric(page(fleet.proxies[owner]), lost) > before)
        bank.wait_for(60)
        has_stayed = bank.owner() == owner  # two nodes are enough
        network.mend()
        fleet.wait_until_settled(3)
        bank.wait_for(60)
        return has_stayed

    for _ in ROUNDS:
        until_it_stays(cut_off)


def test_a_node_is_killed_and_comes_back(fleet, nodes, bank):
    for _ in ROUNDS:
        links = f'shunt_node_links{{node="{nodes.addresses[0]}'
        bank.wait_until("all have links to it",
                        lambda: all(metric(page(proxy), links) > 0 for proxy in fleet.proxies))
        troubles = sum(bank.troubles.values())
        nodes.kill()
        try:
            if len(nodes.addresses) > 1:
                bank.wait_until("no link to it is left",
                                lambda: not any(metric(page(proxy), links) for proxy in fleet.proxies))
                bank.wait_for(200)
            else:
                bank.wait_until("all leases end", lambda: not any(map(has_lease, fleet.proxies)))
                bank.wait_until("clients are told so",
                                lambda before=troubles: sum(bank.troubles.values()) > before)
        finally:
            nodes.come_back()
        fleet.wait_until_settled(3)
        bank.wait_for(60)


def test_a_wall_clock_jumps_ahead_and_its_proxy_dies(fleet, bank):
    """The next one's clock shows what it showed before: an hour less than the last transaction's."""
    skip_unless_clocks_jump()
    victims = []

    def jump() -> bool:
        victim = bank.owner()
        wall_clock.jump(fleet.proxies[victim].process.pid, HOUR_SECONDS)
        bank.wait_for(60)
        has_stayed = bank.owner() == victim  # a wall clock ends no lease
        victims.append(victim)
        if not has_stayed:
            wall_clock.jump(fleet.proxies[victim].process.pid, 0)
            fleet.wait_until_settled(3)
        return has_stayed

    for _ in ROUNDS:
        until_it_stays(jump)
        victim = victims[-1]
        wait_for_time(fleet, bank, HOUR_SECONDS)
        fleet.proxies[victim].kill()
        fleet.wait_until_settled(2)
        bank.wait_for(60)
        wait_for_time(fleet, bank, 0)
        fleet.proxies[victim].start()
        fleet.wait_until_settled(3)


def test_a_wall_clock_jumps_back_and_its_proxy_writes_nothing_until_another_does(fleet, bank):
    skip_unless_clocks_jump()
    for _ in ROUNDS:
        victim = bank.owner()
        refused = bank.troubles_of(victim, REFUSED)
        wall_clock.jump(fleet.proxies[victim].process.pid, -HOUR_SECONDS)
        bank.wait_until("its clients are refused", lambda: bank.troubles_of(victim, REFUSED) > refused + 10)
        behind = metric(page(fleet.proxies[victim]), "shunt_clock_behind_seconds")
        assert behind > HOUR_SECONDS / 2
        fleet.proxies[victim].kill()
        fleet.wait_until_settled(2)
        bank.wait_for(60)
        fleet.proxies[victim].start()
        fleet.wait_until_settled(3)


def skip_unless_clocks_jump() -> None:
    if not wall_clock.can_jump():
        pytest.skip("the wall clock of a process is set on x86-64 only")


def wait_for_time(fleet, bank, wanted_seconds: int) -> None:
    """Until transfers say that it is so much later than it is, by ten minutes more or less."""
    session = insistent(fleet.connect())

    def is_so() -> bool:
        made = [one.id for one in bank.transfers[-20:] if one.applied]
        now = time.time()
        rows = [session.execute("SELECT made_at FROM bank.transfers WHERE id = %s", (one,)).one() for one in made]
        return any(abs(row["made_at"].timestamp() - now - wanted_seconds) < 600 for row in rows)

    try:
        bank.wait_until(f"it is {wanted_seconds} s later", is_so)
    finally:
        session.cluster.shutdown()

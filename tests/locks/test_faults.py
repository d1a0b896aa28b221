"""Proxies die, stand still and stop in order while clients take locks: nobody holds a lock that another holds, fences rise, and
the fleet recovers by itself."""

import asyncio
import resource
import signal
import time

import pytest
from cassandra import OperationTimedOut, WriteTimeout
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, WriteTimeoutErrorMessage

from harness import cql
from harness.driver import PATIENT
from locks.fleet import LEASE_MS, Workers

CLIENTS = 2_000


@pytest.fixture(params=["locks", "fast_locks"])
def workers(fleet, request):
    fleet.wait_until_settled(len(fleet.proxies))
    with Workers(fleet, request.param, locks=12, clients=6, ttl_seconds=4) as workers:
        workers.wait_for_grants(100)
        yield workers
        # Whatever happened, all is served again.
        fleet.wait_until_settled(len(fleet.proxies))
        workers.wait_for_grants(200)
    assert workers.grants.faults == []


def test_a_killed_proxys_locks_are_served_by_the_others_and_it_comes_back(fleet, workers):
    victim = fleet.proxies[0]
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait(60)
    fleet.wait_until_settled(2)
    workers.wait_for_grants(200)
    victim.start()


def test_a_client_that_knows_one_proxy_goes_on_with_the_others_when_that_is_killed(fleet):
    """The other drivers' forms of this are in tests/drivers; tests/locks/drivers.py runs them."""
    fleet.wait_until_settled(len(fleet.proxies))
    victim = fleet.proxies[0]
    session = Cluster([victim.host], port=victim.port, **PATIENT).connect()
    acquire = "INSERT INTO shunt.{} (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 5"

    def goes_on(statement: str, values) -> tuple:
        """Asked until there is an answer that says what is."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return session.execute(statement, values).one()
            except NoHostAvailable as error:
                said = [one for one in error.errors.values() if isinstance(one, ErrorMessage)]
                assert all(isinstance(one, (IsBootstrappingErrorMessage, WriteTimeoutErrorMessage)) for one in said), said
            except (OperationTimedOut, WriteTimeout, ConnectionException):
                pass
            assert time.monotonic() < deadline, f"{statement} {values}"
            time.sleep(0.05)

    try:
        assert {host.address for host in session.cluster.metadata.all_hosts()} == {one.host for one in fleet.proxies}
        names = [f"held-{number}" for number in range(24)]  # so many that each proxy owns some
        held = {name: session.execute(acquire.format("locks").replace("TTL 5", "TTL 600"), (name, "ann")).one().fence for name in names}
        victim.kill()
        # Locks in memory that the killed one may have granted are nobody's for longer than its lease, so some are refused now.
        refused, deadline = [], time.monotonic() + 60
        while not refused:
            for name in names:
                try:
                    session.execute(acquire.format("fast_locks"), (name, "ann"))
                except NoHostAvailable as error:
                    refused += [one for one in error.errors.values() if isinstance(one, IsBootstrappingErrorMessage)]
                except (OperationTimedOut, ConnectionException):
                    pass
            assert time.monotonic() < deadline, "no lock in memory was refused by IS_BOOTSTRAPPING"
        for name, fence in held.items():
            found = goes_on(acquire.format("locks"), (name, "bob"))
            assert (found.applied, found.owner, found.fence) == (False, "ann", fence), name
            found = goes_on("DELETE FROM shunt.locks WHERE name = %s IF owner = 'ann'", (name,))
            assert found.applied or found.owner is None, "the answer to a first release may have been lost"
        for name in names:
            assert goes_on(acquire.format("locks"), (f"new-{name}", "ann")).owner == "ann"
    finally:
        session.cluster.shutdown()
        victim.kill()
        victim.start()


def test_a_proxy_that_stood_still_past_its_lease_grants_nothing_of_what_is_anothers(fleet, workers):
    victim = fleet.proxies[1]
    victim.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(3 * LEASE_MS / 1000)
        fleet.wait_until_settled(2)
        workers.wait_for_grants(100)
    finally:
        victim.process.send_signal(signal.SIGCONT)


def test_a_proxy_that_is_stopped_in_order_hands_its_locks_over(fleet, workers):
    victim = fleet.proxies[2]
    victim.process.send_signal(signal.SIGTERM)
    assert victim.process.wait(90) == 0
    shards = fleet.shards()
    assert sum(shards.values()) == 64 and victim.listen not in shards, "nobody had to find out that it is gone"
    workers.wait_for_grants(200)
    victim.start()


def test_all_are_killed_at_once_and_durable_holders_keep_what_they_have(fleet, workers):
    session = workers.session
    owner = f"keeps-{workers.table}"
    kept = session.execute("INSERT INTO shunt.locks (name, owner) VALUES ('kept', %s) IF NOT EXISTS USING TTL 120", (owner,)).one()
    assert kept["[applied]"]
    for one in fleet.proxies:
        one.process.send_signal(signal.SIGKILL)
    for one in fleet.proxies:
        one.process.wait(60)
    for one in fleet.proxies:
        one.start()
    fleet.wait_until_settled(len(fleet.proxies))
    workers.wait_for_grants(50)
    again = session.execute("INSERT INTO shunt.locks (name, owner) VALUES ('kept', 'other') IF NOT EXISTS USING TTL 120").one()
    assert (again["[applied]"], again["owner"], again["fence"]) == (False, owner, kept["fence"])
    free = session.execute("DELETE FROM shunt.locks WHERE name = 'kept' IF owner = %s AND fence = %s", (owner, kept["fence"])).one()
    assert free["[applied]"]


@pytest.mark.parametrize("killed", [1, 3])
def test_a_lock_in_memory_is_nobodys_for_as_long_as_its_holder_counts_on_it(fleet, killed):
    """Its proxy is killed and started again at once, and has forgotten it."""
    fleet.wait_until_settled(len(fleet.proxies))
    session = fleet.connect(timeout_seconds=10)
    ttl = fleet.memory_ttl_ms // 1000
    acquire = f"INSERT INTO shunt.fast_locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL {ttl}"

    def asks(name: str, owner: str) -> bool | None:
        """Whether it was granted; None: that is not known, or certainly not."""
        try:
            return session.execute(acquire, (name, owner)).one()["[applied]"]
        except (NoHostAvailable, OperationTimedOut, WriteTimeout, ConnectionException):
            return None

    try:
        held, deadline = {}, time.monotonic() + 60
        while len(held) < 24:  # so many that each proxy owns some
            assert time.monotonic() < deadline, "locks in memory are not granted"
            name, asked = f"counts-{killed}-{len(held)}", time.monotonic()
            if asks(name, f"first-{asked}"):
                held[name] = asked
        # Those that were granted first may be over soon; the last ones are not.
        victims, refused = fleet.proxies[:killed], 0
        for victim in victims:
            victim.process.send_signal(signal.SIGKILL)
        for victim in victims:
            victim.process.wait(60)
            victim.start()
        deadline = time.monotonic() + 60
        while held:
            assert time.monotonic() < deadline, f"{sorted(held)} are not granted again"
            for name, asked in list(held.items()):
                granted = asks(name, "second")
                refused += granted is None
                if granted:
                    # The proxy counts from when it granted it, which was after it was asked.
                    assert time.monotonic() - asked >= ttl, f"{name} was granted while its holder counted on it"
                    del held[name]
            time.sleep(0.02)
        assert refused, "no proxy has waited"
    finally:
        session.cluster.shutdown()


def test_two_thousand_clients_of_a_killed_proxy_find_their_locks_at_the_others(fleet):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 500:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 500), hard))
    fleet.wait_until_settled(len(fleet.proxies))

    async def ask(number: int, to) -> tuple:
        """One client on a connection of its own, which asks until it is told who has its lock: (owner, fence)."""
        connection, deadline = None, time.monotonic() + 120
        text = f"INSERT INTO shunt.locks (name, owner) VALUES ('of-{number}', 'client-{number}') IF NOT EXISTS USING TTL 600"
        while True:
            try:
                connection = connection or await cql.Connection.open(to.host, to.port, timeout_seconds=120)
                row = (await connection.query(text, timeout_seconds=120))[0]
                return connection, row["owner"], row["fence"]
            except cql.CqlError as error:
                # Not served yet, or in doubt.
                assert error.code in (0x1002, 0x1100) and time.monotonic() < deadline, error
            await asyncio.sleep(0.1)

    async def release(number: int, connection, owner: str, fence: int) -> None:
        text = f"DELETE FROM shunt.locks WHERE name = 'of-{number}' IF owner = '{owner}' AND fence = {fence}"
        assert (await connection.query(text, timeout_seconds=120))[0]["[applied]"]

    async def scenario() -> None:
        before = await asyncio.gather(*(ask(number, fleet.proxies[0]) for number in range(CLIENTS)))
        assert [owner for _, owner, _ in before] == [f"client-{number}" for number in range(CLIENTS)]
        fleet.proxies[0].kill()
        after = await asyncio.gather(*(ask(number, fleet.proxies[1 + number % 2]) for number in range(CLIENTS)))
        assert [found[1:] for found in after] == [found[1:] for found in before]
        # Other tests look at all locks that there are.
        await asyncio.gather(*(release(number, *found) for number, found in enumerate(after)))
        for connection, *_ in (*before, *after):
            connection.close()

    try:
        asyncio.run(scenario())
    finally:
        fleet.proxies[0].kill()
        fleet.proxies[0].start()

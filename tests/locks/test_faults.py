"""Proxies die, stand still and stop in order while clients take locks: nobody holds a lock that another holds, fences rise, and
the fleet recovers by itself."""

import asyncio
import json
import os
import resource
import time

import pytest
from cassandra import OperationTimedOut, WriteTimeout
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, WriteTimeoutErrorMessage

from harness import cql
from harness.driver import PATIENT
from harness.waits import DEADLINE_SECONDS, Late, unpaused, until, until_async
from locks.fleet import Workers, command, run

CLIENTS = int(os.environ.get("SHUNT_LOCK_CLIENTS", "300"))
NOT_SERVED, IN_DOUBT = 0x1002, 0x1100
# What `fleet drain` says of a proxy that others have declared dead before it was told to leave.
TOO_LATE = ("there is no live member", "has left already, or was declared dead")
# Half of what a doctor waits for an answer.
PAUSE_SECONDS = 5


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


def answered(session, statement: str, values):
    """The final answer of a proxy. A request without an answer may have been carried out."""
    errors = []

    def answer():
        try:
            return session.execute(statement, values).one()
        except NoHostAvailable as error:
            said = [one for one in list(error.errors.values()) if isinstance(one, ErrorMessage)]
            assert all(
                isinstance(one, (IsBootstrappingErrorMessage, WriteTimeoutErrorMessage))
                for one in said
            ), said
            errors[:] = [repr(error)]
        except (OperationTimedOut, WriteTimeout, ConnectionException) as error:
            errors[:] = [repr(error)]

    return until(
        answer, f"an answer to {statement} {values}", every_seconds=0.05, told=lambda: errors
    )


def test_a_killed_proxys_locks_are_served_by_the_others_and_it_comes_back(fleet, workers):
    victim = fleet.proxies[0]
    victim.kill()
    fleet.wait_until_settled(2)
    workers.wait_for_grants(200)
    victim.start()


def test_a_client_that_knows_one_proxy_goes_on_with_the_others_when_that_is_killed(fleet):
    """The other drivers' forms of this are in tests/drivers; tests/drivers/fleet.py runs them."""
    fleet.wait_until_settled(len(fleet.proxies))
    victim = fleet.proxies[0]
    session = Cluster([victim.host], port=victim.port, **PATIENT).connect()
    acquire = "INSERT INTO shunt.{} (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 5"

    def knows_all() -> bool:
        session.cluster.refresh_nodes()
        return {host.address for host in session.cluster.metadata.all_hosts()} == {
            one.host for one in fleet.proxies
        }

    try:
        until(knows_all, "the driver knows all proxies")
        names = [f"held-{number}" for number in range(24)]  # so many that each proxy owns some
        held = {
            name: answered(
                session, acquire.format("locks").replace("TTL 5", "TTL 600"), (name, "ann")
            ).fence
            for name in names
        }
        victim.kill()

        # Locks in memory that the killed one may have granted are nobody's for longer than its lease, so some are refused now.
        def some_are_refused() -> bool:
            refused = []
            for name in names:
                try:
                    session.execute(acquire.format("fast_locks"), (name, "ann"))
                except NoHostAvailable as error:
                    said = list(error.errors.values())
                    refused += [one for one in said if isinstance(one, IsBootstrappingErrorMessage)]
                except (OperationTimedOut, WriteTimeout, ConnectionException):
                    pass  # the proxy that was asked had sent it on to the killed one
            return bool(refused)

        # Where this test stood still for all that time there is nothing to see any more.
        until(
            some_are_refused, "a lock in memory was refused by IS_BOOTSTRAPPING", within_seconds=60
        )
        for name, fence in held.items():
            found = answered(session, acquire.format("locks"), (name, "bob"))
            assert (found.applied, found.owner, found.fence) == (False, "ann", fence), name
            found = answered(
                session, "DELETE FROM shunt.locks WHERE name = %s IF owner = 'ann'", (name,)
            )
            assert found.applied or found.owner is None, "the answer to a first release may have been lost"
        for name in names:
            assert answered(session, acquire.format("locks"), (f"new-{name}", "ann")).owner == "ann"
    finally:
        session.cluster.shutdown()
        victim.kill()
        victim.start()


def test_a_proxy_that_stood_still_past_its_lease_grants_nothing_of_what_is_anothers(fleet, workers):
    # Its lease is over when the others have its shards.
    with fleet.without(fleet.proxies[1]):
        workers.wait_for_grants(100)


def test_a_proxy_that_is_stopped_in_order_hands_its_locks_over(fleet, workers):
    """test_operator.py shows that nobody has to find out that it is gone: leases are longer there
    than a pause of this machine."""
    victim = fleet.proxies[2]
    victim.terminate()
    assert victim.wait(DEADLINE_SECONDS) == 0
    fleet.wait_until_settled(2)
    workers.wait_for_grants(200)
    victim.start()


def test_all_are_killed_at_once_and_durable_holders_keep_what_they_have(fleet, workers):
    session, owner = fleet.connect(), f"keeps-{workers.table}-{os.getpid()}"
    # No other test's: one that failed has not released it.
    name = f"kept-{owner}"
    acquire = "INSERT INTO shunt.locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 600"
    kept = answered(session, acquire, (name, owner))
    assert kept["owner"] == owner
    session.cluster.shutdown()
    for one in fleet.proxies:
        one.kill()
    for one in fleet.proxies:
        one.start()
    fleet.wait_until_settled(len(fleet.proxies))
    workers.wait_for_grants(50)
    session = fleet.connect()
    again = answered(session, acquire, (name, "other"))
    assert (again["[applied]"], again["owner"], again["fence"]) == (False, owner, kept["fence"])
    free = answered(
        session,
        "DELETE FROM shunt.locks WHERE name = %s IF owner = %s AND fence = %s",
        (name, owner, kept["fence"]),
    )
    assert free["[applied]"] or free["owner"] is None, (
        "the answer to a first release may have been lost"
    )
    session.cluster.shutdown()


@pytest.mark.parametrize("killed", [1, 3])
def test_a_lock_in_memory_is_nobodys_for_as_long_as_its_holder_counts_on_it(fleet, killed):
    """The proxy is killed and started again at once, and has forgotten the lock."""
    fleet.wait_until_settled(len(fleet.proxies))
    session = fleet.connect(timeout_seconds=10)
    ttl = fleet.memory_ttl_ms // 1000
    acquire = f"INSERT INTO shunt.fast_locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL {ttl}"
    held, refused = {}, []

    def asks(name: str, owner: str) -> bool | None:
        """Whether it was granted; None: that is not known, or certainly not."""
        try:
            return session.execute(acquire, (name, owner)).one()["[applied]"]
        except (NoHostAvailable, OperationTimedOut, WriteTimeout, ConnectionException):
            return None

    def enough_are_held() -> bool:
        name, asked = f"counts-{killed}-{len(held)}", time.monotonic()
        if asks(name, f"first-{asked}"):
            held[name] = asked
        return len(held) == 24  # so many that each proxy owns some

    def all_are_granted_again() -> bool:
        for name, asked in list(held.items()):
            granted = asks(name, "second")
            if granted is None:
                refused.append(name)
            if granted:
                # The proxy counts from when it granted it, which was after it was asked.
                assert time.monotonic() - asked >= ttl, (
                    f"{name} was granted while its holder counted on it"
                )
                del held[name]
        return not held

    try:
        until(enough_are_held, "locks in memory are granted", every_seconds=0)
        # Those that were granted first may be over soon; the last ones are not.
        victims = fleet.proxies[:killed]
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.start()
        until(
            all_are_granted_again,
            "locks in memory are granted again",
            every_seconds=0.02,
            told=lambda: sorted(held),
        )
        if not refused:
            raise Late(
                "the time in which proxies grant nothing was over before this test began to look"
            )
    finally:
        session.cluster.shutdown()


def test_many_clients_of_a_killed_proxy_find_their_locks_at_the_others(fleet):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CLIENTS + 500:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CLIENTS + 500), hard))
    fleet.wait_until_settled(len(fleet.proxies))

    async def answer_to(connection, text: str) -> dict:
        """Asked until the client is told what is."""
        async def answer():
            try:
                return (await connection.query(text, timeout_seconds=DEADLINE_SECONDS))[0]
            except cql.CqlError as error:
                assert error.code in (NOT_SERVED, IN_DOUBT), error

        return await until_async(answer, f"an answer to {text}")

    async def ask(number: int, to) -> tuple:
        """One client on a connection of its own, which is told who has its lock: (owner, fence)."""
        connection = await cql.Connection.open(to.host, to.port, timeout_seconds=DEADLINE_SECONDS)
        row = await answer_to(
            connection,
            f"INSERT INTO shunt.locks (name, owner) VALUES ('of-{number}', 'client-{number}') "
            "IF NOT EXISTS USING TTL 600",
        )
        return connection, row["owner"], row["fence"]

    async def release(number: int, connection, owner: str, fence: int) -> None:
        row = await answer_to(
            connection,
            f"DELETE FROM shunt.locks WHERE name = 'of-{number}' "
            f"IF owner = '{owner}' AND fence = {fence}",
        )
        assert row["[applied]"] or row["owner"] is None, (
            "the answer to a first release may have been lost"
        )

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


def test_a_proxy_that_is_declared_dead_while_it_is_drained_has_not_left(fleet):
    fleet.wait_until_settled(len(fleet.proxies))
    victim = fleet.proxies[2]
    of_fleet = ["--contact-points", fleet.contact_points, "--name", fleet.name]

    def is_sealed() -> bool:
        members = json.loads(fleet.status("--json"))["members"]
        return ("sealed", 0) in [
            (member["state"], member["shards"])
            for member in members
            if member["address"] == victim.listen
        ]

    def is_told_in_time() -> bool:
        """The command is late if the machine stands still for a lease before it reads the rows."""
        victim.pause()
        try:
            done = command("fleet", "drain", *of_fleet, "--wait", "10m", victim.listen)
            if done.returncode == 2 and any(said in done.stderr for said in TOO_LATE):
                return False
            assert (
                done.returncode == 1
                and "was declared dead" in done.stderr
                and "has left" not in done.stdout
            ), done
            until(is_sealed, "others have taken over what it had")
            return True
        finally:
            victim.resume()
            # It is a new member.
            fleet.wait_until_settled(len(fleet.proxies))

    until(is_told_in_time, f"{victim.listen} is told to leave while it stands still")


def test_a_doctor_sees_that_no_proxy_runs_although_their_rows_say_that_they_live(fleet):
    """The last test here: it ends the fleet."""
    fleet.wait_until_settled(len(fleet.proxies))
    for one in fleet.proxies:
        one.kill()
    node = fleet.contact_points.split(",")[0]
    doctor = ["doctor", "--json", "--contact-points", node, "--name", fleet.name]
    done = unpaused(lambda: run(*doctor), PAUSE_SECONDS)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [(line["level"], line["what"]) for line in lines if line["check"] == "members"]
    assert done.returncode >= 1 and ("ok", "3 live") not in found, lines
    assert sum("did not renew its lease" in what for _, what in found) == 3 and any(
        "no locks are served" in what for _, what in found
    ), lines

"""A proxy that is killed and started again with `--fleet-state` proves that its former process has ended: its locks need not wait
for the lease, which is so long here that nothing in these tests could have waited for it. And one that is stopped while no node can
be told that it leaves."""

import os
import subprocess

import pytest
from cassandra.cluster import NoHostAvailable

from harness.embedded import Embedded
from harness.proxy import binary
from harness.waits import DEADLINE_SECONDS, until
from locks.fleet import NETWORK, Fleet, insistent

LEASE_MS, MEMORY_TTL_MS, PORT = 60_000, 1_000, 9390  # that is the longest lease there is
WITHIN_SECONDS = 45  # of a start: after that an answer would show nothing


@pytest.fixture(scope="module")
def fleet(nodes, tmp_path_factory):
    contact, replicas = nodes
    # Of its own: a fleet of an earlier run before the same nodes has leases yet.
    fleet = Fleet(
        contact,
        f"test_restart_{os.getpid()}",
        replicas,
        PORT,
        LEASE_MS,
        MEMORY_TTL_MS,
        proxies=1,
        query_timeout_ms=30_000,
    )
    one, = fleet.proxies
    one.state = tmp_path_factory.mktemp("state") / "fleet"
    one.options += ["--fleet-state", str(one.state)]
    try:
        yield fleet.start()
    finally:
        fleet.stop()


def acquire(fleet, names, owner) -> dict:
    """The answer for each name, asked until there is one."""
    session, found = fleet.connect(), {}

    def all_are_answered() -> bool:
        text = "INSERT INTO shunt.locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 600"
        try:
            for name in set(names) - set(found):
                found[name] = session.execute(text, (name, owner)).one()
        except NoHostAvailable:
            return False
        return True

    try:
        until(all_are_answered, "no lock waits for the lease", WITHIN_SECONDS, told=fleet.status)
    finally:
        session.cluster.shutdown()
    return found


def test_a_proxy_that_was_killed_serves_its_locks_again_at_once(fleet):
    names = [f"restart-{os.getpid()}-{number}" for number in range(8)]
    held = acquire(fleet, names, "ann")
    assert all(row["[applied]"] for row in held.values())
    for _ in range(2):
        fleet.proxies[0].kill()
        fleet.proxies[0].start()
        again = acquire(fleet, names, "bob")
        assert {name: (row["[applied]"], row["owner"], row["fence"]) for name, row in again.items()} == \
            {name: (False, "ann", row["fence"]) for name, row in held.items()}
    session = insistent(fleet.connect())
    for name in names:
        assert session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = 'ann'", (name,)).one()["[applied]"]
    session.cluster.shutdown()


def test_two_proxies_do_not_share_the_file(fleet):
    one = fleet.proxies[0]
    other = subprocess.run([str(binary()), "proxy", "--listen", f"{one.host}:{PORT + 4}", "--admin", "off", "--contact-points",
                            fleet.contact_points, "--fleet", fleet.name, "--fleet-state", str(one.state)],
                           capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert other.returncode == 2 and "another process has it" in other.stderr and str(one.state) in other.stderr, other
    assert one.alive()


def total(one, metric: str) -> int:
    """The sum of a metric of a proxy over its labels."""
    lines = [line for line in one.get("/metrics")[1].splitlines() if line.startswith(metric + "{")]
    return sum(int(float(line.split()[-1])) for line in lines)


@pytest.mark.parametrize("held", ["nothing", "a lock"])
def test_a_proxy_that_reaches_no_node_stops_at_once_if_nothing_is_held(held):
    contact = f"{NETWORK}.11:9147"
    arguments = ["node", "--listen", contact, "--admin", "off"]
    node = Embedded(f"gone-{NETWORK}", contact, arguments, [contact])
    fleet = Fleet(contact, "gone", 1, PORT + 2, LEASE_MS, 600_000, proxies=1, network=f"{NETWORK[:-1]}4",
                  more=["--drain-timeout-ms", "2000"])
    one, = fleet.proxies
    with node:
        try:
            fleet.start()
            if held == "a lock":
                session = fleet.connect()
                text = "INSERT INTO shunt.fast_locks (name, owner) VALUES ('a', 'ann') IF NOT EXISTS USING TTL 600"
                assert insistent(session).execute(text).one()["[applied]"]
                session.cluster.shutdown()
                until(lambda: total(one, "shunt_locks_held") == 1, "it is counted")
            node.kill()
            until(lambda: total(one, "shunt_node_links") == 0, "the proxy has lost its node", told=one.log_tail)
            one.terminate()
            assert one.wait(DEADLINE_SECONDS) == 0
        finally:
            fleet.stop()
    log = one.log_tail(400)
    assert ("the drain took too long" in log) == (held == "a lock"), log
    assert ("leaves its fleet untold" in log) == (held == "nothing"), log

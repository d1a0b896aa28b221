"""A proxy that is killed and started again with `--fleet-state` proves that its former process has ended: its locks need not wait
for the lease, which is so long here that nothing in these tests could have waited for it."""

import subprocess
import time

import pytest
from cassandra.cluster import NoHostAvailable

from harness.proxy import binary
from locks.fleet import Fleet

LEASE_MS, MEMORY_TTL_MS, PORT = 60_000, 1_000, 9390
WITHIN_SECONDS = 45


@pytest.fixture(scope="module")
def fleet(nodes, tmp_path_factory):
    contact, replicas = nodes
    fleet = Fleet(contact, "test_restart", replicas, PORT, LEASE_MS, MEMORY_TTL_MS, proxies=1)
    one, = fleet.proxies
    one.state = tmp_path_factory.mktemp("state") / "fleet"
    one.options += ["--fleet-state", str(one.state)]
    try:
        yield fleet.start()
    finally:
        fleet.stop()


def acquire(fleet, names, owner) -> dict:
    """What is answered for each, asked until there is an answer; names the one that got none in time."""
    session, deadline, found = fleet.connect(), time.monotonic() + WITHIN_SECONDS, {}
    try:
        for name in names:
            while name not in found:
                try:
                    text = "INSERT INTO shunt.locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 600"
                    found[name] = session.execute(text, (name, owner)).one()
                except NoHostAvailable:
                    assert time.monotonic() < deadline, f"{name} waits for the lease:\n{fleet.status()}"
                    time.sleep(0.1)
    finally:
        session.cluster.shutdown()
    return found


def test_a_proxy_that_was_killed_serves_its_locks_again_at_once(fleet):
    names = [f"restart-{number}" for number in range(8)]
    held = acquire(fleet, names, "ann")
    assert all(row["[applied]"] for row in held.values())
    for _ in range(2):
        fleet.proxies[0].kill()
        fleet.proxies[0].start()
        again = acquire(fleet, names, "bob")
        assert {name: (row["[applied]"], row["owner"], row["fence"]) for name, row in again.items()} == \
            {name: (False, "ann", row["fence"]) for name, row in held.items()}
    session = fleet.connect()
    for name in names:
        assert session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = 'ann'", (name,)).one()["[applied]"]
    session.cluster.shutdown()


def test_two_proxies_do_not_share_the_file(fleet):
    one = fleet.proxies[0]
    other = subprocess.run([str(binary()), "proxy", "--listen", f"{one.host}:{PORT + 4}", "--admin", "off", "--contact-points",
                            fleet.contact_points, "--fleet", fleet.name, "--fleet-state", str(one.state)],
                           capture_output=True, text=True, timeout=60, check=False)
    assert other.returncode == 2 and "another process has it" in other.stderr and str(one.state) in other.stderr, other
    assert one.alive()

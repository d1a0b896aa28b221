"""Large answers on the connections of the Java, Go and Rust drivers, unmodified, between hosts that are network namespaces. Their programs are in
tests/drivers: one connection, moved again and again in each version and compression that the driver has, with a thousand small queries in flight on it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import hosts, jars
from harness.hosts import VIP
from harness.moved_ring import ADMIN_PORT, PORT, Ring

WHY_NOT = hosts.why_not()
DRIVERS = Path(__file__).resolve().parents[1] / "drivers"
# How often each connection is moved; those of a driver a hundred times in all at least.
TIMES = int(os.environ.get("SHUNT_MOVED_TIMES", "100"))
# What each takes to be built, and the ways in which it connects.
TOOLS = {"java": "mvn", "go": "go", "rust": "cargo"}
EVERY = ["v4", "v4_lz4", "v5", "v5_lz4"]
SETUPS = {"java": EVERY, "go": EVERY, "rust": EVERY[:2]}
# By hand, and in `make test-long`: the nodes are so many of Cassandra.
CASSANDRAS = int(os.environ.get("SHUNT_MOVED_CASSANDRAS", "0"))


def driver_of(name: str):
    missing = shutil.which(TOOLS[name]) is None
    if missing and os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(f"{TOOLS[name]} is missing: scripts/prerequisites {name}")
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"{TOOLS[name]} is missing: scripts/prerequisites {name}"))


each_driver = pytest.mark.parametrize("driver", [driver_of(name) for name in TOOLS])


def run(driver: str, environment: dict, within=lambda command: command) -> str:
    log = jars.TARGET / "test-logs" / f"moved-{driver}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        done = subprocess.run(within([DRIVERS / driver / "run"]), env={**os.environ, **environment}, stdout=output, stderr=output, timeout=900, check=False)
    told = log.read_text(errors="replace")
    assert done.returncode == 0, "\n".join(told.splitlines()[-60:])
    return told


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    if CASSANDRAS and not jars.home().is_dir():
        pytest.skip("Cassandra's jars are missing: scripts/prerequisites cassandra")
    with Ring(tmp_path_factory.mktemp("drivers"), is_cassandra=CASSANDRAS > 0, nodes=CASSANDRAS or 1) as ring:
        yield ring


@each_driver
def test_the_drivers_program_is_built(driver):
    # The hosts reach nothing that it would have to be built from.
    run(driver, {"SHUNT_MOVED": "build"})


@each_driver
def test_one_connection_moves_again_and_again_with_small_queries_in_flight(ring, driver):
    def at_agents(name: str, labels: str) -> int:
        return sum(ring.counted(name, labels, host) for host in ring.nodes)

    def taken() -> int:
        return at_agents("shunt_agent_connections_total", 'outcome="taken"')

    def lost() -> int:
        ended = sum(at_agents("shunt_agent_connections_left_total", f'outcome="{how}"') for how in ("client", "reset", "closed"))
        return ended + ring.counted("shunt_handover_answers_total", 'way="broken_off"')

    goal = max(TIMES, 100 // len(SETUPS[driver]))
    before, lost_before = taken(), lost()
    environment = {"SHUNT_MOVED": f"{VIP}:{PORT}", "SHUNT_MOVED_NODE": ring.contacts[0], "SHUNT_MOVED_TIMES": str(goal), "SHUNT_RF": str(len(ring.nodes)),
                   "SHUNT_MOVED_ADMIN": f"{hosts.address('dispatcher')}:{ADMIN_PORT}"}
    try:
        out = run(driver, environment, lambda command: ring.hosts.on("client", command))
    except AssertionError as failed:
        raise AssertionError("\n".join([str(failed), *map(ring.log, ring.processes)])) from None
    print(out)
    # A session ends with its connection at the proxy, so none has ended at an agent.
    assert taken() - before >= goal * len(SETUPS[driver]) and lost() == lost_before, ring.log("agent")
    moved = {name: (int(times), int(small)) for name, times, small in re.findall(r"^(\w+): moved (\d+) times, (\d+) small answers", out, re.MULTILINE)}
    assert list(moved) == SETUPS[driver], out
    assert all(times >= goal and small > 1000 for times, small in moved.values()), moved

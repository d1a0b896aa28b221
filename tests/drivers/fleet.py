"""Runs the tests of the Java, Go and Rust drivers about locks and transactions, on fleets of three
proxies.

    target/python/bin/python tests/drivers/fleet.py [java] [go] [rust]

Each driver runs twice: first its tests of locks and transactions, with the proxies in SHUNT_FLEET; then
its tests of a proxy that is killed, with the process of the first one in SHUNT_FLEET_VICTIM too. The
last line has the number of tests. The nodes are those in SHUNT_RING, or an embedded one.
"""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from harness.verdicts import panics  # noqa: E402
from locks.fleet import LEASE_MS, STEADY_LEASE_MS, Fleet, nodes  # noqa: E402 (the path comes first)
from transactions.conftest import once_served  # noqa: E402
from transactions.known import wait_until_taken  # noqa: E402
from runner.counts import cargo as count_cargo, go as count_go, surefire as count_surefire  # noqa: E402

SUITES = {"java": count_surefire, "go": count_go, "rust": count_cargo}
# The tables that transactions are on, and their modes.
KEYSPACE = "driver_transactions"
TABLES = (
    ("plain", "id text PRIMARY KEY, v int", "off"),
    ("accounts", "id text PRIMARY KEY, balance int, owner text", "unsafe"),
    ("moves", "account text, number bigint, amount int, PRIMARY KEY (account, number)", "unsafe"),
    ("counted", "k text PRIMARY KEY, v int", "full"),
)
# Locks in memory are held for so long at most. Their tests count on it, and none waits for it.
MEMORY_TTL_MS = 300_000
WAIT_MAX_MS = 250_000
TIMEOUT_SECONDS = 1800  # of which the first build of a driver is most


@contextmanager
def started(contact: str, replicas: int, name: str, lease_ms: int):
    fleet = Fleet(contact, f"drivers-{name}", replicas, 9370, lease_ms, MEMORY_TTL_MS,
                  query_timeout_ms=60_000, lock_wait_max_ms=WAIT_MAX_MS)
    try:
        yield fleet.start()
    finally:
        fleet.stop()
        found = [line for one in fleet.proxies for line in panics(one.log)]
        if found:
            raise RuntimeError(f"a proxy panicked: {found[0]}")


def prepare(fleet: Fleet, replicas: int) -> None:
    """The tables, and proxies of which each knows who decides about them."""
    session = fleet.connect(to=0)
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
    for table, columns, mode in TABLES:
        session.execute(f"CREATE TABLE {KEYSPACE}.{table} ({columns})")
        session.execute(f"ALTER TABLE {KEYSPACE}.{table} WITH transactional_mode = '{mode}'")
    session.cluster.shutdown()
    # A keyspace's modes are read in one answer: who knows the last one knows all.
    wait_until_taken(fleet, f"{KEYSPACE}.counted", where="k = 'x'")
    for number in range(len(fleet.proxies)):
        session = fleet.connect(to=number)
        once_served(session, f"BEGIN TRANSACTION SELECT * FROM {KEYSPACE}.accounts WHERE id = 'x'; COMMIT TRANSACTION")
        session.cluster.shutdown()


def proxies_of(fleet: Fleet) -> dict:
    return {"SHUNT_FLEET": ",".join(one.listen for one in fleet.proxies)}


def run(name: str, environment: dict) -> tuple:
    """(passed, failed) of one suite. One that ends badly, or without a test, has failed."""
    command = [str(ROOT / "tests" / "drivers" / name / "run")]
    child = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    try:
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        status = child.wait(TIMEOUT_SECONDS)
    finally:
        child.kill()
        child.wait()
    passed, failed = SUITES[name]("".join(lines))
    return passed, max(failed, int(status != 0 or passed == 0))


def main(names: list) -> int:
    if not set(names) <= set(SUITES):
        print(__doc__, file=sys.stderr)
        return 2
    outcomes = []
    with nodes("drivers", 9148) as (contact, replicas):
        with started(contact, replicas, "steady", STEADY_LEASE_MS) as fleet:
            prepare(fleet, replicas)
            for name in names or SUITES:
                print(f"\n{name}: locks and transactions", flush=True)
                outcomes.append(run(name, proxies_of(fleet)))
        for name in names or SUITES:
            # One for each: after a kill nobody is granted a lock in memory for as long as it may
            # be held.
            with started(contact, replicas, name, LEASE_MS) as fleet:
                print(f"\n{name}: a proxy is killed", flush=True)
                outcomes.append(
                    run(
                        name,
                        {
                            **proxies_of(fleet),
                            "SHUNT_FLEET_VICTIM": str(fleet.proxies[0].process.pid),
                        },
                    )
                )
    passed, failed = map(sum, zip(*outcomes))
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the suites of the Java, Go and Rust drivers have about locks and transactions, each on a fleet of three proxies of its own.

    target/python/bin/python tests/drivers/fleet.py [java] [go] [rust]

Each runs twice: its tests of locks and transactions, which are told the proxies in SHUNT_FLEET, and its tests of what goes on when a proxy is
killed, which are told the first one's process in SHUNT_FLEET_VICTIM too. The last line has the number of tests. The nodes are those that
SHUNT_RING names, or an embedded one.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from locks.fleet import LEASE_MS, Fleet, nodes  # noqa: E402 (the path comes first)
from transactions.conftest import once_served  # noqa: E402
from transactions.test_modes import SEEN_SECONDS  # noqa: E402
from steps import count_cargo, count_go, count_surefire  # noqa: E402

SUITES = {"java": count_surefire, "go": count_go, "rust": count_cargo}
# The tables that transactions are on, and their modes.
KEYSPACE = "driver_transactions"
TABLES = (
    ("accounts", "id text PRIMARY KEY, balance int, owner text", "unsafe"),
    ("moves", "account text, number bigint, amount int, PRIMARY KEY (account, number)", "unsafe"),
    ("counted", "k text PRIMARY KEY, v int", "full"),
    ("plain", "id text PRIMARY KEY, v int", "off"),
)
TIMEOUT_SECONDS = 900  # of which the first build of a driver is most


def prepare(fleet: Fleet, replicas: int, is_first: bool) -> None:
    """The tables, and proxies of which each knows who decides about them."""
    session = fleet.connect(to=0)
    if is_first:
        session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
        session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
        for table, columns, mode in TABLES:
            session.execute(f"CREATE TABLE {KEYSPACE}.{table} ({columns})")
            session.execute(f"ALTER TABLE {KEYSPACE}.{table} WITH transactional_mode = '{mode}'")
        time.sleep(SEEN_SECONDS)
    session.cluster.shutdown()
    for number in range(len(fleet.proxies)):
        session = fleet.connect(to=number)
        once_served(session, f"BEGIN TRANSACTION SELECT * FROM {KEYSPACE}.accounts WHERE id = 'x'; COMMIT TRANSACTION")
        session.cluster.shutdown()


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
    passed, failed = 0, 0
    with nodes("drivers", 9148) as (contact, replicas):
        for number, name in enumerate(names or SUITES):
            # One for each, for after a kill locks in memory are not granted for some time.
            fleet = Fleet(contact, f"drivers-{name}", replicas, 9370, LEASE_MS, memory_ttl_ms=30_000, query_timeout_ms=30_000)
            try:
                fleet.start()
                prepare(fleet, replicas, is_first=number == 0)
                proxies = {"SHUNT_FLEET": ",".join(one.listen for one in fleet.proxies)}
                for more in ({}, {"SHUNT_FLEET_VICTIM": str(fleet.proxies[0].process.pid)}):
                    print(f"\n{name}: {'a proxy is killed' if more else 'locks and transactions'}", flush=True)
                    of_suite = run(name, {**proxies, **more})
                    passed, failed = passed + of_suite[0], failed + of_suite[1]
            finally:
                fleet.stop()
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures the cost of a query for the ring: CPU of all nodes per query, and their connections, for the routing of each driver.

The same load, INSERT and SELECT of 10-byte values with prepared statements from several client processes of the Python
driver, goes to the three-node ring directly with round-robin routing, directly with token-aware routing, through one
`shunt proxy` with ordinary links, and through one with aggregated frames; every node has the extension. The arms take turns
in random order, round after round; figures are medians over the rounds, CPU is the kernel's account of the nodes' processes.
Replication factors and consistencies are measured one after the other on the same ring. Run by `make ring-cost`.
"""

import argparse
import json
import multiprocessing
import random
import re
import statistics
import subprocess
import time
from typing import NamedTuple

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster as Driver, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy

from harness import extension
from harness.cluster import Cluster
from harness.processes import cpu_seconds
from harness.proxy import Proxy, binary

ARMS = ("round robin", "token aware", "Shunt", "Shunt, extension")
CONSISTENCY = {"ONE": ConsistencyLevel.ONE, "QUORUM": ConsistencyLevel.QUORUM}
KEYS = 10_000


class Setting(NamedTuple):
    replication: int
    consistency: str

    @classmethod
    def parse(cls, text: str) -> "Setting":
        factor, _, consistency = text.partition(":")
        if consistency not in CONSISTENCY or not factor.isdigit():
            raise argparse.ArgumentTypeError(f"'{text}' is no replication factor and one of {', '.join(CONSISTENCY)}, as in 3:QUORUM")
        return cls(int(factor), consistency)

    def __str__(self) -> str:
        return f"RF {self.replication}, {self.consistency}"

    @property
    def keyspace(self) -> str:
        return f"ring_cost_{self.replication}"


def policy(arm: str):
    return TokenAwarePolicy(RoundRobinPolicy()) if arm == "token aware" else RoundRobinPolicy()


def connect(arm: str, ring: Cluster, proxy: Proxy, consistency: str):
    profile = ExecutionProfile(load_balancing_policy=policy(arm), consistency_level=CONSISTENCY[consistency])
    if proxy is not None:
        addresses, port = [proxy.host], proxy.port
    else:
        addresses = [node.contact.rsplit(":", 1)[0] for node in ring.nodes]
        port = int(ring.nodes[0].contact.rsplit(":", 1)[1])
    return Driver(addresses, port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})


def client(arm, ring, proxy, setting, options, start, results):
    """One application process: connects, prepares, waits for the others, runs its share."""
    cluster = connect(arm, ring, proxy, setting.consistency)
    session = cluster.connect(setting.keyspace)
    insert = session.prepare("INSERT INTO kv (k, v) VALUES (?, ?)")
    select = session.prepare("SELECT v FROM kv WHERE k = ?")
    numbers = [random.randrange(KEYS) for _ in range(options.queries)]
    writes = [(b"%010d" % number, b"0123456789") for number in numbers]
    execute_concurrent_with_args(session, insert, writes[:500], concurrency=options.concurrency)
    for work, statement, rows in (("INSERT", insert, writes), ("SELECT", select, [row[:1] for row in writes])):
        start.wait()
        answers = execute_concurrent_with_args(session, statement, rows, concurrency=options.concurrency)
        results.put((work, sum(1 for answer in answers if answer.success)))
        start.wait()
    cluster.shutdown()


def connections(ring: Cluster, owners: list) -> float:
    """CQL connections per node, to both of its ports, that these processes hold; the other arms' proxies stay connected."""
    ports = f"( dport = :{ring.nodes[0].settings.cql_port} or dport = :{extension.AGGREGATE_PORT} )"
    out = subprocess.run(["ss", "-Htnp", "state", "established", ports], capture_output=True, text=True)
    return held_by(out.stdout, owners) / len(ring.nodes)


def held_by(sockets: str, owners: list) -> int:
    """The number of lines of `ss -p` that name one of these processes."""
    named = (re.findall(r"pid=(\d+)", line) for line in sockets.splitlines())
    return sum(1 for pids in named if any(int(pid) in owners for pid in pids))


def run_arm(arm, ring, proxy, setting, options) -> dict:
    pids = [node.pid() for node in ring.nodes]
    start, results = multiprocessing.Barrier(options.processes + 1), multiprocessing.Queue()
    clients = [multiprocessing.Process(target=client, args=(arm, ring, proxy, setting, options, start, results))
               for _ in range(options.processes)]
    for process in clients:
        process.start()
    measured = {}
    owners = [proxy.process.pid] if proxy else [process.pid for process in clients]
    for work in ("INSERT", "SELECT"):
        start.wait(timeout=120)
        before, begun = sum(map(cpu_seconds, pids)), time.monotonic()
        measured["connections"] = connections(ring, owners)
        start.wait(timeout=600)
        spent, elapsed = sum(map(cpu_seconds, pids)) - before, time.monotonic() - begun
        done = sum(count for _, count in (results.get(timeout=10) for _ in clients))
        if done != options.processes * options.queries:
            raise RuntimeError(f"{arm}: {done} of {options.processes * options.queries} {work}s succeeded")
        measured[work] = {"cpu_us": 1e6 * spent / done, "per_second": done / elapsed}
    for process in clients:
        process.join()
    return measured


def train(arm: str, ring: Cluster, proxy: Proxy, setting: Setting, options) -> None:
    """Load on the nodes until their compilers have seen what the arm makes them do: Python clients would take minutes for that."""
    targets = [proxy.listen] if proxy is not None else ring.contacts.split(",")
    routing = ["--token-aware"] if arm == "token aware" else []
    for reads in ("0", "1"):
        command = [str(binary()), "bench", "load", "--connections", "64", "--outstanding", "2", "--reads", reads, "--keyspace", setting.keyspace,
                   "--consistency", str(CONSISTENCY[setting.consistency]), "--keys", str(KEYS), "--value-bytes", "10", "--warm-up", "0",
                   "--duration", str(options.training_seconds / 2), *routing]
        for target in targets:
            command += ["--target", target]
        subprocess.run(command, capture_output=True, check=True, timeout=120 + options.training_seconds)


def prepare(ring: Cluster, setting: Setting) -> None:
    cluster = connect("round robin", ring, None, "ONE")
    session = cluster.connect()
    session.execute(f"CREATE KEYSPACE IF NOT EXISTS {setting.keyspace} WITH replication = "
                    f"{{'class': 'SimpleStrategy', 'replication_factor': {setting.replication}}}", timeout=60)
    session.execute(f"CREATE TABLE IF NOT EXISTS {setting.keyspace}.kv (k blob PRIMARY KEY, v blob)", timeout=60)
    cluster.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4, help="client processes")
    parser.add_argument("--queries", type=int, default=10_000, help="queries of each kind, process and round")
    parser.add_argument("--concurrency", type=int, default=32, help="queries in flight per process")
    parser.add_argument("--settings", type=Setting.parse, nargs="+", default=[Setting(1, "ONE")], metavar="RF:CL",
                        help="replication factors and consistencies, as in 1:ONE 3:QUORUM")
    parser.add_argument("--training-seconds", type=float, default=16, help="of load by each arm before anything is measured")
    parser.add_argument("--optimise", action="store_true", help="the nodes use both compilers")
    parser.add_argument("--json", action="store_true", help="print every measurement")
    options = parser.parse_args()
    ring = Cluster("cost", extended=3, optimise=options.optimise, heap_mb=1024)
    try:
        ring.start(wipe=True)
        with Proxy(ring.contacts, "127.0.0.1:9052", "127.0.0.1:9192", ["--cores", "1", "--aggregate", "off"]) as plain, \
                Proxy(ring.contacts, "127.0.0.1:9053", "127.0.0.1:9193", ["--cores", "1"]) as aggregating:
            proxies = {"Shunt": plain, "Shunt, extension": aggregating}
            for setting in options.settings:
                prepare(ring, setting)
                measure(ring, proxies, setting, options)
    finally:
        ring.stop(wipe=True)
    return 0


def measure(ring: Cluster, proxies: dict, setting: Setting, options) -> None:
    for arm in ARMS:
        train(arm, ring, proxies.get(arm), setting, options)
        run_arm(arm, ring, proxies.get(arm), setting, options)
    rounds = {arm: [] for arm in ARMS}
    for round_ in range(options.rounds):
        for arm in random.sample(ARMS, len(ARMS)):
            measured = run_arm(arm, ring, proxies.get(arm), setting, options)
            rounds[arm].append(measured)
            if options.json:
                say(arm, round_, measured, setting)
    report(rounds, setting, options)


def say(arm: str, round_: int, measured: dict, setting: Setting) -> None:
    """A line for each kind of query, as `shunt bench run` reads them."""
    for work in ("INSERT", "SELECT"):
        print(json.dumps({"arm": arm, "point": f"{work}, {setting}", "round": round_,
                          "figures": {"cpu_us": measured[work]["cpu_us"], "rate_per_s": measured[work]["per_second"],
                                      "connections": measured["connections"]}}), flush=True)


def report(rounds: dict, setting: Setting, options) -> None:
    print(f"\nring of three, {setting}, {options.processes} processes x "
          f"{options.concurrency} in flight, {options.rounds} rounds: median (min to max)")
    print(f"{'':16}{'INSERT, us CPU of the ring':>30}{'SELECT, us CPU of the ring':>30}{'connections/node':>18}"
          f"{'INSERT/s':>12}{'SELECT/s':>12}")
    for arm, measured in rounds.items():
        cells = []
        for work in ("INSERT", "SELECT"):
            figures = [round_[work]["cpu_us"] for round_ in measured]
            cells.append(f"{statistics.median(figures):.0f} ({min(figures):.0f} to {max(figures):.0f})")
        sockets = statistics.median(round_["connections"] for round_ in measured)
        print(f"{arm:16}{cells[0]:>30}{cells[1]:>30}{sockets:>18.1f}"
              + "".join(f"{statistics.median(round_[work]['per_second'] for round_ in measured):>12.0f}"
                        for work in ("INSERT", "SELECT")))


if __name__ == "__main__":
    raise SystemExit(main())

"""Measures a query to three nodes with three replicas, by its route and by the work of the extension.

The load generator sends INSERTs or SELECTs of 20-byte values directly (round robin, token aware), through a proxy with ordinary
links, and through a proxy with aggregated frames, with the extension's switches for messages between nodes off, each on by itself,
and all on. The arms take turns in random order, round after round. CPU and how often a thread went to sleep are the kernel's account
of the nodes' processes; messages are what Cassandra counts as sent to its peers. Run by `shunt bench run quorum`.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

from harness import cql, jars
from harness.cluster import Cluster
from harness.proxy import Proxy, binary

from . import generator

KEYSPACE = "quorum"
LEVELS = {"ONE": 1, "QUORUM": 4, "LOCAL_QUORUM": 6}
SWITCHES = ("BatchRequests", "DeferWrites", "DeferReads", "GatherReplicaRequests", "InlineResponses")
DIRECT = {"round robin": [], "token aware": ["--token-aware"]}
PLAIN = "Shunt, ordinary links"
# What is on, of the extension's switches.
FRAMES = {
    "frames, switches off": (),
    "deferred": ("DeferWrites", "DeferReads"),
    "deferred, batches": ("DeferWrites", "DeferReads", "BatchRequests"),
    "deferred, responses inline": ("DeferWrites", "DeferReads", "InlineResponses"),
    "deferred, requests gathered": ("DeferWrites", "DeferReads", "GatherReplicaRequests"),
    "Shunt, extension": SWITCHES,
}
ARMS = (*DIRECT, PLAIN, *FRAMES)


class Switches:
    """A process that has a connection to each node's JMX port."""

    def __init__(self, ring: Cluster):
        ports = [str(node.settings.jmx_port) for node in ring.nodes]
        self.process = subprocess.Popen([str(jars.java()), str(Path(__file__).with_name("PeerSwitches.java")), *ports],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def set(self, on: tuple) -> None:
        self.process.stdin.write(" ".join(f"{name}={str(name in on).lower()}" for name in SWITCHES) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "done\n":
            raise RuntimeError("the nodes' switches could not be set")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)


def messages(ring: Cluster) -> int:
    """Number of messages that nodes have sent to each other."""
    total = 0
    for node in ring.nodes:
        with cql.Session(node.address, node.settings.cql_port) as session:
            total += sum(row["sent_count"] for row in session.query("SELECT sent_count FROM system_views.internode_outbound"))
    return total


def load(targets: list, point: tuple, options, seconds: float, *more, within=()) -> dict:
    """The report of the load generator for one run. `within` is a command that runs it elsewhere."""
    work, level, clients, outstanding = point
    command = [*within, str(binary()), "bench", "load", "--json", "--connections", str(clients), "--outstanding", str(outstanding), "--reads",
               "1" if work == "SELECT" else "0", "--consistency", str(LEVELS[level]), "--keyspace", KEYSPACE, "--keys", str(options.keys),
               "--value-bytes", "20", "--warm-up", str(options.warm_up), "--duration", str(seconds), *more]
    for target in targets:
        command += ["--target", target]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise RuntimeError(f"shunt bench load failed: {out.stderr or out.stdout}")
    return json.loads(out.stdout.splitlines()[-1])


class Ring:
    """The nodes, the proxies before them, and what an arm is."""

    def __init__(self, ring: Cluster, plain: Proxy, frames: Proxy, switches: Switches):
        self.ring, self.plain, self.frames, self.switches = ring, plain, frames, switches
        self.pids = [node.pid() for node in ring.nodes]

    def run(self, arm: str, point: tuple, options, seconds: float) -> dict:
        return generator.until_answered(lambda: self.run_once(arm, point, options, seconds))

    def run_once(self, arm: str, point: tuple, options, seconds: float) -> dict | None:
        contacts = [node.contact for node in self.ring.nodes]
        if arm in FRAMES:
            self.switches.set(FRAMES[arm])
        targets = contacts if arm in DIRECT else [(self.plain if arm == PLAIN else self.frames).listen]
        watched = [argument for pid in self.pids for argument in ("--pid", str(pid))]
        sent = messages(self.ring)
        result = load(targets, point, options, seconds, *DIRECT.get(arm, []), *watched)
        done = result["queries"] * (1 + options.warm_up / seconds)  # messages are counted over the warm-up too
        if result["errors"]:
            raise RuntimeError(f"{arm}: {result['errors']}")
        if result["latency_us"] is None:
            return None
        nodes = result["processes"]
        return {"cpu_us": sum(node["cpu_us_per_query"] for node in nodes), "rate_per_s": result["rate"], "p50_us": result["latency_us"]["p50"],
                "p99_us": result["latency_us"]["p99"], "messages": (messages(self.ring) - sent) / done,
                "sleeps": sum(node["voluntary_switches_per_query"] for node in nodes)}


def parse_shape(text: str) -> tuple:
    clients, _, outstanding = text.partition("x")
    return int(clients), int(outstanding)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="measured, for each arm and round")
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--training-seconds", type=float, default=20, help="of load by each arm before anything is measured")
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=["ONE", "LOCAL_QUORUM"])
    parser.add_argument("--shapes", type=parse_shape, nargs="+", default=[(64, 1), (256, 1), (8, 32)],
                        help="clients x queries in flight of each, as in 64x1")
    parser.add_argument("--work", nargs="+", choices=("INSERT", "SELECT"), default=["INSERT", "SELECT"])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--replication", type=int, default=3)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--optimise", action="store_true", help="the nodes use both compilers")
    parser.add_argument("--json", action="store_true", help="print every measurement")
    options = parser.parse_args()
    nodes = Cluster("quorum", extended=3, optimise=options.optimise, heap_mb=1024)
    try:
        nodes.start(wipe=True)
        with cql.Session(nodes.nodes[0].address, nodes.nodes[0].settings.cql_port) as session:
            session.query(f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
                          f"{{'class': 'SimpleStrategy', 'replication_factor': {options.replication}}}")
            session.query(f"CREATE TABLE {KEYSPACE}.kv (k blob PRIMARY KEY, v blob)")
        with Proxy(nodes.contacts, "127.0.0.1:9048", "127.0.0.1:9188", ["--cores", "1", "--aggregate", "off"]) as plain, \
                Proxy(nodes.contacts, "127.0.0.1:9049", "127.0.0.1:9189", ["--cores", "1"]) as frames:
            ring = Ring(nodes, plain, frames, Switches(nodes))
            load([frames.listen], ("INSERT", "QUORUM", 64, 1), options, 1, "--populate")
            measure(ring, options)
            ring.switches.close()
    finally:
        nodes.stop(wipe=True)
    return 0


def measure(ring: Ring, options) -> None:
    points = [(work, level, *shape) for level in options.levels for work in options.work for shape in options.shapes]
    for arm in options.arms:
        for point in points[:: len(options.shapes)]:
            ring.run(arm, point, options, max(1.0, options.training_seconds / (len(options.levels) * len(options.work))))
    for point in points:
        rounds = {arm: [] for arm in options.arms}
        for round_ in range(options.rounds):
            for arm in random.sample(options.arms, len(options.arms)):
                figures = ring.run(arm, point, options, options.seconds)
                rounds[arm].append(figures)
                if options.json:
                    say(arm, point, round_, figures, options)
        report(rounds, point, options)


def title(point: tuple, options) -> str:
    work, level, clients, outstanding = point
    return f"{work}, RF {options.replication}, {level}, {clients}x{outstanding}"


def say(arm: str, point: tuple, round_: int, figures: dict, options) -> None:
    """A line as `shunt bench run` reads them."""
    print(json.dumps({"arm": arm, "point": title(point, options), "round": round_, "figures": figures}), flush=True)


def report(rounds: dict, point: tuple, options) -> None:
    out = sys.stderr if options.json else sys.stdout
    print(f"\nring of three, {title(point, options)}, {options.rounds} rounds: medians", file=out)
    names = ("cpu_us", "rate_per_s", "p50_us", "p99_us", "messages", "sleeps")
    print(f"{'':28}" + "".join(f"{name:>18}" for name in names), file=out)
    for arm, measured in rounds.items():
        print(f"{arm:28}" + "".join(f"{statistics.median(figures[name] for figures in measured):18.1f}" for name in names), file=out,
              flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

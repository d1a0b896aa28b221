"""Measures what the Cassandra extension saves a node: CPU per query with the jar and without, asked directly and through Shunt.

Two single Cassandra nodes, one with the jar and one without, take turns in random order under the same load: INSERTs, then
SELECTs, of 10-byte values with prepared statements. `direct` is connections straight to the node, which is what token-aware drivers come
to; the others go through one `shunt proxy` each. CPU is the kernel's account of the node's threads while the load is
measured and not while it connects, those of the compilers left out. Figures are medians over the rounds. Run by `make extension-cost`.
"""

import argparse
import json
import random
import statistics

from harness.cluster import Cluster
from harness.processes import compiler_seconds
from harness.proxy import Proxy

from . import generator

KEYSPACE, WORK = "extension_cost", ("INSERT", "SELECT")
ARMS = (  # name, with the jar, through Shunt, connections, outstanding
    ("direct, 16 connections", False, False, 16, 1),
    ("direct, 64 connections", False, False, 64, 1),
    ("direct, 64, with the jar", True, False, 64, 1),
    ("Shunt, 64 clients", False, True, 64, 1),
    ("Shunt, 64, with the jar", True, True, 64, 1),
    ("Shunt, 256 clients", False, True, 256, 1),
    ("Shunt, 256, with the jar", True, True, 256, 1),
    ("Shunt, 8 x 32", False, True, 8, 32),
    ("Shunt, 8 x 32, with the jar", True, True, 8, 32),
)


def sent(front) -> tuple:
    """(queries, writes) of a proxy to its nodes so far."""
    _, text = front.get("/metrics")
    totals = []
    for name in ("shunt_node_queries_total{", "shunt_node_writes_total{"):
        totals.append(sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name)))
    return tuple(totals)


def load(target: str, connections: int, outstanding: int, work: str, seconds: float, *more) -> dict:
    return generator.load(target, connections, outstanding, "--reads", "1" if work == "SELECT" else "0", "--keys", 10000,
                          "--value-bytes", 10, "--keyspace", KEYSPACE, "--warm-up", 0, "--duration", seconds, *more)


def run(arm, nodes, fronts, work: str, seconds: float) -> dict:
    return generator.until_answered(lambda: run_once(arm, nodes, fronts, work, seconds))


def run_once(arm, nodes, fronts, work: str, seconds: float) -> dict | None:
    _, with_jar, through, connections, outstanding = arm
    node, front = nodes[with_jar], fronts[with_jar]
    compiled, sent_before = compiler_seconds(node.pid()), sent(front)
    report = load(front.listen if through else node.contact, connections, outstanding, work, seconds, "--pid", node.pid())
    if report["latency_us"] is None:
        return None
    compiled = compiler_seconds(node.pid()) - compiled
    queries, writes = (after - earlier for after, earlier in zip(sent(front), sent_before))
    cpu_us = report["processes"][0]["cpu_us_per_query"] - 1e6 * compiled / report["queries"]
    return {"arm": arm[0], "work": work, "cpu_us": cpu_us, "rate": report["rate"],
            "p50": report["latency_us"]["p50"], "p99": report["latency_us"]["p99"],
            "per_frame": queries / writes if through and writes else 1}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each arm, kind of query and round")
    parser.add_argument("--warm-up", type=float, default=15, help="seconds of each kind of load before, for the compilers")
    parser.add_argument("--optimise", action="store_true", help="the nodes use both compilers; warm up longer")
    parser.add_argument("--json", action="store_true", help="print every measurement")
    options = parser.parse_args()
    rings = [Cluster(f"cost-{name}", nodes=1, heap_mb=1536, optimise=options.optimise, extended=extended)
             for name, extended in (("stock", 0), ("jar", 1))]
    try:
        for ring in rings:
            ring.start(wipe=True)
        nodes = [ring.nodes[0] for ring in rings]
        with Proxy(nodes[0].contact, "127.0.0.1:9050", "127.0.0.1:9190", ["--cores", "1"]) as stock, \
                Proxy(nodes[1].contact, "127.0.0.1:9051", "127.0.0.1:9191", ["--cores", "1"]) as extended:
            fronts = (stock, extended)
            for front in fronts:
                load(front.listen, 8, 8, "INSERT", 1, "--create", "--populate")
            for arm in ARMS:
                for work in WORK:
                    run(arm, nodes, fronts, work, options.warm_up / 2)
            rounds = []
            for round_ in range(options.rounds):
                for arm in random.sample(ARMS, len(ARMS)):
                    for work in WORK:
                        rounds.append(run(arm, nodes, fronts, work, options.seconds))
                        if options.json:
                            say(round_, rounds[-1])
    finally:
        for ring in rings:
            ring.stop(wipe=True)
    report(rounds, options)
    return 0


def say(round_: int, measured: dict) -> None:
    """A measurement as `shunt bench run` reads it."""
    figures = {"cpu_us": measured["cpu_us"], "rate_per_s": measured["rate"], "p50_us": measured["p50"],
               "p99_us": measured["p99"], "queries_per_write": measured["per_frame"]}
    print(json.dumps({"arm": measured["arm"], "point": measured["work"], "round": round_, "figures": figures}), flush=True)


def report(rounds: list, options) -> None:
    print(f"\none Cassandra node, 10-byte values, consistency ONE, {options.rounds} rounds of {options.seconds} s: median (min to max)")
    print(f"{'':30}{'INSERT, us CPU':>22}{'SELECT, us CPU':>22}{'queries/write':>15}{'SELECT p50/p99 us':>20}")
    for name, *_ in ARMS:
        cells = []
        for work in WORK:
            figures = [entry["cpu_us"] for entry in rounds if (entry["arm"], entry["work"]) == (name, work)]
            cells.append(f"{statistics.median(figures):.1f} ({min(figures):.1f} to {max(figures):.1f})")
        of = {key: statistics.median(entry[key] for entry in rounds if (entry["arm"], entry["work"]) == (name, "SELECT"))
              for key in ("per_frame", "p50", "p99")}
        print(f"{name:30}{cells[0]:>22}{cells[1]:>22}{of['per_frame']:>15.1f}{of['p50']:>12.0f}/{of['p99']:.0f}")


if __name__ == "__main__":
    raise SystemExit(main())

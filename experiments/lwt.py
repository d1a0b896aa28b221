"""Measures lightweight transactions of one partition: through the proxy, which sends all of a
partition to one coordinator, and at the nodes in turn. A token-aware driver does the latter with as
many replicas as nodes.

All clients are `shunt bench load --conditional`: each updates a row under a condition that holds, waits for the answer and goes on. On
one key all of them compete; on many keys none does. The arms of a point take turns in random order, round after round. CPU is the
kernel's account of nodes and proxy. Run by `shunt bench run lwt`.
"""

import contextlib
import json
import random
import statistics
import subprocess
import sys

from harness import jars
from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.proxy import Proxy, binary

from .arguments import parser_of_arms

NETWORK = "127.0.71"  # of everything that is started here
KEYSPACE = "lwt"
QUORUM = 4
ARMS = ["shunt", "direct"]
# Connections, and keys that they write.
POINTS = {"4 clients, one key": (4, 1), "32 clients, one key": (32, 1), "128 clients, one key": (128, 1),
          "64 clients, 100,000 keys": (64, 100_000)}
SHOWN = ("rate_per_s", "p50_us", "p99_us", "errors_per_s", "cpu_us")


def load(targets: list, pids: list, connections: int, keys: int, options, seconds: float, *more) -> dict:
    """The report of `shunt bench load`, with errors of nodes. RuntimeError if anything else goes wrong."""
    arguments = [argument for target in targets for argument in ("--target", target)]
    arguments += [argument for pid in pids for argument in ("--pid", str(pid))]
    out = subprocess.run(
        [str(binary()), "bench", "load", "--conditional", "--reads", "0", "--value-bytes", "20", "--keyspace", KEYSPACE,
         "--consistency", str(QUORUM), "--connections", str(connections), "--keys", str(keys), "--warm-up", str(options.warm_up),
         "--duration", str(seconds), "--json", *arguments, *more],
        capture_output=True, text=True, check=False)
    lines = out.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"shunt bench load failed: {out.stderr or out.stdout}")
    report = json.loads(lines[-1])
    if report["wrong_answers"] > 0 or report["connections_lost"] > 0 or report["queries_lost"] > 0:
        raise RuntimeError(f"{targets} answered wrongly or not at all: {lines[-1]}")
    return report


def figures(report: dict) -> dict:
    """Without those of what did not both begin and end in time: the short form is short."""
    if not report["queries"] or not report["latency_us"]:
        return {}
    done = report["rate"] * (1 - report["error_share"])
    found = {"rate_per_s": done, "errors_per_s": report["rate"] * report["error_share"],
             "p50_us": report["latency_us"]["p50"], "p99_us": report["latency_us"]["p99"]}
    if done:
        used_us = sum(process["cpu_us_per_query"] for process in report["processes"])
        found["cpu_us"] = used_us / (1 - report["error_share"])
    return found


def start(stack, options) -> dict:
    """Targets of each arm, and the processes whose CPU time is its own."""
    if options.embedded:
        node = Embedded("lwt-experiment", f"{NETWORK}.21:9042", ["node", "--listen", f"{NETWORK}.21:9042", "--admin", "off", "--cores", "1"],
                        [], jars.TARGET / "ring" / "embedded-lwt-experiment.log")
        stack.enter_context(node)
        contacts, nodes, replicas = [node.contact], [node.process.pid], 1
    else:
        ring = Cluster("lwt", network=NETWORK, optimise=options.optimise, heap_mb=1024)
        stack.callback(ring.stop, wipe=True)
        ring.start(wipe=True)
        contacts, nodes, replicas = [one.contact for one in ring.nodes], [one.pid() for one in ring.nodes], 3
    load(contacts[:1], [], 1, 1, options, 0.1, "--create", "--replication", str(replicas))
    arms = {"direct": (contacts, nodes)}
    proxy = Proxy(contacts[0], f"{NETWORK}.11:9042", f"{NETWORK}.11:9043", ["--cores", str(options.cores)],
                  log=jars.TARGET / "ring" / "lwt-proxy.log")
    stack.enter_context(proxy)
    arms["shunt"] = ([proxy.listen], [proxy.process.pid, *nodes])
    return arms


def measure(arms: dict, options) -> None:
    measured = {}
    for arm in options.arms:
        load(*arms[arm], 16, 1000, options, options.training_seconds)
    for point in options.points:
        connections, keys = POINTS[point]
        for round_ in range(options.rounds):
            for arm in random.sample(options.arms, len(options.arms)):
                found = figures(load(*arms[arm], connections, keys, options, options.seconds))
                measured.setdefault((point, arm), []).append(found)
                if options.json:
                    print(json.dumps({"arm": arm, "point": point, "round": round_, "figures": found}), flush=True)
    out = sys.stderr if options.json else sys.stdout
    for (point, arm), rounds in measured.items():
        cells = [f"{name} {statistics.median(found[name] for found in rounds):,.4g}" for name in SHOWN
                 if all(name in found for found in rounds)]
        print(f"{point:26} {arm:10} {'  '.join(cells)}", file=out, flush=True)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=5, training_seconds=20)
    parser.add_argument("--cores", type=int, default=1, help="of each proxy")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--points", nargs="+", choices=list(POINTS), default=list(POINTS))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        measure(start(stack, options), options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Measures how long a lock takes as nodes are added, at the proxy and by Cassandra's lightweight transactions: paper 2's figure.

One ring after the other, of one, three and five nodes, all of which have every row; before each a fleet of one proxy on one core.
The clients are those of `locks.py`, and the names a million. Run by `shunt bench run lock-nodes`.
"""

import argparse
import contextlib
import random
import statistics
import sys

from harness.addresses import first_of
from harness.cluster import Cluster
from harness.embedded import Embedded

from . import locks

NODES = (1, 3, 5)
RATIOS = {"p50_us": "p50_to_one", "rate_per_s": "rate_to_one"}
CLIENTS = (4, 1)  # that nothing queues


def label_of(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def ring(stack, nodes: int, options) -> locks.Servers:
    """A ring, and a proxy before it."""
    servers = locks.Servers()
    if options.embedded:
        node = stack.enter_context(Embedded(
            "lock-nodes", f"{locks.NETWORK}.22:9042",
            ["node", "--listen", f"{locks.NETWORK}.22:9042", "--admin", "off", "--cores", "1"], [],
            locks.jars.TARGET / "ring" / "embedded-lock-nodes.log"))
        contacts, pids = [node.contact], [node.process.pid]
    else:
        cluster = Cluster(f"lock-nodes-{nodes}", nodes=nodes, first=first_of("lock-nodes", nodes), network=locks.NETWORK,
                          optimise=options.optimise, heap_mb=768)
        stack.callback(cluster.stop, wipe=True)
        cluster.start(wipe=True)
        contacts, pids = [one.contact for one in cluster.nodes], [one.pid() for one in cluster.nodes]
    fleet = stack.enter_context(locks.started(locks.fleet_of(",".join(contacts), nodes, 14)))
    proxy = fleet.proxies[0]
    servers.add("fast", [proxy.listen], [proxy.process.pid])
    servers.add("lwt", contacts, pids)
    locks.load(servers, "lwt", locks.POINTS[0], options, 0.1, "--create", "--replication", nodes)
    return servers


def measure(servers: locks.Servers, nodes: int, options, one_node: dict) -> list:
    """The rounds of one ring, each arm's after the other's in random order."""
    point = locks.Point(label_of(nodes), CLIENTS, ["fast", "lwt"], ["--keys", str(locks.NAMES)])
    for arm in point.arms:
        locks.load(servers, arm, point, options, options.training_seconds)
    all_found = []
    for round_ in range(options.rounds):
        for arm in random.sample(point.arms, len(point.arms)):
            found = locks.figures(locks.load(servers, arm, point, options, options.seconds), arm, point)
            base = one_node.setdefault((arm, round_), found)
            if base is not found:
                found |= {RATIOS[name]: found[name] / base[name] for name in RATIOS if found.get(name) and base.get(name)}
            all_found.append((arm, found))
            locks.say(arm, point.label, round_, found, options)
    return all_found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", nargs="+", type=int, default=NODES, help="sizes of rings; the first is what the others are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="measured, for each arm and round")
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--training-seconds", type=float, default=20, help="of load by each arm on each ring before anything is measured")
    parser.add_argument("--optimise", action="store_true", help="Cassandra uses both compilers; warm up longer")
    parser.add_argument("--embedded", action="store_true", help="one embedded node in place of a ring, and no other ring: the short form")
    parser.add_argument("--json", action="store_true", help="print every measurement")
    options = parser.parse_args()
    one_node = {}
    for nodes in [1] if options.embedded else options.nodes:
        with contextlib.ExitStack() as stack:
            all_found = measure(ring(stack, nodes, options), nodes, options, one_node)
        for arm in ("fast", "lwt"):
            p50_us = [found["p50_us"] for of, found in all_found if of == arm and "p50_us" in found]
            if p50_us:
                print(f"{label_of(nodes)}  {arm:5} p50_us {statistics.median(p50_us):,.4g}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

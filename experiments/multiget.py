"""Measures a SELECT with IN on the partition key over three nodes: asked whole, in parts by the proxy, or by a driver.

`whole` and `in parts` are proxies without and with `--multiget split`. `driver` sends the query to one node, in turn, as drivers do that know no
better; `driver, a query for each key` sends a SELECT for each key to a node that has it, all of a multiget at once: of that only what it costs
servers is told, for one key's answer is no multiget's. The arms of a point take turns in random order, round after round. CPU is the kernel's
account of nodes and proxy. Run by `shunt bench run multiget`.
"""

import contextlib
import random
import sys

from harness import cql, jars
from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.proxy import Proxy

from . import generator
from .arguments import parser_of_arms
from .locks import Servers, report, say

NETWORK = "127.0.75"
ROWS, VALUE_BYTES, CLIENTS = 20_000, 100, 16
LEVELS = {"ONE": 1, "LOCAL_QUORUM": 6}
SIZES = (2, 9, 32, 100)  # 8.6 on average is what the paper's users ask for
ARMS = ("whole", "in parts", "driver", "driver, a query for each key")
EACH = ARMS[3]
SHOWN = ("p50_us", "p99_us", "rate_per_s", "cpu_us", "load_cpu_us", "split")
# Replicas, level and keys.
POINTS = {f"RF {replicas}, {level}, {keys} keys": (replicas, level, keys)
          for replicas, level in ((1, "ONE"), (3, "ONE"), (3, "LOCAL_QUORUM")) for keys in SIZES}


def keyspace(replicas: int) -> str:
    return f"multiget{replicas}"


def proxy_of(contacts: str, host: int, *options) -> Proxy:
    return Proxy(contacts, f"{NETWORK}.{host}:9042", f"{NETWORK}.{host}:9043", ["--cores", "1", *options],
                 log=jars.TARGET / "ring" / f"multiget-proxy-{host}.log")


def parts_asked(proxy: Proxy) -> int:
    """Multigets that were asked in parts so far."""
    text = proxy.get("/metrics")[1]
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith("shunt_multigets_split_total"))


def start(stack, options) -> Servers:
    servers = Servers()
    if options.embedded:
        listen = f"{NETWORK}.21:9042"
        node = stack.enter_context(Embedded("multiget-experiment", listen, ["node", "--listen", listen, "--admin", "off", "--cores", "1"], [],
                                            jars.TARGET / "ring" / "embedded-multiget-experiment.log"))
        contacts, nodes = [node.contact], [node.process.pid]
    else:
        ring = Cluster("multiget", network=NETWORK, optimise=options.optimise, heap_mb=1024)
        stack.callback(ring.stop, wipe=True)
        ring.start(wipe=True)
        contacts, nodes = [one.contact for one in ring.nodes], [one.pid() for one in ring.nodes]
    whole = stack.enter_context(proxy_of(",".join(contacts), 11, "--multiget", "off"))
    parts = stack.enter_context(proxy_of(",".join(contacts), 12, "--multiget", "split"))
    for arm, targets, more in (("whole", [whole.listen], [whole.process.pid]), ("in parts", [parts.listen], [parts.process.pid]),
                               ("driver", contacts, []), (EACH, contacts, [])):
        servers.add(arm, targets, [*more, *nodes])
    host, port = contacts[0].rsplit(":", 1)
    for replicas in {replicas for replicas, *_ in POINTS.values()}:
        with cql.Session(host, int(port), timeout_seconds=60) as session:
            session.query(f"CREATE KEYSPACE {keyspace(replicas)} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': "
                          f"{min(replicas, len(contacts))}}}")
        generator.load(whole.listen, 16, 1, "--create", "--keyspace", keyspace(replicas), "--keys", options.rows, "--value-bytes", VALUE_BYTES,
                       "--populate", "--reads", 1, "--duration", 0.1, "--warm-up", 0)
    servers.parts = parts
    return servers


def once(servers: Servers, arm: str, point: tuple, options, seconds: float) -> dict:
    replicas, level, keys = point
    first, *others = servers.targets[arm]
    arguments = [argument for target in others for argument in ("--target", target)]
    arguments += [argument for pid in servers.pids[arm] for argument in ("--pid", pid)]
    arguments += ["--consistency", LEVELS[level], "--keyspace", keyspace(replicas), "--keys", options.rows, "--value-bytes", VALUE_BYTES,
                  "--reads", 1, "--warm-up", options.warm_up, "--duration", seconds]
    before = parts_asked(servers.parts)
    if arm == EACH:
        arguments += ["--token-aware"] if others else []
        result = generator.load(first, CLIENTS, keys, *arguments)
        each = keys
    else:
        result = generator.load(first, CLIENTS, 1, *arguments, "--multiget", keys, "--verify")
        each = 1
    if not result["queries"]:
        return {}
    cpu_us = each * sum(process["cpu_us_per_query"] for process in result["processes"])
    found = {"rate_per_s": result["rate"] / each, "cpu_us": cpu_us, "load_cpu_us": each * result["own"]["cpu_us_per_query"]}
    if arm != EACH and result["latency_us"]:
        found |= {"p50_us": result["latency_us"]["p50"], "p99_us": result["latency_us"]["p99"]}
    if arm == "in parts":
        # Those of the warm-up are counted too.
        found["split"] = (parts_asked(servers.parts) - before) / (result["queries"] * (1 + options.warm_up / seconds))
    return found


def measure(servers: Servers, options) -> None:
    measured = {}
    labels = [label for label in POINTS if label in options.points]
    for arm in options.arms:
        for label in labels[:: len(SIZES)]:
            generator.until_answered(lambda arm=arm, label=label: once(
                servers, arm, POINTS[label], options, options.training_seconds) or None)
    for label in labels:
        for round_ in range(options.rounds):
            for arm in random.sample(options.arms, len(options.arms)):
                found = once(servers, arm, POINTS[label], options, options.seconds)
                measured[label, arm, round_] = found
                say(arm, label, round_, found, options)
    report(measured, options, SHOWN)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=2, training_seconds=5)
    parser.add_argument("--rows", type=int, default=ROWS, help="in each table")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--points", nargs="+", choices=list(POINTS), default=list(POINTS))
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        measure(start(stack, options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

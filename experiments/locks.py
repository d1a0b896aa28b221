"""Measures locks at the proxy beside Cassandra's lightweight transactions, Redis and etcd, and the cost of a fleet for ordinary queries.

All clients are `shunt bench load --locks`: each takes a lock, waits for the answer, releases it and goes on with another name. The
arms of a point take turns in random order, round after round. An operation is one acquire or one release; CPU is the kernel's
account of the servers that an arm needs. Run by `shunt bench run locks`.
"""

import contextlib
import json
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from harness import jars
from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.proxy import Proxy
from locks.fleet import Fleet

from . import generator
from .arguments import parser_of_arms

NETWORK = "127.0.67"  # of everything that is started here
KEYSPACE = "locks"
QUORUM = 4
NAMES = 1_000_000
FEW_NAMES = 1000
WAITERS = 1000  # in crates/locks/examples/speed.rs too
WAIT = ["--keys", "1", "--lock-wait-ms", "20000"]
LOCKS = {"fast": "fast", "durable": "durable", "lwt": "lwt", "redis": "redis", "etcd": "etcd"}
TO_FEW = {"p50_us": "p50_to_few", "rate_per_s": "rate_to_few"}
SHOWN = ("p50_us", "p99_us", "release_p50_us", "rate_per_s", "cpu_us", "per_core_s", "handovers_per_s", "handovers_per_core_s",
         "bytes_per_lock", "p50_to_few", "rate_to_few")


@dataclass
class Point:
    """A load, and who is put under it."""

    label: str
    shape: tuple
    arms: list
    more: list = field(default_factory=list)
    waits: bool = False


EVERY_LOCK = ["fast", "durable", "insert", "lwt", "redis", "etcd"]
POINTS = [
    Point("64x1", (64, 1), EVERY_LOCK),
    Point("4x1", (4, 1), EVERY_LOCK),
    Point("8x128", (8, 128), ["fast"]),
    Point("64x1, 1,000 names", (64, 1), ["fast", "lwt"], ["--keys", str(FEW_NAMES)]),
    Point("64x1, 1,000,000 names", (64, 1), ["fast", "lwt"], ["--keys", str(NAMES)]),
    Point(f"one lock, {WAITERS:,} waiters", (WAITERS, 1), ["fast", "durable"], WAIT, waits=True),
    Point("ordinary INSERTs, 64x1", (64, 1), ["no fleet", "fleet"]),
    Point("ordinary INSERTs, 8x128", (8, 128), ["no fleet", "fleet"]),
]
FEW, MANY, ONE_LOCK = POINTS[3:6]
FEW_WAITERS = 50  # where a durable lock changes hands only as fast as a disk syncs


class Servers:
    """Servers of a run: the targets of each arm, and the processes whose CPU time counts for it."""

    def __init__(self):
        self.targets, self.pids = {}, {}

    def add(self, arm: str, targets: list, pids: list) -> None:
        self.targets[arm], self.pids[arm] = targets, pids


def load(servers: Servers, arm: str, point: Point, options, seconds: float, *more) -> dict:
    """The report of `shunt bench load`. RuntimeError if a lock was not granted or not released, or came with an error."""
    first, *others = servers.targets[arm]
    arguments = [argument for target in others for argument in ("--target", target)]
    arguments += [argument for pid in servers.pids[arm] for argument in ("--pid", pid)]
    if arm in LOCKS:
        arguments += ["--locks", LOCKS[arm]]
    else:
        level = QUORUM if arm == "insert" else 1
        arguments += ["--reads", 0, "--value-bytes", 20, "--keys", 100_000, "--consistency", level, "--keyspace", KEYSPACE]
    if arm == "lwt":
        arguments += ["--keyspace", KEYSPACE, "--consistency", QUORUM]
    return generator.load(first, *point.shape, *arguments, "--warm-up", options.warm_up, "--duration", seconds, *point.more, *more)


def figures(report: dict, arm: str, point: Point) -> dict:
    """Without those of what did not both begin and end in time: the short form is short."""
    cpu_us = sum(process["cpu_us_per_query"] for process in report["processes"])
    found = {"rate_per_s": report["rate"], "cpu_us": cpu_us, "load_cpu_us": report["own"]["cpu_us_per_query"]}
    acquire = report["operations"]["acquire"] if arm in LOCKS else report
    if acquire["latency_us"]:
        found |= {"p50_us": acquire["latency_us"]["p50"], "p99_us": acquire["latency_us"]["p99"]}
    if not report["queries"]:
        return {}
    if arm in LOCKS:
        found["per_core_s"] = 1e6 / cpu_us
        release = report["operations"]["release"]["latency_us"]
        found |= {"release_p50_us": release["p50"]} if release else {}
    if point.waits:
        # Whoever releases a lock was granted it: half of what is answered are hand-overs.
        found |= {"handovers_per_s": report["rate"] / 2, "handovers_per_core_s": 1e6 / (2 * cpu_us)}
    return found


# --- servers ---------------------------------------------------------------------------------------------------------


def fleet_of(contacts: str, replicas: int, host: int) -> Fleet:
    """A fleet of one proxy on one core."""
    fleet = Fleet(contacts, "locks", replicas, 9042, lease_ms=6000, memory_ttl_ms=30_000, proxies=0)
    fleet.proxies = [proxy_of(contacts, host, ["--fleet", "locks", "--fleet-replicas-min", str(replicas), "--lock-wait-max-ms", "30000"])]
    return fleet


def proxy_of(contacts: str, host: int, options) -> Proxy:
    return Proxy(contacts, f"{NETWORK}.{host}:9042", f"{NETWORK}.{host}:9043", ["--cores", "1", *options],
                 log=jars.TARGET / "ring" / f"locks-proxy-{host}.log")


@contextlib.contextmanager
def started(fleet: Fleet):
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@contextlib.contextmanager
def process(command: list, log: str, port_answers: tuple):
    """A server that is there when it takes connections; killed in the end."""
    path = jars.TARGET / "ring" / f"locks-{log}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as out:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: socket.create_connection(port_answers, 1).close(), server, f"{log} does not start; its log is {path}")
        yield server.pid
    finally:
        server.kill()
        server.wait(10)


def wait_for(works, server, problem: str, within_seconds: float = 30) -> None:
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            return works()
        except OSError:
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError(problem) from None
            time.sleep(0.05)


def redis(stack, servers: Servers) -> None:
    """In memory alone, as locks in memory are."""
    host, port = f"{NETWORK}.31", 6379
    command = ["redis-server", "--bind", host, "--port", str(port), "--save", "", "--appendonly", "no", "--protected-mode", "no"]
    servers.add("redis", [f"{host}:{port}"], [stack.enter_context(process(command, "redis", (host, port)))])


def etcd(stack, servers: Servers) -> None:
    """Three members with their data in memory, where a sync costs nothing. Clients ask the leader."""
    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="shunt-etcd-", dir="/dev/shm"))
    hosts = {f"m{number}": f"{NETWORK}.{40 + number}" for number in (1, 2, 3)}
    members = ",".join(f"{name}=http://{host}:2380" for name, host in hosts.items())
    running = []
    with contextlib.ExitStack() as begun:
        for name, host in hosts.items():
            client, peer = f"http://{host}:2379", f"http://{host}:2380"
            running.append(subprocess.Popen(
                ["etcd", "--name", name, "--data-dir", f"{place}/{name}", "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", members,
                 "--initial-cluster-state", "new", "--quota-backend-bytes", "4294967296", "--auto-compaction-mode", "revision",
                 "--auto-compaction-retention", "10000", "--log-level", "error"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            begun.callback(end, running[-1])
        leader = wait_for(lambda: leader_of(hosts), running[0], "etcd does not start")
        stack.push(begun.pop_all())
    servers.add("etcd", [f"{leader}:2379"], [member.pid for member in running])


def end(server) -> None:
    server.kill()
    server.wait(10)


def leader_of(hosts: dict) -> str:
    """OSError while there is none."""
    for host in hosts.values():
        with socket.create_connection((host, 2379), 2) as client:
            body = b"{}"
            client.sendall(b"POST /v3/maintenance/status HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: 2\r\n\r\n" + body)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        status = json.loads(answer.split(b"\r\n\r\n", 1)[1] or b"{}")
        if status.get("leader") and status["leader"] == status["header"]["member_id"]:
            return host
    raise OSError("no leader yet")


def start(stack, options) -> Servers:
    servers = Servers()
    node = Embedded("locks-experiment", f"{NETWORK}.21:9042", ["node", "--listen", f"{NETWORK}.21:9042", "--admin", "off", "--cores", "1"],
                    [], jars.TARGET / "ring" / "embedded-locks-experiment.log")
    stack.enter_context(node)
    beside = stack.enter_context(started(fleet_of(node.contact, 1, 12))).proxies[0]
    plain = stack.enter_context(proxy_of(node.contact, 11, []))
    servers.add("no fleet", [plain.listen], [plain.process.pid])
    servers.add("fleet", [beside.listen], [beside.process.pid])
    if options.embedded:
        before, contacts, nodes, replicas = beside, [node.contact], [node.process.pid], 1
    else:
        ring = Cluster("locks", network=NETWORK, optimise=options.optimise, heap_mb=1024)
        stack.callback(ring.stop, wipe=True)
        ring.start(wipe=True)
        before = stack.enter_context(started(fleet_of(ring.contacts, 3, 13))).proxies[0]
        contacts, nodes, replicas = [one.contact for one in ring.nodes], [one.pid() for one in ring.nodes], 3
    servers.add("fast", [before.listen], [before.process.pid])
    servers.add("durable", [before.listen], [before.process.pid, *nodes])
    servers.add("insert", [before.listen], [before.process.pid, *nodes])
    servers.add("lwt", contacts, nodes)
    for name, begin in (("redis", redis), ("etcd", etcd)):
        if name in options.arms:
            begin(stack, servers)
    for arm in ("lwt", "insert", "no fleet"):
        load(servers, arm, POINTS[0], options, 0.1, "--create", "--replication", replicas)
    return servers


# --- the table without sockets ---------------------------------------------------------------------------------------


def parse_table(text: str) -> dict:
    """Figures by point of what `crates/locks/examples/speed.rs` prints."""
    number = {name: float(re.search(pattern, text)[1]) for name, pattern in (
        ("bytes", r"([\d.]+) bytes each"), ("pair_ns", r"([\d.]+) ns to acquire and release"), ("handover_ns", r"([\d.]+) ns to hand over"))}
    return {MANY.label: {"bytes_per_lock": number["bytes"], "per_core_s": 2e9 / number["pair_ns"]},
            ONE_LOCK.label: {"handovers_per_core_s": 1e9 / number["handover_ns"]}}


def table() -> dict:
    command = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "shunt-locks", "--example", "speed"]
    return parse_table(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


# --- measuring -------------------------------------------------------------------------------------------------------


def measure(servers: Servers, options) -> None:
    measured = {}
    few_waiters = Point(f"one lock, {FEW_WAITERS} waiters", (FEW_WAITERS, 1), ONE_LOCK.arms, WAIT, waits=True)
    points = [few_waiters if point is ONE_LOCK and options.embedded else point for point in POINTS if point.label in options.points]
    for arm in ("durable", "lwt", "insert", "etcd"):
        if arm in options.arms:
            load(servers, arm, POINTS[0], options, options.training_seconds)
    for point in points:
        arms = [arm for arm in point.arms if arm in options.arms]
        rounds = options.ordinary_rounds if point.label.startswith("ordinary") else options.rounds
        for round_ in range(rounds if arms else 0):
            for arm in random.sample(arms, len(arms)):
                # All that wait are to be served several times.
                seconds = options.seconds * (3 if point is ONE_LOCK else 1)
                found = figures(load(servers, arm, point, options, seconds), arm, point)
                few = measured.get((FEW.label, arm, round_))
                if point is MANY and few:
                    both = [name for name in ("p50_us", "rate_per_s") if found.get(name) and few.get(name)]
                    found |= {TO_FEW[name]: found[name] / few[name] for name in both}
                measured[point.label, arm, round_] = found
                say(arm, point.label, round_, found, options)
    if "table" in options.arms:
        for round_ in range(options.rounds):
            for label, found in table().items():
                measured[label, "table", round_] = found
                say("table", label, round_, found, options)
    report(measured, options)


def say(arm: str, label: str, round_: int, found: dict, options) -> None:
    """A line as `shunt bench run` reads them."""
    if options.json:
        print(json.dumps({"arm": arm, "point": label, "round": round_, "figures": found}), flush=True)


def report(measured: dict, options, names=SHOWN) -> None:
    out = sys.stderr if options.json else sys.stdout
    by_arm = {}
    for (label, arm, _), found in measured.items():
        by_arm.setdefault((label, arm), []).append(found)
    shown = None
    for (label, arm), rounds in by_arm.items():
        if label != shown:
            print(f"\n{label}: medians of {len(rounds)} rounds", file=out)
            shown = label
        cells = [f"{name} {statistics.median(found[name] for found in rounds):,.4g}" for name in names
                 if all(name in found for found in rounds)]
        print(f"  {arm:12}{'  '.join(cells)}", file=out, flush=True)


def main() -> int:
    arms = [*LOCKS, "insert", "no fleet", "fleet", "table"]
    parser = parser_of_arms(__doc__, seconds=2, training_seconds=20)
    parser.add_argument("--ordinary-rounds", type=int, default=25, help="of ordinary queries, whose difference is small")
    parser.add_argument("--arms", nargs="+", choices=arms, default=arms)
    labels = [point.label for point in POINTS]
    parser.add_argument("--points", nargs="+", choices=labels, default=labels)
    options = parser.parse_args()
    missing = [name for name, command in (("redis", "redis-server"), ("etcd", "etcd")) if name in options.arms and not shutil.which(command)]
    if missing:
        print(f"{' and '.join(missing)} not found (Debian: redis-server, etcd-server); --arms leaves them out", file=sys.stderr)
        return 3
    with contextlib.ExitStack() as stack:
        measure(start(stack, options), options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

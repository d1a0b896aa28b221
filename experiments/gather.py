"""Measures how long queries should wait to share a frame when answers take milliseconds.

Queries to a ring of three nodes with three replicas at QUORUM, through proxies that differ in `--gather-us` only, one after the other
in random order. In the second half each packet between the proxies and the nodes takes a millisecond each way: the proxies and the
load generator are in a network namespace of their own, and a process that carries packets between the two holds each so long. Needs
root, for the namespaces.
"""

import argparse
import fcntl
import json
import os
import random
import select
import statistics
import struct
import subprocess
import sys
import time
from collections import deque

from harness import cql
from harness.cluster import Cluster
from harness.proxy import Proxy

from .quorum import KEYSPACE, load

NODES, CLIENTS = "10.73.0", "10.73.1.1"
TUNNEL_BYTES = 60_000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def tunnel(name: str) -> int:
    """A network interface whose packets are read from, and written to, what is returned."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def carry(ends: tuple, delay_seconds: float) -> None:
    """Takes packets from one end to the other, each held for the delay, in order."""
    other = dict(zip(ends, reversed(ends)))
    held = deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        for end in select.select(ends, [], [], wait)[0]:
            for packet in packets(end):
                held.append((time.monotonic() + delay_seconds, other[end], packet))
        while held and held[0][0] <= time.monotonic():
            _, end, packet = held.popleft()
            try:
                os.write(end, packet)
            except BlockingIOError:
                pass  # its queue is full: lost, as on any network


def packets(end: int):
    while True:
        try:
            yield os.read(end, TUNNEL_BYTES + 100)
        except BlockingIOError:
            return


class Apart:
    """A namespace beside this one, and the process that carries packets between them."""

    def __init__(self, nodes: int, first: int):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.within = ["nsenter", "--target", str(self.holder.pid), "--net"]
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        self.ends = (tunnel("nodes"), tunnel("clients"))
        ip = ["ip", "link", "set", "lo", "up"]
        subprocess.run(ip, check=True)
        subprocess.run(self.within + ip, check=True)
        for node in range(nodes):
            subprocess.run(["ip", "address", "add", f"{NODES}.{first + node}/32", "dev", "lo"], check=True)
        subprocess.run(["ip", "link", "set", "clients", "netns", str(self.holder.pid)], check=True)
        self._begin([], "nodes", "10.73.2.1", f"{CLIENTS}/32", "10.73.2.2/32")
        subprocess.run([*self.within, "ip", "address", "add", f"{CLIENTS}/32", "dev", "lo"], check=True)
        self._begin(self.within, "clients", "10.73.2.2", f"{NODES}.0/24", "10.73.2.1/32")
        self.carrier = 0

    def _begin(self, within: list, device: str, address: str, *beyond: str) -> None:
        for command in (["address", "add", f"{address}/32", "dev", device],
                        ["link", "set", device, "mtu", str(TUNNEL_BYTES), "txqueuelen", "10000", "up"],
                        *(["route", "add", network, "dev", device] for network in beyond)):
            subprocess.run([*within, "ip", *command], check=True)

    def delay(self, seconds: float) -> None:
        """From now on; nothing is on the way."""
        if self.carrier:
            os.kill(self.carrier, 9)
            os.waitpid(self.carrier, 0)
        self.carrier = os.fork()
        if self.carrier == 0:
            carry(self.ends, seconds)

    def close(self) -> None:
        if self.carrier:
            os.kill(self.carrier, 9)
            os.waitpid(self.carrier, 0)
        self.holder.kill()
        self.holder.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gather-us", type=int, nargs="+", default=[0, 100, 300, 1000])
    parser.add_argument("--delays-ms", type=float, nargs="+", default=[0, 1], help="each way, between proxy and nodes")
    parser.add_argument("--shapes", nargs="+", default=["16x1", "64x1", "256x1", "8x32"], help="clients x queries in flight of each")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.5, help="measured, for each proxy and round")
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--training-seconds", type=float, default=60, help="of load before anything is measured")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="print every measurement")
    options = parser.parse_args()
    if os.environ.get("SHUNT_NAMESPACE") != "own":
        os.environ["SHUNT_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "--net", sys.executable, "-m", "experiments.gather", *sys.argv[1:]])
    apart = Apart(3, 61)
    nodes = Cluster("gather", extended=3, optimise=True, heap_mb=1024, network=NODES)
    proxies = {}
    try:
        apart.delay(0)
        nodes.start(wipe=True)
        with cql.Session(nodes.nodes[0].address, nodes.nodes[0].settings.cql_port) as session:
            session.query(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}")
            session.query(f"CREATE TABLE {KEYSPACE}.kv (k blob PRIMARY KEY, v blob)")
        for number, wait in enumerate(options.gather_us):
            proxies[wait] = Proxy(nodes.contacts, f"{CLIENTS}:{9050 + number}", f"{CLIENTS}:{9190 + number}",
                                  ["--cores", "1", "--gather-us", str(wait)], within=apart.within).start()
        measure(apart, nodes, proxies, options)
    finally:
        for proxy in proxies.values():
            proxy.stop()
        nodes.stop(wipe=True)
        apart.close()
    return 0


def measure(apart: Apart, nodes: Cluster, proxies: dict, options) -> None:
    watched = [argument for node in nodes.nodes for argument in ("--pid", str(node.pid()))]
    points = [(work, "QUORUM", *map(int, shape.split("x"))) for work in ("INSERT", "SELECT") for shape in options.shapes]

    def run(wait: int, point: tuple, seconds: float, *more) -> dict:
        return load([proxies[wait].listen], point, options, seconds, *watched, *more, within=apart.within)

    run(options.gather_us[0], points[0], 1, "--populate")
    for point in points:
        run(options.gather_us[-1], point, options.training_seconds / len(points))
    for delay in options.delays_ms:
        apart.delay(delay / 1000)
        for point in points:
            rounds = {wait: [] for wait in proxies}
            for _ in range(options.rounds):
                for wait in random.sample(list(proxies), len(proxies)):
                    rounds[wait].append(figures(proxies[wait], run, wait, point, options))
            report(delay, point, rounds, options)


def figures(proxy: Proxy, run, wait: int, point: tuple, options) -> dict:
    before = frames(proxy)
    result = run(wait, point, options.seconds)
    after = frames(proxy)
    if result["errors"]:
        raise RuntimeError(f"gather_us {wait}: {result['errors']}")
    return {"cpu_us": sum(node["cpu_us_per_query"] for node in result["processes"]), "rate_per_s": result["rate"],
            "p50_us": result["latency_us"]["p50"], "p99_us": result["latency_us"]["p99"],
            "queries_per_write": (after[0] - before[0]) / max(1, after[1] - before[1])}


def frames(proxy: Proxy) -> tuple:
    """Queries sent to nodes, and the writes they left in."""
    values = {"shunt_queries_per_write_sum": 0.0, "shunt_queries_per_write_count": 0.0}
    for line in proxy.get("/metrics")[1].splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name in values:
            values[name] += float(value)
    return tuple(values.values())


def report(delay: float, point: tuple, rounds: dict, options) -> None:
    title = f"{point[0]}, RF 3, QUORUM, {point[2]}x{point[3]}, {delay:g} ms between proxy and node"
    print(f"\n{title}: medians of {options.rounds} rounds")
    names = ("cpu_us", "rate_per_s", "p50_us", "p99_us", "queries_per_write")
    print(f"{'gather_us':>10}" + "".join(f"{name:>18}" for name in names))
    for wait, measured in rounds.items():
        print(f"{wait:10}" + "".join(f"{statistics.median(figures[name] for figures in measured):18.1f}" for name in names), flush=True)
        if options.json:
            print(json.dumps({"arm": str(wait), "point": title, "rounds": measured}), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())

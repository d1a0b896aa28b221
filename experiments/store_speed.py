"""Measures point reads and writes of stores: embedded node, Cassandra, redis-server with its append-only file.

Every store runs alone, one after the other, round after round. The load is INSERTs and then SELECTs (SET and GET) of values
of 100 bytes, 64 connections with one query in flight and 8 with 32. `acknowledged`: whether a write is answered after it
was synced (batch, appendfsync always) or before (periodic, appendfsync everysec). CPU is the kernel's account of the
store's processes, the proxy in front of it not included; figures are medians. Run by `make store-speed`.
"""

import argparse
import shutil
import socket
import statistics
import subprocess
import time

from harness import cql, jars
from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.processes import cpu_seconds, resident_bytes
from harness.proxy import Proxy, binary

from . import generator

SHAPES = ((64, 1), (8, 32))
VALUE_BYTES = 100
KEYSPACES = {"batch": "speed_batch", "periodic": "speed_periodic"}
WORK = ("write", "read")


def load(target: str, pid: int, keyspace: str, shape, work: str, options, *more) -> dict:
    """One round of `shunt bench load`."""
    return generator.load(target, *shape, "--reads", "1" if work == "read" else "0", "--keys", options.keys, "--value-bytes",
                          VALUE_BYTES, "--keyspace", keyspace, "--warm-up", options.warm_up, "--duration", options.seconds,
                          "--pid", pid, *more)


def create(contact: str, durability: str) -> None:
    """Keyspace and table of an embedded node."""
    from cassandra.cluster import Cluster as Driver
    host, port = contact.rsplit(":", 1)
    driver = Driver([host], port=int(port))
    session = driver.connect()
    session.execute(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACES[durability]} WITH replication = "
                    f"{{'class': 'SimpleStrategy', 'replication_factor': 1}}"
                    + (f" AND durability = '{durability}'" if durability == "periodic" else ""))
    driver.shutdown()


class Store:
    """A store that was started, and how to put load on it."""

    def __init__(self, name: str, acknowledged: str):
        self.name, self.acknowledged = name, acknowledged

    def cql_round(self, options, target, pid, keyspace) -> dict:
        figures = {}
        before = resident_bytes(pid)
        subprocess.run([str(binary()), "bench", "load", "--target", target, "--keys", str(options.keys), "--value-bytes",
                        str(VALUE_BYTES), "--keyspace", keyspace, "--create", "--populate", "--reads", "1", "--duration",
                        "0.5"], check=True, stdout=subprocess.DEVNULL)
        figures["memory"] = (resident_bytes(pid) - before) / options.keys
        for shape in SHAPES:
            for work in WORK:
                report = load(target, pid, keyspace, shape, work, options)
                figures[shape, work] = report["processes"][0]["cpu_us_per_query"], report["rate"]
        for work in WORK:
            rate = figures[SHAPES[0], work][1] / 2
            report = load(target, pid, keyspace, SHAPES[0], work, options, "--rate", f"{rate:.0f}")
            figures["latency", work] = report["latency_us"]["p50"], report["latency_us"]["p99"]
        return figures


class NodeStore(Store):
    """`shunt node`, one event loop, asked directly or through `shunt proxy` in aggregated frames."""

    def __init__(self, acknowledged: str, proxied: bool):
        super().__init__("node, aggregated" if proxied else "node", acknowledged)
        self.proxied = proxied

    def round(self, options) -> dict:
        node = Embedded.direct(port=9152)
        node.arguments += ["--cores", "1"]
        with node:
            create(node.contact, self.acknowledged)
            keyspace = KEYSPACES[self.acknowledged]
            if not self.proxied:
                return self.cql_round(options, node.contact, node.process.pid, keyspace)
            with Proxy(node.contact, listen="127.0.0.1:9054", admin="127.0.0.1:9194", options=["--cores", "1"]) as proxy:
                return self.cql_round(options, proxy.listen, node.process.pid, keyspace)


class CassandraStore(Store):
    """One Cassandra node with both compilers, its commit log synced every ten seconds (its default)."""

    def __init__(self):
        super().__init__("Cassandra", "periodic")

    def round(self, options) -> dict:
        ring = Cluster("speed", nodes=1, heap_mb=2048, optimise=True)
        ring.start()
        try:
            # Warms the compilers up.
            warm = argparse.Namespace(**{**vars(options), "seconds": options.jit_seconds})
            pid = ring.nodes[0].pid()
            subprocess.run([str(binary()), "bench", "load", "--target", ring.contacts, "--create", "--keys", "1000",
                            "--keyspace", "speed", "--duration", "0.5"], check=True, stdout=subprocess.DEVNULL)
            for work in WORK:
                load(ring.contacts, pid, "speed", SHAPES[1], work, argparse.Namespace(**{**vars(warm), "keys": 1000}))
            return self.cql_round(options, ring.contacts, pid, "speed")
        finally:
            ring.stop()


class RedisStore(Store):
    """redis-server with its append-only file, loaded by redis-benchmark."""

    PORT = 9145

    def __init__(self, acknowledged: str):
        super().__init__("redis", acknowledged)

    def round(self, options) -> dict:
        place = jars.TARGET / "ring" / "redis"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        sync = "always" if self.acknowledged == "batch" else "everysec"
        server = subprocess.Popen(["redis-server", "--port", str(self.PORT), "--dir", str(place), "--save", "",
                                   "--appendonly", "yes", "--appendfsync", sync, "--bind", "127.0.0.1"],
                                  stdout=subprocess.DEVNULL)
        try:
            while not self.answers():
                time.sleep(0.05)
            return self.measure(server.pid, options)
        finally:
            server.terminate()
            server.wait()

    def answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.PORT)) == 0

    def bench(self, connections: int, outstanding: int, work: str, count: int, keys: int) -> float:
        """Requests per second."""
        out = subprocess.run(["redis-benchmark", "-p", str(self.PORT), "-c", str(connections), "-P", str(outstanding), "-t",
                              "set" if work == "write" else "get", "-n", str(count), "-r", str(keys), "-d",
                              str(VALUE_BYTES), "--csv"], capture_output=True, text=True, check=True)
        return float(out.stdout.strip().splitlines()[-1].split(",")[1].strip('"'))

    def measure(self, pid: int, options) -> dict:
        before = resident_bytes(pid)
        # Random keys: three times as many writes as keys leave few out.
        self.bench(8, 32, "write", 3 * options.keys, options.keys)
        figures = {"memory": (resident_bytes(pid) - before) / options.keys}
        for shape in SHAPES:
            for work in WORK:
                rate = self.bench(*shape, work, 20_000, options.keys)
                count = max(20_000, int(rate * options.seconds))
                spent = cpu_seconds(pid)
                rate = self.bench(*shape, work, count, options.keys)
                figures[shape, work] = (cpu_seconds(pid) - spent) * 1e6 / count, rate
        return figures


def report(rounds: dict, options) -> None:
    print(f"\n{options.keys} keys, values of {VALUE_BYTES} bytes, {options.rounds} rounds; CPU of the store per operation in "
          f"us (and operations per second of the whole rig); p50 and p99 at half of that rate")
    columns = [f"{shape[0]}x{shape[1]} {work}" for shape in SHAPES for work in WORK]
    print(f"{'':18}{'acknowledged':14}" + "".join(f"{column:>18}" for column in columns)
          + f"{'write p50/p99 us':>20}{'read p50/p99 us':>20}{'bytes/row':>11}")
    for store, measured in rounds.items():
        cells = []
        for key in [(shape, work) for shape in SHAPES for work in WORK]:
            cpu, rate = (statistics.median(figures[key][part] for figures in measured) for part in (0, 1))
            cells.append(f"{f'{cpu:.2f} ({rate / 1000:.0f}k)':>18}")
        for work in WORK:
            known = [figures["latency", work] for figures in measured if ("latency", work) in figures]
            shown = "/".join(f"{statistics.median(part):.0f}" for part in zip(*known)) if known else "-"
            cells.append(f"{shown:>20}")
        memory = statistics.median(figures["memory"] for figures in measured)
        print(f"{store.name:18}{store.acknowledged:14}{''.join(cells)}{memory:>11.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="per measurement")
    parser.add_argument("--warm-up", type=float, default=1)
    parser.add_argument("--jit-seconds", type=float, default=20, help="warming Cassandra's compilers up, per kind of work")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--only", help="stores whose name begins so")
    options = parser.parse_args()
    stores = [NodeStore("batch", False), NodeStore("batch", True), NodeStore("periodic", False), NodeStore("periodic", True),
              RedisStore("batch"), RedisStore("periodic"), CassandraStore()]
    stores = [store for store in stores if not options.only or store.name.startswith(options.only)]
    missing = [store.name for store in stores if isinstance(store, RedisStore) and not shutil.which("redis-server")]
    if missing:
        print("redis-server is not installed (Debian: redis-server); it is left out")
        stores = [store for store in stores if not isinstance(store, RedisStore)]
    if cql.answers("127.0.0.1", 9152, 1):
        raise RuntimeError("something else answers CQL on 127.0.0.1:9152")
    rounds = {store: [] for store in stores}
    for _ in range(options.rounds):
        for store in stores:
            rounds[store].append(store.round(options))
            print(f"  {store.name}, {store.acknowledged}: done", flush=True)
    report(rounds, options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

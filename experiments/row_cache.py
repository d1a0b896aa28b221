"""The row cache on a slow disk: CaSSanDra's experiment (Menon et al., ICDE 2014, section V) on Cassandra, scaled down.

    experiments/run row_cache --cache DIRECTORY

One Cassandra node whose data lie on a disk of few reads per second, and whose cache directory lies on a fast one. Rows of 5
columns of 75 bytes are spread over three SSTables each; reads of whole rows and updates of single columns follow the 'latest'
distribution, in a closed loop. Arms: no row cache; memory; the same memory and an SSD; memory and SSD in the budget of that
memory; memory of the budget of both. Every arm begins with the same data, warms its caches up while the disk is fast, and is
measured while it is slow. Meanwhile the page cache is kept clear of the SSTables' rows, as if they were much larger than the
machine's memory; their indices may stay there.

The disk is the limit in every arm, so throughput is `IOPS / (share of reads x misses x I/Os per miss)`. The model's column has
the inputs of the same run: it explains the figure and does not confirm it.
"""

import argparse
import asyncio
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from harness import cql, extension, jars
from harness.node import Node, Settings

COLUMNS, VALUE_BYTES = 5, 75
FRAGMENTS = ((0, 1, 2), (3,), (4,))  # columns of a row's part in each SSTable
ROWS_PER_BATCH = 20
THETA = 0.99
# Name, memory and SSD in MiB, for the default number of rows, whose values are 100 MiB.
ARMS = (("none", 0, 0), ("memory 2 %", 2, 0), ("memory 2 % + SSD 8 %", 2, 8), ("memory 1 % + SSD 1 %", 1, 1),
        ("memory 10 %", 10, 0))
YAML = """\
disk_access_mode: standard
key_cache_size: 32MiB
row_cache_class_name: shunt.cassandra.cache.TieredRowCacheProvider
row_cache_size: {memory}MiB
batch_size_warn_threshold: 1MiB
batch_size_fail_threshold: 2MiB
"""


class Latest:
    """YCSB's zipfian generator (Gray et al., SIGMOD 1994) with a constant of 0.99: of the rows written last, more."""

    def __init__(self, items: int, seed: int):
        self.items, self.random = items, random.Random(seed)
        self.zeta = sum(rank ** -THETA for rank in range(1, items + 1))
        self.zeta_two = 1 + 0.5 ** THETA
        self.eta = (1 - (2 / items) ** (1 - THETA)) / (1 - self.zeta_two / self.zeta)

    def next(self) -> int:
        drawn = self.random.random()
        if drawn * self.zeta < self.zeta_two:
            rank = int(drawn * self.zeta >= 1)
        else:
            rank = min(self.items - 1, int(self.items * (self.eta * drawn - self.eta + 1) ** (1 / (1 - THETA))))
        return self.items - 1 - rank


class Disk:
    """The slow disk's switch, its count of reads, and a thread that keeps SSTables out of the page cache while it is slow."""

    def __init__(self, options):
        self.limit, self.device, self.iops = Path(options.limit), options.device, options.iops
        self._slow = threading.Event()

    def slow(self, data: Path) -> None:
        self._files = [os.open(path, os.O_RDONLY) for path in data.rglob("*-Data.db")]
        self._slow.set()
        self._thread = threading.Thread(target=self._clear)
        self._thread.start()
        self.limit.write_text(f"{self.device} {self.iops}")

    def fast(self) -> None:
        if not self._slow.is_set():
            return
        self.limit.write_text(f"{self.device} 0")
        self._slow.clear()
        self._thread.join()
        for file in self._files:
            os.close(file)

    def reads(self) -> int:
        return int(Path(f"/sys/dev/block/{self.device}/stat").read_text().split()[0])

    def _clear(self) -> None:
        while self._slow.is_set():
            for file in self._files:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.05)


def figures(node: Node, *command: str) -> dict:
    out = subprocess.run([str(jars.java()), str(Path(__file__).with_name("CacheFigures.java")), str(node.settings.jmx_port), *command],
                         check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split() for line in out.splitlines())}


def node_of(directory: Path, memory: int, ssd: int, cache: Path) -> Node:
    agent = extension.agent(f"row_cache_directory={cache},row_cache_ssd_size={ssd}MiB" if ssd else "", port=0)
    return Node(Settings(cluster="row-cache", address="127.0.0.1", directory=directory, seeds=["127.0.0.1"], tokens=[0],
                         agent=agent, more_yaml=YAML.format(memory=memory)))


def key(number: int) -> bytes:
    return b"user%020d" % number


async def load(node: Node, options) -> None:
    connection = await cql.Connection.open(node.address, node.settings.cql_port)
    await connection.query("CREATE KEYSPACE cache WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} "
                           "AND durable_writes = false")
    columns = ", ".join(f"field{i} text" for i in range(COLUMNS))
    await connection.query(f"CREATE TABLE cache.rows (k text PRIMARY KEY, {columns}) WITH "
                           "caching = {'keys': 'ALL', 'rows_per_partition': 'ALL'} AND "
                           "compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 4} AND "
                           "compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}")
    value = iter(lambda: os.urandom(VALUE_BYTES * 3 // 5).hex()[:VALUE_BYTES].encode(), None)
    for part in FRAGMENTS:
        names = ", ".join(f"field{i}" for i in part)
        one = f"INSERT INTO cache.rows (k, {names}) VALUES (?{', ?' * len(part)});"
        batch = await connection.prepare("BEGIN UNLOGGED BATCH " + one * ROWS_PER_BATCH + " APPLY BATCH")
        starts = iter(range(0, options.rows, ROWS_PER_BATCH))

        async def worker():
            for start in starts:
                values = []
                for number in range(start, start + ROWS_PER_BATCH):
                    values += [key(number), *(next(value) for _ in part)]
                await connection.execute(batch, values)

        await asyncio.gather(*(worker() for _ in range(8)))
        await asyncio.to_thread(figures, node, "flush", "cache")
    connection.close()


class Client:
    """Reads and updates in a closed loop over one connection each."""

    def __init__(self, node: Node, share: float, options):
        self.node, self.share, self.options = node, share, options
        self.latest, self.read_s, self.writes = Latest(options.rows, 7), [], 0

    async def run(self, clients: int, seconds: float = math.inf, operations: float = math.inf) -> float:
        """Until either is reached; returns how long it took."""
        self.read_s, self.writes, self.left = [], 0, operations
        begun = time.monotonic()
        await asyncio.gather(*(self._loop(begun + seconds) for _ in range(clients)))
        return time.monotonic() - begun

    async def _loop(self, end: float) -> None:
        connection = await cql.Connection.open(self.node.address, self.node.settings.cql_port)
        read = await connection.prepare("SELECT * FROM cache.rows WHERE k = ?")
        updates = [await connection.prepare(f"UPDATE cache.rows SET field{i} = ? WHERE k = ?") for i in range(COLUMNS)]
        while self.left > 0 and time.monotonic() < end:
            self.left -= 1
            number = self.latest.next()
            if self.latest.random.random() < self.share:
                begun = time.monotonic()
                rows = await connection.execute(read, [key(number)], timeout_seconds=60)
                self.read_s.append(time.monotonic() - begun)
                if len(rows) != 1:
                    raise RuntimeError(f"row {number} was read {len(rows)} times")
            else:
                column = self.latest.random.randrange(COLUMNS)
                await connection.execute(updates[column], [b"%075d" % number, key(number)], timeout_seconds=60)
                self.writes += 1
        connection.close()


def run_arm(place: Path, disk: Disk, arm, share: float, options) -> list:
    """The measurements of each round. The rounds of an arm follow one another on one start of the node."""
    _, memory, ssd = arm
    directory = place / "node"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(place / "loaded", directory)
    # Paths in the configuration are absolute, so every node runs in the same directory.
    node = node_of(directory, memory, ssd, options.cache)
    node.start()
    try:
        node.wait_ready()
        client = Client(node, share, options)
        # Without a row cache there is little to warm: Cassandra's key cache, its compilers.
        asyncio.run(client.run(16, operations=options.warm_up if memory else options.warm_up / 10))
        disk.slow(directory / "data" / "cache")
        asyncio.run(client.run(options.clients, seconds=options.settle))
        return [measure(node, client, disk, options) for _ in range(options.rounds)]
    finally:
        disk.fast()
        node.kill()


def measure(node: Node, client: Client, disk: Disk, options) -> dict:
    before, reads_before = figures(node), disk.reads()
    took = asyncio.run(client.run(options.clients, seconds=options.seconds))
    reads = disk.reads() - reads_before
    after = figures(node)

    def grown(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    count = len(client.read_s)
    memory_hits = grown("RowCacheMemory.Hits")
    ssd_hits = grown("RowCacheSsd.Hits") + grown("RowCacheSsd.BufferHits")
    misses = max(1, count - memory_hits - ssd_hits)
    per_miss = reads / misses
    actual_share = count / (count + client.writes)
    quantiles = statistics.quantiles(client.read_s, n=100)
    return {"ops": (count + client.writes) / took, "mean": statistics.mean(client.read_s) * 1e3, "p50": quantiles[49] * 1e3,
            "p99": quantiles[98] * 1e3, "memory": memory_hits / count, "ssd": ssd_hits / count, "per_miss": per_miss,
            "model": disk.iops / (actual_share * misses / count * per_miss), "iops": reads / took,
            "amplification": after.get("RowCacheSsd.WriteAmplification", 0), "dropped": grown("RowCacheSsd.CascadesDropped")}


def middle(rounds: list) -> dict:
    """Each figure's median."""
    return {name: statistics.median(measured[name] for measured in rounds) for name in rounds[0]}


def report(share: float, arm, measured: dict, none: dict, iops: int) -> None:
    note = "" if measured["iops"] > 0.9 * iops else "  the disk was not the limit: too little processor time"
    print(f"{share * 100:5.0f} %  {arm[0]:22}{measured['ops']:8.0f}{measured['ops'] / none['ops']:7.2f}{measured['mean']:9.1f}"
          f"{measured['p50']:8.1f}{measured['p99']:8.1f}{(measured['memory'] + measured['ssd']) * 100:8.1f}"
          f"{measured['memory'] * 100:8.1f}{measured['ssd'] * 100:7.1f}{measured['per_miss']:8.2f}{measured['iops']:8.0f}"
          f"{measured['model']:8.0f}{measured['amplification']:8.2f}{measured['dropped']:9.0f}{note}", flush=True)


def say(share: float, arm, number: int, measured: dict) -> None:
    figures = {"rate_per_s": measured["ops"], "mean_ms": measured["mean"], "p50_ms": measured["p50"], "p99_ms": measured["p99"],
               "hit_share": measured["memory"] + measured["ssd"], "reads_per_miss": measured["per_miss"],
               "model_per_s": measured["model"], "iops": measured["iops"]}
    print(json.dumps({"arm": arm[0], "point": f"{share * 100:.0f} % reads", "x": share * 100, "round": number,
                      "figures": figures}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory on the slow disk (experiments/slow-disk gives this)")
    parser.add_argument("--limit", required=True, help="file that switches the limit (experiments/slow-disk)")
    parser.add_argument("--device", required=True, help="the slow disk (experiments/slow-disk)")
    parser.add_argument("--iops", type=int, default=300, help="reads per second (experiments/slow-disk)")
    parser.add_argument("--cache", type=Path, required=True, help="directory of the row cache, on a fast disk")
    parser.add_argument("--rows", type=int, default=280_000)
    parser.add_argument("--loaded", type=Path, help="keeps the loaded data there, or takes them from there")
    parser.add_argument("--warm-up", type=int, default=120_000, help="operations before the disk is slow")
    parser.add_argument("--settle", type=float, default=5, help="seconds after that, not measured")
    parser.add_argument("--seconds", type=float, default=8, help="of each round")
    parser.add_argument("--rounds", type=int, default=5, help="of an arm, one after the other")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.95, 0.85, 0.75], help="of reads")
    parser.add_argument("--json", action="store_true", help="print every measurement as a line for `shunt bench run`, too")
    parser.add_argument("--arms", nargs="+", default=[arm[0] for arm in ARMS], choices=[arm[0] for arm in ARMS])
    options = parser.parse_args()
    disk = Disk(options)
    begun = time.monotonic()
    if options.loaded and options.loaded.is_dir():
        shutil.copytree(options.loaded, options.data / "loaded")
    else:
        node = node_of(options.data / "loaded", 0, 0, options.cache)
        try:
            node.start()
            node.wait_ready()
            asyncio.run(load(node, options))
        finally:
            # Also when it is broken off: its files are on a disk that is about to be taken down.
            node.stop()
        if options.loaded:
            shutil.copytree(options.data / "loaded", options.loaded)
    print(f"{options.rows} rows, {options.rows * COLUMNS * VALUE_BYTES / 2**20:.0f} MiB of values in {len(FRAGMENTS)} SSTables, "
          f"loaded in {time.monotonic() - begun:.0f} s; {options.clients} clients, {options.iops} reads/s")
    print(f"{'reads':>7}  {'row cache':22}{'ops/s':>8}{'x none':>7}{'mean ms':>9}{'p50':>8}{'p99':>8}{'hits %':>8}"
          f"{'memory':>8}{'SSD':>7}{'IO/miss':>8}{'IOPS':>8}{'model':>8}{'written':>8}{'dropped':>9}", flush=True)
    for share in options.shares:
        none = None
        for arm in ARMS:
            if arm[0] in options.arms:
                rounds = run_arm(options.data, disk, arm, share, options)
                measured = middle(rounds)
                none = none or measured
                report(share, arm, measured, none, disk.iops)
                if options.json:
                    for number, found in enumerate(rounds):
                        say(share, arm, number, found)
    print(f"whole run: {(time.monotonic() - begun) / 60:.0f} minutes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

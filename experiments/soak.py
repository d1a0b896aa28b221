"""A long run: load at a share of what the ring carries, nodes that restart one after another, and what comes of it.

Three Cassandra nodes, replication factor 3, QUORUM, behind one `shunt proxy`. An open loop of INSERTs and SELECTs gives latency
window by window, counted from the time at which a query should have been sent; a few more clients remember every write that
was acknowledged to them, and at the end all of those are read. Prints measurements and series as JSON lines, which is how
`shunt bench run soak` reads them; also when it is broken off, without the figures that are not known then.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import threading
import time

from harness import cql, extension, jars
from harness.cluster import Cluster
from harness.load import Load
from harness.proxy import Proxy, binary

ADDRESS, ADMIN = "127.0.0.1:9046", "127.0.0.1:9186"
KEYSPACE = "soak"
SCHEMA = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}",
    f"CREATE TABLE {KEYSPACE}.kv (k blob PRIMARY KEY, v blob)",
    "CREATE KEYSPACE faults WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    "CREATE TABLE faults.writes (key text PRIMARY KEY, value text)",
)
QUORUM = "4"
REMEMBERING_CLIENTS = 4
BETWEEN_RESTARTS_SECONDS = 240
STARTS_WITHIN_SECONDS = 900


def say(**line) -> None:
    print(json.dumps(line), flush=True)


def command(options, *more) -> list:
    return [str(binary()), "bench", "load", "--target", ADDRESS, "--connections", "64", "--keys", str(options.keys),
            "--value-bytes", "20", "--keyspace", KEYSPACE, "--consistency", QUORUM, "--verify", "--json", *more]


def saturation(options) -> float:
    """Queries per second that the ring carries behind the proxy."""
    seconds = str(options.saturation_seconds)
    out = subprocess.run(command(options, "--outstanding", "4", "--populate", "--warm-up", seconds, "--duration", seconds),
                         capture_output=True, text=True, check=False)
    if out.returncode != 0:
        raise RuntimeError(f"shunt bench load failed: {out.stderr or out.stdout}")
    return json.loads(out.stdout.splitlines()[-1])["rate"]


class Memory(threading.Thread):
    """The proxy's memory, on a clock of its own: it is looked at also while the load says nothing."""

    def __init__(self, front: Proxy, every: float):
        super().__init__(daemon=True)
        self.front, self.every, self.times, self.bytes = front, every, [], []
        self._over = threading.Event()

    def run(self) -> None:
        begun = time.monotonic()
        while not self._over.wait(self.every) and self.front.alive():
            self.times.append(time.monotonic() - begun)
            self.bytes.append(self.front.resident_bytes())

    def stop(self) -> None:
        self._over.set()
        self.join()

    def growth(self) -> float:
        """The median of the last quarter over that of the second: the first has the start in it."""
        quarter = len(self.bytes) // 4
        return statistics.median(self.bytes[3 * quarter:]) / statistics.median(self.bytes[quarter:2 * quarter])


class Windows(threading.Thread):
    """The open loop, a window at a time."""

    def __init__(self, options, rate: float):
        super().__init__()
        self.reports, self.failure = [], None
        self.command = command(options, "--outstanding", "64", "--rate", str(rate), "--warm-up", "2", "--duration",
                               str(options.window), "--rounds", str(max(1, int(options.seconds / options.window))))

    def run(self) -> None:
        with subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.process = process
            for line in process.stdout:
                self.reports.append(json.loads(line))
            # 2: answers were wrong, which the report counts.
            self.failure = process.stderr.read() if process.wait() not in (0, 2) else None

    def total(self, *names: str) -> int:
        return sum(window[name] for window in self.reports for name in names)

    def stop(self) -> None:
        if self.is_alive():
            self.process.terminate()


async def restart_in_turn(ring: Cluster, windows: Windows, pause: float, begun: float, restarts: list) -> None:
    """Notes the seconds at which a node went down, until the windows are over."""
    while windows.is_alive():
        for _ in range(int(pause * 2)):
            await asyncio.sleep(0.5)
            if not windows.is_alive():
                return
        node = ring.nodes[len(restarts) % len(ring.nodes)]
        restarts.append(time.monotonic() - begun)
        await asyncio.to_thread(node.stop)
        node.start()
        await asyncio.to_thread(node.wait_ready, STARTS_WITHIN_SECONDS)
        await whole_again(ring, windows)


async def whole_again(ring: Cluster, windows: Windows) -> None:
    """Waits until the nodes see each other up, before the next one goes down. How long they need under load on a small machine
    is not what is measured here, so it ends nothing."""
    while windows.is_alive():
        try:
            return await asyncio.to_thread(ring.wait_up)
        except RuntimeError as problem:
            print(problem, file=sys.stderr)


async def soak(ring: Cluster, front: Proxy, options) -> None:
    rate = options.share * await asyncio.to_thread(saturation, options)
    windows, memory = Windows(options, rate), Memory(front, options.window / 3)
    load = Load(front.host, front.port, f"soak{random.randrange(10**6)}", clients=REMEMBERING_CLIENTS)
    restarts, read_back = [], {}
    try:
        async with load:
            begun = time.monotonic()
            windows.start()
            memory.start()
            try:
                await restart_in_turn(ring, windows, options.restart_every, begun, restarts)
            finally:
                windows.stop()
                windows.join()
                memory.stop()
        missing = await load.missing()
        print(f"{len(missing)} of {len(load.acknowledged)} acknowledged writes lost: {missing[:5]}", file=sys.stderr)
        if load.acknowledged:
            read_back["lost_writes"] = len(missing)
        if windows.failure is not None:
            raise RuntimeError(f"shunt bench load failed: {windows.failure}")
    finally:
        # Hours of it: what was measured is not thrown away because of what came last.
        if windows.reports:
            report(options, rate, windows, memory, restarts, load, read_back)


def report(options, rate: float, windows: Windows, memory: Memory, restarts: list, load: Load, read_back: dict) -> None:
    """Says everything that was measured, and what came of reading back, if that was done."""
    # A window in which nothing was answered has no latency.
    answered = [(number, window) for number, window in enumerate(windows.reports) if window["latency_us"]]
    times = [(number + 1) * options.window for number, _ in answered]
    latency = {name: [window["latency_us"][name] for _, window in answered] for name in ("p50", "p99", "max")}
    for name, values in latency.items():
        say(kind="series", arm="shunt", point="soak", figure=f"{name}_us", x_title="seconds", x=times, y=values)
    say(kind="series", arm="shunt", point="soak", figure="memory_bytes", x_title="seconds", x=memory.times, y=memory.bytes)
    queries = windows.total("queries")
    errors = sum(window["error_share"] * window["queries"] for window in windows.reports)
    waiting = max(window["waiting"] for window in windows.reports)
    say(kind="note", text=f"{queries} queries at {rate:.0f} per second; at the end of a window at most {waiting} were due and "
        f"not sent yet, {windows.total('shed')} never were; {len(restarts)} restarts, at "
        f"{', '.join(f'{at:.0f}' for at in restarts)} s; {load.summary()}")
    figures = {"restarts": len(restarts), "acknowledged": len(load.acknowledged),
               "wrong_answers": len(load.wrong) + load.strays()
               + windows.total("wrong_answers", "wrong_values", "not_found"),
               "unanswered": len(load.silent) + windows.total("queries_lost"),
               "connections_lost": len(load.lost) + windows.total("connections_lost")}
    if answered:
        figures |= {"p50_us": statistics.median(latency["p50"]), "p99_us": statistics.median(latency["p99"]),
                    "worst_p99_us": max(latency["p99"]), "max_us": max(latency["max"]), "error_share": errors / max(queries, 1)}
    if len(memory.bytes) >= 4:
        figures |= {"memory_bytes": max(memory.bytes), "memory_growth": memory.growth()}
    say(arm="shunt", point="soak", round=0, figures=figures | read_back)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--window", type=float, default=30, help="seconds over which each latency is taken")
    parser.add_argument("--share", type=float, default=0.7, help="of the rate at saturation")
    parser.add_argument("--saturation-seconds", type=float, default=20, help="to find that rate, after as long a warm-up")
    parser.add_argument("--restart-every", type=float, default=BETWEEN_RESTARTS_SECONDS, help="seconds between restarts")
    parser.add_argument("--optimise", action="store_true", help="the nodes use both compilers; warm up longer")
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    ring = Cluster("soak", nodes=3, heap_mb=768, optimise=options.optimise, extended=3)
    try:
        extension.jar()
        ring.start(wipe=True)
        with cql.Session(ring.nodes[0].address, ring.nodes[0].settings.cql_port) as session:
            for statement in SCHEMA:
                session.query(statement)
        with Proxy(ring.contacts, ADDRESS, ADMIN, ["--cores", "1"]) as front:
            asyncio.run(soak(ring, front, options))
            if not front.alive():
                raise RuntimeError(f"the proxy did not outlive the load:\n{front.log_tail()}")
    except jars.MissingTool as error:
        print(error, file=sys.stderr)
        return 3
    finally:
        ring.stop(wipe=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Results files that nobody measured: every kind of line, from a seed, in the shape of what `shunt bench run` writes."""

import json
import random
import statistics
from pathlib import Path

MACHINE = {"processor": "AMD EPYC 7B13", "processors": 2, "memory_bytes": 16_400_000_000, "kernel": "Linux 6.1.0-18-amd64",
           "virtual": True}
RUN = {"kind": "run", "shunt": "0.3.0", "commit": "abc1234", "started": "2026-11-21T23:00:00Z", "smoke": False, "seed": 7,
       "machine": MACHINE, "versions": {"haproxy": "2.6.12", "cassandra": "5.0.9", "redis": "7.0.15"}}
ROUNDS = 5


def figure(name: str, title: str, unit: str, better: str = "less") -> dict:
    return {"name": name, "title": title, "unit": unit, "better": better}


def scenario(name: str, title: str, axis: tuple, arms: list, figures: list, plots: list, **more) -> dict:
    """A line of kind scenario; arms are (name, title) or (name, title, why it is missing)."""
    return {"kind": "scenario", "name": name, "title": title, "question": more.get("question", "What does it cost?"),
            "setup": more.get("setup", "Three stub nodes, one core, five rounds that alternate between the arms."),
            "source": more.get("source"), "axis": {"title": axis[0], "scale": axis[1]},
            "arms": [{"name": arm[0], "title": arm[1], "missing": arm[2] if len(arm) > 2 else None} for arm in arms],
            "figures": figures, "plots": [{"figure": item, "sentence": sentence} for item, sentence in plots]}


def rounds_of(random_, name: str, arm: str, point: str | None, x, typical: dict, rounds: int = ROUNDS) -> list:
    """Measurements of an arm at a point, and their summaries."""
    rows = [{key: value * random_.lognormvariate(0, 0.06) for key, value in typical.items()} for _ in range(rounds)]
    lines = [{"kind": "measurement", "scenario": name, "arm": arm, "point": point, "x": x, "round": number, "figures": row,
              "detail": {"syscalls": 12}} for number, row in enumerate(rows)]
    for key in typical:
        values = [row[key] for row in rows]
        lines.append({"kind": "summary", "scenario": name, "arm": arm, "point": point, "x": x, "figure": key,
                      "median": statistics.median(values), "min": min(values), "max": max(values), "rounds": rounds})
    return lines


def comparison(name: str, point: str | None, x, key: str, arm: str, base: str, ratio: float, spread: float = 0.06) -> dict:
    low, high = ratio * (1 - spread), ratio * (1 + spread)
    return {"kind": "comparison", "scenario": name, "point": point, "x": x, "figure": key, "arm": arm, "base": base,
            "ratio": ratio, "low": low, "high": high, "shown": not low <= 1 <= high, "rounds": ROUNDS}


def windows(random_) -> list:
    """A logarithmic axis, several arms, one that is missing."""
    name, arms = "aggregation-windows", {"proxy": 1.0, "window-100": 0.86, "aggregated": 0.62, "floor": 0.72}
    lines = [scenario(
        name, "Aggregation windows", ("client connections", "log"),
        [("proxy", "Shunt, ordinary links"), ("window-100", "Shunt, window of 100 µs"), ("aggregated", "Shunt, aggregated frames"),
         ("floor", "floor"), ("haproxy", "HAProxy", "haproxy is not installed")],
        [figure("cpu_us", "CPU of the proxy per query", "us"), figure("rate_per_s", "Queries answered", "per_s", "more"),
         figure("p99_us", "99th percentile of latency", "us")],
        [("cpu_us", "Waiting for more queries saves CPU only where there are few clients; with many the window fills by itself."),
         ("rate_per_s", "More is answered where less CPU is spent on each query."),
         ("p99_us", "The window costs its own length while there are few clients.")],
        question="What is saved when queries wait for others before they leave, and what does it cost?",
        source="paper 1, figures 7 to 9")]
    for connections in (1, 8, 64, 256, 1024):
        for arm, share in arms.items():
            cpu = share * (3 + 18 / connections ** 0.5)
            wait = 100 if arm == "window-100" else 0
            lines += rounds_of(random_, name, arm, str(connections), float(connections), {
                "cpu_us": cpu, "rate_per_s": 1e6 / cpu * min(connections, 40) / 40 + 900, "p99_us": 300 + wait + 40 * connections})
        for arm in ("window-100", "aggregated"):
            for key in ("cpu_us", "p99_us"):
                lines.append(comparison(name, str(connections), connections, key, arm, "proxy", random_.uniform(0.6, 1.08)))
    return lines


def values(random_) -> list:
    """A linear axis, two arms, sizes in bytes."""
    name = "value-sizes"
    lines = [scenario(name, "Sizes of values", ("bytes of a value", "linear"), [("proxy", "Shunt"), ("direct", "driver, token aware")],
                      [figure("memory", "Memory of the proxy", "bytes")], [("memory", "Memory follows the size of what is in flight.")])]
    for size in (100, 1000, 2000, 4000, 8000):
        lines += rounds_of(random_, name, "proxy", f"{size} B", size, {"memory": 12e6 + size * 3000})
        lines += rounds_of(random_, name, "direct", f"{size} B", size, {"memory": 9e6 + size * 900})
    return lines


def ring(random_) -> list:
    """Categories."""
    name = "ring-cost"
    arms = [("robin", "driver, round robin"), ("aware", "driver, token aware"), ("shunt", "driver, round robin, through Shunt"),
            ("extended", "the same, nodes with the extension")]
    lines = [scenario(name, "Cost of a query for a ring", ("statement", "category"), arms,
                      [figure("node_cpu_us", "CPU of all nodes per query", "us"), figure("connections", "Connections per node", "count")],
                      [("node_cpu_us", "Shunt sends a query to a replica, so no node has to forward it."),
                       ("connections", "Shunt keeps few connections.")], source="paper 2, table 1")]
    for point in ("INSERT", "SELECT", "batch of ten, one partition"):
        for (arm, _), cpu, connections in zip(arms, (410, 280, 270, 190), (5.7, 7.7, 2.3, 1)):
            lines += rounds_of(random_, name, arm, point, None, {"node_cpu_us": cpu, "connections": connections})
    lines.append(comparison(name, "INSERT", None, "node_cpu_us", "shunt", "robin", 0.67))
    lines.append(comparison(name, "INSERT", None, "node_cpu_us", "shunt", "aware", 1.01))
    lines.append({**comparison(name, "SELECT", None, "node_cpu_us", "shunt", "robin", 2.4), "low": None, "high": None,
                  "shown": False, "rounds": 1})
    return lines


def faults(random_) -> list:
    """Over time, with gaps; one point."""
    name = "node-lost"
    lines = [scenario(name, "A node is killed", ("", "category"), [("proxy", "Shunt"), ("direct", "driver, token aware")],
                      [figure("p99_us", "99th percentile of latency", "us"), figure("lost", "Seconds without an answer", "s")],
                      [("p99_us", "The node dies at 20 seconds and is back at 40."), ("lost", "How long clients waited.")])]
    for arm, peak in (("proxy", 60_000), ("direct", 2_100_000)):
        times = [second / 2 for second in range(120)]
        y = [random_.lognormvariate(0, 0.15) * (peak if 20 <= second < 22 else 1900 if 22 <= second < 40 else 1200) for second in times]
        if arm == "direct":
            y[41:43] = [None, None]
        lines.append({"kind": "series", "scenario": name, "arm": arm, "point": None, "figure": "p99_us", "x_title": "seconds",
                      "x": times, "y": y})
        lines += rounds_of(random_, name, arm, None, None, {"lost": peak / 1e6}, rounds=1)
    return lines


def latencies(random_) -> list:
    """Distributions: a panel for each point."""
    name = "latencies"
    arms = [("proxy", "Shunt"), ("direct", "driver, token aware"), ("haproxy", "HAProxy in TCP mode")]
    lines = [scenario(name, "Latencies at a fixed rate", ("queries per second", "linear"), arms,
                      [figure("latency_us", "Latency", "us", "neither")],
                      [("latency_us", "Up to the 99th percentile the proxy adds the time of one more hop.")])]
    shares = [0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99]
    for rate in (10_000, 40_000, 80_000, 160_000):
        for number, (arm, _) in enumerate(arms):
            y = [150 * (1 + number * 0.3) * (1 + rate / 50_000) * (1 + share / 100) / (1.002 - share / 100) ** 0.5
                 * random_.uniform(0.95, 1.05) for share in shares]
            lines.append({"kind": "series", "scenario": name, "arm": arm, "point": str(rate), "figure": "latency_us",
                          "x_title": "percentile", "x": shares, "y": sorted(y)})
    return lines


def footprint(random_) -> list:
    """One point, so figures stand in one table; one arm could not be measured."""
    name = "idle-clients"
    lines = [scenario(name, "Ten thousand idle clients", ("clients", "linear"),
                      [("proxy", "Shunt"), ("haproxy", "HAProxy", "haproxy is not installed"), ("node", "Cassandra, directly")],
                      [figure("memory", "Memory", "bytes"), figure("threads", "Threads", "count", "neither")],
                      [("memory", "An idle client costs the proxy what the kernel does not have already.")])]
    lines += rounds_of(random_, name, "proxy", "10000", 10_000, {"memory": 15e6, "threads": 3})
    lines += rounds_of(random_, name, "node", "10000", 10_000, {"memory": 410e6, "threads": 140})
    return lines


def nothing() -> list:
    """A scenario of which nothing could be measured."""
    return [scenario("slow-disk", "A slow disk", ("block size", "category"), [("ssd", "row cache on SSD", "cgroup v1 is not mounted")],
                     [figure("rate_per_s", "Rows read", "per_s", "more")], [("rate_per_s", "The cache goes on to the SSD.")])]


def claims() -> list:
    return [
        {"kind": "claim", "scenario": "ring-cost", "text": "Shunt costs a ring less CPU than a round-robin driver",
         "source": "paper 1: +19 % throughput", "theirs": "+19 %", "ours": "× 1.43 (1.35 to 1.50)",
         "how": "ratio of CPU per query, 5 rounds, three Cassandra nodes", "verdict": "met", "why": None},
        {"kind": "claim", "scenario": "aggregation-windows", "text": "A window saves CPU at every number of clients",
         "source": "paper 1, figure 7", "theirs": "up to 35 %", "ours": "14 % at 8 clients, none from 256 on",
         "how": "CPU per query, 5 rounds, stub nodes", "verdict": "not met", "why": "the window fills by itself"},
        {"kind": "claim", "scenario": "latencies", "text": "The proxy adds no latency that clients notice", "source": None,
         "theirs": None, "ours": "0.98 (0.93 to 1.04)", "how": "median latency at 40,000 queries per second", "verdict": "not shown",
         "why": "the interval contains 1"},
        {"kind": "claim", "scenario": "slow-disk", "text": "The cache on SSD saves nine reads in ten", "source": "paper 3",
         "theirs": "90 %", "ours": None, "how": None, "verdict": "not measured", "why": "cgroup v1 is not mounted"}]


def lines(seed: int = 7) -> list:
    """A whole run."""
    random_ = random.Random(seed)
    body = [part for make in (windows, values, ring, faults, latencies, footprint) for part in make(random_)]
    notes = [{"kind": "note", "scenario": "ring-cost", "text": "The nodes' compilers were warm."},
             {"kind": "note", "scenario": None, "text": "The machine is shared with others."}]
    return [dict(RUN), *body, *nothing(), *notes, *claims(), {"kind": "end", "complete": True, "seconds": 1234.5}]


def write(path: Path, rows: list) -> Path:
    """A results file of these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path

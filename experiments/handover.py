"""Measures CPU and speed of an HTTP answer that a dispatcher relays or hands over, beside HAProxy and the server itself.

Hosts are network namespaces on one bridge, with links of a limited rate: the clients' `wrk` on one, as many as there are backends, a dispatcher on
one, two or four backends with stock nginx and an agent each. `direct`: each `wrk` asks a server of its own. `haproxy`: HAProxy in the dispatcher's
place, to the servers. `relay`, `always`, `by size` and `by rule`: Shunt's dispatcher without hand-over, with it for every answer, from the agents'
own threshold on, and from the one on that docs/hand-over.md gives for links of 200 Mbit/s. The arms of a point take turns in random order, round
after round. CPU is the kernel's account of the process in the middle, bytes are what left its host. It takes root. Run by `shunt bench run handover`.
"""

import contextlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import hosts
from harness.hosts import VIP
from harness.moved import PORT, SERVER_PORT, Moved
from harness.processes import cpu_seconds
from harness.relay import why_not

from .arguments import parser_of_arms
from .generator import until_answered
from .locks import report, say

KIB, MIB = 1 << 10, 1 << 20
# From here on bytes are counted as they come, and not answers as they end, of which there are few.
LARGE = MIB
ARMS = ("direct", "haproxy", "relay", "always", "by size", "by rule")
CHOOSING = {"by size": [], "by rule": ["--handover-threshold", "8KiB"]}
THRESHOLDS = {"always": ["--handover-threshold", "1"], **CHOOSING}
SHOWN = ("mbit_per_s", "rate_per_s", "p50_us", "p99_us", "cpu_s_per_gb", "sent_per_byte", "busy", "to_better")
UNITS = {"": 1, "K": KIB, "M": MIB, "G": 1 << 30}


class Point(NamedTuple):
    """Bytes of an answer, connections of each client, which are fewer where large answers fill the links, and at least so many seconds."""

    size: int
    connections: int
    seconds: float = 0
    backends: int = 2


POINTS = {
    "1 B, one connection": Point(1, 1), "1 B": Point(1, 8), "1 KiB": Point(KIB, 8), "4 KiB": Point(4 * KIB, 8), "8 KiB": Point(8 * KIB, 8),
    "16 KiB": Point(16 * KIB, 8), "32 KiB": Point(32 * KIB, 8), "64 KiB": Point(64 * KIB, 8), "256 KiB": Point(256 * KIB, 4),
    "1 MiB": Point(MIB, 4), "16 MiB": Point(16 * MIB, 2, 10), "128 MiB": Point(128 * MIB, 1, 25), "64 KiB, 4 backends": Point(64 * KIB, 8, 0, 4),
    "1 MiB, 4 backends": Point(MIB, 4, 0, 4), "16 MiB, 4 backends": Point(16 * MIB, 1, 15, 4)}

HAPROXY = """
global
    maxconn 1000
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    balance leastconn
    http-reuse always
frontend clients
    bind {vip}:{port}
    default_backend servers
backend servers
{servers}
"""


class Setting(Moved):
    """One arm: servers that other hosts reach too, and what stands in the middle."""

    listen = "0.0.0.0"

    def __init__(self, directory: Path, arm: str, backends: int, rate_mbit: int, files: Path):
        self.arm, self.backends, self.rate_mbit = arm, backends, rate_mbit
        dispatch = ("--handover", "auto" if arm in THRESHOLDS else "off")
        threshold = THRESHOLDS.get(arm, ["--handover-threshold", "off"])
        super().__init__(directory, dispatch_options=dispatch, agent_options=(*threshold, "--upstream-connections-max", "64"))
        self.files = files

    def __enter__(self):
        super().__enter__()
        limit_links(self.hosts, self.rate_mbit)
        return self

    def start_dispatcher(self):
        if self.arm != "haproxy":
            return super().start_dispatcher()
        servers = "\n".join(f"    server s{index} {hosts.address(f'backend{index}')}:{SERVER_PORT}" for index in range(self.backends))
        config = self.directory / "haproxy.cfg"
        config.write_text(HAPROXY.format(vip=VIP, port=PORT, servers=servers))
        self._run("dispatch", ["haproxy", "-db", "-f", config])
        return self._await(lambda: self._answers("client", VIP, PORT), "HAProxy listens")

    @property
    def bases(self) -> list:
        """The address that each client asks."""
        if self.arm == "direct":
            return [f"http://{hosts.address(backend)}:{SERVER_PORT}" for backend in self.hosts.backends]
        return [f"http://{VIP}:{PORT}"] * self.backends

    @property
    def middle(self) -> int | None:
        return None if self.arm == "direct" else self.names["dispatch"].pid


def limit_links(of: hosts.Hosts, rate_mbit: int) -> None:
    """Each host sends no faster."""
    for host in of.all:
        command = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{rate_mbit}mbit", "burst", "256kb", "latency", "100ms"]
        subprocess.run(of.on(host, command), check=True, capture_output=True)


def busy_and_all() -> tuple:
    """Seconds in which processors of this machine had something to do, and all."""
    values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def microseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}[unit]


def read_wrk(out: str) -> dict:
    """Requests, bytes, errors and latencies of a run."""
    requests, seconds = re.search(r"(\d+) requests in ([\d.]+\w+)", out).groups()
    number, unit = re.search(r"Transfer/sec:\s+([\d.]+)([KMG]?)B", out).groups()
    # A connection that is cut, or an answer that is none.
    errors = sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", out))) + sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", out)))
    quantile = {name: microseconds(re.search(rf"^\s+{name}%\s+(\S+)", out, re.MULTILINE).group(1)) for name in ("50", "99")}
    return {"requests": int(requests), "seconds": microseconds(seconds) / 1e6, "bytes_per_s": float(number) * UNITS[unit], "errors": errors,
            "p50_us": quantile["50"], "p99_us": quantile["99"]}


def figures(runs: list, size: int, sent: int, middle_cpu_s: float | None) -> dict:
    """Figures of all runs of the clients together; `sent` bytes left the host in the middle."""
    rate = sum(run["requests"] / run["seconds"] for run in runs)
    # The heads of large answers are nothing beside them.
    bytes_per_s = sum(run["bytes_per_s"] for run in runs) if size >= LARGE else size * rate
    found = {"rate_per_s": rate, "p50_us": statistics.mean(run["p50_us"] for run in runs), "p99_us": max(run["p99_us"] for run in runs),
             "mbit_per_s": 8e-6 * bytes_per_s}
    if middle_cpu_s is not None:
        answered = bytes_per_s * statistics.mean(run["seconds"] for run in runs)
        found |= {"cpu_s_per_gb": 1e9 * middle_cpu_s / answered, "sent_per_byte": sent / answered}
    return found


def once(setting: Setting, point: Point, seconds: float) -> dict | None:
    """Figures: nothing if a client had no whole answer, none of them if it had one that is wrong."""
    before = setting.hosts.sent("dispatcher"), cpu_seconds(setting.middle) if setting.middle else 0, busy_and_all()
    # Whole seconds: wrk counts in these.
    command = ["wrk", "-t1", f"-c{point.connections}", f"-d{max(1, round(seconds))}s", "--timeout", "60s", "--latency"]
    running = [subprocess.Popen(setting.hosts.on("client", [*command, f"{base}/{point.size}"]), stdout=subprocess.PIPE, text=True)
               for base in setting.bases]
    runs = [read_wrk(process.communicate(timeout=300)[0]) for process in running]
    time.sleep(0.05)
    sent, (busy, all_) = setting.hosts.sent("dispatcher") - before[0], (now - was for now, was in zip(busy_and_all(), before[2], strict=True))
    if any(run["errors"] for run in runs):
        return {}
    if not all(run["requests"] for run in runs):
        return None
    middle_cpu_s = cpu_seconds(setting.middle) - before[1] if setting.middle else None
    return figures(runs, point.size, sent, middle_cpu_s) | {"busy": busy / all_}


def to_better(of_arm: dict, chooses: str) -> float | None:
    """The figure of a choice by size, as a ratio to the better of the two that it chooses from."""
    chosen, *others = (of_arm.get(arm, {}).get("mbit_per_s") for arm in (chooses, "relay", "always"))
    return chosen / max(others) if chosen and all(others) else None


def measure(settings: dict, files: Path, options) -> None:
    measured = {}
    for label, point in ((label, point) for label, point in POINTS.items() if label in options.points):
        with open(files / str(point.size), "wb") as file:
            file.truncate(point.size)
        for arm in options.arms:
            once(settings[arm, point.backends], point, options.warm_up)
        for round_ in range(options.rounds):
            of_arm = {}
            for arm in random.sample(options.arms, len(options.arms)):
                seconds = max(options.seconds, options.share * point.seconds)
                of_arm[arm] = until_answered(lambda setting=settings[arm, point.backends], seconds=seconds: once(setting, point, seconds))
            for arm in CHOOSING:
                if ratio := to_better(of_arm, arm):
                    of_arm[arm]["to_better"] = ratio
            for arm, found in of_arm.items():
                measured[label, arm, round_] = found
                say(arm, label, round_, found, options)
    report(measured, options, SHOWN)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=2, training_seconds=0)
    parser.add_argument("--rate-mbit", type=int, default=200, help="of each host's link, in either direction")
    parser.add_argument("--share", type=float, default=1, help="of the time that large answers take at least")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--points", nargs="+", choices=list(POINTS), default=list(POINTS))
    options = parser.parse_args()
    if missing := hosts.why_not() or why_not():
        print(missing, file=sys.stderr)
        return 3
    backends = {POINTS[label].backends for label in options.points}
    with contextlib.ExitStack() as stack:
        def directory() -> Path:
            return Path(stack.enter_context(tempfile.TemporaryDirectory()))
        files, settings = directory(), {}
        for arm in options.arms:
            for number in backends:
                settings[arm, number] = stack.enter_context(Setting(directory(), arm, number, options.rate_mbit, files))
        measure(settings, files, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What an HTTP answer costs, and how fast it is, that a dispatcher relays or hands over, beside HAProxy and the server itself.

Hosts are network namespaces on one bridge, with links of a limited rate: two clients' `wrk` on one, a dispatcher on one, two backends with stock nginx and an
agent each. `direct`: each `wrk` asks a server of its own. `haproxy`: HAProxy in the dispatcher's place, to the servers. `relay`, `always` and `by size`: Shunt's
dispatcher without hand-over, with it for every answer, and from the threshold on. The arms of a point take turns in random order, round after round. CPU is
the kernel's account of the process in the middle, bytes are what left its host. It takes root. Run by `shunt bench run handover`.
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

from harness import hosts
from harness.hosts import VIP
from harness.moved import PORT, SERVER_PORT, Moved
from harness.processes import cpu_seconds
from harness.relay import why_not

from .arguments import parser_of_arms
from .locks import report, say

KIB, MIB = 1 << 10, 1 << 20
# Bytes of an answer, and connections of each client: large ones fill the links with few. Of those from here on some take seconds.
LARGE, LARGE_SECONDS = 16 * MIB, 12
POINTS = {"1 B": (1, 8), "1 KiB": (KIB, 8), "16 KiB": (16 * KIB, 8), "64 KiB": (64 * KIB, 8), "256 KiB": (256 * KIB, 4), "1 MiB": (MIB, 4),
          "16 MiB": (LARGE, 2), "128 MiB": (128 * MIB, 2)}
ARMS = ("direct", "haproxy", "relay", "always", "by size")
SHOWN = ("mbit_per_s", "rate_per_s", "p50_us", "p99_us", "cpu_s_per_gb", "sent_per_byte", "busy")
CLIENTS = 2

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

    def __init__(self, directory: Path, arm: str, rate_mbit: int):
        threshold = {"always": "1", "by size": "64KiB"}.get(arm, "off")
        dispatch = ("--handover", "off" if threshold == "off" else "auto")
        super().__init__(directory, dispatch_options=dispatch, agent_options=("--handover-threshold", threshold, "--upstream-connections-max", "64"))
        self.arm, self.rate_mbit = arm, rate_mbit

    def __enter__(self):
        super().__enter__()
        for host in self.hosts.all:
            command = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{self.rate_mbit}mbit", "burst", "256kb", "latency", "100ms"]
            subprocess.run(self.hosts.on(host, command), check=True, capture_output=True)
        return self

    def start_dispatcher(self):
        if self.arm != "haproxy":
            return super().start_dispatcher()
        servers = "\n".join(f"    server s{index} {hosts.address(f'backend{index}')}:{SERVER_PORT}" for index in range(2))
        config = self.directory / "haproxy.cfg"
        config.write_text(HAPROXY.format(vip=VIP, port=PORT, servers=servers))
        self._run("dispatch", ["haproxy", "-db", "-f", config])
        return self._await(lambda: self._answers("client", VIP, PORT), "HAProxy listens")

    @property
    def bases(self) -> list:
        """Where each client asks."""
        if self.arm == "direct":
            return [f"http://{hosts.address(f'backend{index % 2}')}:{SERVER_PORT}" for index in range(CLIENTS)]
        return [f"http://{VIP}:{PORT}"] * CLIENTS

    @property
    def middle(self) -> int | None:
        return None if self.arm == "direct" else self.names["dispatch"].pid


def busy_and_all() -> tuple:
    """Seconds in which processors of this machine had something to do, and all."""
    values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def microseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6}[unit]


def read_wrk(out: str) -> dict:
    """Requests, errors and latencies of a run."""
    requests, seconds = re.search(r"(\d+) requests in ([\d.]+\w+)", out).groups()
    # A connection that is cut, or an answer that is none.
    errors = sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", out))) + sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", out)))
    quantile = {name: microseconds(re.search(rf"^\s+{name}%\s+(\S+)", out, re.MULTILINE).group(1)) for name in ("50", "99")}
    return {"requests": int(requests), "seconds": microseconds(seconds) / 1e6, "errors": errors, "p50_us": quantile["50"], "p99_us": quantile["99"]}


def once(setting: Setting, point: tuple, seconds: float) -> dict:
    size, connections = point
    seconds = max(seconds, LARGE_SECONDS * size / LARGE) if size >= LARGE else seconds
    before = setting.hosts.sent("dispatcher"), cpu_seconds(setting.middle) if setting.middle else 0, busy_and_all()
    # Whole seconds: wrk counts in these.
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "60s", "--latency"]
    running = [subprocess.Popen(setting.hosts.on("client", [*command, f"{base}/{size}"]), stdout=subprocess.PIPE, text=True) for base in setting.bases]
    runs = [read_wrk(process.communicate(timeout=300)[0]) for process in running]
    time.sleep(0.05)
    sent, (busy, all_) = setting.hosts.sent("dispatcher") - before[0], (now - was for now, was in zip(busy_and_all(), before[2], strict=True))
    requests = sum(run["requests"] for run in runs)
    if not requests or any(run["errors"] for run in runs):
        return {}
    answered = requests * size
    found = {"rate_per_s": sum(run["requests"] / run["seconds"] for run in runs), "p50_us": statistics.mean(run["p50_us"] for run in runs),
             "p99_us": max(run["p99_us"] for run in runs), "busy": busy / all_,
             "mbit_per_s": sum(8e-6 * size * run["requests"] / run["seconds"] for run in runs)}
    if setting.middle:
        found |= {"cpu_s_per_gb": 1e9 * (cpu_seconds(setting.middle) - before[1]) / answered, "sent_per_byte": sent / answered}
    return found


def measure(settings: dict, options) -> None:
    measured = {}
    for label in (label for label in POINTS if label in options.points):
        for setting in settings.values():
            (setting.files / str(POINTS[label][0])).write_bytes(bytes(POINTS[label][0]))
            once(setting, POINTS[label], options.warm_up)
        for round_ in range(options.rounds):
            for arm in random.sample(options.arms, len(options.arms)):
                found = once(settings[arm], POINTS[label], options.seconds)
                measured[label, arm, round_] = found
                say(arm, label, round_, found, options)
    report(measured, options, SHOWN)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=3, training_seconds=0)
    parser.add_argument("--rate-mbit", type=int, default=200, help="of each host's link, in either direction")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    # The largest takes two minutes for each arm and round, and shows nothing new.
    parser.add_argument("--points", nargs="+", choices=list(POINTS), default=list(POINTS)[:-1])
    options = parser.parse_args()
    if missing := hosts.why_not() or why_not():
        print(missing, file=sys.stderr)
        return 3
    with contextlib.ExitStack() as stack:
        directories = {arm: Path(stack.enter_context(tempfile.TemporaryDirectory())) for arm in options.arms}
        measure({arm: stack.enter_context(Setting(directories[arm], arm, options.rate_mbit)) for arm in options.arms}, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

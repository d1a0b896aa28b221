"""Measures a large CQL answer that the proxy relays or hands over, and small queries beside it.

Hosts are network namespaces on one bridge, with links of a limited rate: a client, a proxy on one core, two nodes that answer at memory speed
(`shunt bench stub`, one ring) with an agent each. Two load generators run on the client at once: small queries, and SELECTs of large values on
other connections, both by prepared statements of protocol v4. `relay`: without hand-over; `handed over`: with it, from a threshold below all
large values on. The arms of a point take turns in random order, round after round. CPU is the kernel's account of the proxy, bytes are what left
its host. It takes root. Run by `shunt bench run handover-cql`.
"""

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import hosts
from harness.hosts import VIP, Hosts
from harness.processes import cpu_seconds
from harness.proxy import binary

from .arguments import parser_of_arms
from .generator import until_answered
from .handover import KIB, MIB, busy_and_all, limit_links
from .locks import report, say

PORT, AGENT_PORT, ADMIN_PORT = 9042, 7001, 9180
ARMS = ("relay", "handed over")
SHOWN = ("mbit_per_s", "large_p50_us", "small_p50_us", "small_p99_us", "small_per_s", "cpu_s_per_gb", "sent_per_byte", "handed_over", "busy")
# Bytes of a large value, whose keys are so few that all of them are written soon.
POINTS = {"64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB, "8 MiB": 8 * MIB}
KEYS = 16
LARGE_CONNECTIONS, SMALL_CONNECTIONS = 4, 16
THRESHOLD = "32KiB"


class Setting:
    """One arm: nodes, agents and a proxy, each on its host."""

    def __init__(self, directory: Path, arm: str, rate_mbit: int):
        self.directory, self.arm, self.rate_mbit = directory, arm, rate_mbit
        self.hosts, self.processes, self.stack = Hosts(directory / "bpf"), {}, contextlib.ExitStack()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait(10)
        self.stack.close()

    def _start(self) -> None:
        key = self.directory / "key"
        key.write_text("words that nobody guesses at all")
        key.chmod(0o600)
        self.stack.enter_context(self.hosts)
        limit_links(self.hosts, self.rate_mbit)
        first, second = self.hosts.backends
        # Both stubs take themselves for the whole ring: each has the other one's address as well, where nobody else sees it.
        for host, other in ((first, second), (second, first)):
            subprocess.run(self.hosts.on(host, ["ip", "addr", "add", f"{hosts.address(other)}/32", "dev", "lo"]), check=True)
        for host in self.hosts.backends:
            self._run(f"node-{host}", host, "bench", "stub", "--listen", f"{hosts.address(first)}:{PORT}", "--nodes", 2, "--remember")
        if self.arm != "relay":
            self._load_switch("dispatcher", "dispatcher")
            for host in self.hosts.backends:
                self._load_switch(host, "backend", "--vip", f"{VIP}:{PORT}")
                self._run(f"agent-{host}", host, "agent", "--protocol", "cql", "--listen", f"{hosts.address(host)}:{AGENT_PORT}", "--upstream",
                          f"{hosts.address(host)}:{PORT}", "--key-file", key, "--handover-threshold", THRESHOLD, "--vip", f"{VIP}:{PORT}",
                          "--handover-pins", self._pins(host))
        on = ["--handover", "auto", "--handover-key-file", key, "--handover-threshold", THRESHOLD, "--handover-pins", self._pins("dispatcher")]
        self._run("proxy", "dispatcher", "proxy", "--listen", f"{VIP}:{PORT}", "--contact-points", f"{hosts.address(first)}:{PORT}", "--cores", 1,
                  "--admin", f"{hosts.address('dispatcher')}:{ADMIN_PORT}", *(on if self.arm != "relay" else []))
        wanted = 0 if self.arm == "relay" else len(self.hosts.backends)
        self._await(lambda: self.counted("shunt_handover_agents") >= wanted and self._listens(), "the proxy serves")

    def _load_switch(self, host: str, role: str, *options) -> None:
        pins = self._pins(host)
        subprocess.run(self.hosts.on(host, [binary(), "switch", "load", "--role", role, "--interface", "eth0", "--pins", pins, *options]), check=True,
                       capture_output=True)
        self.stack.callback(subprocess.run, self.hosts.on(host, [binary(), "switch", "clean", "--pins", pins]), capture_output=True, check=False)

    def _pins(self, host: str) -> Path:
        return self.hosts.pins / host

    def _run(self, name: str, host: str, *arguments) -> None:
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(self.hosts.on(host, [binary(), *arguments]), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _listens(self) -> bool:
        probe = ["bash", "-c", f"exec 3<>/dev/tcp/{VIP}/{PORT}"]
        return subprocess.run(self.hosts.on("client", probe), capture_output=True, check=False).returncode == 0

    def _await(self, is_so, what: str) -> None:
        deadline = time.monotonic() + 30
        while not is_so():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes.values()):
                logs = "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.directory.glob("*.log"))
                raise RuntimeError(f"{what}: not in time\n{logs}")
            time.sleep(0.05)

    def counted(self, name: str, label: str = "") -> int:
        """A metric of the proxy, all of its kinds or those with this label."""
        page = subprocess.run(self.hosts.on("client", ["curl", "-s", f"http://{hosts.address('dispatcher')}:{ADMIN_PORT}/metrics"]),
                              capture_output=True, text=True, check=False).stdout
        return sum(int(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name) and label in line)

    def load(self, rows: "Rows", *options) -> subprocess.Popen:
        """A load generator on the client."""
        command = [binary(), "bench", "load", "--target", f"{VIP}:{PORT}", "--reads", 1, "--json", "--key-bytes", rows.key_bytes,
                   "--keys", rows.keys, "--value-bytes", rows.value_bytes, *options]
        return subprocess.Popen(self.hosts.on("client", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def write(self, rows: "Rows") -> None:
        heard(self.load(rows, "--populate", "--duration", 0.1, "--warm-up", 0, "--connections", 2))


class Rows(NamedTuple):
    """Rows of one table, which differ from others by the length of their keys."""

    key_bytes: int
    keys: int
    value_bytes: int


SMALL = Rows(16, 1_000, 100)


def heard(load: subprocess.Popen) -> dict:
    """The report of a load generator. RuntimeError if it failed, or an answer was wrong, missing or an error."""
    out, told = load.communicate(timeout=300)
    if load.returncode != 0:
        raise RuntimeError(f"shunt bench load failed: {told or out}")
    found = json.loads(out.strip().splitlines()[-1])
    if found["error_share"] > 0 or found["wrong_answers"] > 0 or found["connections_lost"] > 0 or found["queries_lost"] > 0:
        raise RuntimeError(f"not all was answered: {found}")
    return found


def figures(small: dict, large: dict, value_bytes: int) -> dict:
    """Figures from the reports of both generators."""
    return {"mbit_per_s": 8e-6 * value_bytes * large["rate"], "large_p50_us": large["latency_us"]["p50"], "small_per_s": small["rate"],
            "small_p50_us": small["latency_us"]["p50"], "small_p99_us": small["latency_us"]["p99"]}


def once(setting: Setting, rows: Rows, seconds: float) -> dict | None:
    def counts() -> tuple:
        handed_over = setting.counted("shunt_handover_answers_total", 'way="handed_over"')
        return setting.hosts.sent("dispatcher"), cpu_seconds(setting.processes["proxy"].pid), handed_over, *busy_and_all()
    before = counts()
    both = [setting.load(of, "--verify", "--duration", seconds, "--warm-up", 0, "--connections", connections)
            for of, connections in ((SMALL, SMALL_CONNECTIONS), (rows, LARGE_CONNECTIONS))]
    small, large = map(heard, both)
    sent, cpu_s, handed_over, busy, all_ = (now - was for now, was in zip(counts(), before, strict=True))
    # Of one whose only answer came after the end there is no latency.
    if not all(of["queries"] and of["latency_us"] for of in (small, large)):
        return None
    answered = large["queries"] * rows.value_bytes + small["queries"] * SMALL.value_bytes
    return figures(small, large, rows.value_bytes) | {
        "cpu_s_per_gb": 1e9 * cpu_s / answered, "sent_per_byte": sent / answered, "handed_over": handed_over / large["queries"], "busy": busy / all_}


def measure(settings: dict, options) -> None:
    measured = {}
    for setting in settings.values():
        setting.write(SMALL)
    for number, label in enumerate(label for label in POINTS if label in options.points):
        rows = Rows(SMALL.key_bytes + 8 * (number + 1), KEYS, POINTS[label])
        for setting in settings.values():
            setting.write(rows)
            once(setting, rows, options.warm_up)
        for round_ in range(options.rounds):
            for arm in random.sample(options.arms, len(options.arms)):
                found = until_answered(lambda arm=arm, rows=rows: once(settings[arm], rows, options.seconds))
                measured[label, arm, round_] = found
                say(arm, label, round_, found, options)
    report(measured, options, SHOWN)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=5, training_seconds=0)
    parser.add_argument("--rate-mbit", type=int, default=200, help="of each host's link, in either direction")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--points", nargs="+", choices=list(POINTS), default=list(POINTS))
    options = parser.parse_args()
    if missing := hosts.why_not():
        print(missing, file=sys.stderr)
        return 3
    with contextlib.ExitStack() as stack:
        directories = {arm: Path(stack.enter_context(tempfile.TemporaryDirectory())) for arm in options.arms}
        measure({arm: stack.enter_context(Setting(directories[arm], arm, options.rate_mbit)) for arm in options.arms}, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures a multiget over several Redis servers, for its client and for all others: split by the client, a shim, twemproxy or the network.

Hosts are network namespaces on one bridge: the client, a gateway, and five with stock redis-server and a shim each. The client is
`shunt bench multiget`, by the library of `shunt multiget` or, in the arms `tcp` and `twemproxy`, with an MGET to each server or to twemproxy on
the gateway's host; in `module` servers have a module in place of a shim; `sidecar` and `sidecar-tcp` are the same MGET to
`shunt multiget serve` on the client's host, with `--mode cli` and `tcp`. The client's host has a processor of its own,
also for what the kernel does for it, and all others share the rest: so what a multiget costs either is what their processors did. The arms of a point take turns in random order, round after round. Curves: the program of the network, or the gateway, is away for some seconds.
It takes root and two processors. Run by `shunt bench run multiget-redis`.
"""

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness import hosts
from harness.hosts import VIP, Hosts
from harness.proxy import binary
from harness.redis import Processes, why_not
from harness.redis_module import module

from .arguments import parser_of_arms
from .generator import until_answered
from .locks import report, say

CLIENT, GATEWAY = "client", "dispatcher"
SERVER_PORT, SHIM_PORT, PROXY_PORT = 6379, 9700, 22121
# Servers with the module, which are servers of their own: it costs a server something in each turn, also without datagrams.
MODULE_SERVER_PORT, MODULE_PORT = 6389, 9701
# Of each arm that asks a sidecar, its port and mode.
SIDECARS = {"sidecar": (6380, "cli"), "sidecar-tcp": (6381, "tcp")}
# An address that no host has: what goes there is split on its way out of the client's.
NOBODY = f"{hosts.NETWORK}.200"
SPLITS_AT = {"netmc-client": (CLIENT, NOBODY), "netmc-gateway": (GATEWAY, VIP)}
WAYS = {"tcp": "tcp", "cli-each": "cli", "cli": "cli", "cli-gso": "cli", "module": "cli", "module-gso": "cli", "coordinator": "coordinator", "netmc-client": "netmc", "netmc-gateway": "netmc",
        "twemproxy": "tcp", "sidecar": "tcp", "sidecar-tcp": "tcp"}
ARMS = tuple(WAYS)
MODULE_ARMS = {"module", "module-gso"}
SHOWN = ("rate_per_s", "per_core_s", "client_cpu_us", "others_cpu_us", "cpu_us", "process_cpu_us", "packets", "p50_us", "p99_us")
NUTCRACKER = shutil.which("nutcracker", path=os.environ["PATH"] + ":/usr/sbin")
TWEMPROXY = """multigets:
  listen: {listen}
  hash: fnv1a_64
  distribution: modula
  redis: true
  preconnect: true
  auto_eject_hosts: false
  servers:
{servers}
"""


class Point(NamedTuple):
    """Options of `shunt bench multiget`; how many servers; an open loop if there is a rate."""

    size: str = "heavy"
    distribution: str = "zipf:0.99"
    writes: float = 0.05
    servers: int = 5
    key_bytes: int = 4
    value_bytes: int = 256
    rate: int = 0


POINTS = {
    "8.6 keys": Point(), "8.6 keys, uniform": Point(distribution="uniform"), "8.6 keys, zipf 0.9": Point(distribution="zipf:0.9"),
    "8.6 keys, zipf 0.95": Point(distribution="zipf:0.95"), **{f"{size} keys": Point(size=str(size)) for size in (2, 8, 16, 32, 100)},
    "8.6 keys, reads alone": Point(writes=0), "8.6 keys, half writes": Point(writes=0.5), "8.6 keys of 64 B": Point(key_bytes=64),
    "8.6 keys, values of 64 B": Point(value_bytes=64), "8.6 keys, values of 1 KiB": Point(value_bytes=1024),
    "8.6 keys, 2 servers": Point(servers=2), "8.6 keys, 5,000 per second": Point(rate=5_000), "8.6 keys, 10,000 per second": Point(rate=10_000)}
CURVES = {"the client's program is away": "netmc-client", "the gateway's program is away": "netmc-gateway", "the gateway is away": "netmc-gateway"}
# Of its rate before: what was away is back once so much of it is reached.
BACK_SHARE = 0.9


class Setting(Processes):
    """Servers with shims, a sidecar and twemproxy; the programs that split come and go."""

    def __init__(self, directory: Path, servers: int, arms: list):
        super().__init__(directory)
        self.hosts, self.arms = Hosts(directory / "bpf", backends=servers), arms
        processors = sorted(os.sched_getaffinity(0))
        self.own, self.others = processors[0], processors[1:]

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self._divide()
            hosts.run(f"ip -n {self.hosts.name}{CLIENT} neigh replace {NOBODY} lladdr 02:00:00:00:00:01 dev eth0 nud permanent")
            return super().__enter__()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        super().__exit__()
        for host, _ in SPLITS_AT.values():
            subprocess.run(self._switch(host, "clean"), capture_output=True, check=False)
        self.hosts.__exit__()

    def _divide(self):
        """Has the kernel handle packets on the processors of the host that they have come to."""
        for host in [*self.hosts.all, "switch"]:
            mask = mask_of([self.own] if host == CLIENT else self.others)
            hosts.run(f"ip netns exec {self.hosts.name}{host} sh -c 'for queue in /sys/class/net/*/queues/rx-*/rps_cpus; do echo {mask} >$queue; done'")

    def run(self, name: str, command):
        host = self.host_of(name)
        pinned = ["taskset", "-c", ",".join(map(str, [self.own] if host == CLIENT else self.others))]
        super().run(name, self.hosts.on(host, [*pinned, *command]))

    @staticmethod
    def host_of(name: str) -> str:
        return {"twemproxy": GATEWAY, **dict.fromkeys(SIDECARS, CLIENT)}.get(name) or f"backend{name.rsplit('-', 1)[1]}"

    def start_server(self, name: str, host: str, port: int, *more):
        self.run(name, ["redis-server", "--port", port, "--bind", hosts.address(host), "--protected-mode", "no", "--save", "", "--appendonly", "no",
                        "--dir", self.directory, *more])

    def start(self):
        for index, host in enumerate(self.hosts.backends):
            self.start_server(f"redis-{index}", host, SERVER_PORT)
            if MODULE_ARMS & set(self.arms):
                self.start_server(f"module-{index}", host, MODULE_SERVER_PORT, "--loadmodule", module(), "bind", hosts.address(host), "port", MODULE_PORT,
                                  "allow", f"{hosts.NETWORK}.0/24", "rate-max", "1000000")
            shim = hosts.at(hosts.address(host), SHIM_PORT)
            # They coordinate for who asks for that, and are the same shims to who does not.
            self.run(f"shim-{index}", [binary(), "multiget", "shim", "--listen", shim, "--server", hosts.at(hosts.address(host), SERVER_PORT),
                                       "--allow", f"{hosts.NETWORK}.0/24", "--rate-max", "1000000", "--peer", *self.at(SHIM_PORT)])
        for index in range(len(self.hosts.backends)):
            self.until(lambda name=f"shim-{index}": "listening for datagrams" in self.log(name), f"shim {index} listens", f"shim-{index}")
        for arm in self.arms:
            if arm in SIDECARS:
                port, mode = SIDECARS[arm]
                self.run(arm, [binary(), "multiget", "serve", "--mode", mode, "--listen", hosts.at("127.0.0.1", port), "--server", *self.at(SERVER_PORT)])
                self.until(lambda arm=arm: "listening for applications" in self.log(arm), f"{arm} listens", arm)
        if "twemproxy" in self.arms:
            config = self.directory / "twemproxy.yml"
            config.write_text(TWEMPROXY.format(listen=hosts.at(hosts.address(GATEWAY), PROXY_PORT),
                                               servers="\n".join(f"   - {address}:1" for address in self.at(SERVER_PORT))))
            self.run("twemproxy", [NUTCRACKER, "-c", config])
        ports = [SERVER_PORT, *([MODULE_SERVER_PORT] if MODULE_ARMS & set(self.arms) else [])]
        for host, port in [*((host, port) for host in self.hosts.backends for port in ports), *([(GATEWAY, PROXY_PORT)] if "twemproxy" in self.arms else [])]:
            self.until(lambda host=host, port=port: self._answers(hosts.address(host), port), f"{host} answers")

    def _answers(self, address: str, port: int) -> bool:
        command = ["bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
        return subprocess.run(self.hosts.on(CLIENT, command), capture_output=True, check=False).returncode == 0

    def at(self, port: int) -> list:
        return [hosts.at(hosts.address(host), port) for host in self.hosts.backends]

    def _switch(self, host: str, action: str, *options) -> list:
        return self.hosts.on(host, [binary(), "switch", action, "--pins", self.hosts.pins / "split", *options])

    def load(self, arm: str):
        """The program that splits is there from now on."""
        host, vip = SPLITS_AT[arm]
        role = ["multiget-client"] if host == CLIENT else ["multiget-gateway", "--allow", f"{hosts.NETWORK}.0/24"]
        command = self._switch(host, "load", "--role", *role, "--interface", "eth0", "--vip", hosts.at(vip, SHIM_PORT), "--server", *self.at(SHIM_PORT))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"shunt switch load on {host}: {done.stderr}")

    def clean(self, arm: str):
        subprocess.run(self._switch(SPLITS_AT[arm][0], "clean"), capture_output=True, check=True)

    def cut(self, host: str, state: str):
        """A host's cable is out, or in again."""
        hosts.run(f"ip -n {self.hosts.name}switch link set {host} {state}")

    @contextlib.contextmanager
    def split(self, arm: str):
        """Splits multigets in the network while the arm is measured. The program reads every packet, so other arms run without it."""
        if arm in SPLITS_AT:
            self.load(arm)
        try:
            yield
        finally:
            if arm in SPLITS_AT:
                self.clean(arm)

    def command(self, arm: str, point: Point, options, *more) -> list:
        targets = {name: [hosts.at("127.0.0.1", port)] for name, (port, _) in SIDECARS.items()}
        targets["twemproxy"] = [hosts.at(hosts.address(GATEWAY), PROXY_PORT)]
        targets["module"] = targets["module-gso"] = self.at(MODULE_SERVER_PORT)
        asked = ["--way", WAYS[arm], "--server", ",".join(targets.get(arm) or self.at(SERVER_PORT))]
        if WAYS[arm] != "tcp":
            asked += ["--shim", ",".join(self.at(MODULE_PORT if arm in MODULE_ARMS else SHIM_PORT)), "--from", f"{hosts.address(CLIENT)}:0"]
        if arm in SPLITS_AT:
            asked += ["--switch", hosts.at(SPLITS_AT[arm][1], SHIM_PORT)]
        if arm == "cli-each":
            asked += ["--datagrams-at-once", 1]
        if arm.endswith("-gso"):
            asked += ["--gso"]
        if point.rate:
            asked += ["--rate", point.rate]
        asked += ["--size", point.size, "--distribution", point.distribution, "--writes", point.writes, "--key-bytes", point.key_bytes,
                  "--value-bytes", point.value_bytes, "--keys", options.keys, "--outstanding", 1024 if point.rate else options.outstanding,
                  "--interface", "eth0", "--cpu", self.own]
        return self.hosts.on(CLIENT, [binary(), "bench", "multiget", *asked, *more])

    def fill(self, point: Point, options):
        """Writes all keys, where each arm looks for them."""
        for arm in ["tcp", *(arm for arm in ("twemproxy", *MODULE_ARMS) if arm in self.arms)]:
            read(self.command(arm, point._replace(rate=0), options, "--populate", "--warm-up", 0, "--duration", 0.01))

    def kinds(self) -> dict:
        """Processes whose time is told by kind."""
        return {process.pid: name.split("-")[0] for name, process in self.processes.items()}


def mask_of(processors: list) -> str:
    """The processors as the kernel reads them: 32 to a word, the last word first."""
    words = [0] * (max(processors) // 32 + 1)
    for processor in processors:
        words[processor // 32] |= 1 << processor % 32
    return ",".join(f"{word:08x}" for word in reversed(words))


def read(command: list) -> list:
    """The rounds that a load has measured. RuntimeError if it failed, or a value was wrong or missing."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"shunt bench multiget ended with {done.returncode}: {done.stderr or done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def figures(found: dict, kinds: dict, own: int) -> dict | None:
    """Figures of a round for each operation; None without any operation."""
    if not found["multigets"] or not found["latency_us"]:
        return None
    client = found["processors"][own]["cpu_us_per_operation"]
    others = sum(one["cpu_us_per_operation"] for index, one in enumerate(found["processors"]) if index != own)
    traffic, latency = found["traffic"], found["latency_us"]
    result = {"rate_per_s": found["rate"], "p50_us": latency["p50"], "p99_us": latency["p99"], "client_cpu_us": client, "others_cpu_us": others,
              "cpu_us": client + others, "process_cpu_us": found["own"]["cpu_us_per_query"], "packets": traffic["sent_packets"] + traffic["received_packets"],
              "packets_sent": traffic["sent_packets"], "bytes": traffic["sent_bytes"] + traffic["received_bytes"], "failed": found["failed"],
              "repeated": found["client"]["repeated"] / found["operations"], "client_busy": found["processors"][own]["utilisation"]}
    if client > 0:  # the kernel counts in ticks, and a short form may see none
        result["per_core_s"] = 1e6 / client
    for name, kind in (("shims_cpu_us", {"shim"}), ("servers_cpu_us", {"redis", "module"}), ("twemproxy_cpu_us", {"twemproxy"})):
        result[name] = sum(process["cpu_us_per_query"] for process in found["processes"] if kinds.get(process["pid"]) in kind)
    return result


def once(setting: Setting, arm: str, point: Point, options, seconds: float) -> dict | None:
    kinds = setting.kinds()
    pids = [argument for pid in kinds for argument in ("--pid", pid)]
    with setting.split(arm):
        [found] = read(setting.command(arm, point, options, "--warm-up", options.warm_up, "--duration", seconds, *pids))
    return figures(found, kinds, setting.own)


def curve(setting: Setting, label: str, options) -> None:
    """Throughput over time. Away after a third of it, and back after two."""
    arm, window = CURVES[label], options.curve_seconds / 48
    third = options.curve_seconds / 3
    command = setting.command(arm, Point(), options, "--warm-up", options.warm_up, "--duration", window, "--rounds", 48)
    with setting.split(arm), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
        time.sleep(options.warm_up + third)
        if label == "the gateway is away":
            setting.cut(GATEWAY, "down")
        setting.clean(arm)
        time.sleep(third)
        if label == "the gateway is away":
            setting.cut(GATEWAY, "up")
        setting.load(arm)
        out, error = load.communicate(timeout=60 + options.curve_seconds)
    if load.returncode:
        raise RuntimeError(f"shunt bench multiget ended with {load.returncode}: {error or out}")
    rounds = [json.loads(line) for line in out.splitlines()]
    drawn, found = along(rounds, third)
    if options.json:
        print(json.dumps({"kind": "series", "arm": arm, "point": label, "figure": "rate_per_s", "x_title": "seconds", **drawn}), flush=True)
    say(arm, label, 0, found, options)
    print(f"\n{label}: {', '.join(f'{name} {value:,.4g}' for name, value in found.items())}", file=sys.stderr if options.json else sys.stdout, flush=True)


def along(rounds: list, away_s: float) -> tuple:
    """The curve, and what it says: the rates before and meanwhile, the lowest, and how long the return took from when it was ordered."""
    ends, now = [], 0.0
    for found in rounds:
        now += found["seconds"]
        ends.append(now)
    rates = [found["rate"] for found in rounds]
    before = [rate for rate, end in zip(rates, ends, strict=True) if end <= away_s]
    meanwhile = [rate for rate, end in zip(rates, ends, strict=True) if away_s < end <= 2 * away_s]
    usual = statistics.median(before) if before else 0.0
    back = next((end for found, end in zip(rounds, ends, strict=True)
                 if end > 2 * away_s and found["rate"] >= BACK_SHARE * usual and found["client"]["switched"] > found["multigets"] / 3), None)
    result = {"before_per_s": usual, "failed": sum(found["failed"] for found in rounds)}
    if meanwhile and usual:
        result |= {"meanwhile_per_s": statistics.median(meanwhile), "lowest_share": min(rates) / usual}
    if back is not None:
        result["back_s"] = back - 2 * away_s
    return {"x": [round(end, 3) for end in ends], "y": [round(rate, 1) for rate in rates]}, result


def processors_missing() -> str:
    if not Path("/sys/class/net/lo/queues/rx-0/rps_cpus").exists():
        return "the kernel cannot be told which processor takes in whose packets (CONFIG_RPS)"
    return "" if len(os.sched_getaffinity(0)) > 1 else "the client and all others need a processor each, and there is one in all"


def measure(settings: dict, options) -> None:
    measured, filled = {}, {}
    for label, point in ((label, point) for label, point in POINTS.items() if label in options.points):
        setting, shape = settings[point.servers], (point.key_bytes, point.value_bytes)
        # Values of another size are wrong.
        if filled.get(point.servers) != shape:
            setting.fill(point, options)
            filled[point.servers] = shape
        for round_ in range(options.rounds):
            for arm in random.sample(options.arms, len(options.arms)):
                found = until_answered(lambda arm=arm, setting=setting, point=point: once(setting, arm, point, options, options.seconds))
                measured[label, arm, round_] = found
                say(arm, label, round_, found, options)
    report(measured, options, SHOWN)
    curves = [label for label in options.curves if CURVES[label] in options.arms]
    if curves:
        setting = settings[Point().servers]
        setting.fill(Point(), options)
        for label in curves:
            curve(setting, label, options)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=1, training_seconds=0)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--outstanding", type=int, default=16, help="multigets under way, of closed loops")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--points", nargs="+", choices=list(POINTS), default=list(POINTS))
    parser.add_argument("--curves", nargs="*", choices=list(CURVES), default=list(CURVES))
    parser.add_argument("--curve-seconds", type=float, default=18)
    parser.set_defaults(warm_up=0.3)
    options = parser.parse_args()
    if missing := hosts.why_not() or why_not() or processors_missing():
        print(missing, file=sys.stderr)
        return 3
    if "twemproxy" in options.arms and NUTCRACKER is None:
        options.arms.remove("twemproxy")
        text = "twemproxy is left out: nutcracker is not there (scripts/prerequisites twemproxy)"
        print(json.dumps({"kind": "note", "text": text}) if options.json else text, flush=True)
    servers = {POINTS[label].servers for label in options.points} | ({Point().servers} if options.curves else set())
    with contextlib.ExitStack() as stack:
        settings = {}
        for number in sorted(servers):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            settings[number] = stack.enter_context(Setting(directory, number, options.arms))
        measure(settings, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Shows where the proxy's CPU time goes: a profile under load, as shares of its work and as flame graphs.

One `shunt proxy` with one core in front of three stub nodes, sampled by `perf` while `shunt bench load` keeps it busy: 256
clients with one query in flight, and 8 with 128. Prints measurements and drawings as JSON lines, which is how
`shunt bench run profile` reads them. Exit code 3: this machine cannot profile, and the last line on standard error says why.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import cql, jars
from harness.proxy import Proxy, binary

from .generator import load

NODES, ADDRESS, ADMIN = "127.0.0.1:9790", "127.0.0.1:9048", "127.0.0.1:9188"
SHAPES = ((256, 1), (8, 128))
SAMPLES_PER_SECOND = 997
STACK_BYTES = 8192
# What part of the work a stack belongs to, by the system call in it.
CALLS = {"send": ("sendto", "sendmsg", "writev", "sys_write"), "receive": ("recvfrom", "recvmsg", "readv", "sys_read"),
         "wait": ("epoll_pwait", "epoll_wait", "io_uring_enter")}
INFERNO = "0.12.8"


class Cannot(Exception):
    """This machine lacks something; the message says what."""


def stacks(script: str) -> Counter:
    """Stacks (from the outermost function to the innermost, with the part they belong to) to samples, of what
    `perf script -F ip,sym` printed."""
    counted = Counter()
    for block in script.split("\n\n"):
        frames = [line.split(None, 1) for line in block.splitlines() if line.strip()]
        if not frames:
            continue
        names = [frame[1].strip() if len(frame) > 1 else "[unknown]" for frame in frames]
        counted[part(frames[0][0], names), tuple(reversed(names))] += 1
    return counted


def part(address: str, names: list) -> str:
    """The part of the work that a stack belongs to; `address` is that of the innermost function."""
    if not (len(address) == 16 and address.startswith("ffff")):
        return "own"
    for name, calls in CALLS.items():
        if any(call in frame for frame in names for call in calls):
            return name
    return "kernel"


def sample(pid: int, after: float, seconds: float, data: Path) -> str:
    """Samples a process, `after` seconds from now; what `perf script` makes of it."""
    time.sleep(after)
    record = subprocess.run(
        ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", str(SAMPLES_PER_SECOND), "--call-graph",
         f"dwarf,{STACK_BYTES}", "--pid", str(pid), "--output", str(data), "--", "sleep", str(seconds)],
        capture_output=True, text=True, check=False)
    if record.returncode != 0 or not data.is_file():
        raise Cannot(f"perf cannot sample here: {' '.join(record.stderr.split()) or record.returncode}")
    script = subprocess.run(["perf", "script", "--no-inline", "--fields", "ip,sym", "--input", str(data)],
                            capture_output=True, text=True, check=False)
    if not script.stdout.strip():
        raise Cannot(f"perf sampled nothing: {' '.join(script.stderr.split())}")
    return script.stdout


def profile(front: Proxy, shape: tuple, options, directory: Path) -> tuple:
    """(the load's report, stacks) of one round."""
    connections, outstanding = shape
    pid = front.process.pid
    with ThreadPoolExecutor(1) as beside:
        # In the middle of the load: its beginning and end are none of the work that is asked about.
        sampling = beside.submit(sample, pid, options.warm_up + 0.1 * options.seconds, 0.8 * options.seconds, directory / "perf.data")
        report = load(front.listen, connections, outstanding, "--reads", 0, "--value-bytes", 14, "--warm-up", options.warm_up,
                      "--duration", options.seconds, "--cpu", last_cpu(), "--pid", pid)
    return report, stacks(sampling.result())


def last_cpu() -> int:
    return max(os.sched_getaffinity(0))


def pin(pid: int, cpu: int) -> None:
    """Pins all threads of a process to one processor."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {cpu})


def figures(report: dict, counted: Counter) -> dict:
    """CPU time of each part of the work for a query, and of all parts."""
    cpu_us = report["processes"][0]["cpu_us_per_query"]
    shares = Counter()
    for (kind, _), samples in counted.items():
        shares[kind] += samples
    total = shares.total()
    parts = {f"{kind}_us": cpu_us * shares[kind] / total for kind in ("send", "receive", "wait", "kernel", "own")}
    return {"cpu_us": cpu_us, **parts}


def flame_graph(tool: Path, counted: Counter, title: str) -> str:
    folded = Counter()
    for (_, names), samples in counted.items():
        folded[";".join(name.replace(";", ":") for name in names)] += samples
    lines = "".join(f"{stack} {samples}\n" for stack, samples in sorted(folded.items()))
    drawn = subprocess.run([str(tool), "--title", title, "--countname", "samples", "--width", "1600", "--colors", "rust",
                            "--minwidth", "0.1", "--deterministic"],
                           input=lines, capture_output=True, text=True, check=True)
    return drawn.stdout


def inferno() -> Path:
    """The program that draws flame graphs; installed the first time."""
    tool = jars.TARGET / "tools" / "bin" / "inferno-flamegraph"
    if not tool.is_file():
        print(f"installing inferno {INFERNO} into {tool.parent}", file=sys.stderr)
        done = subprocess.run(["cargo", "install", "--quiet", "--locked", "--root", str(jars.TARGET / "tools"), "--version", INFERNO,
                               "--bin", "inferno-flamegraph", "inferno"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Cannot(f"inferno cannot be installed: {' '.join(done.stderr.split())[-300:]}")
    return tool


def stub():
    """Three nodes that answer at memory speed."""
    nodes = subprocess.Popen([str(binary()), "bench", "stub", "--listen", NODES, "--nodes", "3", "--cpu", str(last_cpu()),
                              "--until-input-closes"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    host, port = NODES.rsplit(":", 1)
    deadline = time.monotonic() + 10
    while not cql.answers(host, int(port), 1):
        if nodes.poll() is not None or time.monotonic() > deadline:
            nodes.kill()
            raise RuntimeError(f"no stub nodes on {NODES}")
        time.sleep(0.05)
    return nodes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of each round")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds before each")
    parser.add_argument("--no-graphs", action="store_true", help="draw no flame graphs")
    options = parser.parse_args()
    try:
        run(options)
    except Cannot as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def run(options) -> None:
    if shutil.which("perf") is None:
        raise Cannot("perf is not installed (Debian: linux-perf)")
    tool = None if options.no_graphs else inferno()
    nodes = stub()
    try:
        with Proxy(NODES, ADDRESS, ADMIN, ["--cores", "1"]) as front, tempfile.TemporaryDirectory() as directory:
            pin(front.process.pid, min(os.sched_getaffinity(0)))
            for shape in SHAPES:
                name = f"{shape[0]}x{shape[1]}"
                together = Counter()
                for round_ in range(options.rounds):
                    report, counted = profile(front, shape, options, Path(directory))
                    together += counted
                    print(json.dumps({"arm": "shunt", "point": name, "x": shape[0], "round": round_,
                                      "figures": figures(report, counted), "detail": {"samples": counted.total()}}), flush=True)
                if tool:
                    title = f"CPU of shunt proxy, {shape[0]} clients, {shape[1]} in flight on each"
                    print(json.dumps({"kind": "picture", "name": f"profile-{name}", "title": title,
                                      "svg": flame_graph(tool, together, title)}), flush=True)
    finally:
        nodes.stdin.close()
        nodes.wait(10)


if __name__ == "__main__":
    raise SystemExit(main())

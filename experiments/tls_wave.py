"""Measures what a wave of TLS handshakes costs clients that are connected: the latency of their
queries before the wave and while it lasts.

A proxy on one CPU that requires certificates of clients with TLS, in front of three stub nodes. 64
such clients send queries in an open loop, at a share of the rate that they reach in a closed one.
Their first round is `calm`. As the second begins, one of three things happens:

- `wave`: other clients connect at once, each with a full mutual handshake and a prepared statement;
- `clear text`: the same clients connect in clear text, for comparison;
- `silent`: ten times as many connections send a ClientHello each, and then nothing.

The generator of the wave shares the other CPU with the nodes and the first generator, and gets only
the time that they leave. Run by `shunt bench run tls-wave`.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.certificates import Authority, client_context
from harness.cql import answers
from harness.ports import free_port
from harness.proxy import Proxy, binary

from .locks import report, say

ARMS = ("wave", "clear text", "silent")
SHOWN = ("calm_p99_us", "p99_us", "added_p99_us", "wave_ms", "handshakes")
POINT = "64x1"
CONNECTIONS = 64
# Connections that send a ClientHello and nothing else, for each client of a wave.
SILENT_FOR_EACH = 10


def idle_priority() -> None:
    """Leaves the CPU to all others."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Setting:
    """Nodes and a proxy, and the certificates of all."""

    def __init__(self, directory: Path):
        self.directory = directory
        cpus = sorted(os.sched_getaffinity(0))
        self.proxy_cpu, self.other_cpu = cpus[0], cpus[-1]
        self.authority = Authority(directory)
        self.server, self.client = self.authority.server(), self.authority.client()

    @contextlib.contextmanager
    def started(self):
        nodes = f"127.0.0.1:{free_port()}"
        stub = subprocess.Popen([str(binary()), "bench", "stub", "--listen", nodes, "--nodes", "3", "--cpu", str(self.other_cpu),
                                 "--until-input-closes"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            until_nodes_answer(stub, nodes)
            options = ["--cores", "1", "--tls", "optional", "--tls-certificate", self.server.certificate, "--tls-key", self.server.key,
                       "--tls-client-ca", self.authority.ca, "--tls-client-auth", "required", "--log", "error"]
            with Proxy(nodes, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", map(str, options), self.directory / "proxy.log",
                       within=["taskset", "-c", str(self.proxy_cpu)], tls=client_context(self.authority.ca, self.client)) as proxy:
                yield proxy
        finally:
            stub.stdin.close()
            stub.wait(10)

    def load(self, proxy: Proxy, *more, tls: bool = True, niced: bool = False) -> subprocess.Popen:
        encrypted = ["--tls-ca", self.authority.ca, "--tls-certificate", self.client.certificate, "--tls-key", self.client.key]
        command = [binary(), "bench", "load", "--target", proxy.listen, "--json", "--cpu", self.other_cpu, *(encrypted if tls else ()), *more]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                preexec_fn=idle_priority if niced else None)


def until_nodes_answer(stub: subprocess.Popen, address: str) -> None:
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + 10
    while not answers(host, int(port), 1):
        if stub.poll() is not None or time.monotonic() > deadline:
            stub.kill()
            raise RuntimeError(f"no stub nodes on {address}")
        time.sleep(0.05)


def sound(line: str) -> dict:
    """A generator's report. RuntimeError if there is none, or not all was answered."""
    found = json.loads(line) if line.startswith("{") else None
    if found is None or found["error_share"] or found["wrong_answers"] or found["connections_lost"] or found["queries_lost"]:
        raise RuntimeError(f"not all was answered: {line or 'shunt bench load said nothing'}")
    return found


def ended(load: subprocess.Popen) -> dict | None:
    """The last report of a generator; None if it had none to give. RuntimeError if it failed."""
    out, told = load.communicate(timeout=300)
    if load.returncode != 0:
        raise RuntimeError(f"shunt bench load failed: {told or out}")
    lines = out.strip().splitlines()
    return sound(lines[-1]) if lines else None


def reached(setting: Setting, proxy: Proxy, options) -> float:
    """Queries a second in a closed loop."""
    return ended(setting.load(proxy, "--connections", CONNECTIONS, "--duration", options.seconds, "--warm-up", options.warm_up))["rate"]


def handshakes(proxy: Proxy) -> int:
    """Full handshakes with clients so far."""
    page = proxy.get("/metrics")[1]
    return sum(int(line.rsplit(" ", 1)[1]) for line in page.splitlines()
               if line.startswith("shunt_tls_handshakes_total") and 'result="ok"' in line)


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first message of a client's handshake."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="localhost").do_handshake()
    return sent.read()


def send_hellos(address: tuple, hello: bytes, count: int, cpu: int, pipe) -> None:
    """Opens connections that send a ClientHello and nothing else. Sends their number to `pipe`, or
    the error, and keeps them open until `pipe` closes."""
    os.sched_setaffinity(0, {cpu})
    idle_priority()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    connections = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for _ in range(count):
            connections.append(socket.create_connection(address, timeout=60))
            connections[-1].sendall(hello)
        pipe.send(len(connections))
    except OSError as error:
        pipe.send(f"{len(connections)} of {count} connections: {error}")
    with contextlib.suppress(EOFError):
        pipe.recv()


@contextlib.contextmanager
def silent_clients(setting: Setting, proxy: Proxy, count: int):
    """Connections of another process that send a ClientHello and nothing else, while the block
    runs."""
    host, port = proxy.listen.rsplit(":", 1)
    hello = client_hello(client_context(setting.authority.ca, setting.client))
    here, there = multiprocessing.Pipe()
    opener = multiprocessing.get_context("spawn").Process(
        target=send_hellos, args=((host, int(port)), hello, count, setting.other_cpu, there), daemon=True)
    opener.start()
    there.close()
    try:
        if not here.poll(300):
            raise RuntimeError("the silent clients have not connected in time")
        made = here.recv()
        if made != count:
            raise RuntimeError(f"the silent clients failed: {made}")
        yield
    finally:
        here.close()
        opener.join(60)
        opener.kill()


def measure_silence(setting: Setting, proxy: Proxy, load: subprocess.Popen, calm: dict, options) -> dict:
    """The second round of a load, while silent clients connect and stay."""
    done, began = handshakes(proxy), time.monotonic()
    with silent_clients(setting, proxy, SILENT_FOR_EACH * options.clients):
        took, during = time.monotonic() - began, ended(load)
    return figures(calm, during, took, handshakes(proxy) - done, wanted=0)


def figures(calm: dict, during: dict, took: float, made: int, wanted: int) -> dict:
    """The figures of both rounds. RuntimeError if the wave had another number of handshakes."""
    if made != wanted:
        raise RuntimeError(f"{made} handshakes in place of {wanted}")
    before, after = calm["latency_us"]["p99"], during["latency_us"]["p99"]
    return {"calm_p99_us": before, "p99_us": after, "added_p99_us": after - before, "p50_us": during["latency_us"]["p50"],
            "wave_ms": took * 1000, "handshakes": made}


def measure(setting: Setting, proxy: Proxy, arm: str, rate: float, options) -> dict:
    """Both rounds of one load, and the wave that begins with the second."""
    is_encrypted = arm == "wave"
    load = setting.load(proxy, "--connections", CONNECTIONS, "--rate", rate, "--rounds", 2, "--duration", options.seconds,
                        "--warm-up", options.warm_up)
    calm = sound(load.stdout.readline())
    if arm == "silent":
        return measure_silence(setting, proxy, load, calm, options)
    done, began = handshakes(proxy), time.monotonic()
    full = ["--tls-full-handshakes"] if is_encrypted else []
    wave = setting.load(proxy, "--idle", "--connections", options.clients, "--warm-up", 0, "--duration", 0.01, *full,
                        tls=is_encrypted, niced=True)
    out, told = wave.communicate(timeout=300)
    took = time.monotonic() - began
    if wave.returncode != 0:
        raise RuntimeError(f"the wave failed: {told or out}")
    made, during = handshakes(proxy) - done, ended(load)
    return figures(calm, during, took, made, wanted=options.clients if is_encrypted else 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="of the calm round and of the one with the wave")
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--share", type=float, default=0.4, help="of the rate of a closed loop")
    parser.add_argument("--clients", type=int, default=1000, help="of a wave")
    parser.add_argument("--json", action="store_true", help="print every measurement")
    options = parser.parse_args()
    measured = {}
    with tempfile.TemporaryDirectory() as directory:
        setting = Setting(Path(directory))
        with setting.started() as proxy:
            rate = options.share * reached(setting, proxy, options)
            for round_ in range(options.rounds):
                for arm in random.sample(ARMS, len(ARMS)):
                    found = measured[POINT, arm, round_] = measure(setting, proxy, arm, rate, options)
                    say(arm, POINT, round_, found, options)
    report(measured, options, SHOWN)
    return 0


if __name__ == "__main__":
    sys.exit(main())

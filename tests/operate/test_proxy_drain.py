"""Two proxies behind HAProxy, set up as the documents say: no client that connects meanwhile notices that one of them drains."""

import re
import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.programs import only_with
from harness.proxy import Proxy, binary, undisturbed
from harness.waits import until

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring.md"
QUERY = "SELECT cluster_name FROM system.local"
LOOPS = 4
# The drain of the proxy that a signal ends takes a second signal, and not the end of its time.
A_DAY = "86400000"
SETTINGS = """
global
    stats socket {stats}
defaults
    timeout connect 60s
    timeout client 600s
    timeout server 600s
frontend cql
    mode tcp
    bind 127.0.0.1:{port}
    default_backend shunt
"""


class Balancer:
    """HAProxy before some proxies."""

    def __init__(self, proxies, port: int, directory: Path):
        self.stats = directory / "stats"
        block = re.search(r"^```text\n(backend shunt\n.*?)^```", MONITORING.read_text(), re.M | re.S)[1]
        for number, proxy in enumerate(proxies, 1):
            documented = f"10.0.9.{number}:9042 check port 9180"
            assert documented in block
            block = block.replace(documented, f"{proxy.listen} check port {proxy.admin.split(':')[1]}")
        (directory / "haproxy.cfg").write_text(SETTINGS.format(stats=self.stats, port=port) + block)
        self.process = subprocess.Popen(["haproxy", "-db", "-f", directory / "haproxy.cfg"])

    def state(self, server: str) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.stats))
            client.sendall(b"show stat\n")
            rows = b"".join(iter(lambda: client.recv(65536), b"")).decode().splitlines()
        status = rows[0].split(",").index("status")
        return next(row.split(",")[status] for row in rows if row.startswith(f"shunt,{server},"))

    def wait_for(self, server: str, state: str) -> None:
        until(lambda: self.stats.exists() and self.state(server).startswith(state), f"HAProxy sees {server} {state}")

    def __enter__(self) -> "Balancer":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.wait()


class Loops:
    """Drivers that connect, ask and leave, again and again, and what went wrong for them."""

    def __init__(self, port: int):
        self.port, self.ended, self.rounds, self.faults = port, threading.Event(), [0] * LOOPS, []
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(LOOPS)]

    def work(self, number: int) -> None:
        while not self.ended.is_set() and not self.faults:
            cluster = Cluster(["127.0.0.1"], port=self.port, protocol_version=4, **UNDISTURBED)
            try:
                assert len(cluster.connect().execute(QUERY).all()) == 1
            except Exception as fault:
                self.faults.append(fault)
            finally:
                cluster.shutdown()
            self.rounds[number] += 1

    def __enter__(self) -> "Loops":
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        [thread.join() for thread in self.threads]

    def go_on(self) -> None:
        goal = [rounds + 3 for rounds in self.rounds]
        until(lambda: self.faults or all(map(int.__ge__, self.rounds, goal)), "the clients go on")
        assert self.faults == []


def clients(proxy) -> int:
    _, text = proxy.get("/metrics")
    return sum(int(float(count)) for count in re.findall(r"^shunt_clients(?:{.*})? (\S+)$", text, re.M))


def order(proxy, word: str, code: int = 0) -> None:
    done = subprocess.run([str(binary()), word, "--admin", proxy.admin], capture_output=True, text=True)
    assert done.returncode == code, done


@only_with("http", "haproxy")
def test_no_connection_fails_while_a_proxy_drains(tmp_path):
    contact, node, port = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", free_port()
    arguments = ["up", "--nodes", "1", "--listen", contact, "--node-port", node.split(":")[1],
                 "--admin", f"127.0.0.1:{free_port()}"]
    options = undisturbed("--advertise", f"127.0.0.1:{port}")
    with Embedded("proxy-drain", contact, arguments, [node], tmp_path / "up.log"):
        # The second ends with the test, and then without a delay.
        first, second = (Proxy(node, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", [*options, "--drain-delay-ms", delay],
                               tmp_path / f"proxy-{name}.log") for name, delay in (("a", A_DAY), ("b", "0")))
        with first, second, Balancer([first, second], port, tmp_path) as balancer, ExitStack() as stack:
            [balancer.wait_for(server, "UP") for server in "ab"]
            loops = stack.enter_context(Loops(port))
            loops.go_on()
            # An operator drains the proxy, and takes it back.
            order(first, "drain")
            balancer.wait_for("a", "DOWN")
            loops.go_on()
            order(first, "undrain")
            balancer.wait_for("a", "UP")
            loops.go_on()
            # A signal cannot be taken back.
            first.terminate()
            balancer.wait_for("a", "DOWN")
            order(first, "undrain", code=2)
            until(lambda: clients(first) == 0, "the last client has left the proxy")
            until(lambda: first.terminate() or not first.alive(), "a second signal ends it", every_seconds=1.5)
            assert first.wait(60) == 130, first.log_tail()
            loops.go_on()
            assert loops.faults == []

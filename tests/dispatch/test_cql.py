"""Large answers of a CQL node on the clients' own connections, between hosts that are network namespaces, with the Python driver."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import hosts, jars
from harness.hosts import VIP, Hosts
from harness.node import Settings, java_command, yaml_of
from harness.proxy import binary

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

PORT, AGENT_PORT, ADMIN_PORT = 9042, 7001, 9180
NODE = hosts.address("backend0")
MIB = 1 << 20
SENT_BYTES = "shunt_handover_sent_bytes_total"
SIZES = [MIB, 2 * MIB, 4 * MIB, 300_000, 8 * MIB, 100_000, 15 * MIB]


class Ring:
    """A node, embedded or Cassandra's, with an agent beside it, and a proxy whose clients' connections move there."""

    def __init__(self, directory: Path, is_cassandra: bool = False):
        self.is_cassandra = is_cassandra
        self.directory, self.hosts, self.processes = directory, Hosts(directory / "bpf"), {}
        self.key = directory / "key"
        self.key.write_text("words that nobody guesses at all")
        self.key.chmod(0o600)

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self.run("dispatcher", "switch", "load", "--role", "dispatcher", "--interface", "eth0", *self.pins("dispatcher", "--pins"))
            self.run("backend0", "switch", "load", "--role", "backend", "--interface", "eth0", "--vip", f"{VIP}:{PORT}", *self.pins("backend0", "--pins"))
            if self.is_cassandra:
                self.start_cassandra()
            else:
                self.start("node", "backend0", "node", "--insecure", "--listen", f"{NODE}:{PORT}", "--admin", "off", "--data", self.directory / "data")
            self.start_agent()
            self.start_proxy()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait(60)
        for host in ("dispatcher", "backend0"):
            subprocess.run(self.hosts.on(host, [binary(), "switch", "clean", *self.pins(host, "--pins")]), capture_output=True, check=False)
        self.hosts.__exit__()

    def pins(self, host: str, flag: str) -> list:
        return [flag, self.hosts.pins / host]

    def run(self, host: str, *arguments) -> str:
        done = subprocess.run(self.hosts.on(host, [binary(), *arguments]), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, host: str, *arguments) -> None:
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(self.hosts.on(host, [binary(), *arguments]), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_cassandra(self) -> None:
        settings = Settings(cluster="moved", address=NODE, directory=self.directory / "cassandra", seeds=[NODE], tokens=[0], cql_port=PORT, heap_mb=768)
        settings.directory.mkdir()
        (settings.directory / "cassandra.yaml").write_text(yaml_of(settings))
        with open(self.directory / "node.log", "ab") as log:
            self.processes["node"] = subprocess.Popen(self.hosts.on("backend0", java_command(settings)), cwd=settings.directory, stdin=subprocess.DEVNULL,
                                                      stdout=log, stderr=log)
        asked = ["bash", "-c", f"exec 3<>/dev/tcp/{NODE}/{PORT}"]
        self.wait("Cassandra listens", lambda: subprocess.run(self.hosts.on("backend0", asked), capture_output=True, check=False).returncode == 0, 180)

    def start_agent(self) -> None:
        self.start("agent", "backend0", "agent", "--protocol", "cql", "--listen", f"{NODE}:{AGENT_PORT}", "--upstream", f"{NODE}:{PORT}",
                   "--key-file", self.key, "--vip", f"{VIP}:{PORT}", *self.pins("backend0", "--handover-pins"))

    def start_proxy(self) -> None:
        self.start("proxy", "dispatcher", "proxy", "--listen", f"{VIP}:{PORT}", "--contact-points", f"{NODE}:{PORT}", "--cores", "1",
                   "--admin", f"{hosts.address('dispatcher')}:{ADMIN_PORT}", "--handover", "auto", "--handover-key-file", self.key,
                   *self.pins("dispatcher", "--handover-pins"))
        self.wait("the agent is connected", lambda: self.counted("shunt_handover_agents", 'core="0"') == 1)

    def counted(self, name: str, labels: str = "") -> int:
        page = subprocess.run(self.hosts.on("client", ["curl", "-s", f"http://{hosts.address('dispatcher')}:{ADMIN_PORT}/metrics"]), capture_output=True,
                              text=True, check=False).stdout
        found = re.search(rf"^{name}{re.escape('{' + labels + '}') if labels else ''} (\d+)", page, re.MULTILINE)
        return int(found[1]) if found else 0

    def sent_directly(self) -> int:
        return self.counted("shunt_handover_answers_total", 'way="handed_over"')

    def wait(self, what: str, is_so, seconds: int = 60) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not in time\n" + "\n".join(map(self.log, self.processes))
            time.sleep(0.05)

    def log(self, name: str) -> str:
        return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-30:])

    def client(self, version: int, compression: str, sizes: list, rounds: int, reads: int = 0) -> subprocess.Popen:
        script = Path(__file__).with_name("cql_client.py")
        return subprocess.Popen(self.hosts.on("client", [sys.executable, script, VIP, PORT, version, compression, json.dumps(sizes), rounds, reads]),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    with Ring(tmp_path_factory.mktemp("cql")) as ring:
        yield ring


@pytest.mark.parametrize("version, compression", [(4, "off"), (4, "on"), (3, "off"), (5, "off"), (5, "on")])
def test_large_answers_pass_the_proxy_by_while_small_queries_go_on(ring, version, compression):
    before, sent, past = ring.sent_directly(), ring.hosts.sent("dispatcher"), ring.counted(SENT_BYTES)
    client = ring.client(version, compression, SIZES, 3)
    out, told = client.communicate(timeout=300)
    assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
    assert json.loads(out)["checked"] == 3 * len(SIZES) * 22
    assert ring.sent_directly() - before > len(SIZES), ring.log("proxy")
    # Inserts go by the proxy, and answers that come while the client is in the middle of one; those that were handed over do not.
    written, answers = sum(SIZES) + 3 * len(SIZES) * MIB, 3 * (sum(SIZES) + len(SIZES) * MIB)
    assert ring.hosts.sent("dispatcher") - sent < written + answers - (ring.counted(SENT_BYTES) - past) + sum(SIZES) / 4


def test_an_answer_is_sent_to_its_end_by_the_host_that_has_it(ring):
    """Links that take their time: what was given back with its end not sent, or not acknowledged, would be sent by the proxy's host."""
    ring.hosts.limit("backend0", 200)
    sizes, reads = [300_000] * 4, 10
    try:
        before, sent, past = ring.sent_directly(), ring.hosts.sent("dispatcher"), ring.counted(SENT_BYTES)
        client = ring.client(4, "off", sizes, 0, reads)
        out, told = client.communicate(timeout=300)
    finally:
        ring.hosts.limit("backend0", 0)
    assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
    moves, past = ring.sent_directly() - before, ring.counted(SENT_BYTES) - past
    assert moves > reads * len(sizes) // 2, out
    # What is written and relayed goes by, each packet with its head, and what the client acknowledges, a fortieth. The ends were up to 64 KiB of each
    # answer, a fifth.
    relayed = sum(sizes) + 300 * 500 + reads * sum(sizes) - past
    assert ring.hosts.sent("dispatcher") - sent < 1.1 * relayed + 0.1 * past, (moves, past)


def test_packets_that_are_lost_and_doubled_change_no_byte(ring):
    before = ring.sent_directly()
    ring.hosts.impair(2, 5)
    try:
        client = ring.client(4, "off", [MIB, 300_000, 2 * MIB], 3)
        out, told = client.communicate(timeout=300)
    finally:
        ring.hosts.impair(0, 0)
    assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
    assert ring.sent_directly() > before


def test_without_the_agent_queries_go_to_the_node_and_with_it_they_are_handed_over_again(ring):
    ring.processes.pop("agent").send_signal(signal.SIGKILL)
    client = ring.client(4, "off", [MIB], 1)
    out, told = client.communicate(timeout=120)
    assert client.returncode == 0, told
    ring.start_agent()
    ring.wait("the agent is back", lambda: ring.counted("shunt_handover_agents", 'core="0"') == 1)

    def is_handed_over() -> bool:
        before = ring.sent_directly()
        client = ring.client(4, "off", [MIB], 1)
        assert client.wait(120) == 0
        return ring.sent_directly() > before

    ring.wait("links go by the agent again", is_handed_over)


@pytest.mark.skipif(not jars.home().is_dir(), reason="Cassandra's jars are missing: scripts/prerequisites cassandra")
def test_answers_of_cassandra_are_handed_over(tmp_path):
    with Ring(tmp_path, is_cassandra=True) as ring:
        for compression in ("off", "on"):
            before = ring.sent_directly()
            # No mutation of more than half a segment of the log.
            client = ring.client(4, compression, [MIB, 300_000, 5 * MIB, 100_000, 7 * MIB], 2)
            out, told = client.communicate(timeout=200)
            assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
            assert ring.sent_directly() > before, out

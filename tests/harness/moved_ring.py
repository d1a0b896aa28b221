"""Nodes on hosts of their own, embedded or Cassandra's, an agent beside each, and a proxy whose clients' connections move to them."""

import json
import re
import subprocess
import sys
from pathlib import Path

from . import hosts
from .cluster import tokens_of
from .hosts import VIP, Hosts
from .node import Settings, java_command, yaml_of
from .proxy import binary
from .relay import DIRECTORIES, expect
from .waits import until

PORT, AGENT_PORT, ADMIN_PORT = 9042, 7001, 9180
# The Python driver's program.
CLIENT = Path(__file__).resolve().parents[1] / "dispatch" / "cql_client.py"
WRONG = 3  # its exit code, if an answer was


class Ring:
    """An embedded node, or so many of Cassandra, which each have all rows; with agents, and a proxy."""

    def __init__(self, directory: Path, is_cassandra: bool = False, nodes: int = 1, agent_options=(), proxy_options=()):
        self.is_cassandra, self.agent_options, self.proxy_options = is_cassandra, agent_options, proxy_options
        self.directory, self.hosts, self.processes = directory, Hosts(directory / "bpf", backends=max(2, nodes)), {}
        self.nodes = self.hosts.backends[:nodes]
        self.contacts = [f"{hosts.address(host)}:{PORT}" for host in self.nodes]
        DIRECTORIES.add(directory)
        self.key = directory / "key"
        self.key.write_text("words that nobody guesses at all")
        self.key.chmod(0o600)

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self.run("dispatcher", "switch", "load", "--role", "dispatcher", "--interface", "eth0", *self.pins("dispatcher", "--pins"))
            for host in self.nodes:
                self.run(host, "switch", "load", "--role", "backend", "--interface", "eth0", "--vip", f"{VIP}:{PORT}", *self.pins(host, "--pins"))
            if self.is_cassandra:
                self.start_cassandra()
            else:
                self.start("node", "backend0", "node", "--insecure", "--listen", self.contacts[0], "--admin", "off", "--data", self.directory / "data")
            for host in self.nodes:
                self.start_agent(host)
            self.start_proxy()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait(60)
        for host in ("dispatcher", *self.nodes):
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
        for index, host in enumerate(self.nodes):
            settings = Settings(cluster="moved", address=hosts.address(host), directory=self.directory / f"cassandra{index}",
                                seeds=[hosts.address(seed) for seed in self.nodes], tokens=tokens_of(index, len(self.nodes)), cql_port=PORT, heap_mb=768,
                                replicas_of_system=len(self.nodes), patient=True)
            settings.directory.mkdir()
            # No mutation of more than half a segment.
            yaml = yaml_of(settings).replace("commitlog_segment_size: 16MiB", "commitlog_segment_size: 64MiB")
            (settings.directory / "cassandra.yaml").write_text(yaml)
            with open(self.directory / f"{self.named('node', host)}.log", "ab") as log:
                self.processes[self.named("node", host)] = subprocess.Popen(self.hosts.on(host, java_command(settings)), cwd=settings.directory,
                                                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for host in self.nodes:
            asked = ["bash", "-c", f"exec 3<>/dev/tcp/{hosts.address(host)}/{PORT}"]
            self.wait("Cassandra listens", lambda: subprocess.run(self.hosts.on(host, asked), capture_output=True, check=False).returncode == 0)

    def named(self, what: str, host: str) -> str:
        """The first one's number is left out."""
        return what if host == self.nodes[0] else f"{what}{self.nodes.index(host)}"

    def start_agent(self, host: str = "backend0") -> None:
        self.start(self.named("agent", host), host, "agent", "--protocol", "cql", "--listen", f"{hosts.address(host)}:{AGENT_PORT}",
                   "--upstream", f"{hosts.address(host)}:{PORT}", "--key-file", self.key, "--vip", f"{VIP}:{PORT}",
                   "--admin", f"{hosts.address(host)}:{ADMIN_PORT}", *self.pins(host, "--handover-pins"), *self.agent_options)

    def start_proxy(self) -> None:
        self.start("proxy", "dispatcher", "proxy", "--listen", f"{VIP}:{PORT}", "--contact-points", ",".join(self.contacts), "--cores", "1",
                   "--admin", f"{hosts.address('dispatcher')}:{ADMIN_PORT}", "--handover", "auto", "--handover-key-file", self.key,
                   # On a machine that stands still now and then.
                   "--query-timeout-ms", "120s", "--node-silence-ms", "60s", "--connect-timeout-ms", "60s",
                   "--handshake-timeout-ms", "60s", "--heartbeat-interval-ms", "120s",
                   *self.pins("dispatcher", "--handover-pins"), *self.proxy_options)
        self.wait("the agents are connected", lambda: self.counted("shunt_handover_agents", 'core="0"') == len(self.nodes))

    def counted(self, name: str, labels: str = "", host: str = "dispatcher") -> int:
        """A number in the metrics of the proxy, or of the agent on that host."""
        page = subprocess.run(self.hosts.on("client", ["curl", "-s", f"http://{hosts.address(host)}:{ADMIN_PORT}/metrics"]), capture_output=True,
                              text=True, check=False).stdout
        found = re.search(rf"^{name}{re.escape('{' + labels + '}') if labels else ''} (\d+)", page, re.MULTILINE)
        return int(found[1]) if found else 0

    def sent_directly(self) -> int:
        return self.counted("shunt_handover_answers_total", 'way="handed_over"')

    def wait(self, what: str, is_so) -> None:
        """Waits for something as long as all processes run."""

        def holds():
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            if ended:
                raise RuntimeError(f"{what}: {ended} ended\n{self.logs()}")
            return is_so()

        until(holds, what, every_seconds=0.05, told=self.logs)

    def logs(self) -> str:
        return "\n".join(map(self.log, self.processes))

    def log(self, name: str) -> str:
        return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-30:])

    def asked(self, version: int, compression: str, sizes: list, rounds: int, reads: int = 0) -> int:
        """Number of answers of the Python driver's program, each of which was right."""
        command = [sys.executable, CLIENT, VIP, PORT, version, compression, json.dumps(sizes), rounds, reads]
        done = subprocess.run(self.hosts.on("client", command), capture_output=True, text=True, check=False, timeout=900)
        assert done.returncode != WRONG, f"{done.stderr}\n{self.logs()}"
        expect(done.returncode == 0, f"{done.stderr}\n{self.logs()}")
        return json.loads(done.stdout)["checked"]

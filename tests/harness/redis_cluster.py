"""A stock Redis Cluster on loopback addresses of its own, a shim beside each node, and a sidecar in front."""

import os
import signal
import socket
import subprocess
from pathlib import Path

from .ports import free_port
from .proxy import binary
from .redis import Processes, patient
from .waits import DEADLINE_SECONDS

NETWORK = os.environ.get("SHUNT_FLEET_NETWORK", "127.0.13")
PORT, SHIM_PORT = 16379, 9700


class Cluster(Processes):
    """A Redis Cluster with this many masters, one of which may have no slots, and with replicas if there
    are twice as many nodes. All processes end with it. `tls` has the options of nodes with TLS alone,
    and those of their clients."""

    def __init__(self, directory: Path, nodes: int = 3, replicas: int = 0, spare: int = 0, serve_options=(),
                 node_timeout_ms: int = 20_000, mode: str = "cli", tls=((), ())):
        super().__init__(directory)
        self.nodes = [f"{NETWORK}.{last}" for last in range(1, nodes + spare + 1)]
        self.members, self.replicas = self.nodes[:nodes], replicas
        self.port, self.admin_port, self.mode = free_port(), free_port(), mode
        self.serve_options = ["--mode", mode, *patient(serve_options)]
        # A node that a busy machine leaves without a processor for as long as this takes the whole cluster for down.
        self.node_timeout_ms = node_timeout_ms
        self.node_tls, self.client_tls = tls

    def start(self):
        for index in range(len(self.nodes)):
            self.start_node(index)
            if self.mode != "tcp":
                self.start_shim(index)
        self.cli("--cluster", "create", *(f"{node}:{PORT}" for node in self.members), "--cluster-replicas", self.replicas, "--cluster-yes")
        self.until(lambda: self.all_say("cluster_state:ok", self.members), "the cluster is whole")
        for node in self.nodes[len(self.members):]:
            self.cli("--cluster", "add-node", f"{node}:{PORT}", f"{self.nodes[0]}:{PORT}")
        self.until(lambda: self.all_say(f"cluster_known_nodes:{len(self.nodes)}", self.nodes), "all nodes know of all")
        check = ["redis-cli", *map(str, self.client_tls), "--cluster", "check", f"{self.nodes[0]}:{PORT}"]
        self.until(lambda: subprocess.run(check, capture_output=True, timeout=DEADLINE_SECONDS, check=False).returncode == 0, "all nodes agree")
        # One that has just joined takes the cluster for down until it has heard whose every slot is, and no slot can be moved to it before.
        self.until(lambda: self.all_say("cluster_state:ok", self.nodes), "the cluster is whole for all nodes")
        self.start_sidecar()

    def start_node(self, index: int):
        home = self.directory / f"node-{index}"
        home.mkdir(exist_ok=True)
        self.run(f"node-{index}", ["redis-server", *self._ports(), "--bind", self.nodes[index], "--cluster-enabled", "yes",
                                   # Who hears of it would take the address that its connections leave from.
                                   "--cluster-announce-ip", self.nodes[index], "--cluster-node-timeout", self.node_timeout_ms,
                                   "--cluster-replica-validity-factor", "0", "--save", "", "--appendonly", "no", "--dir", home])
        self.until(lambda: self.answers(self.nodes[index], PORT), f"node {index} answers")

    def _ports(self) -> list:
        return ["--port", 0, "--tls-port", PORT, "--tls-cluster", "yes", *self.node_tls] if self.node_tls else ["--port", PORT]

    def start_shim(self, index: int):
        self.run(f"shim-{index}", [binary(), "multiget", "shim", "--cluster", "--listen", f"{self.nodes[index]}:{SHIM_PORT}",
                                   "--server", f"{self.nodes[index]}:{PORT}", *patient([])])
        self.until(lambda: "listening for datagrams" in self.said(f"shim-{index}"), f"shim {index} listens", f"shim-{index}")

    def start_sidecar(self):
        """Starts a sidecar that knows one node, and learns of the others."""
        datagrams = ["--shim-port", SHIM_PORT, "--from", "127.0.0.1:0"] if self.mode != "tcp" else []
        self.run("sidecar", [binary(), "multiget", "serve", "--cluster", "--listen", f"127.0.0.1:{self.port}", "--server", f"{self.nodes[0]}:{PORT}",
                             *datagrams, "--admin", f"127.0.0.1:{self.admin_port}", *self.serve_options])
        self.until(lambda: self.answers("127.0.0.1", self.port), "the sidecar answers")

    def cli(self, *arguments) -> str:
        command = ["redis-cli", *map(str, [*self.client_tls, *arguments])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def all_say(self, line: str, nodes: list) -> bool:
        return all(line in self.cli("-h", node, "-p", PORT, "cluster", "info").split() for node in nodes)

    def kill(self, index: int):
        for name in (f"node-{index}", f"shim-{index}"):
            self.stop(name, signal.SIGKILL)

    @staticmethod
    def answers(host: str, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, port)) == 0

"""Stock nginx servers on hosts of their own, an agent beside each, and a dispatcher whose clients' connections move to them."""

import os
import re
import subprocess
from pathlib import Path

from . import hosts
from .hosts import VIP, VIP6, Hosts
from .proxy import binary
from .relay import Relay
from .waits import until

PORT, AGENT_PORT, SERVER_PORT, ADMIN_PORT = 8080, 7001, 8081, 9180
# A client may take nothing for long: on a machine that stands still now and then nobody is given up for that.
PATIENT = ("--handover", "auto", "--body-timeout-ms", "180s")


class Moved(Relay):
    """A [`Relay`] on hosts that are network namespaces. The client is one of them."""

    # Whether there are several dispatchers, whether all speak IPv6, and how many hosts have a server.
    gateway, ip6, backends = False, False, 2

    def __init__(self, directory: Path, dispatch_options=PATIENT, agent_options=(), user: int | None = None):
        """`user`: who dispatcher and agents run as, with CAP_NET_ADMIN alone; none: as who runs this. Must be able to go into the directory."""
        super().__init__(directory, dispatch_options=dispatch_options, agent_options=agent_options)
        self.user = user
        if user is not None:
            os.chown(self.key, user, user)
        self.hosts = Hosts(directory / "bpf", self.gateway, self.backends)
        self.server_ports, self.agent_ports, self.port = [SERVER_PORT] * self.backends, [AGENT_PORT] * self.backends, PORT

    def __enter__(self):
        self.hosts.__enter__()
        try:
            owner = [] if self.user is None else ["--user", str(self.user)]
            for host in self.dispatchers():
                self.switch(host, "load", "--role", "dispatcher", "--interface", "eth0", *owner)
            for host in self.hosts.backends:
                self.switch(host, "load", "--role", "backend", "--interface", "eth0", "--vip", self.vip(), *owner)
            return super().__enter__()
        except BaseException:
            self.hosts.__exit__()
            raise

    def __exit__(self, *_):
        super().__exit__()
        for host in self.hosts.all[1:]:
            subprocess.run(self.hosts.on(host, [binary(), "switch", "clean", "--pins", self.pins(host)]), capture_output=True, check=False)
        self.hosts.__exit__()

    def vip(self) -> str:
        return hosts.at(VIP6 if self.ip6 else VIP, PORT)

    def address(self, host: str) -> str:
        return hosts.address(host, self.ip6)

    def dispatchers(self) -> list:
        return [host for host in self.hosts.all if host.startswith("dispatcher")]

    def pins(self, host: str) -> Path:
        return self.hosts.pins / host

    def switch(self, host: str, action: str, *options) -> str:
        done = subprocess.run(self.hosts.on(host, [binary(), "switch", action, "--pins", self.pins(host), *options]), capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"shunt switch {action} on {host}: {done.stderr}")
        return done.stdout

    def counted(self, host: str, name: str) -> int:
        """A counter of the programs on a host."""
        return next(int(line.split()[1]) for line in self.switch(host, "status").splitlines() if line.startswith(name))

    def start_agent(self, index: int):
        host = f"backend{index}"
        # On a machine that stands still now and then a chunked answer is large only later than an agent waits for it. One
        # that is small ends, and waits for nothing.
        self._run(f"agent-{index}", [binary(), "agent", "--listen", hosts.at(self.address(host), AGENT_PORT), "--upstream",
                                     f"127.0.0.1:{SERVER_PORT}", "--key-file", self.key, "--vip", self.vip(),
                                     "--handover-pins", self.pins(host), "--hold-ms", "60s", *self.agent_options])
        self._await(lambda: self._answers(host, self.address(host), AGENT_PORT), f"the agent on {host} listens")

    def metrics(self, host: str = "dispatcher") -> str:
        """The metrics of a dispatcher."""
        command = self.hosts.on(host, ["curl", "-s", f"http://{hosts.at(self.address(host), ADMIN_PORT)}/metrics"])

        def page() -> str:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout

        return until(page, f"the metrics of {host}", every_seconds=0.05)

    def metric(self, name: str, host: str = "dispatcher") -> int:
        found = re.search(rf"^{re.escape(name)} (\d+)$", self.metrics(host), re.MULTILINE)
        return int(found[1]) if found else 0

    def peers(self, host: str, place: str) -> set:
        """Clients whose connections are elsewhere, or here, as a host's tables have them."""
        return set(re.findall(rf"^ +{place} +\S+ <- (\S+)$", self.switch(host, "status"), re.MULTILINE))

    def away(self) -> set:
        """Clients whose connections are elsewhere; one that has ended may be among them until its agent has told."""
        return self.peers("dispatcher", "elsewhere")

    def backend_of_moved(self, former: set) -> int:
        """The backend that now has the one connection that has left its host."""
        found = []

        def has_it() -> bool:
            new = self.away() - former
            found[:] = [index for index in range(2) if new & self.peers(f"backend{index}", "here")]
            return len(found) == 1

        self._await(has_it, "one agent has the connection")
        return found[0]

    def has_both_agents(self) -> bool:
        """The dispatcher is connected to each; one that was away is tried again within seconds."""
        links = [line.split()[1] for line in self.metrics().splitlines() if line.startswith("shunt_dispatch_backend_links{")]
        return len(links) == 2 and "0" not in links

    def await_agents(self) -> None:
        self._await(self.has_both_agents, "the dispatcher has both agents")

    def start_dispatcher(self, host: str = "dispatcher"):
        backends = [hosts.at(self.address(backend), AGENT_PORT) for backend in self.hosts.backends]
        pins = ["--handover-pins", self.pins(host)] if "auto" in self.dispatch_options else []
        self._run("dispatch" + host.removeprefix("dispatcher"), [
            binary(), "dispatch", "--listen", self.vip(), "--backend", *backends, "--key-file", self.key, "--name", host,
            "--admin", hosts.at(self.address(host), ADMIN_PORT), *pins, *self.dispatch_options])
        self._await(lambda: self._answers(host if self.gateway else "client", VIP6 if self.ip6 else VIP, PORT), "the dispatcher listens")

    def url(self, path: str) -> str:
        return f"http://{self.vip()}{path}"

    def direct(self, path: str) -> str:
        """The same at the first server, by a file: nobody but its own host reaches it."""
        raise NotImplementedError("ask on the host")

    def curl(self, host: str, *options: str) -> subprocess.CompletedProcess:
        """Errors of HTTP end it, so that their texts are taken for no answer."""
        command = ["curl", "-s", "-S", "--fail", "--fail-early", "--max-time", "240", *options]
        return subprocess.run(self.hosts.on(host, command), capture_output=True, check=False)

    def start_client(self, *options: str) -> subprocess.Popen:
        """A client that takes little more than a pipe holds until it is read from."""
        command = ["curl", "-s", "-S", "--fail", "--fail-early", "--max-time", "600", *options]
        return subprocess.Popen(self.hosts.on("client", command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def _host_of(self, name: str) -> str:
        if name.startswith("dispatch"):
            return name.replace("dispatch", "dispatcher")
        return "gateway" if name == "balance" else f"backend{name.rsplit('-', 1)[1]}"

    def _run(self, name: str, command):
        if self.user is not None and not name.startswith("nginx"):
            command = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--inh-caps=-all,+net_admin",
                       "--ambient-caps=+net_admin", "--bounding-set=-all,+net_admin", *command]
        super()._run(name, self.hosts.on(self._host_of(name), command))

    def _await_port(self, port: int):
        """Waits for a server on its own host to listen."""
        index = max(int(name.rsplit("-", 1)[1]) for name in self.names if name.startswith("nginx"))
        self._await(lambda: self._answers(f"backend{index}", "127.0.0.1", port), f"a server listens on {port}")

    def _answers(self, host: str, address: str, port: int) -> bool:
        command = ["bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
        return subprocess.run(self.hosts.on(host, command), capture_output=True, check=False).returncode == 0

    def _status(self, path: str) -> int:
        out = self.curl("client", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", self.url(path)).stdout
        return int(out or 0)

"""Stock Redis servers, a shim beside each, and a sidecar in front, all on loopback."""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from .ports import free_port
from .processes import stop
from .proxy import binary
from .waits import DEADLINE_SECONDS, until

# For a client of the sidecar: longer than a command may take there.
ANSWER_SECONDS = DEADLINE_SECONDS


def why_not() -> str:
    """The missing tool, if there is one."""
    missing = [name for name in ("redis-server", "redis-cli") if shutil.which(name) is None]
    if importlib.util.find_spec("redis") is None:
        missing.append("redis-py")
    return f"{', '.join(missing)} missing: scripts/prerequisites redis, scripts/python-environment" if missing else ""


def only_with(missing: str):
    """Skips a module's tests where something is missing. Where nothing may be, as in CI, that is an error: tests that are not there prove nothing."""
    if missing and os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(missing)
    return pytest.mark.skipif(bool(missing), reason=missing or "nothing is missing")


def patient(options) -> list:
    """Options with a time limit that a machine with much else to do does not reach, where the test has none of its own."""
    options = list(options)
    return options if "--timeout-ms" in options else ["--timeout-ms", "60s", *options]


class Processes:
    """Processes with names, which are ended with it. The sidecar's admin page is at `admin_port`."""

    admin_port: int

    def __init__(self, directory: Path):
        self.directory, self.processes, self.begun = directory, {}, {}

    def start(self):
        raise NotImplementedError

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in reversed(self.processes.values()):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def stop(self, name: str, number: int = signal.SIGTERM):
        """Ends a process by a signal, and returns its exit code."""
        self.processes[name].send_signal(number)
        return self.processes[name].wait(DEADLINE_SECONDS)

    def signal(self, name: str, number: int):
        """One that is to stand still does when this returns."""
        if number == signal.SIGSTOP:
            stop(self.processes[name].pid)
        else:
            self.processes[name].send_signal(number)

    def status(self) -> dict:
        """The status of the sidecar."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/status", timeout=DEADLINE_SECONDS) as answer:
            return json.load(answer)["multiget"]

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def said(self, name: str) -> str:
        """The log of a process, without the lines of earlier processes with its name."""
        return self.log(name)[self.begun[name]:]

    def run(self, name: str, command):
        with (self.directory / f"{name}.log").open("ab") as log:
            self.begun[name] = len(self.log(name))
            self.processes[name] = subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT)

    def until(self, condition, what: str, name: str = ""):
        """Waits for something; if a process is named, as long as it runs."""

        def holds():
            if name and self.processes[name].poll() is not None:
                raise RuntimeError(f"{what}: {name} ended\n{self.log(name)}")
            return condition()

        until(holds, what, every_seconds=0.02, told=lambda: self.log(name) if name else "")


class Multiget(Processes):
    """Servers, shims and a sidecar; all are ended with it. `server_tls` has the options of servers that have TLS alone."""

    def __init__(self, directory: Path, servers: int = 5, serve_options=(), shim_options=(), mode: str = "cli", server_options=(),
                 server_tls=()):
        super().__init__(directory)
        self.server_ports = [free_port() for _ in range(servers)]
        self.shim_ports = [free_port(socket.SOCK_DGRAM) for _ in range(servers)]
        self.port, self.admin_port = free_port(), free_port()
        self.has_shims = mode != "tcp"
        self.serve_options, self.shim_options = ["--mode", mode, *patient(serve_options)], patient(shim_options)
        self.server_options, self.server_tls = list(server_options), list(map(str, server_tls))
        if mode == "coordinator":
            self.shim_options += ["--peer", *(f"127.0.0.1:{port}" for port in self.shim_ports)]

    def start(self):
        for index in range(len(self.server_ports)):
            self.start_server(index)
            if self.has_shims:
                self.start_shim(index)
        self.start_sidecar()

    def start_server(self, index: int):
        home = self.directory / f"redis-{index}"
        home.mkdir(exist_ok=True)
        port = str(self.server_ports[index])
        ports = ["--port", "0", "--tls-port", port, *self.server_tls] if self.server_tls else ["--port", port]
        self.run(f"redis-{index}", ["redis-server", *ports, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(home),
                                     *self.server_options])
        self._await_port(f"redis-{index}", self.server_ports[index])

    def start_shim(self, index: int):
        self.run(f"shim-{index}", [binary(), "multiget", "shim", "--listen", f"127.0.0.1:{self.shim_ports[index]}",
                                    "--server", f"127.0.0.1:{self.server_ports[index]}", *self.shim_options])
        self.until(lambda: "listening for datagrams" in self.said(f"shim-{index}"), f"shim {index} listens", f"shim-{index}")

    def start_sidecar(self):
        servers = [f"127.0.0.1:{server}" + f"=127.0.0.1:{shim}" * self.has_shims
                   for server, shim in zip(self.server_ports, self.shim_ports, strict=True)]
        datagrams = ["--from", "127.0.0.1:0"] if self.has_shims else []
        self.run("sidecar", [binary(), "multiget", "serve", "--listen", f"127.0.0.1:{self.port}", "--server", *servers,
                              *datagrams, "--admin", f"127.0.0.1:{self.admin_port}", *self.serve_options])
        # The sidecar binds the address of its admin pages after those of applications.
        self._await_port("sidecar", self.port)
        self._await_port("sidecar", self.admin_port)

    def _await_port(self, name: str, port: int):
        def answers():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        self.until(answers, f"port {port} answers", name)

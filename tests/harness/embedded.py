"""Embedded nodes: `shunt node`, one alone, or `shunt up`, three with the proxy before them in the same process."""

import shutil
import signal
import subprocess
from pathlib import Path

from . import cql, jars, waits
from .proxy import binary


class Embedded:
    """One process with data of its own, wiped at a start unless that is to go on with it. Its output goes to a file, quoted
    when it fails."""

    def __init__(self, name: str, contact: str, arguments: list, nodes: list, log: Path = None):
        self.name, self.contact, self.arguments, self.nodes = name, contact, arguments, nodes
        self.directory = jars.TARGET / "ring" / f"embedded-{name}"
        self.log = log or jars.TARGET / "ring" / f"embedded-{name}.log"
        self.process = None

    @classmethod
    def direct(cls, port: int = 9142, log: Path = None) -> "Embedded":
        """One node, for clients that connect to it themselves."""
        contact = f"127.0.0.1:{port}"
        return cls("direct", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log)

    @classmethod
    def through_proxy(cls, port: int = 9143, node_port: int = 9144, nodes: int = 3, log: Path = None) -> "Embedded":
        """A proxy, and nodes behind it."""
        contact = f"127.0.0.1:{port}"
        arguments = ["up", "--nodes", str(nodes), "--listen", contact, "--node-port", str(node_port), "--admin", "off"]
        behind = [f"127.0.0.{number}:{node_port}" for number in range(1, nodes + 1)]
        return cls("proxied", contact, arguments, behind, log)

    @property
    def environment(self) -> dict:
        """Variables for the suites of the drivers."""
        return {"SHUNT_CONTACT": self.contact, "SHUNT_RING": ",".join(self.nodes), "SHUNT_RF": "1", "SHUNT_STORE": "node"}

    def start(self, ready_within_seconds: float = waits.DEADLINE_SECONDS, wipe: bool = True) -> "Embedded":
        if not binary().is_file():
            raise RuntimeError(f"{binary()} is missing: cargo build --release -p shunt")
        host, port = self.contact.rsplit(":", 1)
        if cql.answers(host, int(port), 1):
            raise RuntimeError(f"something else answers CQL on {self.contact} already")
        if wipe:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(binary()), *self.arguments, "--data", str(self.directory)],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            start_new_session=True)
        what = f"shunt {self.arguments[0]}"
        try:
            waits.until(lambda: not self.alive() or cql.answers(host, int(port), 2),
                        f"{what} answers CQL on {self.contact}", ready_within_seconds, 0.05)
        except waits.Late as late:
            self.stop(0)
            raise waits.NotReady(f"{late}; the end of its log:\n{self.log_tail()}") from None
        if not self.alive():
            raise RuntimeError(f"{what} ended with {self.process.returncode}; the end of its log:\n"
                               f"{self.log_tail()}")
        return self

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9, and waits until the process is gone. It must have run until then."""
        if not self.alive():
            raise RuntimeError(f"shunt {self.arguments[0]} had ended by itself; the end of its log:\n{self.log_tail()}")
        self.process.kill()
        self.process.wait(60)

    def stop(self, timeout_seconds: float = waits.DEADLINE_SECONDS) -> int | None:
        """SIGTERM and wait; the exit code, negative if it had to be killed."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(60)
        return self.process.returncode if self.process else None

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.is_file() else ""

    def __enter__(self):
        return self if self.alive() else self.start()

    def __exit__(self, *_):
        self.stop()

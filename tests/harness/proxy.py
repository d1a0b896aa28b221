"""A `shunt proxy` process in front of a ring."""

import http.client
import os
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from . import cql, jars, processes, waits

LISTEN = "127.0.0.1:9042"
ADMIN = "127.0.0.1:9180"
# A schema change on a busy machine may take a node longer than the default deadline of a query, 12 s.
PATIENT_PROXY = ["--query-timeout-ms", "30000"]
# For tests that neither stop nor pause a node: a late node loses no link, and a late login no client.
# The nodes of such a ring are `patient`, and give up first.
UNDISTURBED_PROXY = ["--query-timeout-ms", "90000", "--node-silence-ms", "60000", "--connect-timeout-ms", "60000",
                     "--handshake-timeout-ms", "60000"]


def undisturbed(*options: str) -> list:
    """UNDISTURBED_PROXY, without what these options say otherwise, and these options."""
    pairs = zip(UNDISTURBED_PROXY[::2], UNDISTURBED_PROXY[1::2])
    return [word for pair in pairs if pair[0] not in options for word in pair] + list(options)


def binary() -> Path:
    """The release binary; SHUNT_BINARY names another one."""
    named = os.environ.get("SHUNT_BINARY")
    return Path(named) if named else Path(os.environ.get("CARGO_TARGET_DIR", jars.TARGET)) / "release" / "shunt"


class Proxy:
    """One process. Its output goes to a file, which is quoted when it fails. `within` is a command that runs it elsewhere, in
    another network namespace, say. `tls` is how a client connects to it, if not in clear text."""

    def __init__(self, contact_points: str, listen: str = LISTEN, admin: str = ADMIN, options=(), log: Path = None, within=(),
                 tls: ssl.SSLContext = None):
        self.within, self.tls = list(within), tls
        self.contact_points, self.listen, self.admin, self.options = contact_points, listen, admin, list(options)
        # Unix sockets come first in the list.
        self.host, port = listen.rsplit(",", 1)[-1].rsplit(":", 1)
        self.port = int(port)
        self.log = log or jars.TARGET / "ring" / f"proxy-{self.port}.log"
        self.process = None

    def start(self, ready_within_seconds: float = waits.DEADLINE_SECONDS) -> "Proxy":
        if not binary().is_file():
            raise RuntimeError(f"{binary()} is missing: cargo build --release -p shunt")
        if cql.answers(self.host, self.port, 1):
            raise RuntimeError(f"something else answers CQL on {self.listen} already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.within, str(binary()), "proxy", "--listen", self.listen, "--admin", self.admin,
                   "--contact-points", self.contact_points, *self.options]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            start_new_session=True)
        try:
            waits.until(self._ready_or_ended, f"shunt proxy on {self.listen} is ready",
                        ready_within_seconds, 0.05)
        except waits.Late as late:
            self.kill()
            raise waits.NotReady(f"{late}; the end of its log:\n{self.log_tail()}") from None
        if not self.alive():
            raise RuntimeError(f"shunt proxy ended with {self.process.returncode}; the end of its log:\n"
                               f"{self.log_tail()}")
        return self

    def _ready_or_ended(self) -> bool:
        return not self.alive() or self.ready()

    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200 and cql.answers(self.host, self.port, 2, self.tls)

    def get(self, path: str) -> tuple:
        """(status, text) of a page of the admin interface; status 0 if there is none."""
        try:
            # Host names and a Unix socket may follow the address.
            with urllib.request.urlopen(f"http://{self.admin.split(',')[0]}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except (OSError, http.client.HTTPException):  # nobody listens, or it has just ended
            return 0, ""

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> None:
        """SIGTERM: asks it to drain. Does not wait."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_seconds: float) -> int:
        """The exit code."""
        return self.process.wait(timeout_seconds)

    def stop(self, timeout_seconds: float = waits.DEADLINE_SECONDS) -> int | None:
        """SIGTERM and wait; the exit code, negative if it had to be killed."""
        if self.process is None:
            return None
        if self.alive():
            self.terminate()
            try:
                self.process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def pause(self) -> None:
        processes.stop(self.process.pid)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.alive():
            self.process.kill()
        self.process.wait(60)

    def resident_bytes(self) -> int:
        return processes.resident_bytes(self.process.pid)

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.is_file() else ""

    def __enter__(self):
        return self if self.alive() else self.start()

    def __exit__(self, failed=None, *_):
        was_alive = self.alive()
        # A proxy that drains for hours would have each test wait for the whole deadline.
        if self.stop() == -signal.SIGKILL and was_alive and failed is None:
            raise waits.NotReady(f"shunt proxy on {self.listen} did not end when it was told to; the end of its log:\n{self.log_tail()}")

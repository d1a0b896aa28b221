"""`shunt top` in a pseudo-terminal, and one frame of it without one."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import PATIENT_PROXY, Proxy, binary
from harness.waits import DEADLINE_SECONDS, Late

ENTER_SCREEN, LEAVE_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
LINES, COLUMNS = 30, 140


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    contact, directory = f"127.0.0.1:{free_port()}", tmp_path_factory.mktemp("top")
    listen, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with Embedded("top", contact, ["node", "--listen", contact, "--admin", "off"], [contact], directory / "node.log"), \
            Proxy(contact, listen, admin, ["--cores", "1", *PATIENT_PROXY], directory / "proxy.log") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def session(proxy):
    cluster = Cluster([proxy.host], port=proxy.port, **UNDISTURBED)
    session = cluster.connect()
    session.execute("SELECT release_version FROM system.local")
    yield session
    cluster.shutdown()


class Terminal:
    """`shunt top` in a terminal of 140 columns and 30 lines, and what stands there."""

    # A move of the cursor, another escape sequence, or a character.
    PART = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[[0-9;?]*[A-Za-z]|(.)", re.DOTALL)

    def __init__(self, proxy):
        self.file, self.end = pty.openpty()
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.before, self.written = termios.tcgetattr(self.end), b""
        self.process = subprocess.Popen([str(binary()), "top", "--admin", proxy.admin], stdin=self.end, stdout=self.end,
                                        stderr=self.end, start_new_session=True, env={**os.environ, "TERM": "xterm-256color"})

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self.file)
        os.close(self.end)

    def screen(self) -> str:
        """The lines. The program writes only cells that change, each group after a move of the cursor."""
        lines, line, column = [[" "] * COLUMNS for _ in range(LINES)], 0, 0
        for part in self.PART.finditer(self.written.decode(errors="ignore")):
            if part[1]:
                line, column = int(part[1]) - 1, int(part[2]) - 1
            elif part[3] and column < COLUMNS:
                lines[line][column] = part[3]
                column += 1
        return "\n".join(map("".join, lines))

    def read(self, is_there) -> None:
        """Waits until something is true of what the program has written."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_there():
            if not select.select([self.file], [], [], max(0, deadline - time.monotonic()))[0]:
                raise Late(f"the screen does not change:\n{self.screen()}")
            self.written += os.read(self.file, 1 << 16)

    def see(self, text: str) -> None:
        self.read(lambda: text in self.screen())

    def press(self, keys: bytes) -> None:
        os.write(self.file, keys)

    def code(self) -> int:
        """The exit code. The terminal is as it was before."""
        self.read(lambda: LEAVE_SCREEN in self.written)
        code = self.process.wait(DEADLINE_SECONDS)
        assert termios.tcgetattr(self.end) == self.before
        return code


def test_keys_show_tables_and_end_it(proxy, session):
    with Terminal(proxy) as terminal:
        terminal.read(lambda: ENTER_SCREEN in terminal.written)
        terminal.see("[clients]")
        assert termios.tcgetattr(terminal.end) != terminal.before
        terminal.press(b"3")
        terminal.see("[nodes]")
        terminal.press(b"?")
        terminal.see("Any key goes back")
        terminal.press(b" q")
        assert terminal.code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(proxy, session, number):
    with Terminal(proxy) as terminal:
        terminal.see("[clients]")
        terminal.process.send_signal(number)
        assert terminal.code() == 130


def test_clients_are_closed_after_a_second_key(proxy, session):
    with Terminal(proxy) as terminal:
        terminal.see("[clients]")
        terminal.press(b"x")
        terminal.see("close all clients with")
        terminal.press(b"y")
        terminal.see("closed ")
        assert 'shunt_clients_closed_total{reason="operator"} 0\n' not in proxy.get("/metrics")[1]
        terminal.press(b"\x03")
        assert terminal.code() == 130


def test_one_frame_without_a_terminal(proxy, session):
    def top(*options):
        return subprocess.run([str(binary()), "top", "--admin", proxy.admin, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True)

    refused = top()
    assert refused.returncode == 2 and "--once" in refused.stderr and refused.stdout == "", refused
    text = top("--once", "--table", "nodes")
    assert text.returncode == 0 and "nodes up 1 of 1" in text.stdout and "datacentre" in text.stdout and "\x1b" not in text.stdout
    done = top("--once", "--json")
    tables = json.loads(done.stdout)
    assert done.returncode == 0 and tables["summary"]["nodes_up"] == 1 and len(tables["nodes"]) == 1
    assert set(tables) == {"summary", "clients", "queries", "nodes", "hot", "alerts"}

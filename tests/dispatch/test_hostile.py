"""One hostile client or server, and what it costs the others."""

import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness import rogue
from harness.relay import Relay, expect, steady, why_not
from harness.waits import DEADLINE_SECONDS, until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")


# With an answer to each request in it, far more than the dispatcher may have.
FLOOD_BYTES = 64 << 20


def resident_mib(pid: int) -> int:
    return int(next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")).split()[1]) >> 10


def flood(relay, request: bytes, takes: bool = False) -> None:
    """Asks on and on, and takes nothing, or a little now and then: until nobody reads it any more, or it has asked for far more than may be kept."""
    with socket.create_connection(("127.0.0.1", relay.port)) as client:
        client.setblocking(False)
        sent = refused = 0
        while refused < 75 and sent < FLOOD_BYTES:
            try:
                sent += client.send(request * 1000)
            except BlockingIOError:
                refused += 1
                time.sleep(0.02)
            except ConnectionError:
                return
            if takes:
                try:
                    client.recv(1000)
                except BlockingIOError:
                    pass


@pytest.mark.parametrize("takes", [False, True])
def test_a_client_that_asks_on_and_takes_nothing_costs_no_more_than_a_bound(tmp_path, takes):
    with Relay(tmp_path, servers=1) as relay:
        (relay.files / "60000").write_bytes(bytes(60_000))
        flood(relay, b"GET /60000 HTTP/1.1\r\nHost: a\r\n\r\n", takes)
        assert resident_mib(relay.names["dispatch"].pid) < 100
        with urllib.request.urlopen(relay.url("/60000"), timeout=DEADLINE_SECONDS) as answer:
            assert len(answer.read()) == 60_000


def test_errors_that_nobody_takes_are_not_kept_without_a_bound(tmp_path):
    with Relay(tmp_path, servers=1) as relay:
        relay.signal("agent-0").wait(60)
        del relay.names["agent-0"]
        flood(relay, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert resident_mib(relay.names["dispatch"].pid) < 100


@steady
def test_a_client_that_takes_its_time_has_all_answers_to_what_it_asked_at_once(tmp_path):
    with Relay(tmp_path, servers=1) as relay:
        (relay.files / "60000").write_bytes(bytes(range(240)) * 250)
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            client.settimeout(DEADLINE_SECONDS)
            client.sendall(b"GET /60000 HTTP/1.1\r\nHost: a\r\n\r\n" * 99 + b"GET /60000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            received = bytearray()
            while data := client.recv(65_536):
                received += data
                if len(received) < 1_000_000:
                    time.sleep(0.05)
        expect(received.count(b"HTTP/1.1 200 OK") == 100, received.count(b"HTTP/1.1 200 OK"))
        assert received.count(bytes(range(240)) * 250) == 100


def test_a_body_that_trickles_is_given_up(tmp_path):
    """Else a few hundred clients have all connections to the server for as long as they like."""
    with Relay(tmp_path, servers=1, dispatch_options=["--body-timeout-ms", "2s"]) as relay:
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            client.sendall(b"PUT /put/slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
            client.settimeout(0.1)

            def said() -> bytes:
                try:
                    client.send(b"x")
                except ConnectionError:
                    pass  # it is closed, and what was said before is still to be read
                try:
                    return client.recv(1000)
                except TimeoutError:
                    return b""

            assert b"408 Request Timeout" in until(said, "the client is told something", every_seconds=0)


def test_an_empty_line_behind_a_request_begins_none(tmp_path):
    with Relay(tmp_path, servers=1, dispatch_options=["--head-timeout-ms", "1s"]) as relay:
        (relay.files / "one").write_bytes(b"1")
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            for _ in range(2):
                client.settimeout(DEADLINE_SECONDS)
                client.sendall(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n\r\n")
                said = b""
                while not said.endswith(b"\r\n\r\n1"):
                    data = client.recv(1000)
                    assert data, said
                    said += data
                assert said.startswith(b"HTTP/1.1 200 ")
                # Beyond the time that a head has, of which the line would be the first. However late it is, nothing is said.
                client.settimeout(2.5)
                with pytest.raises(TimeoutError):
                    client.recv(1000)


class Listening(Relay):
    """One of its processes is a thread of the test, which `_talk`s on each connection."""

    listener = None

    def take_connections(self, port: int):
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def __exit__(self, *_):
        super().__exit__()
        if self.listener:
            self.listener.close()


class Overlapping(Listening):
    """With a server that answers while it still reads, as streaming applications do."""

    received = 0

    def start_server(self, index: int):
        self.take_connections(self.server_ports[index])

    def _talk(self, client: socket.socket):
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65_536)
                if not data:
                    return
                head += data
            if head.startswith(b"GET"):
                client.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
                return
            client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n")
            try:
                while data := client.recv(65_536):
                    self.received += len(data)
            except OSError:
                pass

    def begun(self, head: bytes) -> socket.socket:
        """A client whose answer has begun."""
        client = socket.create_connection(("127.0.0.1", self.port))
        client.settimeout(DEADLINE_SECONDS)
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n" + head)
        said = b""
        while b"begun" not in said:
            data = client.recv(1000)
            expect(data, said)
            said += data
        return client


@steady
def test_a_body_that_trickles_behind_an_answer_that_has_begun_is_given_up(tmp_path):
    # Bodies of which nothing has come have a quarter of the connections of an event loop at most.
    agent_options = ["--upstream-connections-max", "16"]
    with Overlapping(tmp_path, servers=1, dispatch_options=["--body-timeout-ms", "3s"], agent_options=agent_options) as relay:
        relay.wait_until_it_answers()
        begin = b"Content-Length: 100000000\r\n\r\n"
        clients = [relay.begun(begin) for _ in range(2)]

        def is_closed(client: socket.socket) -> bool:
            try:
                client.send(b"x")
                return False
            except ConnectionError:
                return True

        def are_all_closed() -> bool:
            clients[:] = [client for client in clients if not is_closed(client)]
            return not clients

        until(are_all_closed, "all are given up", every_seconds=0.2)
        relay._await(lambda: relay._status("/") == 204, "the server's connections are free")
        # And so is their share of them.
        for client in [relay.begun(begin) for _ in range(2)]:
            client.close()


def test_a_body_behind_an_answer_that_has_begun_has_its_greatest_size(tmp_path):
    with Overlapping(tmp_path, servers=1, dispatch_options=["--body-bytes-max", "1MiB"]) as relay:
        relay.wait_until_it_answers()
        client = relay.begun(b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                client.sendall(b"10000\r\n" + bytes(65_536) + b"\r\n")
        assert relay.received < 2 << 20


class OddServer(Listening):
    """With a server that says this to each connection, again and again."""

    def __init__(self, directory: Path, said: bytes, pause: float):
        super().__init__(directory, servers=1)
        self.said, self.pause = said, pause

    def start_server(self, index: int):
        self.take_connections(self.server_ports[index])

    def wait_until_it_answers(self):
        pass

    def _talk(self, client: socket.socket):
        try:
            client.recv(1000)
            while True:
                client.sendall(self.said)
                time.sleep(self.pause)
        except OSError:
            pass


def test_a_server_that_says_on_and_on_that_it_is_at_work_is_given_up(tmp_path):
    with OddServer(tmp_path, b"HTTP/1.1 102 Processing\r\n\r\n", 0.01) as relay:

        def said() -> bytes:
            with socket.create_connection(("127.0.0.1", relay.port)) as client:
                client.settimeout(DEADLINE_SECONDS)
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                said = client.makefile("rb").read()
            # Before it has an agent, the dispatcher says 503.
            return b"" if b"HTTP/1.1 503 " in said else said

        told = until(said, "the dispatcher has an agent")
        assert b"HTTP/1.1 502 " in told and b"too many interim answers" in told and 10 < told.count(b" 102 ") < 200


class WithRogue(Listening):
    """The second agent has the key, and sends what it must not: too much of a body, or too many interim answers."""

    what = "body"

    def start_server(self, index: int):
        if index == 0:
            super().start_server(index)

    def start_agent(self, index: int):
        if index == 0:
            super().start_agent(index)
            return
        self.take_connections(self.agent_ports[index])

    def _talk(self, conn: socket.socket):
        try:
            control = rogue.Control(conn, self.key.read_bytes().strip()).be_agent()
            control.say(rogue.HELD_END, 0, b"\x01")
            while True:
                kind, ticket, payload = control.hear()
                if kind == rogue.PING:
                    control.say(rogue.PONG)
                elif kind == rogue.REQUEST and b"/victim" in payload:
                    self._answer(control, ticket)
                elif kind == rogue.REQUEST:
                    control.say(rogue.RESPONSE, ticket, rogue.response(b"HTTP/1.1 204 No Content\r\n\r\n", 0))
        except (OSError, EOFError):
            conn.close()

    def _answer(self, control: rogue.Control, ticket: int):
        if self.what == "body":
            control.say(rogue.RESPONSE, ticket, rogue.response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
            for _ in range(2000):
                control.conn.sendall(control.body(ticket, bytes(256 << 10)))
        else:
            head = b"HTTP/1.1 102 Processing\r\nX: " + b"x" * 60_000 + b"\r\n\r\n"
            for _ in range(8000):
                control.say(rogue.RESPONSE, ticket, rogue.response(head, 0))


@pytest.mark.parametrize(("what", "why"), [("body", "more of an answer than it was given credit for"), ("interim", "too many interim answers (1xx)")])
def test_an_agent_that_sends_what_it_may_not_is_given_up(tmp_path, what, why):
    relay = WithRogue(tmp_path, servers=2)
    relay.what = what
    with relay:
        clients = []

        def is_given_up() -> bool:
            client = socket.create_connection(("127.0.0.1", relay.port))
            client.sendall(b"GET /victim HTTP/1.1\r\nHost: a\r\n\r\n")
            clients.append(client)
            return why in relay.log("dispatch")

        until(is_given_up, "the agent is given up", every_seconds=0.2, told=lambda: relay.log("dispatch"))
        assert resident_mib(relay.names["dispatch"].pid) < 150

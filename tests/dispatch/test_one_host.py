"""Connections that are handed over within one host, without privileges: what clients do meanwhile, and processes that are killed or stand still."""

import json
import random
import signal
import socket
import struct
import subprocess
import time
import urllib.request

import pytest

from harness.ports import free_port
from harness.relay import Relay, again_if_paused, expect, expect_whole, steady, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")

LARGE = 32 << 20
MIDDLE = 1_000_000


class OneHost(Relay):
    def __init__(self, directory):
        self.admin = free_port()
        options = ["--admin", f"127.0.0.1:{self.admin}", "--body-timeout-ms", "180s", "--head-timeout-ms", "180s", "--idle-timeout-ms", "180s"]
        super().__init__(directory, dispatch_options=options, shares_socket=True)

    def status(self) -> dict:
        """The status of the dispatcher."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/status", timeout=60) as page:
            return json.loads(page.read())["dispatcher"]

    def handed_over(self) -> int:
        """Answers that have gone out on their clients' own connections."""
        return self.status()["answers_handed_over"]

    def connect(self, port: int = 0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=180, source_address=("127.0.0.1", port))

    def content(self, size: int) -> bytes:
        return (self.files / str(size)).read_bytes()

    def be_whole(self) -> None:
        """Starts each process that has ended, and waits until clients are served."""
        for name, start in (("agent-1", lambda: self.start_agent(1)), ("dispatch", self.start_dispatcher)):
            if name not in self.names or self.names[name].poll() is not None:
                self.names.pop(name, None)
                start()
        self.is_served()

    def is_served(self) -> None:
        """Others have what they ask for, and the dispatcher has both agents: one could answer all."""
        self._await(lambda: [self._status(f"/{MIDDLE}") for _ in range(4)] == [200] * 4, "clients are answered")
        self._await(lambda: all(backend["links"] for backend in self.status()["backends"]), "the dispatcher has both agents")


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with OneHost(tmp_path_factory.mktemp("host")) as host:
        for size in (1000, MIDDLE, LARGE):
            (host.files / str(size)).write_bytes(random.Random(size).randbytes(size))
        yield host


def asked(path, *fields: str) -> bytes:
    return "\r\n".join([f"GET /{path} HTTP/1.1", "Host: a", *fields, "", ""]).encode()


def answer(stream) -> bytes:
    """The body of one answer, or as much of it as comes."""
    length, status = None, stream.readline()
    expect(status.startswith(b"HTTP/1.1 200 "), status)
    while (line := stream.readline()).strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return stream.read(length or 0)


def begun(host, connection: socket.socket):
    """An answer of which the client has some, and which the agent is sending."""
    before = host.handed_over()
    connection.sendall(asked(LARGE))
    stream = connection.makefile("rb")
    status = stream.readline()
    expect(status.startswith(b"HTTP/1.1 200 "), status)
    while stream.readline().strip():
        pass
    return before, stream, stream.read(MIDDLE)


def assert_answer(stream, wanted: bytes, has: bytes = b"") -> None:
    """The next one, of which the client may have a part already."""
    received = has + stream.read(len(wanted) - len(has)) if has else answer(stream)
    expect_whole(0, received, wanted, "the client was cut off")


@steady
def test_one_connection_moves_a_hundred_times_with_every_byte(host):
    before = host.handed_over()
    with host.connect() as connection:
        stream = connection.makefile("rb")
        for size in [MIDDLE, 1000] * 50:
            connection.sendall(asked(size))
            assert_answer(stream, host.content(size))
    expect(host.handed_over() - before >= 50, host.handed_over() - before)


@steady
def test_requests_that_come_within_an_answer_are_answered_behind_it(host):
    with host.connect() as connection:
        before, stream, first = begun(host, connection)
        for size in (1000, MIDDLE):
            connection.sendall(asked(size))
        assert_answer(stream, host.content(LARGE), first)
        for size in (1000, MIDDLE):
            assert_answer(stream, host.content(size))
        expect(host.handed_over() > before, "it was handed over")


@steady
def test_a_request_that_comes_in_pieces_while_its_connection_moves_is_one(host):
    pieces = asked(1000)
    with host.connect() as connection:
        stream = connection.makefile("rb")
        for cut in range(1, len(pieces)):
            connection.sendall(asked(MIDDLE) + pieces[:cut])
            assert_answer(stream, host.content(MIDDLE))
            connection.sendall(pieces[cut:])
            assert_answer(stream, host.content(1000))


@steady
def test_a_client_that_has_no_more_to_say_has_its_answer(host):
    for at_once in (True, False) * 3:
        with host.connect() as connection:
            if at_once:
                connection.sendall(asked(LARGE))
                stream, first = connection.makefile("rb"), b""
            else:
                _, stream, first = begun(host, connection)
            connection.shutdown(socket.SHUT_WR)
            assert_answer(stream, host.content(LARGE), first)
            assert stream.read() == b""


@steady
def test_a_client_that_takes_nothing_for_a_while_has_its_answer(host):
    with host.connect() as connection:
        _, stream, first = begun(host, connection)
        time.sleep(2)  # so that the kernels have all that they take; it is to have its answer however long it is
        assert_answer(stream, host.content(LARGE), first)
        connection.sendall(asked(1000))
        assert_answer(stream, host.content(1000))


@pytest.mark.parametrize("how", ["reset", "close"])
@steady
def test_a_client_that_goes_within_an_answer_leaves_nothing_to_the_next_of_its_address(host, how):
    port = free_port()
    for _ in range(10):
        connection = host.connect(port)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "close":
            begun(host, connection)
        else:
            connection.sendall(asked(LARGE))
        # Both are resets by then: much of the answer is not read.
        connection.close()
        with host.connect(port) as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            again.sendall(asked(MIDDLE))
            assert_answer(again.makefile("rb"), host.content(MIDDLE))
    host.is_served()


@steady
def test_a_dispatcher_that_is_killed_cuts_no_answer_that_was_handed_over(host):
    host.be_whole()
    with host.connect() as connection:
        _, stream, first = begun(host, connection)
        host.signal("dispatch", signal.SIGKILL).wait(60)
        assert_answer(stream, host.content(LARGE), first)
    host.be_whole()


@steady
def test_an_agent_that_is_killed_within_an_answer_never_has_a_part_taken_for_the_whole(host):
    host.be_whole()
    clients = [host.connect() for _ in range(6)]
    answers = [begun(host, client) for client in clients]
    host.signal("agent-1", signal.SIGKILL).wait(60)
    lengths = []
    for client, (_, stream, first) in zip(clients, answers):
        received = first
        try:
            while piece := stream.read1(1 << 20):
                received += piece
                if len(received) == LARGE:
                    break
        except ConnectionError:
            pass
        assert received == host.content(LARGE)[:len(received)]
        lengths.append(len(received))
        client.close()
    # Those of the other agent have all.
    expect(min(lengths) < LARGE, lengths)
    expect(LARGE in lengths, lengths)
    host.be_whole()


@again_if_paused
def test_an_agent_that_stands_still_holds_nobody_up_for_good(host):
    host.be_whole()
    host.signal("agent-1", signal.SIGSTOP)
    try:
        command = ["curl", "-s", "-S", "--fail", "--fail-early", "--max-time", "600", *[word for _ in range(4) for word in ("-o", "-", host.url(f"/{MIDDLE}"))]]
        clients = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        for client in clients:
            received, told = client.communicate(timeout=600)
            expect_whole(client.returncode, received, host.content(MIDDLE) * 4, told)
    finally:
        host.signal("agent-1", signal.SIGCONT)
    host.is_served()

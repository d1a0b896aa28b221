"""An answer goes on when the agent dies that sends it, or its host: the dispatcher takes the client's connection up again where the client is, and another
backend sends the rest. Where that is not certain to be the rest, the client is reset, and never takes what it has for the whole."""

import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from harness import hosts
from harness.moved import Moved
from harness.relay import IS_WHOLE, again_if_paused, expect, expect_whole, steady, why_not as no_relay
from harness.waits import DEADLINE_SECONDS

WHY_NOT = hosts.why_not() or no_relay()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

LARGE = 32 << 20
# Each of these waits for some 30 s until somebody is given up.
whole = pytest.mark.skipif(not IS_WHOLE, reason="takes a minute: SHUNT_DISPATCH_WHOLE is not set")


class Client:
    """A client of a large answer. It takes little more than a pipe holds, or reads on slowly, until it is to read all; never
    so much that its answer ends before that, however long that takes."""

    def __init__(self, process: subprocess.Popen, reads: bool):
        self.process, self.received, self.told = process, bytearray(), b""
        self._is_to_end = threading.Event()
        # What is said is read too, so that nobody waits for that.
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        if reads:
            self._threads.append(threading.Thread(target=self._read, daemon=True))
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        self.told = self.process.stderr.read()

    def _read(self) -> None:
        while not self._is_to_end.wait(0.02):
            if len(self.received) < LARGE // 4:
                self.received += self.process.stdout.read1(64 << 10)

    def ends(self) -> tuple:
        """curl's code, what it has received, what it has said."""
        self._is_to_end.set()
        for thread in self._threads[1:]:
            thread.join()
        self.received += self.process.stdout.read()
        self._threads[0].join()
        return self.process.wait(DEADLINE_SECONDS), bytes(self.received), self.told


class Salvaged(Moved):
    def salvaged(self) -> int:
        return self.metric('shunt_dispatch_handovers_ended_total{outcome="salvaged"}')

    def taken(self) -> int:
        """Connections that agents have said they have."""
        return self.metric("shunt_dispatch_taking_seconds_count")

    def start(self, path: str, reads: bool, *options: str) -> tuple:
        """A client that is being sent a large answer by an agent: (the client, the agent's number)."""
        self.be_whole()
        before, former = self.taken(), self.away()
        client = Client(self.start_client("-v", self.url(path), *options), reads)
        self._await(lambda: self.taken() > before, "an agent has the connection")
        return client, self.backend_of_moved(former)

    def link(self, index: int, state: str) -> None:
        hosts.run(f"ip -n {self.hosts.name}switch link set backend{index} {state}")

    def kill_agent(self, index: int) -> None:
        self.signal(f"agent-{index}", signal.SIGKILL).wait(60)
        self.names.pop(f"agent-{index}")

    def be_whole(self) -> None:
        """Both agents are there."""
        for index in range(2):
            if f"agent-{index}" not in self.names:
                self.start_agent(index)
        self.await_agents()
        self.wait_until_it_answers()


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    with Salvaged(tmp_path_factory.mktemp("salvaged")) as moved:
        (moved.files / str(LARGE)).write_bytes(random.Random(20).randbytes(LARGE))
        (moved.files / "1000").write_bytes(bytes(1000))
        yield moved


def is_whole(moved, client, behind: bytes = b"") -> None:
    code, received, told = client.ends()
    expect_whole(code, received, (moved.files / str(LARGE)).read_bytes() + behind, told)


def waits_for_salvage(moved, before: int) -> None:
    moved._await(lambda: moved.salvaged() > before, "the connection goes on at the dispatcher")


@pytest.mark.parametrize("reads", [False, True])
@steady
def test_an_answer_goes_on_when_its_agent_is_killed_and_started_again(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads)
    moved.kill_agent(victim)
    moved.start_agent(victim)
    is_whole(moved, client)
    expect(moved.salvaged() == before + 1, "it went on at the dispatcher")


@pytest.mark.parametrize("reads", [False, True] if IS_WHOLE else [True])
@steady
def test_an_answer_goes_on_when_its_agent_is_killed_and_stays_away(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads)
    moved.kill_agent(victim)
    waits_for_salvage(moved, before)
    is_whole(moved, client)


@pytest.mark.parametrize("reads", [False, True] if IS_WHOLE else [False])
@again_if_paused
def test_an_answer_goes_on_when_its_agent_stands_still_and_it_harms_nobody_when_it_comes_to(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads, "-o", "-", moved.url("/1000"))
    moved.signal(f"agent-{victim}", signal.SIGSTOP)
    try:
        waits_for_salvage(moved, before)
    finally:
        moved.signal(f"agent-{victim}", signal.SIGCONT)
    # It comes back with the connection, is told that it is somebody else's, and lets go of it.
    moved.await_agents()
    is_whole(moved, client, bytes(1000))


@pytest.mark.parametrize("reads", [False, True] if IS_WHOLE else [True])
@again_if_paused
def test_an_answer_goes_on_when_the_host_of_its_agent_is_cut_off(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads, "-o", "-", moved.url("/1000"))
    moved.link(victim, "down")
    try:
        waits_for_salvage(moved, before)
    finally:
        moved.link(victim, "up")
    moved.await_agents()
    is_whole(moved, client, bytes(1000))


def test_answers_that_may_differ_elsewhere_are_reset_and_never_look_whole(moved):
    before = moved.salvaged()
    client, victim = moved.start(f"/untagged/{LARGE}", True)
    moved.kill_agent(victim)
    moved.start_agent(victim)
    code, received, told = client.ends()
    assert (code, moved.salvaged()) == (56, before), (code, told[-1500:])
    assert len(received) < LARGE and (moved.files / str(LARGE)).read_bytes().startswith(received)


PIPELINES = """
import socket, sys
address, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.create_connection((address, port), timeout=300) as connection:
    connection.sendall(b"GET /%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size)
    stream = connection.makefile("rb")
    received = stream.read(1_000_000)
    connection.sendall(b"GET /1000 HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
    print("sent", flush=True)
    sys.stdin.readline()
    try:
        received += stream.read()
        print("ended", len(received), flush=True)
    except ConnectionResetError:
        print("reset", flush=True)
"""


@steady
def test_a_request_that_only_the_dead_agent_had_is_not_lost_silently(moved):
    moved.be_whole()
    not_salvaged = 'shunt_dispatch_not_salvaged_total{reason="client_sent_more"}'
    before, taken, former = moved.metric(not_salvaged), moved.taken(), moved.away()
    client = subprocess.Popen([str(word) for word in moved.hosts.on("client", [sys.executable, "-c", PIPELINES, hosts.VIP, moved.port, LARGE])],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "sent\n"
    moved._await(lambda: moved.taken() > taken, "an agent has the connection")
    victim = moved.backend_of_moved(former)
    moved.kill_agent(victim)
    moved.start_agent(victim)
    told = client.communicate("go on\n", timeout=600)[0]
    assert told == "reset\n"
    moved._await(lambda: moved.metric(not_salvaged) == before + 1, "it is counted")


@whole
def test_a_client_whose_dispatcher_and_agent_both_die_is_reset(moved):
    client, victim = moved.start(f"/{LARGE}", True)
    moved.kill_agent(victim)
    moved.signal("dispatch", signal.SIGKILL).wait(60)
    moved.names.pop("dispatch")
    moved.start_dispatcher()
    code, received, told = client.ends()
    assert code == 56 and len(received) < LARGE, (code, told[-1500:])


def test_with_packets_lost_and_doubled_a_client_has_all_or_knows_that_it_has_not(moved):
    moved.hosts.impair(2, 2)
    try:
        client, victim = moved.start(f"/{LARGE}", True)
        moved.kill_agent(victim)
        moved.start_agent(victim)
        code, received, told = client.ends()
    finally:
        moved.hosts.impair(0, 0)
    wanted = (moved.files / str(LARGE)).read_bytes()
    assert wanted.startswith(received) and (code == 0) == (len(received) == LARGE), (code, len(received), told[-1500:])


@whole
@again_if_paused
def test_an_agent_that_hears_its_dispatcher_no_more_does_not_reset_what_goes_on_elsewhere(moved):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", False, "-o", "-", moved.url("/1000"))
    kept_back = moved.counted(f"backend{victim}", "resets_kept_back")
    route = f"ip -n {moved.hosts.name}backend{victim} route %s blackhole {moved.address('dispatcher')}/32"
    hosts.run(route % "add")
    try:
        waits_for_salvage(moved, before)
        moved._await(lambda: moved.counted(f"backend{victim}", "resets_kept_back") > kept_back, "the agent gives the client up")
        # It asks the client from then on, every 5 s; however often that is, nothing comes of it.
        time.sleep(7)
        is_whole(moved, client, bytes(1000))
    finally:
        hosts.run(route % "del")
    moved.await_agents()

"""An answer goes on when the agent dies that sends it, or its host: the dispatcher takes the client's connection up again where the client is, and another
backend sends the rest. Where that is not certain to be the rest, the client is reset, and never takes what it has for the whole."""

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import hosts
from harness.moved import ADMIN_PORT, Moved
from harness.relay import why_not as no_relay

WHY_NOT = hosts.why_not() or no_relay()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

LARGE = 32 << 20
# Each of these waits for some 30 s until somebody is given up.
IS_WHOLE = "SHUNT_SALVAGE_WHOLE" in os.environ
whole = pytest.mark.skipif(not IS_WHOLE, reason="takes a minute: SHUNT_SALVAGE_WHOLE is not set")


class Client:
    def __init__(self, process, pool, result):
        self.process, self.pool, self.result = process, pool, result

    def ends(self) -> tuple:
        """curl's code, what it has received, what it has said."""
        received, told = self.result.result() if self.result else self.process.communicate(timeout=300)
        self.pool.shutdown()
        return self.process.returncode, received, told


class Salvaged(Moved):
    def metrics(self) -> str:
        url = f"http://{hosts.at(self.address('dispatcher'), ADMIN_PORT)}/metrics"
        return subprocess.run(self.hosts.on("dispatcher", ["curl", "-s", url]), capture_output=True, text=True, check=True).stdout

    def metric(self, name: str) -> int:
        found = re.search(rf"^{re.escape(name)} (\d+)$", self.metrics(), re.MULTILINE)
        return int(found[1]) if found else 0

    def salvaged(self) -> int:
        return self.metric('shunt_dispatch_handovers_ended_total{outcome="salvaged"}')

    def start(self, path: str, reads: bool, *options: str) -> tuple:
        """A client that is being sent a large answer by an agent: (curl, what it will have, the agent's number). It reads on, slowly, or takes little
        more than a pipe holds until it is asked what it has."""
        before, former = self.metric("shunt_dispatch_taking_seconds_count"), self.away()
        client = subprocess.Popen(self.hosts.on("client", ["curl", "-s", "-S", "-v", "--max-time", "240", *(["--limit-rate", "4M"] if reads else []), self.url(path), *options]), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._await(lambda: self.metric("shunt_dispatch_taking_seconds_count") > before, "an agent has the connection")
        pool = ThreadPoolExecutor(1)
        result = pool.submit(client.communicate, timeout=300) if reads else None
        return Client(client, pool, result), self.victim(former)

    def away(self) -> set:
        """Clients whose connections are elsewhere; one that has ended may be among them until its agent has told."""
        return self._peers("dispatcher", "elsewhere")

    def victim(self, former: set) -> int:
        """The agent that has the one connection that has gone elsewhere since."""
        found = []

        def has_it() -> bool:
            new = self.away() - former
            found[:] = [index for index in range(2) if new & self._peers(f"backend{index}", "here")]
            return len(found) == 1

        self._await(has_it, "one agent has the connection")
        return found[0]

    def link(self, index: int, state: str) -> None:
        hosts.run(f"ip -n {self.hosts.name}switch link set backend{index} {state}")

    def _peers(self, host: str, place: str) -> set:
        return set(re.findall(rf"^ +{place} +\S+ <- (\S+)$", self.switch(host, "status"), re.MULTILINE))

    def kill_agent(self, index: int) -> None:
        self.signal(f"agent-{index}", signal.SIGKILL).wait(60)
        self.names.pop(f"agent-{index}")

    def both_answer(self) -> None:
        self._await(lambda: re.findall(r"^shunt_dispatch_backend_links\{.*\} (\d+)$", self.metrics(), re.MULTILINE) == ["1", "1"], "both agents are there")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    with Salvaged(tmp_path_factory.mktemp("salvaged"), dispatch_options=("--handover", "auto")) as moved:
        (moved.files / str(LARGE)).write_bytes(random.Random(20).randbytes(LARGE))
        (moved.files / "1000").write_bytes(bytes(1000))
        yield moved


@pytest.fixture
def moved(several):
    """Both agents are there, before and after."""
    yield several
    for index in range(2):
        if f"agent-{index}" not in several.names:
            several.start_agent(index)
    several.wait_until_it_answers()


def is_whole(moved, client, behind: bytes = b"") -> None:
    code, received, told = client.ends()
    wanted = (moved.files / str(LARGE)).read_bytes() + behind
    assert (code, len(received)) == (0, len(wanted)), told[-1500:].decode()
    assert hashlib.sha256(received).digest() == hashlib.sha256(wanted).digest()


@pytest.mark.parametrize("reads", [False, True])
def test_an_answer_goes_on_when_its_agent_is_killed_and_started_again(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads)
    moved.kill_agent(victim)
    moved.start_agent(victim)
    is_whole(moved, client)
    assert moved.salvaged() == before + 1


def waits_for_salvage(moved, before: int) -> None:
    moved._await(lambda: moved.salvaged() > before, "the connection goes on at the dispatcher", 180)


@pytest.mark.parametrize("reads", [False, True])
def test_an_answer_goes_on_when_its_agent_is_killed_and_stays_away(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads)
    moved.kill_agent(victim)
    waits_for_salvage(moved, before)
    is_whole(moved, client)


@pytest.mark.parametrize("reads", [False, True] if IS_WHOLE else [False])
def test_an_answer_goes_on_when_its_agent_stands_still_and_it_harms_nobody_when_it_comes_to(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads, "-o", "-", moved.url("/1000"))
    moved.signal(f"agent-{victim}", signal.SIGSTOP)
    try:
        waits_for_salvage(moved, before)
    finally:
        moved.signal(f"agent-{victim}", signal.SIGCONT)
    # It comes back with the connection, is told that it is somebody else's, and lets go of it.
    moved.both_answer()
    is_whole(moved, client, bytes(1000))


@pytest.mark.parametrize("reads", [False, True] if IS_WHOLE else [True])
def test_an_answer_goes_on_when_the_host_of_its_agent_is_cut_off(moved, reads):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", reads, "-o", "-", moved.url("/1000"))
    moved.link(victim, "down")
    try:
        waits_for_salvage(moved, before)
    finally:
        moved.link(victim, "up")
    moved.both_answer()
    is_whole(moved, client, bytes(1000))


def test_what_may_not_be_the_same_elsewhere_is_reset_and_never_taken_for_the_whole(moved):
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
with socket.create_connection((address, port), timeout=60) as connection:
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


def test_a_request_that_only_the_dead_agent_had_is_not_lost_silently(moved):
    before = moved.metric('shunt_dispatch_not_salvaged_total{reason="client_sent_more"}')
    taken, former = moved.metric("shunt_dispatch_taking_seconds_count"), moved.away()
    client = subprocess.Popen([str(word) for word in moved.hosts.on("client", [sys.executable, "-c", PIPELINES, hosts.VIP, moved.port, LARGE])],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout.readline() == "sent\n"
    moved._await(lambda: moved.metric("shunt_dispatch_taking_seconds_count") > taken, "an agent has the connection")
    victim = moved.victim(former)
    moved.kill_agent(victim)
    moved.start_agent(victim)
    told = client.communicate("go on\n", timeout=300)[0]
    assert told == "reset\n"
    moved._await(lambda: moved.metric('shunt_dispatch_not_salvaged_total{reason="client_sent_more"}') == before + 1, "it is counted")


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
def test_an_agent_that_hears_its_dispatcher_no_more_does_not_reset_what_goes_on_elsewhere(moved):
    before = moved.salvaged()
    client, victim = moved.start(f"/{LARGE}", False, "-o", "-", moved.url("/1000"))
    kept_back = moved.counted(f"backend{victim}", "resets_kept_back")
    route = f"ip -n {moved.hosts.name}backend{victim} route %s blackhole {moved.address('dispatcher')}/32"
    hosts.run(route % "add")
    try:
        waits_for_salvage(moved, before)
        moved._await(lambda: moved.counted(f"backend{victim}", "resets_kept_back") > kept_back, "the agent gives the client up", 90)
        # It asks the client from then on.
        time.sleep(7)
        is_whole(moved, client, bytes(1000))
    finally:
        hosts.run(route % "del")
    moved.both_answer()

"""Several dispatchers behind one virtual address: a gateway sends each connection to one of them, and what happens to one concerns its own clients alone."""

import itertools
import random
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import hosts
from harness.moved import ADMIN_PORT, PATIENT, Moved
from harness.proxy import binary
from harness.relay import again_if_paused, expect, expect_whole, steady, why_not as no_relay
from harness.waits import DEADLINE_SECONDS

WHY_NOT = hosts.why_not() or no_relay()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

LARGE = 32 << 20
ALL = ("dispatcher", "dispatcher1", "dispatcher2")
# No port twice: one that a client has just left is refused to the next, and the gateway may still
# know its connection.
PORTS = itertools.count(20_000)
# Within the delay the gateway has to see that one drains: it asks every second.
DISPATCH = (*PATIENT, "--drain-delay-ms", "6s", "--drain-timeout-ms", "180s")


class Several(Moved):
    """Three dispatchers and a gateway."""

    gateway = True

    def start_dispatcher(self, host: str = ""):
        if host:
            super().start_dispatcher(host)
            return
        self.switch("gateway", "load", "--role", "gateway", "--interface", "eth0", "--vip", self.vip())
        for one in ALL:
            super().start_dispatcher(one)
        self.balance(ALL)

    def balance(self, dispatchers):
        """The gateway has these dispatchers from now on."""
        if "balance" in self.names:
            former = self.names.pop("balance")
            former.kill()
            former.wait()
        targets = [hosts.at(self.address(host), ADMIN_PORT) for host in dispatchers]
        # Whoever does not answer within the interval is sent nothing new.
        self._run("balance", [binary(), "switch", "balance", "--pins", self.pins("gateway"), "--interval-ms", "1s", "--dispatcher", *targets])
        self._await(lambda: self.states() == {host: "takes new" for host in dispatchers}, "the gateway has all dispatchers")

    def states(self) -> dict:
        names = {hosts.mac(host): host for host in ALL}
        return {names[mac]: state for state, mac in re.findall(r"^  (takes new|keeps old) +(\S+)$", self.switch("gateway", "status"), re.MULTILINE)}

    def accepted(self, host: str) -> int:
        """Clients that a dispatcher has had."""
        return self.metric("shunt_dispatch_clients_accepted_total", host)

    def taken(self) -> dict:
        """By dispatcher: clients' connections that agents have said they have."""
        return {host: self.metric("shunt_dispatch_taking_seconds_count", host) for host in ALL}

    def with_large_answers(self) -> dict:
        """For each dispatcher clients that are being sent a large answer, by an agent: curls by the dispatcher."""
        clients = {host: [] for host in ALL}
        while not all(clients.values()):
            port, taken = next(PORTS), self.taken()
            client = self.start_client("--local-port", str(port), self.url(f"/{LARGE}"))
            clients[self.await_taken(port, taken)].append(client)
        return clients

    def await_taken(self, port: int, taken: dict) -> str:
        """The dispatcher of the client with this port, once an agent has said that it has the connection."""
        found = []

        def is_away() -> bool:
            found[:] = [host for host in ALL if re.search(rf"^ +elsewhere +\S+ <- \S+:{port}$", self.switch(host, "status"), re.MULTILINE)
                        and self.metric("shunt_dispatch_taking_seconds_count", host) > taken[host]]
            return bool(found)

        self._await(is_away, "an agent has the connection")
        return found[0]

    def await_state(self, host: str, state: str) -> None:
        self._await(lambda: self.states().get(host) == state, f"for the gateway {host} {state}")


class SeveralOverIp6(Several):
    ip6 = True


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    with Several(tmp_path_factory.mktemp("several"), dispatch_options=DISPATCH) as several:
        (several.files / str(LARGE)).write_bytes(random.Random(9).randbytes(LARGE))
        (several.files / "1000").write_bytes(bytes(1000))
        yield several


def made_whole(several) -> Several:
    """Starts each dispatcher that has ended, and waits until the gateway has all of them."""
    for process in several.processes:
        if process not in several.names.values() and process.poll() is None:
            process.kill()
            process.wait()
    for host in ALL:
        name = "dispatch" + host.removeprefix("dispatcher")
        if name not in several.names or several.names[name].poll() is not None:
            several.names.pop(name, None)
            several.start_dispatcher(host)
    several.balance(ALL)
    return several


def read(clients: list) -> list:
    """Each client with what it will have had: from now on all are read from. An agent that has lost a dispatcher keeps what it is sending for 15 s
    only, and not until something was waited for."""
    pool = ThreadPoolExecutor(len(clients))
    results = [pool.submit(client.communicate, timeout=600) for client in clients]
    pool.shutdown(wait=False)
    return list(zip(clients, results))


def assert_whole(several, clients: list) -> None:
    """Asserts that each of these clients has received its whole answer."""
    wanted = (several.files / str(LARGE)).read_bytes()
    for client, result in clients:
        received, told = result.result()
        expect_whole(client.returncode, received, wanted, told)


def answered(several, times: int) -> None:
    for _ in range(times):
        done = several.curl("client", several.url("/1000"))
        expect_whole(done.returncode, done.stdout, bytes(1000), done.stderr)


@steady
def test_connections_are_spread_and_each_stays_with_its_dispatcher(several):
    before = {host: several.accepted(host) for host in ALL}
    answered(several, 45)
    had = {host: several.accepted(host) - before[host] for host in ALL}
    expect(sum(had.values()) == 45 and min(had.values()) >= 4, had)
    # One connection, moved again and again.
    before = sum(several.accepted(host) for host in ALL)
    done = several.curl("client", *[word for _ in range(6) for word in ("-o", "/dev/null", several.url(f"/{LARGE}"))])
    expect((done.returncode, sum(several.accepted(host) for host in ALL) - before) == (0, 1), done.stderr)


@steady
def test_by_ip6_alone_it_is_the_same(tmp_path):
    with SeveralOverIp6(tmp_path) as several:
        (several.files / "1000").write_bytes(bytes(1000))
        answered(several, 30)
        expect(min(several.accepted(host) for host in ALL) > 0, "each is sent some")


@steady
def test_a_dispatcher_that_is_killed_harms_nobody_whose_answer_was_handed_over(several):
    whole = made_whole(several)
    clients = whole.with_large_answers()
    whole.names.pop("dispatch1").kill()
    clients = read(sum(clients.values(), []))
    whole.await_state("dispatcher1", "keeps old")
    assert_whole(whole, clients)
    answered(whole, 20)


@again_if_paused
def test_a_dispatcher_that_stands_still_takes_nothing_new_and_is_used_again(several):
    whole = made_whole(several)
    clients = whole.with_large_answers()
    whole.signal("dispatch1", signal.SIGSTOP)
    try:
        clients = read(sum(clients.values(), []))
        whole.await_state("dispatcher1", "keeps old")
        assert_whole(whole, clients)
        answered(whole, 20)
    finally:
        whole.signal("dispatch1", signal.SIGCONT)
    whole.await_state("dispatcher1", "takes new")
    answered(whole, 20)


@steady
def test_a_dispatcher_that_drains_finishes_what_it_has_and_others_take_what_is_new(several):
    whole = made_whole(several)
    clients = whole.with_large_answers()
    process = whole.names.pop("dispatch2")
    process.send_signal(signal.SIGTERM)

    def is_seen() -> bool:
        answered(whole, 1)
        return whole.states().get("dispatcher2") == "keeps old"

    # It takes new ones, too, until the gateway sends none any more: nobody is refused.
    whole._await(is_seen, "the gateway has seen it")
    assert_whole(whole, read(sum(clients.values(), [])))

    def has_ended() -> bool:
        answered(whole, 1)
        return process.poll() is not None

    whole._await(has_ended, "it has drained")
    assert process.wait() == 0
    answered(whole, 20)


# Sends a first packet that says that it is from somebody else: by the interface's name, hardware addresses from and to, addresses and ports from and to.
FORGED = """
import socket, struct, sys
here, there, peer, local = (bytes.fromhex(sys.argv[1].replace(":", "")), bytes.fromhex(sys.argv[2].replace(":", "")), socket.inet_aton(sys.argv[3]), socket.inet_aton(sys.argv[4]))
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return struct.pack("!H", ~total & 0xffff)
tcp = struct.pack("!HHIIBBHHH", int(sys.argv[5]), int(sys.argv[6]), 12345, 0, 5 << 4, 2, 64240, 0, 0)
tcp = tcp[:16] + checksum(peer + local + struct.pack("!BBH", 0, 6, len(tcp)) + tcp) + tcp[18:]
ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 1, 0, 64, 6, 0, peer, local)
ip = ip[:10] + checksum(ip) + ip[12:]
sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sender.bind(("eth0", 0))
sender.send(there + here + b"\\x08\\x00" + ip + tcp)
"""


@steady
def test_a_forged_first_packet_takes_no_connection_from_a_dispatcher_that_drains(several):
    """The same holds for a late or doubled first packet of the client itself."""
    whole = made_whole(several)
    port, taken = next(PORTS), whole.taken()
    client = whole.start_client("--local-port", str(port), whole.url(f"/{LARGE}"))
    host = whole.await_taken(port, taken)
    process = whole.names.pop("dispatch" + host.removeprefix("dispatcher"))
    process.send_signal(signal.SIGTERM)
    whole.await_state(host, "keeps old")
    said = [hosts.mac("backend1"), hosts.mac("gateway"), hosts.address("client"), hosts.VIP, str(port), str(whole.port)]
    for _ in range(3):
        subprocess.run(whole.hosts.on("backend1", [sys.executable, "-c", FORGED, *said]), check=True)
    assert_whole(whole, read([client]))
    assert process.wait(DEADLINE_SECONDS) == 0


def test_a_second_one_that_asks_the_dispatchers_is_refused(several):
    whole = made_whole(several)
    target = hosts.at(whole.address(ALL[0]), ADMIN_PORT)
    command = [binary(), "switch", "balance", "--pins", whole.pins("gateway"), "--dispatcher", target]
    done = subprocess.run(whole.hosts.on("gateway", command), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode and "another `shunt switch balance` controls this gateway" in done.stderr
    assert len(whole.states()) == len(ALL)


@steady
def test_dispatchers_come_and_go_under_connections_that_stay(several):
    whole = made_whole(several)
    whole.balance(ALL[:2])
    clients = [whole.start_client(whole.url(f"/{LARGE}")) for _ in range(4)]
    whole._await(lambda: sum(whole.metric("shunt_dispatch_clients", host) for host in ALL[:2]) >= 4, "all are connected")
    before = whole.accepted("dispatcher2")
    whole.balance(ALL)
    answered(whole, 30)
    expect(whole.accepted("dispatcher2") > before, "the third is sent some")
    assert_whole(whole, read(clients))


@steady
def test_without_who_asks_them_the_gateway_goes_on_as_it_was(several):
    whole = made_whole(several)
    former = whole.names.pop("balance")
    former.kill()
    former.wait()
    before = whole.states()
    expect(before == {host: "takes new" for host in ALL}, before)
    answered(whole, 10)
    # Nor does one that cannot see any dispatcher take the last away.
    with whole.hosts.inside("client", lambda: socket.create_server((hosts.address("client"), 0))) as nobody:
        nobody.settimeout(DEADLINE_SECONDS)
        asked = hosts.at(hosts.address("client"), nobody.getsockname()[1])
        whole._run("balance", [binary(), "switch", "balance", "--pins", whole.pins("gateway"), "--interval-ms", "100ms", "--dispatcher", asked])
        for _ in range(4):  # by the next time it has drawn its conclusion from the last
            nobody.accept()[0].close()
    assert whole.states() == before
    answered(whole, 10)

"""Several dispatchers behind one virtual address: a gateway sends each connection to one of them, and what happens to one concerns its own clients alone."""

import hashlib
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
from harness.proxy import binary
from harness.relay import why_not as no_relay

WHY_NOT = hosts.why_not() or no_relay()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

LARGE = 32 << 20
ALL = ("dispatcher", "dispatcher1", "dispatcher2")


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

    def balance(self, dispatchers, wait: bool = True):
        """The gateway has these dispatchers from now on."""
        if "balance" in self.names:
            former = self.names.pop("balance")
            former.kill()
            former.wait()
        targets = [hosts.at(self.address(host), ADMIN_PORT) for host in dispatchers]
        self._run("balance", [binary(), "switch", "balance", "--pins", self.pins("gateway"), "--interval-ms", "200ms", "--dispatcher", *targets])
        if wait:
            self._await(lambda: self.states() == {host: "takes new" for host in dispatchers}, "the gateway has all dispatchers")

    def states(self) -> dict:
        names = {hosts.mac(host): host for host in ALL}
        return {names[mac]: state for state, mac in re.findall(r"^  (takes new|keeps old) +(\S+)$", self.switch("gateway", "status"), re.MULTILINE)}

    def accepted(self, host: str) -> int:
        """Clients that a dispatcher has had."""
        return self.metric(host, "shunt_dispatch_clients_accepted_total")

    def metric(self, host: str, name: str) -> int:
        command, deadline = self.hosts.on(host, ["curl", "-s", f"http://{hosts.at(self.address(host), ADMIN_PORT)}/metrics"]), time.monotonic() + 60
        while True:
            page = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            if found := re.search(rf"^{name} (\d+)$", page, re.MULTILINE):
                return int(found[1])
            assert time.monotonic() < deadline, f"{host} does not tell {name}"
            time.sleep(0.05)

    def start(self, *options: str) -> subprocess.Popen:
        """A client that takes little more than a pipe holds until it is read from."""
        return subprocess.Popen(self.hosts.on("client", ["curl", "-s", "-S", "--max-time", "600", *options]), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def with_large_answers(self) -> dict:
        """For each dispatcher clients that are being sent a large answer, by an agent: curls by the dispatcher."""
        clients, port = {host: [] for host in ALL}, random.randrange(20_000, 30_000)
        while not all(clients.values()):
            port += 1
            taken = {host: self.metric(host, "shunt_dispatch_taking_seconds_count") for host in ALL}
            client = self.start("--local-port", str(port), self.url(f"/{LARGE}"))
            self._await(lambda: self.of(port, taken), "an agent has the connection")
            clients[self.of(port, taken)].append(client)
        return clients

    def of(self, port: int, taken: dict) -> str:
        """The dispatcher of the client with this port, once an agent has said that it has the connection."""
        for host in ALL:
            is_away = re.search(rf"^ +elsewhere +\S+ <- \S+:{port}$", self.switch(host, "status"), re.MULTILINE)
            if is_away and self.metric(host, "shunt_dispatch_taking_seconds_count") > taken[host]:
                return host
        return ""


class SeveralOverIp6(Several):
    ip6 = True


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    with Several(tmp_path_factory.mktemp("several"), dispatch_options=("--handover", "auto", "--drain-delay-ms", "10s")) as several:
        (several.files / str(LARGE)).write_bytes(random.Random(9).randbytes(LARGE))
        (several.files / "1000").write_bytes(bytes(1000))
        yield several


@pytest.fixture
def whole(several):
    """All dispatchers are there, before and after."""
    yield several
    for host in ALL:
        name = "dispatch" + host.removeprefix("dispatcher")
        if name not in several.names or several.names[name].poll() is not None:
            several.names.pop(name, None)
            several.start_dispatcher(host)
    several.balance(ALL)


def read(clients: list) -> list:
    """Each client with what it will have had: from now on all are read from. An agent that has lost a dispatcher keeps what it is sending for 15 s
    only, and not until something was waited for."""
    pool = ThreadPoolExecutor(len(clients))
    results = [pool.submit(client.communicate, timeout=300) for client in clients]
    pool.shutdown(wait=False)
    return list(zip(clients, results))


def assert_whole(several, clients: list) -> None:
    """Of all that are read from."""
    wanted = hashlib.sha256((several.files / str(LARGE)).read_bytes()).digest()
    for client, result in clients:
        received, told = result.result()
        assert (client.returncode, len(received), hashlib.sha256(received).digest()) == (0, LARGE, wanted), told


def answered(several, times: int) -> None:
    for _ in range(times):
        done = several.curl("client", several.url("/1000"))
        assert (done.returncode, done.stdout) == (0, bytes(1000)), done.stderr


def test_connections_are_spread_and_each_stays_with_its_dispatcher(several):
    before = {host: several.accepted(host) for host in ALL}
    answered(several, 45)
    had = {host: several.accepted(host) - before[host] for host in ALL}
    assert sum(had.values()) == 45 and min(had.values()) >= 4, had
    # One connection, moved again and again.
    before = sum(several.accepted(host) for host in ALL)
    done = several.curl("client", *[word for _ in range(6) for word in ("-o", "/dev/null", several.url(f"/{LARGE}"))])
    assert (done.returncode, sum(several.accepted(host) for host in ALL) - before) == (0, 1), done.stderr


def test_by_ip6_alone_it_is_the_same(tmp_path):
    with SeveralOverIp6(tmp_path) as several:
        (several.files / "1000").write_bytes(bytes(1000))
        answered(several, 30)
        assert min(several.accepted(host) for host in ALL) > 0


def test_a_dispatcher_that_is_killed_harms_nobody_whose_answer_was_handed_over(whole):
    clients = whole.with_large_answers()
    whole.names.pop("dispatch1").kill()
    clients = read(sum(clients.values(), []))
    whole._await(lambda: whole.states().get("dispatcher1") == "keeps old", "the gateway has seen it")
    assert_whole(whole, clients)
    answered(whole, 20)


def test_a_dispatcher_that_stands_still_takes_nothing_new_and_is_used_again(whole):
    clients = whole.with_large_answers()
    whole.signal("dispatch1", signal.SIGSTOP)
    try:
        clients = read(sum(clients.values(), []))
        whole._await(lambda: whole.states().get("dispatcher1") == "keeps old", "the gateway has seen it")
        assert_whole(whole, clients)
        answered(whole, 20)
    finally:
        whole.signal("dispatch1", signal.SIGCONT)
    whole._await(lambda: whole.states().get("dispatcher1") == "takes new", "the gateway has seen it")
    answered(whole, 20)


def test_a_dispatcher_that_drains_finishes_what_it_has_and_others_take_what_is_new(whole):
    clients = whole.with_large_answers()
    process = whole.signal("dispatch2", signal.SIGTERM)
    # It takes new ones, too, until the gateway sends none any more: nobody is refused.
    while whole.states().get("dispatcher2") != "keeps old":
        answered(whole, 1)
    assert_whole(whole, read(sum(clients.values(), [])))
    while process.poll() is None:
        answered(whole, 1)
    assert process.wait() == 0
    whole.names.pop("dispatch2")
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


def test_a_forged_first_packet_takes_no_connection_from_a_dispatcher_that_drains(whole):
    """Nor does a late or doubled one of the client itself."""
    # So fast that all is over in a few seconds.
    port, taken = 19_000, {host: whole.metric(host, "shunt_dispatch_taking_seconds_count") for host in ALL}
    client = whole.start("--local-port", str(port), "--limit-rate", "6M", whole.url(f"/{LARGE}"))
    whole._await(lambda: whole.of(port, taken), "an agent has the connection")
    host = whole.of(port, taken)
    name = "dispatch" + host.removeprefix("dispatcher")
    process = whole.signal(name, signal.SIGTERM)
    whole._await(lambda: whole.states().get(host) == "keeps old", "the gateway has seen it")
    said = [hosts.mac("backend1"), hosts.mac("gateway"), hosts.address("client"), hosts.VIP, str(port), str(whole.port)]
    for _ in range(3):
        subprocess.run(whole.hosts.on("backend1", [sys.executable, "-c", FORGED, *said]), check=True)
    assert_whole(whole, read([client]))
    process.wait(90)
    whole.names.pop(name)


def test_a_second_one_that_asks_the_dispatchers_is_refused(whole):
    target = hosts.at(whole.address(ALL[0]), ADMIN_PORT)
    command = [binary(), "switch", "balance", "--pins", whole.pins("gateway"), "--dispatcher", target]
    done = subprocess.run(whole.hosts.on("gateway", command), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode and "another `shunt switch balance` has this gateway" in done.stderr
    assert len(whole.states()) == len(ALL)


def test_dispatchers_come_and_go_under_connections_that_stay(whole):
    whole.balance(ALL[:2])
    clients = [whole.start(whole.url(f"/{LARGE}")) for _ in range(4)]
    whole._await(lambda: sum(whole.metric(host, "shunt_dispatch_clients") for host in ALL[:2]) >= 4, "all are connected")
    before = whole.accepted("dispatcher2")
    whole.balance(ALL)
    answered(whole, 30)
    assert whole.accepted("dispatcher2") > before
    assert_whole(whole, read(clients))


def test_without_who_asks_them_the_gateway_goes_on_as_it_was(whole):
    former = whole.names.pop("balance")
    former.kill()
    former.wait()
    answered(whole, 10)
    # Nor does one that cannot see any dispatcher take the last away.
    whole._run("balance", [binary(), "switch", "balance", "--pins", whole.pins("gateway"), "--interval-ms", "100ms", "--dispatcher", f"{hosts.address('client')}:1"])
    time.sleep(1)
    assert set(whole.states().values()) == {"takes new"} and len(whole.states()) == 3
    answered(whole, 10)

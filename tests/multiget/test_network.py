"""A sidecar whose multigets the network splits, on its own host or at a gateway: what MGET brings is what the servers have, whether the program is there, gone, there again, or knows other servers."""

import json
import random
import signal
import subprocess

import pytest

from harness import hosts
from harness.hosts import Hosts
from harness.proxy import binary
from harness.redis import ANSWER_SECONDS, Multiget, only_with, why_not
from harness.waits import DEADLINE_SECONDS, until

WHY_NOT = hosts.why_not()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing"), only_with(why_not())]

SERVERS = ("backend0", "backend1")
SERVER_PORT, SHIM_PORT, PORT, ADMIN_PORT = 6379, 9700, 6380, 9180
KEYS = [f"key:{number}" for number in range(300)]
# Of how many multigets in a row the network is to split each, which on a busy machine is not so each time.
IN_A_ROW = 10


class Switched(Multiget):
    """A [`Multiget`] with a host for each program. The sidecar is on the host of the client."""

    def __init__(self, directory, splits_at: str, ip6: bool):
        # On a machine that has much else to do an answer is late sooner than lost.
        super().__init__(directory, servers=len(SERVERS), mode="netmc", serve_options=["--resend-ms", "50"])
        self.hosts, self.splits_at, self.ip6 = Hosts(directory / "bpf"), splits_at, ip6

    def __enter__(self):
        self.hosts.__enter__()
        try:
            self.load(self.addresses())
            return super().__enter__()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        super().__exit__()
        subprocess.run(self._switch("clean"), capture_output=True, check=False)
        self.hosts.__exit__()

    def address(self, host: str, port: int) -> str:
        return hosts.at(hosts.address(host, self.ip6), port)

    def addresses(self) -> list:
        return [self.address(host, SHIM_PORT) for host in SERVERS]

    def vip(self) -> str:
        return hosts.at(hosts.VIP6 if self.ip6 else hosts.VIP, SHIM_PORT)

    def load(self, shims: list):
        network = f"{hosts.NETWORK6}:/64" if self.ip6 else f"{hosts.NETWORK}.0/24"
        role = ["multiget-client"] if self.splits_at == "client" else ["multiget-gateway", "--allow", network]
        subprocess.run(self._switch("load", "--role", *role, "--interface", "eth0", "--vip", self.vip(), "--server", *shims), check=True)

    def clean(self):
        subprocess.run(self._switch("clean"), check=True)

    def split(self) -> int:
        """Requests that the program has split."""
        status = subprocess.run(self._switch("status"), capture_output=True, text=True, check=True).stdout
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("split "))

    def _switch(self, action: str, *options) -> list:
        return self.hosts.on(self.splits_at, [binary(), "switch", action, "--pins", self.hosts.pins / "split", *options])

    def start_server(self, index: int):
        self.run(f"redis-{index}", ["redis-server", "--port", SERVER_PORT, "--bind", hosts.address(SERVERS[index], self.ip6), "--protected-mode", "no",
                                     "--save", "", "--appendonly", "no", "--dir", self.directory])

    def start_shim(self, index: int):
        host, allowed = SERVERS[index], f"{hosts.NETWORK6}:/64" if self.ip6 else f"{hosts.NETWORK}.0/24"
        self.run(f"shim-{index}", [binary(), "multiget", "shim", "--listen", self.address(host, SHIM_PORT), "--server", self.address(host, SERVER_PORT),
                                    "--allow", allowed, *self.shim_options])
        self.until(lambda: "listening for datagrams" in self.said(f"shim-{index}"), f"shim {index} listens", f"shim-{index}")

    def start_sidecar(self):
        self.run("sidecar", [binary(), "multiget", "serve", "--listen", f"127.0.0.1:{PORT}", "--server", *(self.address(host, SERVER_PORT) for host in SERVERS),
                              "--shim-port", SHIM_PORT, "--switch", self.vip(), "--from", "[::]:0" if self.ip6 else "0.0.0.0:0",
                              "--admin", f"127.0.0.1:{ADMIN_PORT}", *self.serve_options])
        self.until(lambda: "listening for applications" in self.said("sidecar"), "the sidecar listens", "sidecar")

    def status(self) -> dict:
        page = subprocess.run(self.hosts.on("client", ["curl", "-s", f"http://127.0.0.1:{ADMIN_PORT}/status"]), capture_output=True, check=True).stdout
        return json.loads(page)["multiget"]

    def run(self, name: str, command):
        host = "client" if name == "sidecar" else SERVERS[int(name.rsplit("-", 1)[1])]
        super().run(name, self.hosts.on(host, command))


GATEWAY = ("dispatcher", False)


@pytest.fixture
def tier(tmp_path, request):
    with Switched(tmp_path, *request.param) as tier:
        yield tier


@pytest.fixture
def client(tier):
    """A client of the sidecar, which has filled the servers."""
    import redis

    def connected():
        client = redis.Redis(port=PORT, socket_timeout=ANSWER_SECONDS, single_connection_client=True)

        def is_filled() -> bool:
            try:
                return all(client.set(key, key * (1 + int(key[4:]) % 30)) for key in KEYS)
            except redis.ResponseError:  # a server is not there yet
                return False

        until(is_filled, "all servers are there")
        return client

    with tier.hosts.inside("client", connected) as client:
        yield client


def ask(client, tier, times: int = IN_A_ROW) -> tuple:
    """Some multigets with their right answers; how many requests were left to the switch, and how many parts came to nothing."""
    generator, before = random.Random(times), tier.status()
    for _ in range(times):
        keys = [f"key:{generator.randrange(len(KEYS) + 30)}" for _ in range(generator.randrange(10, 16))]
        numbers = [int(key[4:]) for key in keys]
        expected = [(key * (1 + number % 30)).encode() if number < len(KEYS) else None for key, number in zip(keys, numbers, strict=True)]
        assert client.mget(keys) == expected
    after = tier.status()
    assert after["failed"] == 0 and after["mode"] == "netmc"
    return after["switched"] - before["switched"], after["unswitched"] - before["unswitched"]


def is_switched(client, tier) -> bool:
    before = tier.split()
    switched, unswitched = ask(client, tier)
    return switched == IN_A_ROW and unswitched == 0 and tier.split() == before + switched


@pytest.mark.parametrize("tier", [GATEWAY, ("client", False), ("dispatcher", True), ("client", True)], ids=["gateway", "out", "gateway-ip6", "out-ip6"], indirect=True)
def test_one_request_is_answered_by_all_with_and_without_the_program(tier, client):
    until(lambda: is_switched(client, tier), "the network splits")
    keys = [key for key in KEYS for _ in range(2)]
    assert client.mget(keys) == [(key * (1 + int(key[4:]) % 30)).encode() for key in keys]
    for _ in range(2):
        tier.clean()
        # Of three in a row the sidecar asks again; then it leaves little to the switch.
        ask(client, tier)
        until(lambda: ask(client, tier)[0] < IN_A_ROW, "little is left to the network")
        tier.load(tier.addresses())
        until(lambda: is_switched(client, tier), "the network splits")


@pytest.mark.parametrize("tier", [GATEWAY], ids=["gateway"], indirect=True)
def test_a_program_that_knows_the_servers_in_another_order_misleads_nobody(tier, client):
    until(lambda: is_switched(client, tier), "the network splits")
    tier.clean()
    tier.load(tier.addresses()[::-1])
    ask(client, tier)
    until(lambda: ask(client, tier)[0] < IN_A_ROW, "little is left to the network")

    def is_noticed() -> bool:
        ask(client, tier)
        state = tier.status()
        return state["unswitched"] > 0 and state["foreign"] > 0

    until(is_noticed, "parts that came to nothing, and from another server than meant, are counted")
    tier.clean()
    tier.load(tier.addresses())
    until(lambda: is_switched(client, tier), "the network splits")


@pytest.mark.parametrize("tier", [GATEWAY], ids=["gateway"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_shim_that_is_silent_holds_up_nobody_and_is_sent_its_parts_again(tier, client, number):
    until(lambda: is_switched(client, tier), "the network splits")
    tier.signal("shim-1", number)
    ask(client, tier)
    assert tier.status()["keys_fallen_back"] > 0
    if number == signal.SIGSTOP:
        tier.signal("shim-1", signal.SIGCONT)
    else:
        tier.processes["shim-1"].wait(DEADLINE_SECONDS)
        tier.start_shim(1)
    until(lambda: is_switched(client, tier), "the network splits")

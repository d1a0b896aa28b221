"""Multigets that the network splits: the program is loaded, shown and removed by commands, and leaves tags of VLANs where they are."""

import re
import socket
import struct
import subprocess

import pytest

from harness import hosts
from harness.hosts import Hosts
from harness.proxy import binary
from harness.waits import DEADLINE_SECONDS, until

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

PORT = 9700
SERVERS = ("backend0", "backend1")
ETH_P_ALL, ETH_P_8021Q = 3, 0x8100
SOL_PACKET, PACKET_AUXDATA, SOCK_RAW_BYTES = 263, 8, 4096


class Switched:
    """Hosts, and a program that splits on one of them."""

    def __init__(self, directory, host: str, *options: str, ip6: bool = False):
        self.hosts, self.host, self.ip6, self.options = Hosts(directory / "bpf"), host, ip6, options

    def __enter__(self):
        self.hosts.__enter__()
        try:
            said = self.switch("load", *role_of(self.host, self.ip6), "--interface", "eth0", "--vip", self.vip(), "--server", *self.servers(), *self.options)
            assert "loaded on eth0" in said
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(self.command("clean"), capture_output=True, check=False)
        self.hosts.__exit__()

    def vip(self) -> str:
        return hosts.at(hosts.VIP6 if self.ip6 else hosts.VIP, PORT)

    def servers(self) -> list:
        return [hosts.at(hosts.address(host, self.ip6), PORT) for host in SERVERS]

    def command(self, action: str, *options) -> list:
        return self.hosts.on(self.host, [binary(), "switch", action, "--pins", self.hosts.pins / "split", *options])

    def switch(self, action: str, *options) -> str:
        done = subprocess.run(self.command(action, *options), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, action: str, *options) -> str:
        done = subprocess.run(self.command(action, *options), capture_output=True, text=True, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def counted(self) -> dict:
        found = re.findall(r"^(split|parts|lost|rejected \w+) +(\d+)$", self.switch("status"), re.MULTILINE)
        return {name: int(number) for name, number in found if number != "0"}

    def await_counted(self, **expected: int) -> None:
        """Waits until the counts are these, and no more: the kernel may handle a packet after one that
        was sent later, on another processor."""
        names = {name.replace("_", " "): number for name, number in expected.items()}
        until(lambda: all(self.counted().get(name, 0) >= number for name, number in names.items()), f"{expected}", told=self.counted)
        assert self.counted() == names

    def packets(self, host: str) -> socket.socket:
        """A socket that gets every packet to a host and from it."""
        return self.hosts.inside(host, lambda: opened(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))))

    def datagrams(self, host: str, port: int = 0) -> socket.socket:
        def make():
            made = socket.socket(socket.AF_INET6 if self.ip6 else socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((hosts.address(host, self.ip6), port))
            made.settimeout(DEADLINE_SECONDS)
            return made

        return self.hosts.inside(host, make)


def role_of(host: str, ip6: bool) -> list:
    """Options of who splits there."""
    network = f"{hosts.NETWORK6}:/64" if ip6 else f"{hosts.NETWORK}.0/24"
    return ["--role", "multiget-client"] if host == "client" else ["--role", "multiget-gateway", "--allow", network]


def opened(packets: socket.socket) -> socket.socket:
    packets.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    packets.bind(("eth0", ETH_P_ALL))
    packets.settimeout(DEADLINE_SECONDS)
    return packets


# As in the document of the format, with the servers 1 and 0.
WHOLE = bytes.fromhex("11000001020003600000000201000008000b00026b3100026b32000178")


def part(whole: bytes, number: int) -> bytes:
    """The same by another hand than that of the model: the part of one of the two servers, trimmed."""
    head, keys = bytearray(whole[:18]), whole[18:]
    first = head[12] == number
    head[5], head[6], head[7:9], head[9], head[10] = (0, 2, b"\x80\x00", 0, 3) if first else (1, 1, b"\x00\x00", 2, 3)
    return bytes(head) + (keys[:8] if first else keys[8:])


def summed(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def frame(source: str, target: str, tag: bytes, payload: bytes) -> bytes:
    """To a service, with all sums."""
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">BBH", 0, 17, 8 + len(payload))
    udp = struct.pack(">HHHH", 4000, PORT, 8 + len(payload), 0) + payload
    udp = udp[:6] + struct.pack(">H", 0xFFFF ^ summed(pseudo + udp)) + udp[8:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0x4000, 64, 17, 0) + socket.inet_aton(source) + socket.inet_aton(target)
    ip = ip[:10] + struct.pack(">H", 0xFFFF ^ summed(ip)) + ip[12:]
    return bytes.fromhex("020000000001") + bytes.fromhex(hosts.mac("client").replace(":", "")) + tag + b"\x08\x00" + ip + udp


@pytest.mark.parametrize("host", ["client", "dispatcher"])
@pytest.mark.parametrize("ip6", [False, True])
def test_one_request_reaches_each_server(tmp_path, host, ip6):
    with Switched(tmp_path, host, ip6=ip6) as switched:
        servers = [switched.datagrams(server, PORT) for server in SERVERS]
        client = switched.datagrams("client")
        client.sendto(WHOLE, (hosts.VIP6 if ip6 else hosts.VIP, PORT))
        for number, server in enumerate(servers):
            data, source = server.recvfrom(2000)
            assert data == part(WHOLE, number) and source[:2] == client.getsockname()[:2]
        client.sendto(WHOLE[:-1], (hosts.VIP6 if ip6 else hosts.VIP, PORT))
        client.sendto(WHOLE[:12] + b"\x01\x09" + WHOLE[14:], (hosts.VIP6 if ip6 else hosts.VIP, PORT))
        client.sendto(WHOLE, (hosts.VIP6 if ip6 else hosts.VIP, PORT))
        assert [server.recv(2000) for server in servers] == [part(WHOLE, 0), part(WHOLE, 1)]
        switched.await_counted(split=2, parts=4, rejected_short=1, rejected_unknown=1)
        status = switched.switch("status")
        for number, server in enumerate(switched.servers()):
            assert re.search(rf"^  {number} +{re.escape(server)} at {hosts.mac(SERVERS[number])}$", status, re.MULTILINE), status
        for sockets in (*servers, client):
            sockets.close()
        assert "in use already" in switched.refused("load", "--role", "multiget-client", "--interface", "eth0", "--vip", switched.vip(), "--server", *switched.servers())
        assert "removed what was loaded" in switched.switch("clean")
        assert "nothing is loaded" in switched.refused("status")


def test_a_tag_of_a_vlan_stays_where_it_is(tmp_path):
    with Switched(tmp_path, "client") as switched:
        servers, client = [switched.packets(host) for host in SERVERS], switched.packets("client")
        for tag in (b"", struct.pack(">HH", ETH_P_8021Q, 0x2005)):
            client.send(frame(hosts.address("client"), hosts.VIP, tag, WHOLE))
            for number, server in enumerate(servers):
                data, found = of_service(server)
                assert found == (0x2005 if tag else None)
                ip, udp = data[14:34], data[34:]
                target = hosts.address(SERVERS[number])
                assert data[:6].hex(":") == hosts.mac(SERVERS[number]) and summed(ip) == 0xFFFF and ip[16:] == socket.inet_aton(target)
                assert udp[8:] == part(WHOLE, number) and len(data) == 14 + int.from_bytes(ip[2:4], "big")
                assert summed(ip[12:] + struct.pack(">BBH", 0, 17, len(udp)) + udp) == 0xFFFF
        switched.await_counted(split=2, parts=4)


def test_a_gateway_splits_nothing_that_is_for_another_host(tmp_path):
    with Switched(tmp_path, "dispatcher") as switched:
        client, server = switched.packets("client"), switched.datagrams(SERVERS[0], PORT)
        # The bridge has not heard of the first hardware address, and so all hosts have this. Who leaves in its name has the bridge believe that it is there.
        for own in (False, True):
            data = frame(hosts.address("client"), hosts.VIP, b"", WHOLE)
            client.send(bytes.fromhex(hosts.mac("dispatcher").replace(":", "")) + data[6:] if own else data)
        assert server.recv(2000) == part(WHOLE, 0)
        switched.await_counted(split=1, parts=2)
        server.close()
        client.close()


def of_service(packets: socket.socket) -> tuple:
    """The next datagram for a shim, and its tag, which the kernel has taken out."""
    while True:
        data, extra, _, _ = packets.recvmsg(SOCK_RAW_BYTES, 256)
        status, tag = next((struct.unpack_from("=I", value)[0], struct.unpack_from("=H", value, 16)[0]) for _, kind, value in extra if kind == PACKET_AUXDATA)
        if data[12:14] == b"\x08\x00" and data[23] == 17 and data[36:38] == struct.pack(">H", PORT):
            return data, tag if status & 0x10 else None


def test_a_program_that_cannot_be_loaded_names_the_remedy(tmp_path):
    with Switched(tmp_path, "client", "--parts", "full") as switched:
        switched.switch("clean")
        role = ("load", "--role", "multiget-client", "--interface", "eth0")
        for options, why in (
            (("--vip", switched.vip()), "--server"),
            (("--server", "10.99.0.31:9700"), "--vip"),
            (("--vip", switched.vip(), "--server", "10.99.0.31:9700", "10.99.0.31:9700"), "named twice"),
            (("--vip", switched.vip(), "--server", switched.vip()), "is also the address of a server"),
            (("--vip", switched.vip(), "--server", "[fd00:99::31]:9700"), "differ in kind"),
            (("--vip", switched.vip(), "--server", "10.99.0.31"), "give ADDR:PORT"),
            (("--vip", switched.vip(), "--server", "10.99.0.31:9700=01:00:00:00:00:00"), "is no hardware address"),
            (("--vip", switched.vip(), "--server", "10.99.0.77:9700"), "10.99.0.77 has not said within 3 s"),
            (("--vip", switched.vip(), "--server", "10.99.0.31:9700", "10.99.0.11:9700"), "10.99.0.11 is this host's own address"),
            (("--vip", "10.5.0.1:9700", "--server", "10.99.0.31:9700"), "knows no way to 10.5.0.1"),
            (("--vip", switched.vip(), "--server", "10.99.0.31:9700", "--servers-interface", "eth7"), "there is no interface eth7"),
        ):
            assert why in switched.refused(*role, *options), options
        gateway = ("load", "--role", "multiget-gateway", "--interface", "eth0", "--vip", switched.vip(), "--server", "10.99.0.31:9700")
        assert "--allow" in switched.refused(*gateway)
        assert "such as 10.0.0.0/8" in switched.refused(*gateway, "--allow", "10.0.0/8")
        for rate, shown in (((), "200000 requests a second"), (("--rate-max", "7"), "7 requests a second"), (("--rate-max", "0"), "")):
            switched.switch(*gateway, "--allow", "10.0.0.0/8", *rate)
            assert shown in switched.switch("status") and ("a second" in switched.switch("status")) == bool(shown)
            switched.switch("clean")
        assert "loaded on eth0" in switched.switch(*role, "--vip", switched.vip(), "--server", "10.99.0.77:9700=02:00:00:00:01:31")

"""Hosts that are network namespaces on one bridge: a client, a dispatcher and backends, which have a virtual address; or several dispatchers behind a
gateway. It takes root, iproute2, and a kernel with BPF."""

import ctypes
import os
import subprocess
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NETWORK, VIP = "10.99.0", "10.99.0.100"
NETWORK6, VIP6 = "fd00:99:", "fd00:99::100"
NUMBERS = {"client": 11, "gateway": 19, "dispatcher": 20, "dispatcher1": 21, "dispatcher2": 22,
           **{f"backend{index}": 31 + index for index in range(5)}}
PREFIX = "shunt-hosts-"
CLONE_NEWNET = 0x40000000


def why_not() -> str:
    """The missing tool or right, if there is one."""
    if os.geteuid() != 0:
        return "hosts of its own take root"
    for tool in ("ip", "nsenter", "clang"):
        if subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, check=False).returncode != 0:
            return f"{tool} is missing: scripts/prerequisites net"
    name = f"{PREFIX}{uuid.uuid4().hex[:8]}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"no network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def run(command: str) -> None:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")


class Hosts:
    """The hosts. They are gone with this, and those of a process that was killed go with the next."""

    def __init__(self, pins: Path, gateway: bool = False, backends: int = 2):
        self.name, self.pins, self.gateway = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:4]}-", pins, gateway
        self.backends = [f"backend{index}" for index in range(backends)]
        left_out = {host for host in NUMBERS if host.startswith("backend")} - set(self.backends)
        left_out |= set() if gateway else {"gateway", "dispatcher1", "dispatcher2"}
        self.all = [host for host in NUMBERS if host not in left_out]

    def __enter__(self) -> "Hosts":
        sweep()
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        remove(self.name)
        subprocess.run(["umount", "-l", str(self.pins)], capture_output=True, check=False)

    def _make(self) -> None:
        self.pins.mkdir(parents=True, exist_ok=True)
        run(f"mount -t bpf bpf {self.pins}")
        switch = f"{self.name}switch"
        run(f"ip netns add {switch} && ip -n {switch} link add bridge type bridge && ip -n {switch} link set bridge up")
        for host in self.all:
            of, number = self.name + host, NUMBERS[host]
            run(f"ip netns add {of} && ip -n {switch} link add {host} type veth peer name eth0 netns {of} address {mac(host)} && "
                f"ip -n {switch} link set {host} master bridge up && ip -n {of} link set lo up && ip -n {of} link set eth0 up && "
                f"ip -n {of} addr add {NETWORK}.{number}/24 dev eth0 && ip -n {of} addr add {NETWORK6}:{number}/64 dev eth0 nodad")
            if host.startswith("backend") or self.gateway and host.startswith("dispatcher"):
                run(f"nsenter --net=/run/netns/{of} sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 && "
                    f"ip -n {of} addr add {VIP}/32 dev lo && ip -n {of} addr add {VIP6}/128 dev lo nodad preferred_lft 0")
        of = f"{self.name}{'gateway' if self.gateway else 'dispatcher'}"
        run(f"ip -n {of} addr add {VIP}/32 dev eth0 && ip -n {of} addr add {VIP6}/128 dev eth0 nodad preferred_lft 0")

    def on(self, host: str, command: list) -> list:
        """The same command, run on a host."""
        return ["nsenter", f"--net=/run/netns/{self.name}{host}", *map(str, command)]

    def inside(self, host: str, work):
        """The result of a function that runs on a host, such as a socket, which stays there."""
        with open("/proc/thread-self/ns/net", "rb") as here, open(f"/run/netns/{self.name}{host}", "rb") as there:
            enter(there)
            try:
                return work()
            finally:
                enter(here)

    def impair(self, lost: int, doubled: int, ends_of: int = 0) -> None:
        """Loses, or sends twice, this many of a hundred packets on their way out of any host, and loses each FIN from the port `ends_of`.
        Zeros end that."""
        for host in self.all:
            subprocess.run(self.on(host, ["tc", "qdisc", "del", "dev", "eth0", "clsact"]), capture_output=True, check=False)
        if not lost and not doubled and not ends_of:
            return
        made = self.pins.with_name("impair.o")
        include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
        run(f"clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 {include} -DLOST={lost} -DDOUBLED={doubled} -DENDS_OF={ends_of} -c {ROOT}/bpf/impair.bpf.c -o {made}")
        for host in self.all:
            for command in (["tc", "qdisc", "add", "dev", "eth0", "clsact"],
                            ["tc", "filter", "add", "dev", "eth0", "egress", "bpf", "da", "obj", made, "sec", "classifier"]):
                subprocess.run(self.on(host, command), capture_output=True, text=True, check=True)

    def limit(self, host: str, rate_mbit: int) -> None:
        """A host may send so much; 0: as much as it can."""
        subprocess.run(self.on(host, ["tc", "qdisc", "del", "dev", "eth0", "root"]), capture_output=True, check=False)
        if rate_mbit:
            limits = ["rate", f"{rate_mbit}mbit", "burst", "128k", "latency", "400ms"]
            subprocess.run(self.on(host, ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *limits]), capture_output=True, check=True)

    def sent_again(self, host: str) -> int:
        """Segments of TCP that a host has sent once more."""
        out = subprocess.run(self.on(host, ["cat", "/proc/net/snmp"]), capture_output=True, text=True, check=True).stdout
        names, values = (line.split() for line in out.splitlines() if line.startswith("Tcp:"))
        return int(values[names.index("RetransSegs")])

    def sent(self, host: str) -> int:
        """Bytes that a host has sent."""
        out = subprocess.run(self.on(host, ["cat", "/proc/net/dev"]), capture_output=True, text=True, check=True).stdout
        return next(int(line.split(":")[1].split()[8]) for line in out.splitlines() if line.strip().startswith("eth0:"))


def enter(namespace) -> None:
    """This thread is in that network from now on. (Python has it as os.setns from 3.12 on.)"""
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def address(host: str, ip6: bool = False) -> str:
    return f"{NETWORK6}:{NUMBERS[host]}" if ip6 else f"{NETWORK}.{NUMBERS[host]}"


def at(address: str, port: int) -> str:
    """Both in one word."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def mac(host: str) -> str:
    return f"02:00:00:00:01:{NUMBERS[host]}"


def names() -> list:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)]


def remove(prefix: str) -> None:
    for name in names():
        if name.startswith(prefix):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def sweep() -> None:
    """Removes hosts whose process is gone."""
    for name in names():
        owner = name.removeprefix(PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            remove(f"{PREFIX}{owner}-")

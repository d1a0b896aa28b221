"""Proxies in network namespaces of their own. What they send each other, the node and the clients passes a router, another namespace,
that can lose all that one sends to another. Needs root."""

import os
import subprocess
from pathlib import Path

from harness.waits import until

PREFIX, INTERFACE = "10.74", "shunt-cuts"  # of an interface of this host, which is removed with the router
NODE = f"{PREFIX}.0.1"


class Namespace:
    """A network namespace, for as long as its process runs, which ends with this one."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        self.within = ["nsenter", "--target", str(self.holder.pid), "--net"]
        own = os.readlink("/proc/self/ns/net")

        def is_made() -> bool:
            if self.holder.poll() is not None:
                raise RuntimeError("unshare --net has made no namespace")
            return os.readlink(f"/proc/{self.holder.pid}/ns/net") != own

        until(is_made, "unshare --net has made a namespace", every_seconds=0.01)
        self.ip("link set lo up")

    def ip(self, arguments: str) -> None:
        ip([*self.within, "ip"], arguments)

    def close(self) -> None:
        self.holder.kill()
        self.holder.wait()
        self.holder.stdin.close()


def ip(command: list, arguments: str) -> None:
    done = subprocess.run([*command, *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {arguments}: {done.stderr.strip()}")


class Network:
    """`hosts` has (address, command that runs something there) of each proxy. This host has the addresses of nodes, as many as are named by
    their last number, and one that clients connect from. Two networks at a time need a prefix and an interface each."""

    def __init__(self, proxies: int, prefix: str = PREFIX, interface: str = INTERFACE, nodes=(1,)):
        self.lost, self.interface = set(), interface
        self.nodes, clients = [f"{prefix}.0.{number}" for number in nodes], f"{prefix}.0.253"
        self.router = Namespace()
        self.namespaces = [Namespace() for _ in range(proxies)]
        self.hosts = [(f"{prefix}.{number}.1", namespace.within) for number, namespace in enumerate(self.namespaces, 1)]
        try:
            forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done"
            subprocess.run([*self.router.within, "sh", "-c", forward], check=True)
            self._link(["ip"], os.getpid(), f"{prefix}.0", interface, (*self.nodes, clients))
            ip(["ip"], f"route add {prefix}.0.0/16 via {prefix}.0.254 src {clients}")
            for number, namespace in enumerate(self.namespaces, 1):
                self._link([*namespace.within, "ip"], namespace.holder.pid, f"{prefix}.{number}", "eth0", (self.hosts[number - 1][0],))
                namespace.ip(f"route add default via {prefix}.{number}.254")
        except BaseException:
            self.close()
            raise

    def _link(self, command: list, process: int, subnet: str, name: str, addresses: tuple) -> None:
        """A wire from the router to where that process is."""
        number = subnet.rsplit(".", 1)[1]
        self.router.ip(f"link add name to{number} type veth peer name {name} netns {process}")
        self.router.ip(f"address add {subnet}.254/24 dev to{number}")
        self.router.ip(f"link set to{number} up")
        for address in addresses:
            ip(command, f"address add {address}/24 dev {name}")
        ip(command, f"link set {name} up")

    def lose(self, source: str, target: str) -> None:
        """From now on nothing that one address sends to another arrives, and nobody is told."""
        self.router.ip(f"rule add from {source} to {target} blackhole")
        self.lost.add((source, target))

    def mend(self) -> None:
        for source, target in self.lost:
            self.router.ip(f"rule del from {source} to {target} blackhole")
        self.lost.clear()

    def close(self) -> None:
        for namespace in (self.router, *self.namespaces):
            namespace.close()
        # The interfaces go with the namespace of their other ends, a moment after its last process.
        interface = Path(f"/sys/class/net/{self.interface}")
        until(lambda: not interface.exists(), f"{interface} is gone", every_seconds=0.01)

"""A fleet of proxies before nodes, and clients that take locks through it."""

import os
import subprocess
import threading
import time
from contextlib import contextmanager

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy, WhiteListRoundRobinPolicy
from cassandra.query import dict_factory

from harness import jars, proxy
from harness.cluster import SUPERUSER
from harness.cluster import Cluster as Ring
from harness.driver import PATIENT
from harness.embedded import Embedded

LEASE_MS = 3000  # in the tests of faults, which wait for it
NETWORK = os.environ.get("SHUNT_FLEET_NETWORK", "127.0.3")  # of the proxies and the embedded node; another for a second run beside
# Of the protocol, which clients use of whom it does not matter otherwise.
VERSIONS = [int(version) for version in os.environ.get("SHUNT_FLEET_VERSIONS", "3 4 5").split()]


@contextmanager
def nodes(name: str, port: int):
    """(contact points, replicas of a fleet's tables) of the ring that SHUNT_RING names, or of an embedded node."""
    ring = os.environ.get("SHUNT_RING")
    if ring:
        yield ring, 3
        return
    contact = f"{NETWORK}.10:{port}"
    with Embedded(f"{name}-{NETWORK}", contact, ["node", "--listen", contact, "--admin", "off"], [contact]):
        yield contact, 1


class Fleet:
    """Proxies of one fleet, each a process of its own. `hosts` has the address of each, and the command that runs it there."""

    def __init__(self, contact_points: str, name: str, replicas: int, port: int, lease_ms: int, memory_ttl_ms: int, proxies: int = 3,
                 login: tuple | None = None, network: str = NETWORK, more=(), hosts=None, query_timeout_ms: int = 4000, lock_wait_max_ms: int = 30_000):
        self.login = login
        self.contact_points, self.name, self.replicas = contact_points, name, replicas
        self.lease_ms, self.memory_ttl_ms = lease_ms, memory_ttl_ms
        options = ["--fleet", name, "--fleet-replicas-min", str(replicas), "--lock-wait-max-ms", str(lock_wait_max_ms), "--cores", "2",
                   "--query-timeout-ms", str(query_timeout_ms), *more]
        logs = jars.TARGET / "ring"
        self.tool_options = []
        if login:
            logs.mkdir(parents=True, exist_ok=True)
            password = logs / f"fleet-{name}-{network}-password"
            password.write_text(login[1])
            self.tool_options = ["--username", login[0], "--password-file", str(password)]
            options += self.tool_options
        hosts = hosts or [(f"{network}.{number}", ()) for number in range(1, proxies + 1)]
        self.proxies = [proxy.Proxy(contact_points, listen=f"{host}:{port}", admin=f"{host}:{port + 1}", options=options, within=within,
                                    log=logs / f"fleet-{name}-{network}-{number}.log") for number, (host, within) in enumerate(hosts, 1)]

    def start(self) -> "Fleet":
        # Fleets of other tests before the same nodes do not run any more.
        made = subprocess.run([str(proxy.binary()), "fleet", "init", "--contact-points", self.contact_points, "--name", self.name, "--beside-others",
                               "--replicas", str(self.replicas), "--lease-ms", str(self.lease_ms), "--max-ttl-ms", str(self.memory_ttl_ms), *self.tool_options],
                              capture_output=True, text=True, timeout=240, check=False)
        if made.returncode:
            raise RuntimeError(f"shunt fleet init: {made.stderr}")
        for one in self.proxies:
            one.start()
        self.wait_until_settled(len(self.proxies))
        return self

    def stop(self) -> None:
        for one in self.proxies:
            if one.process is not None:
                one.kill()

    def status(self, *more: str) -> str:
        return subprocess.run([str(proxy.binary()), "fleet", "status", "--contact-points", self.contact_points, "--name", self.name,
                               *self.tool_options, *more],
                              capture_output=True, text=True, timeout=120, check=True).stdout

    def shards(self) -> dict:
        """How many shards each live member has, by address."""
        rows = [line.split() for line in self.status().splitlines()[2:]]
        return {row[0]: int(row[2]) for row in rows if row[1] == "live"}

    def wait_until_settled(self, members: int, within_seconds: float = 120) -> None:
        """Until so many members have all shards among them, evenly."""
        deadline = time.monotonic() + within_seconds
        while True:
            try:
                shards = self.shards()
            except subprocess.SubprocessError:  # a node that does not answer in time, which is no more than another moment
                shards = {}
            if len(shards) == members and sum(shards.values()) == 64 and max(shards.values()) - min(shards.values()) <= 1:
                return
            if time.monotonic() > deadline:
                logs = "\n".join(one.log_tail() for one in self.proxies)
                raise RuntimeError(f"the fleet has not settled:\n{self.status()}\n{logs}")
            time.sleep(0.1)

    @contextmanager
    def without(self, victim: proxy.Proxy):
        """One stands still; when the others have its shards, what is in the block goes on, and then so does it."""
        victim.pause()
        try:
            self.wait_until_settled(len(self.proxies) - 1)
            yield
        finally:
            victim.resume()

    def connect(self, to: int | None = None, version: int = 4, timeout_seconds: float = 40, login: tuple | None = None,
                heartbeat_seconds: float = 60, **more):
        """A session that goes round all proxies, or keeps to one of them. Who goes on while a proxy stands still, which answers nothing, learns of
        it by heartbeats; to all others they would take a machine that is busy for such a proxy, and what was asked of it would be asked twice."""
        hosts = [one.host for one in self.proxies]
        policy = RoundRobinPolicy() if to is None else WhiteListRoundRobinPolicy([hosts[to]])
        profile = ExecutionProfile(load_balancing_policy=policy, request_timeout=timeout_seconds, row_factory=dict_factory,
                                   consistency_level=ConsistencyLevel.QUORUM)
        contact = hosts if to is None else [hosts[to]]
        more = {**PATIENT, **more}
        cluster = Cluster(contact, port=self.proxies[0].port, protocol_version=version,
                          idle_heartbeat_interval=heartbeat_seconds, idle_heartbeat_timeout=max(2, heartbeat_seconds),
                          execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                          auth_provider=PlainTextAuthProvider(*login) if login else None, **more)
        return cluster.connect()


@contextmanager
def with_logins(name: str, first: int, network: str, cache_ms: int):
    """A fleet of two proxies, not started yet, before a node of its own with PasswordAuthenticator and CassandraAuthorizer, which remembers no
    permissions itself. `first`: of the last numbers of addresses, by which the node's port for JMX goes too, on 127.0.0.1, beside those of other
    rings."""
    ring = Ring(name, nodes=1, first=first, authentication=True, network=network)
    ring.start(wipe=True)
    fleet = Fleet(ring.contacts, "permissions", 1, 9370, 6_000, 30_000, proxies=2, login=SUPERUSER, network=network,
                  more=["--auth-cache-ms", str(cache_ms)])
    try:
        yield fleet
    finally:
        fleet.stop()
        ring.stop(wipe=True)


class Grants:
    """What clients know of one lock: grants in the order in which they were begun to be counted on. Any two of one lock that
    overlap, and any fence that is not above all that were granted before, is a fault."""

    def __init__(self):
        self.guard = threading.Lock()
        self.faults, self.count = [], 0
        self.holder = {}
        self.highest = {}

    def granted(self, lock: str, owner: str, fence: int) -> None:
        with self.guard:
            self.count += 1
            if lock in self.holder:
                self.faults.append(f"{lock}: {owner} was granted it while {self.holder[lock]} held it")
            if fence <= self.highest.get(lock, 0):
                self.faults.append(f"{lock}: {owner} has fence {fence} after {self.highest[lock]}")
            self.highest[lock] = max(fence, self.highest.get(lock, 0))
            self.holder[lock] = owner

    def ends(self, lock: str, owner: str) -> None:
        """Before the release is sent, or when the client may not count on the lock any more."""
        with self.guard:
            if self.holder.get(lock) == owner:
                del self.holder[lock]


class Threads:
    """Clients, each a thread that goes on until the block is left."""

    threads = ()
    going = True

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        for thread in self.threads:
            thread.join(90)
        assert not any(thread.is_alive() for thread in self.threads), "a client has no answer"


class Workers(Threads):
    """Clients that take locks, hold them for a moment and release them, whatever happens to the proxies."""

    def __init__(self, fleet: Fleet, table: str, locks: int, clients: int, ttl_seconds: int):
        self.fleet, self.table, self.ttl = fleet, table, ttl_seconds
        self.names = [f"{table}-{number}" for number in range(locks)]
        self.grants = Grants()
        self.errors = {}
        self.session = fleet.connect(timeout_seconds=3, heartbeat_seconds=2)
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(clients)]

    def __exit__(self, *_):
        super().__exit__()
        self.session.cluster.shutdown()

    def work(self, number: int) -> None:
        count = 0
        while self.going:
            count += 1
            name, owner = self.names[(number + count) % len(self.names)], f"{number}-{count}"
            try:
                self.once(name, owner)
            except Exception as error:  # noqa: BLE001 (every error that a fault causes is one that clients get)
                kind = type(error).__name__
                self.errors[kind] = self.errors.get(kind, 0) + 1
                self.grants.ends(name, owner)
                time.sleep(0.05)

    def once(self, name: str, owner: str) -> None:
        asked = time.monotonic()
        acquire = f"INSERT INTO shunt.{self.table} (name, owner, wait_ms) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL {self.ttl}"
        row = self.session.execute(acquire, (name, owner, 500)).one()
        if not row["[applied]"]:
            return
        # A client counts its time from when it asked, and holds the lock for a small part of it. One that was answered later than
        # that must not count on the lock.
        if time.monotonic() - asked > self.ttl / 2:
            return
        self.grants.granted(name, owner, row["fence"])
        time.sleep(0.002)
        self.grants.ends(name, owner)
        self.session.execute(f"DELETE FROM shunt.{self.table} WHERE name = %s IF owner = %s AND fence = %s", (name, owner, row["fence"]))

    def wait_for_grants(self, more: int, within_seconds: float = 120) -> None:
        """Until so many locks more were granted."""
        wanted, deadline = self.grants.count + more, time.monotonic() + within_seconds
        while self.grants.count < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.grants.count} of {wanted} grants; errors: {self.errors}\n{self.fleet.status()}")
            time.sleep(0.05)

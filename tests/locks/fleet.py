"""A fleet of proxies before nodes, and clients that take locks through it."""

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import contextmanager

from cassandra import ConsistencyLevel, ReadTimeout
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
)
from cassandra.connection import ConnectionShutdown
from cassandra.policies import RoundRobinPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import IsBootstrappingErrorMessage
from cassandra.query import dict_factory
from harness import jars, proxy
from harness.cluster import SUPERUSER
from harness.cluster import Cluster as Ring
from harness.driver import PATIENT
from harness.embedded import Embedded
from harness.waits import DEADLINE_SECONDS, Late, until

LEASE_MS = 3000  # in the tests of faults, which wait for it
# Where nobody waits for it. It is renewed at a third, so a machine that stands still for 10 s does
# not end it.
STEADY_LEASE_MS = 20_000
# Of a client of `Workers` between two locks, so that a test which waits for a lease leaves the
# processors to others.
PAUSE_SECONDS = 0.02
NOT_ANSWERED = 4  # exit code of commands: no node answered, or not every proxy
LATE = re.compile("[Tt]imed out|nobody knows|it is not known whether|ask again|ask the next host")
NETWORK = os.environ.get("SHUNT_FLEET_NETWORK", "127.0.3")  # of the proxies and the embedded node; another for a second run beside
# The driver's own errors for a host to which it has sent nothing.
NOT_ASKED = ("Host has been marked down or removed", "Pool is shutdown")
# The end of what it says of a connection on which it could send nothing any more.
NOT_SENT = (" is closed", " is defunct")
# What a proxy says that waited for other transactions as long as a query may take.
NOT_DONE = "nothing was written, ask again"
CHANGES_A_LOCK = re.compile(r"\s*(INSERT|UPDATE|DELETE)\b.*\bshunt\.\w*locks\b", re.DOTALL)
# For fleets whose nodes nobody stops: a late one loses no link.
NODE_SILENCE = ["--node-silence-ms", "60000"]
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


def run(*arguments) -> subprocess.CompletedProcess:
    """The result of a command of shunt."""
    return subprocess.run([str(proxy.binary()), *arguments], capture_output=True, text=True,
                          timeout=DEADLINE_SECONDS, check=False)


def is_late(done: subprocess.CompletedProcess) -> bool:
    """Whether a command has failed because a node or a proxy was late, or said so of another."""
    return done.returncode == NOT_ANSWERED or bool(done.returncode and LATE.search(done.stderr))


def command(*arguments) -> subprocess.CompletedProcess:
    """The result of a command, which runs again if it had no answer in time."""
    late = []

    def done():
        late[:] = [run(*arguments)]
        return None if is_late(late[0]) else late[0]

    return until(done, f"an answer to shunt {arguments}", told=lambda: late)


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
        options = ["--beside-others", "--replicas", str(self.replicas)]
        times = ["--lease-ms", str(self.lease_ms), "--max-ttl-ms", str(self.memory_ttl_ms)]
        made = command(*self.words("init", *options, *times))
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

    def words(self, action: str, *more: str) -> list:
        """A command on the fleet, as operators give it."""
        of_fleet = ["--contact-points", self.contact_points, "--name", self.name]
        return ["fleet", action, *of_fleet, *self.tool_options, *more]

    def status(self, *more: str) -> str:
        """The output of the command, which runs again if a node did not answer it in time."""
        failed = []

        def printed() -> str | None:
            done = run(*self.words("status", *more))
            failed[:] = [done.stderr]
            return done.stdout if done.returncode == 0 else None

        return until(printed, f"the status of fleet {self.name}", told=lambda: failed)

    def shards(self) -> dict:
        """The number of shards of each live member, by address."""
        rows = [line.split() for line in self.status().splitlines()[2:]]
        return {row[0]: int(row[2]) for row in rows if row[1] == "live"}

    def wait_until_settled(self, members: int, within_seconds: float = DEADLINE_SECONDS) -> None:
        """Until so many members have all shards among them, evenly."""

        def is_settled() -> bool:
            self.check()
            shards = self.shards()
            counts = shards.values()
            is_all = len(shards) == members and sum(counts) == 64
            return is_all and max(counts) - min(counts) <= 1

        until(is_settled, f"fleet {self.name} is settled", within_seconds,
              told=lambda: "\n".join([self.status(), *(one.log_tail() for one in self.proxies)]))

    def check(self) -> None:
        """No proxy has ended but by a signal of a test's, or in order."""
        ended = [one for one in self.proxies if one.process is not None and not one.alive()]
        for one in ended:
            code = one.process.returncode
            assert code in (0, -signal.SIGKILL), (code, one.log_tail())

    @contextmanager
    def without(self, victim: proxy.Proxy):
        """One stands still; when the others have its shards, what is in the block goes on, and then so does it."""
        victim.pause()
        try:
            self.wait_until_settled(len(self.proxies) - 1)
            yield
        finally:
            victim.resume()

    def connect(self, to: int | None = None, version: int = 4, timeout_seconds: float = 120,
                login: tuple | None = None, heartbeat_seconds: float = 60, **more):
        """A session that goes round all proxies, or keeps to one of them. Who goes on while a proxy stands still, which answers nothing, learns of
        it by heartbeats; to all others they would take a machine that is busy for such a proxy, and what was asked of it would be asked twice."""
        hosts = [one.host for one in self.proxies]
        policy = RoundRobinPolicy() if to is None else WhiteListRoundRobinPolicy([hosts[to]])
        profile = ExecutionProfile(load_balancing_policy=policy, request_timeout=timeout_seconds, row_factory=dict_factory,
                                   consistency_level=ConsistencyLevel.QUORUM)
        contact = hosts if to is None else [hosts[to]]
        # Each session would read all tables of all tests when it connects, and whenever one is made.
        more = {"schema_metadata_enabled": False, **PATIENT, **more}
        heartbeat_timeout = heartbeat_seconds if 0 < heartbeat_seconds < 60 else DEADLINE_SECONDS

        def connected():
            cluster = Cluster(contact, port=self.proxies[0].port, protocol_version=version,
                              idle_heartbeat_interval=heartbeat_seconds,
                              idle_heartbeat_timeout=heartbeat_timeout,
                              execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                              auth_provider=PlainTextAuthProvider(*login) if login else None, **more)
            try:
                return cluster.connect()
            except NoHostAvailable as error:
                cluster.shutdown()
                # The driver reads the schema once. A busy machine may answer after the fleet's time-out.
                late = [isinstance(one, ReadTimeout) for one in error.errors.values()]
                if not late or not all(late):
                    raise
                said[:] = [repr(error)]

        said = []
        return until(connected, "a driver has read the schema", told=lambda: said)


def is_refused_by_all(error: NoHostAvailable) -> bool:
    """Every proxy has said that it has done nothing, or was not asked: the driver had it down."""
    # The driver notes the last error after it has raised this. Without any it had no host to ask.
    if not error.errors:
        time.sleep(0.5)
    return all(is_refusal(one) for one in list(error.errors.values()))


def is_refusal(error) -> bool:
    """The statement was certainly not executed."""
    if isinstance(error, ConnectionShutdown) and str(error).endswith(NOT_SENT):
        return True
    return isinstance(error, IsBootstrappingErrorMessage) or str(error) in NOT_ASKED or NOT_DONE in str(error)


def lost_tries(future) -> list:
    """What the driver knows of the tries of a statement that may have been executed, before the one that was answered. It
    renews its connections when a proxy comes back, and sends what was under way on an old one to the next host. The answer
    says nothing about a lock then: the first try may have changed it."""
    return [one for one in list(future._errors.values()) if not is_refusal(one)]


def insistent(session):
    """The session, whose statements are asked again where all proxies have refused them: one that
    did not run for as long as its lease lasts, on a machine that stood still, has to become a
    member again."""
    execute = session.execute

    def execute_until_served(statement, *arguments, **named):
        refused = []

        def answer() -> list | None:
            try:
                result = execute(statement, *arguments, **named)
                lost = lost_tries(result.response_future)
                if lost and CHANGES_A_LOCK.match(str(statement)):
                    raise Late(f"{statement} may have been executed twice: {lost}")
                return [result]
            except NoHostAvailable as error:
                if not is_refused_by_all(error):
                    raise
                refused[:] = [repr(error)]

        return until(answer, f"some proxy serves {statement}", told=lambda: refused)[0]

    session.execute = execute_until_served
    return session


@contextmanager
def with_logins(name: str, network: str, cache_ms: int):
    """A fleet of two proxies, not started yet, before a node of its own with PasswordAuthenticator and CassandraAuthorizer,
    which remembers no permissions itself."""
    ring = Ring(name, nodes=1, authentication=True, network=network)
    ring.start(wipe=True)
    fleet = Fleet(ring.contacts, "permissions", 1, 9370, STEADY_LEASE_MS, 600_000, proxies=2,
                  login=SUPERUSER, network=network, more=["--auth-cache-ms", str(cache_ms)])
    try:
        yield fleet
    finally:
        fleet.stop()
        ring.stop(wipe=True)


class Grants:
    """Grants of locks, in the order in which clients began to count on them. A grant that overlaps
    another of the same lock is a fault, and so is a fence that is not above every earlier one."""

    def __init__(self):
        self.guard = threading.Lock()
        self.faults, self.count = [], 0
        self.holder = {}  # by lock: who counts on it, and until when
        self.highest = {}

    def granted(self, lock: str, owner: str, fence: int, until: float) -> bool:
        """Whether the client may count on it. One that stood still until its time was over may
        not."""
        with self.guard:
            now = time.monotonic()
            if now >= until:
                return False
            self.count += 1
            holder, its_end = self.holder.get(lock, (None, now))
            if now < its_end:
                self.faults.append(f"{lock}: {owner} was granted it while {holder} held it")
            if fence <= self.highest.get(lock, 0):
                self.faults.append(f"{lock}: {owner} has fence {fence} after {self.highest[lock]}")
            self.highest[lock] = max(fence, self.highest.get(lock, 0))
            self.holder[lock] = owner, until
            return True

    def ends(self, lock: str, owner: str) -> None:
        """Before the release is sent, or when the client may not count on the lock any more."""
        with self.guard:
            if self.holder.get(lock, (None,))[0] == owner:
                del self.holder[lock]


class Threads:
    """Clients, each a thread that goes on until the block is left."""

    threads = ()
    going = True

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, failed=None, *_):
        self.going = False
        deadline = time.monotonic() + DEADLINE_SECONDS
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))
        # What has failed in the block is not to be hidden by this.
        if failed is None and any(thread.is_alive() for thread in self.threads):
            raise Late("a client has no answer")


class Workers(Threads):
    """Clients that take locks, hold them for a moment and release them, whatever happens to the proxies."""

    def __init__(self, fleet: Fleet, table: str, locks: int, clients: int, ttl_seconds: int):
        self.fleet, self.table, self.ttl = fleet, table, ttl_seconds
        self.names = [f"{table}-{number}" for number in range(locks)]
        self.grants = Grants()
        self.errors = {}
        self.turns = [0] * clients  # that each has ended
        # They are to learn soon of a proxy that stands still. What they are not told in time they
        # take for lost, and go on.
        self.session = fleet.connect(timeout_seconds=3, heartbeat_seconds=2)
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(clients)]

    def __exit__(self, *error):
        super().__exit__(*error)
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
            self.turns[number] = count
            time.sleep(PAUSE_SECONDS)

    def once(self, name: str, owner: str) -> None:
        # A client counts its time from when it asked: the lock ends later than that.
        until = time.monotonic() + self.ttl
        acquire = f"INSERT INTO shunt.{self.table} (name, owner, wait_ms) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL {self.ttl}"
        row = self.session.execute(acquire, (name, owner, 500)).one()
        if not row["[applied]"] or not self.grants.granted(name, owner, row["fence"], until):
            return
        time.sleep(0.002)
        self.grants.ends(name, owner)
        self.session.execute(f"DELETE FROM shunt.{self.table} WHERE name = %s IF owner = %s AND fence = %s", (name, owner, row["fence"]))

    def wait_for_grants(self, more: int) -> None:
        """Until so many locks more were granted."""
        wanted = self.grants.count + more

        def are_granted() -> bool:
            self.fleet.check()
            assert not self.grants.faults, self.grants.faults[:5]
            return self.grants.count >= wanted

        until(are_granted, f"{wanted} grants",
              told=lambda: f"{self.grants.count}; errors: {self.errors}\n{self.fleet.status()}")

    def wait_for_turns(self) -> None:
        """Until each client has ended what it was doing, and has asked for something since."""
        wanted = [count + 2 for count in self.turns]

        def have_all() -> bool:
            return all(count >= least for count, least in zip(self.turns, wanted))

        until(have_all, "every client has an answer, if only an error")

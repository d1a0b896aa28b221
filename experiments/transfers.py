"""Measures transactions beside a plain write, Cassandra's lightweight transactions and ScalarDB, and their cost for ordinary queries.

Transfers between two of a thousand accounts, of one client and more, each of which waits for one before it goes on with the next: by
transactions of a proxy, and by ScalarDB on the same ring; withdrawals from one account, by transactions and by UPDATE .. IF balance = ?,
which nodes decide or the proxy does.
Clients of the proxy are `shunt bench load`; ScalarDB is a library of Java, and `Transfers.java` uses it and, for a comparison of
alike, transactions over the same driver. The arms of a point take turns in random order, round after round. After each arm all accounts
are added up: a sum that does not agree with what the clients were told is the end of the run. Run by `shunt bench run transfers`.
"""

import contextlib
import json
import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from harness import cql, jars
from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.processes import cpu_seconds
from harness.proxy import Proxy
from locks.fleet import Fleet

from . import generator
from .arguments import parser_of_arms
from .locks import Servers, report, say, started

HERE = Path(__file__).resolve().parent
NETWORK = "127.0.73"  # of everything that is started here
NETWORK_AWAY = "127.0.74"  # where nodes are to be found that are some distance away
KEYSPACE = "bank"  # in Transfers.java too
ACCOUNTS = 1000
BALANCE = 1_000_000
NOBODY = 0  # in crates/bench/src/load/transfers.rs too: what a lock has that nobody holds
SERIAL = 0x08
OWN_ACCOUNTS = 16
JAVA = ("java", "scalardb")
ORDINARY = ("off", "on")
SHOWN = ("p50_us", "p99_us", "rate_per_s", "again_per_s", "errors_per_s", "cpu_us", "load_cpu_us")
SETTLED_SECONDS = 20  # within which a sum is to be right
MODES = f"SELECT table_name, mode FROM shunt_meta.transactional WHERE enabled = true AND keyspace_name = '{KEYSPACE}'"
MODES_SECONDS = 60  # within which tables are to have their modes
READ_SECONDS = 5  # until every core has read them


class WrongTotal(RuntimeError):
    """Money was made or lost."""


@dataclass
class Transfers:
    """The options of `shunt bench load --transfers`, and the table of that many accounts."""

    kind: str
    table: str
    accounts: int
    mode: str | None = "unsafe"  # the table's; none: nodes decide
    opening: int = BALANCE


TRANSFERS = {"transaction": Transfers("two-rows", "accounts", ACCOUNTS, "full"), "one row": Transfers("one-row", "own", OWN_ACCOUNTS),
             "guarded": Transfers("guarded", "guarded", ACCOUNTS),
             "lwt": Transfers("lwt", "own_lwt", OWN_ACCOUNTS, None),
             "decided": Transfers("lwt", "own_decided", OWN_ACCOUNTS, "conditional"),
             "lock": Transfers("lock", "locks_lwt", OWN_ACCOUNTS, None, NOBODY),
             "lock decided": Transfers("lock", "locks_decided", OWN_ACCOUNTS, "conditional", NOBODY)}


class Bank(Servers):
    """Servers, a node that is asked what accounts have, and the client in Java where there is one."""

    node = ""
    java = None
    # With which the lock is held that guarded writes name.
    fence = 0


@dataclass
class Point:
    """A load, and who is put under it."""

    label: str
    shape: tuple
    arms: list
    accounts: int = ACCOUNTS

    @property
    def contended(self) -> bool:
        """Clients wait for one another."""
        return self.accounts < self.shape[0] * self.shape[1]


BETWEEN_TWO = ["write", "guarded", "transaction", *JAVA]
ON_ONE_ROW = ["one row", "lwt", "decided"]
OF_LOCKS = ["lock", "lock decided"]
CLIENTS_MAX = 64
POINTS = [
    *(Point(f"{clients} client{'s' if clients > 1 else ''}", (clients, 1), BETWEEN_TWO) for clients in (1, 4, 16, 64)),
    Point("1 client, one account", (1, 1), ON_ONE_ROW, 1),
    Point("16 clients, an account each", (OWN_ACCOUNTS, 1), ON_ONE_ROW, OWN_ACCOUNTS),
    Point("16 clients, one account", (16, 1), ON_ONE_ROW, 1),
    Point("64 clients, one account", (64, 1), ON_ONE_ROW, 1),
    Point("16 clients, a lock each", (OWN_ACCOUNTS, 1), OF_LOCKS, OWN_ACCOUNTS),
    Point("16 clients, 4 locks", (16, 1), OF_LOCKS, 4),
    Point("16 clients, one lock", (16, 1), OF_LOCKS, 1),
    Point("64 clients, one lock", (64, 1), OF_LOCKS, 1),
    Point("ordinary INSERTs, 64x1", (64, 1), list(ORDINARY)),
    Point("ordinary INSERTs, 8x128", (8, 128), list(ORDINARY)),
]
ARMS = list(dict.fromkeys(arm for point in POINTS for arm in point.arms))
TRAINING = Point("training", (16, 1), ARMS)


# --- accounts --------------------------------------------------------------------------------------------------------


def open_accounts(node: str, proxy: Proxy, replicas: int) -> None:
    """Tables with their modes, and a balance for each account: before any transaction, so a plain write does. The proxy answers changes of
    the schema when all nodes know them."""
    with session_of(proxy.listen) as schema, session_of(node) as session:
        schema.query(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
        for transfers in TRANSFERS.values():
            table = f"{KEYSPACE}.{transfers.table}"
            schema.query(f"CREATE TABLE {table} (id int PRIMARY KEY, balance int)")
            for account in range(transfers.accounts):
                session.query(f"INSERT INTO {table} (id, balance) VALUES ({account}, {transfers.opening})", cql.ALL)
            if transfers.mode:
                schema.query(f"ALTER TABLE {table} WITH transactional_mode = '{transfers.mode}'")
        wait_for_modes(schema)


def take_lock(proxy: Proxy) -> int:
    """The fence of a lock that is held for as long as this runs."""
    with session_of(proxy.listen) as session:
        (row,) = session.query("INSERT INTO shunt.locks (name, owner) VALUES ('transfers', 'experiment') IF NOT EXISTS USING TTL 86400")
    return row["fence"]


def wait_for_modes(schema: cql.Session) -> None:
    """A table that proxies are to decide is held until all of them know it."""
    wanted = {transfers.table: transfers.mode for transfers in TRANSFERS.values() if transfers.mode}
    deadline = time.monotonic() + MODES_SECONDS
    while {row["table_name"]: row["mode"] for row in schema.query(MODES)} != wanted:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the tables' modes are not {wanted}: {schema.query(MODES)}")
        time.sleep(0.5)
    time.sleep(READ_SECONDS)


def session_of(server: str) -> cql.Session:
    host, port = server.rsplit(":", 1)
    return cql.Session(host, int(port), timeout_seconds=60)


def total(node: str, arm: str) -> int:
    """The sum of all accounts of the table of an arm. For lightweight transactions, each account is read at SERIAL, which ends half-done ones."""
    table, accounts = f"{KEYSPACE}.{TRANSFERS[arm].table}", TRANSFERS[arm].accounts
    with session_of(node) as session:
        if TRANSFERS[arm].mode is None:
            rows = [session.query(f"SELECT balance FROM {table} WHERE id = {account}", SERIAL)[0] for account in range(accounts)]
        else:
            rows = session.query(f"SELECT balance FROM {table}", cql.QUORUM)
    if len(rows) != accounts:
        raise WrongTotal(f"{table} has {len(rows)} accounts of {accounts}")
    return sum(row["balance"] for row in rows)


def check(arm: str, read, expected: range) -> None:
    """WrongTotal unless what `read` returns is soon one of these: a committed transaction may be told before its writes are there."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while (found := read()) not in expected:
        if time.monotonic() > deadline:
            raise WrongTotal(f"{arm}: the accounts have {found}, and should have {expected.start}"
                             + (f" to {expected.stop - 1}" if len(expected) > 1 else ""))
        time.sleep(0.5)


def expected_after(arm: str, before: int, result: dict) -> range:
    """The range of the sum of all accounts after these transfers."""
    if TRANSFERS[arm].kind == "two-rows":
        return range(before, before + 1)
    if TRANSFERS[arm].kind == "guarded":  # it writes no balance but 0
        return range(0, before + 1)
    if TRANSFERS[arm].kind == "lock":  # whoever held one when the time was over; two holders are a wrong answer
        return range(0, TRANSFERS[arm].accounts * CLIENTS_MAX + 1)
    taken = result["applied_so_far"]
    return range(before - taken - result["in_doubt_so_far"], before - taken + 1)


# --- clients ---------------------------------------------------------------------------------------------------------


def load(servers: Bank, arm: str, point: Point, options, seconds: float) -> dict:
    """The report of `shunt bench load`, once the accounts agree with it."""
    first, *others = servers.targets[arm]
    arguments = [argument for target in others for argument in ("--target", target)]
    arguments += [argument for pid in servers.pids[arm] for argument in ("--pid", pid)]
    arguments += ["--consistency", cql.QUORUM, "--warm-up", options.warm_up, "--duration", seconds]
    if arm not in TRANSFERS:
        table = KEYSPACE if arm == "write" else "ordinary"
        arguments += ["--reads", 0, "--value-bytes", 20, "--keyspace", table, "--keys", ACCOUNTS if arm == "write" else 100_000]
        return generator.load(first, *point.shape, *arguments)
    transfers = TRANSFERS[arm]
    before = total(servers.node, arm)
    # Lightweight transactions of many on one partition time out now and then: then nobody knows if they were applied.
    if arm == "guarded":
        arguments += ["--fence", servers.fence]
    result = generator.load(first, *point.shape, *arguments, "--transfers", transfers.kind, "--keyspace", KEYSPACE,
                            "--table", transfers.table, "--keys", min(point.accounts, transfers.accounts), errors_count=transfers.mode is not None)
    check(arm, lambda: total(servers.node, arm), expected_after(arm, before, result))
    return result


def figures(result: dict, arm: str, contended: bool = False) -> dict:
    """Without those of what did not both begin and end in time: the short form is short. And without latencies where clients contend for
    an account: who was served by a lightweight transaction is the first to come again, so that half of what was served is one client's luck."""
    done = result["applied"] if arm in TRANSFERS else result["queries"]
    if not done or not result["latency_us"]:
        return {}
    if arm in TRANSFERS and TRANSFERS[arm].kind == "lock":
        done /= 2  # it was taken, and it was released
    each = result["queries"] / done
    latency = {} if contended else {"p50_us": result["latency_us"]["p50"], "p99_us": result["latency_us"]["p99"]}
    found = {**latency, "rate_per_s": done / result["seconds"], "cpu_us": each * sum(process["cpu_us_per_query"] for process in result["processes"]),
             "load_cpu_us": each * result["own"]["cpu_us_per_query"]}
    if arm in TRANSFERS:
        found |= {"again_per_s": result["not_applied"] / result["seconds"],
                  "errors_per_s": result["error_share"] * result["queries"] / result["seconds"]}
    return found


def library() -> Path:
    pom = HERE / "scalardb" / "pom.xml"
    version = re.search(r"<scalardb.version>([^<]+)<", pom.read_text())[1]
    return jars.copied(pom, jars.TARGET / f"scalardb-{version}" / "lib", "ScalarDB")


class Java:
    """`Transfers.java`, which makes transfers when it is told to."""

    def __init__(self, classes: Path, proxy: Proxy, contacts: list, replicas: int):
        self.log = jars.TARGET / "ring" / "transfers-java.log"
        command = [str(jars.java()), "-Xmx1g", "-cp", f"{classes}/*", str(HERE / "Transfers.java"), proxy.listen, ",".join(contacts),
                   str(ACCOUNTS), str(BALANCE), str(replicas)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.line(300)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(10)

    def line(self, within_seconds: float) -> str:
        """The next that it says."""
        watch = threading.Timer(within_seconds, self.process.kill)
        watch.start()
        try:
            said = self.process.stdout.readline().strip()
        finally:
            watch.cancel()
        if not said:
            raise RuntimeError(f"Transfers.java ended, or said nothing for {within_seconds} s:\n{self.log.read_text()[-3000:]}")
        return said

    def tell(self, *words) -> None:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def total(self) -> int:
        self.tell("total")
        return int(self.line(300))

    def run(self, servers: Bank, arm: str, point: Point, options, seconds: float) -> dict:
        """Figures, when the accounts have what they should have."""
        pids = servers.pids[arm]
        self.tell("run", arm, point.shape[0], options.warm_up, seconds)
        self.line(120)
        before = [sum(map(cpu_seconds, pids)), cpu_seconds(self.process.pid)]
        result = json.loads(self.line(seconds + 120))
        spent = [sum(map(cpu_seconds, pids)) - before[0], cpu_seconds(self.process.pid) - before[1]]
        if arm == "java" and result["errors"]:
            raise RuntimeError(f"{result['errors']} transactions failed:\n{self.log.read_text()[-3000:]}")
        read = self.total if arm == "scalardb" else lambda: total(servers.node, "transaction")
        check(arm, read, range(ACCOUNTS * BALANCE, ACCOUNTS * BALANCE + 1))
        return java_figures(result, spent)


def java_figures(result: dict, spent: list) -> dict:
    done = result["transfers"]
    if not done:
        return {}
    seconds = result["seconds"]
    return {"rate_per_s": done / seconds, "p50_us": result["p50_us"], "p99_us": result["p99_us"], "again_per_s": result["conflicts"] / seconds,
            "errors_per_s": result["errors"] / seconds, "cpu_us": 1e6 * spent[0] / done, "load_cpu_us": 1e6 * spent[1] / done}


# --- servers ---------------------------------------------------------------------------------------------------------


def proxy_of(contacts: str, host: int, options) -> Proxy:
    return Proxy(contacts, f"{NETWORK}.{host}:9042", f"{NETWORK}.{host}:9043", ["--cores", "1", *options],
                 log=jars.TARGET / "ring" / f"transfers-proxy-{host}.log")


def fleet_of(contacts: str, replicas: int, host: int, commit: str = "lease") -> Fleet:
    """A fleet of one proxy on one core. `commit`: how it makes sure of its transactions."""
    fleet = Fleet(contacts, "transfers", replicas, 9042, lease_ms=6000, memory_ttl_ms=30_000, proxies=0)
    options = ["--fleet", "transfers", "--fleet-replicas-min", str(replicas), "--transaction-commit", commit]
    fleet.proxies = [proxy_of(contacts, host, options)]
    return fleet


def ordinary(stack, servers: Bank) -> tuple:
    """One embedded node, and two proxies before it: one that knows no transactions, and one that carries them out, on the table that ordinary
    queries go to as well. The node and the second are returned."""
    listen = f"{NETWORK}.21:9042"
    node = stack.enter_context(Embedded("transfers-experiment", listen, ["node", "--listen", listen, "--admin", "off", "--cores", "1"], [],
                                        jars.TARGET / "ring" / "embedded-transfers-experiment.log"))
    on = stack.enter_context(started(fleet_of(node.contact, 1, 12))).proxies[0]
    off = stack.enter_context(proxy_of(node.contact, 11, []))
    for arm, proxy in (("off", off), ("on", on)):
        servers.add(arm, [proxy.listen], [proxy.process.pid])
    generator.load(off.listen, 1, 1, "--create", "--keyspace", "ordinary", "--duration", 0.1, "--warm-up", 0)
    with session_of(on.listen) as session:
        session.query("ALTER TABLE ordinary.kv WITH transactional_mode = 'unsafe'")
        session.query("BEGIN TRANSACTION INSERT INTO ordinary.kv (k, v) VALUES (0x00, 0x00); COMMIT TRANSACTION")
    return node, on


def start(stack, options) -> Bank:
    servers = Bank()
    node, before = ordinary(stack, servers)
    contacts, nodes, replicas, near = [node.contact], [node.process.pid], 1, node.contact
    if not options.embedded:
        ring = Cluster("transfers", network=NETWORK, optimise=options.optimise, heap_mb=1024)
        stack.callback(ring.stop, wipe=True)
        contacts = [one.contact for one in ring.nodes]
        near = contacts[0]
        if options.distance_us:
            contacts = away(stack, ring, options.distance_us)
        ring.start(wipe=True)
        nodes, replicas = [one.pid() for one in ring.nodes], 3
        before = stack.enter_context(started(fleet_of(",".join(contacts), 3, 13, options.commit))).proxies[0]
    servers.node = near
    for arm in ("write", "java", *TRANSFERS):
        servers.add(arm, [before.listen], [before.process.pid, *nodes])
    servers.add("scalardb", contacts, nodes)
    open_accounts(servers.node, before, replicas)
    servers.fence = take_lock(before)
    generator.load(before.listen, 1, 1, "--create", "--keyspace", KEYSPACE, "--duration", 0.1, "--warm-up", 0)
    servers.java = java(stack, before, contacts, replicas, options)
    return servers


def away(stack, ring: Cluster, microseconds: int) -> list:
    """The addresses by which nodes that are not started yet will be known: whatever goes there and comes back is so long on its way."""
    pairs = []
    for place, node in enumerate(ring.nodes):
        address = f"{NETWORK_AWAY}.{ring.first + place}"
        node.settings.more_yaml += f"broadcast_rpc_address: {address}\n"
        pairs.append((f"{address}:{node.settings.cql_port}", node.contact))
    network = subprocess.Popen([sys.executable, "-m", "experiments.distance", str(microseconds), *map("=".join, pairs)], cwd=HERE.parent)
    stack.callback(network.wait)
    stack.callback(network.kill)
    return [at for at, _ in pairs]


def java(stack, proxy: Proxy, contacts: list, replicas: int, options) -> "Java | None":
    """The program in Java. None, with a note for the report, if ScalarDB cannot be had."""
    if not set(JAVA) & set(options.arms):
        return None
    try:
        jars.java()
        classes = library()
    except jars.MissingTool as missing:
        # The first line says what is missing, and the first of Maven's errors why.
        lines = str(missing).splitlines()
        told = " ".join(["ScalarDB, and transactions over its driver, are left out:", lines[0], *[line for line in lines if "[ERROR]" in line][:1]])
        print(json.dumps({"kind": "note", "text": told}) if options.json else told, flush=True)
        options.arms = [arm for arm in options.arms if arm not in JAVA]
        return None
    return stack.enter_context(Java(classes, proxy, contacts, replicas))


# --- measuring -------------------------------------------------------------------------------------------------------


def once(servers: Bank, arm: str, point: Point, options, seconds: float) -> dict:
    if arm in JAVA:
        return servers.java.run(servers, arm, point, options, seconds)
    return figures(load(servers, arm, point, options, seconds), arm, arm in TRANSFERS and point.contended)


def twice(servers: Bank, arm: str, point: Point, options, seconds: float) -> dict:
    """A machine that stands still for a second has the proxy refuse what it can no longer decide, and say that it is to be asked again. So what
    failed is measured once more, and the report says so; a wrong answer, as of a lock with two holders, and a wrong sum are the end of the run."""
    try:
        return once(servers, arm, point, options, seconds)
    except (WrongTotal, generator.WrongAnswers):
        raise
    except RuntimeError as error:
        told = f"measured once more ({arm}, {point.label}): {error}"
        print(json.dumps({"kind": "note", "text": told}) if options.json else told, flush=True)
        return once(servers, arm, point, options, seconds)


def measure(servers: Bank, options) -> None:
    measured = {}
    for arm in (arm for arm in options.arms if arm not in ORDINARY):
        once(servers, arm, TRAINING, options, options.training_seconds)
    for point in (point for point in POINTS if point.label in options.points):
        arms = [arm for arm in point.arms if arm in options.arms]
        rounds = options.ordinary_rounds if ORDINARY[0] in point.arms else options.rounds
        for round_ in range(rounds if arms else 0):
            for arm in random.sample(arms, len(arms)):
                found = twice(servers, arm, point, options, options.seconds)
                measured[point.label, arm, round_] = found
                say(arm, point.label, round_, found, options)
    report(measured, options, SHOWN)


def main() -> int:
    parser = parser_of_arms(__doc__, seconds=2, training_seconds=15)
    parser.add_argument("--ordinary-rounds", type=int, default=25, help="of ordinary queries, whose difference is small")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--commit", choices=("lease", "lwt"), default="lease", help="what the proxy makes sure of a transaction by")
    parser.add_argument("--distance-us", type=int, default=0, help="how long whatever goes to a node or comes back is on its way, microseconds")
    labels = [point.label for point in POINTS]
    parser.add_argument("--points", nargs="+", choices=labels, default=labels)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        measure(start(stack, options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

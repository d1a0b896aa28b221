"""IN queries that are asked in parts while nodes are killed, stand still, and change the schema, and while the keys are overwritten.

An answer may never lack a row, have one twice or in another order, or be older than what was acknowledged before it was asked for.
"""

import os
import random
import re
import threading

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, RequestExecutionException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import FallthroughRetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage

from harness import waits
from harness.driver import UNDISTURBED
from harness.proxy import PATIENT_PROXY, Proxy

LISTEN, ADMIN = "127.0.0.1:9046", "127.0.0.1:9184"
KEYS = 60
KEYS_PER_QUERY = 12
ROWS = 3  # of each key
TURNS = int(os.environ.get("SHUNT_SCHEMA_TURNS", "1"))  # in which a column comes and goes
# Two of three nodes have a key: no node has all, and each key outlives a node.
SCHEMA = (
    "CREATE KEYSPACE IF NOT EXISTS in_parts WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}",
    "CREATE TABLE IF NOT EXISTS in_parts.pairs (k int, c int, number int, PRIMARY KEY (k, c))",
)
# Those of `SELECT *` speak v5: before, drivers read the rows by the columns that they were told at PREPARE.
READERS = ((4, "SELECT k, c, number FROM pairs WHERE k IN ?"), (5, "SELECT * FROM pairs WHERE k IN ?"))
# The driver raises Overloaded and IsBootstrapping as messages of the protocol.
ERRORS = (OperationTimedOut, RequestExecutionException, NoHostAvailable, OverloadedErrorMessage,
          IsBootstrappingErrorMessage)


class Session:
    def __init__(self, host: str, port: int, version: int, keyspace: str | None = "in_parts"):
        profile = ExecutionProfile(retry_policy=FallthroughRetryPolicy(), request_timeout=60)
        self.cluster = Cluster([host], port=port, protocol_version=version,
                               execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **UNDISTURBED)
        self.session = self.cluster.connect(keyspace)

    def __enter__(self):
        return self.session

    def __exit__(self, *_):
        self.cluster.shutdown()


class Load:
    """One that overwrites keys, each time with the next number, and several that read them."""

    def __init__(self, proxy: Proxy, rank: dict, acknowledged: list, tried: list):
        self.proxy, self.rank, self.stop = proxy, rank, threading.Event()
        # By key: the number of its rows that was acknowledged last, and the one that was tried last.
        self.acknowledged, self.tried = acknowledged, tried
        self.answered, self.refused, self.wrong, self.failed = [0] * len(READERS), 0, [], []
        self.threads = [threading.Thread(target=self.kept, args=(self.write,))]
        self.threads += [threading.Thread(target=self.kept, args=(self.read, which)) for which in range(len(READERS))]
        self.threads.append(threading.Thread(target=self.kept, args=(self.leave,)))

    def kept(self, what, *arguments) -> None:
        try:
            what(*arguments)
        except Exception as error:  # the test ends by it
            self.failed.append(error)

    def check(self) -> None:
        """A wrong answer comes before whatever else ended a thread."""
        assert not self.wrong, self.wrong[:3]
        if self.failed:
            raise self.failed[0]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def write(self) -> None:
        with Session(self.proxy.host, self.proxy.port, 4) as session:
            rows = "".join(f"INSERT INTO pairs (k, c, number) VALUES (?, {c}, ?);" for c in range(ROWS))
            batch = session.prepare(f"BEGIN UNLOGGED BATCH {rows} APPLY BATCH")
            batch.consistency_level = ConsistencyLevel.ALL
            while not self.stop.wait(0.002):
                key = random.randrange(KEYS)
                self.tried[key] += 1
                try:
                    session.execute(batch, [key, self.tried[key]] * ROWS)
                    self.acknowledged[key] = self.tried[key]
                except ERRORS:
                    self.stop.wait(0.2)

    def read(self, which: int) -> None:
        version, text = READERS[which]
        with Session(self.proxy.host, self.proxy.port, version) as session:
            select = session.prepare(text)
            while not self.stop.wait(0.005):
                keys = [random.randrange(KEYS) for _ in range(KEYS_PER_QUERY)]
                before = list(self.acknowledged)
                try:
                    rows = list(session.execute(select, [keys]))
                except ERRORS:
                    self.refused += 1
                    self.stop.wait(0.05)
                    continue
                self.look_at(rows, keys, before)
                self.answered[which] += 1

    def look_at(self, rows: list, keys: list, before: list) -> None:
        expected = [(key, c) for key in sorted(set(keys), key=self.rank.__getitem__) for c in range(ROWS)]
        if [(row.k, row.c) for row in rows] != expected:
            self.wrong.append(f"asked for {sorted(set(keys))}, got {rows}")
        for row in rows:
            if not before[row.k] <= row.number <= self.tried[row.k]:
                self.wrong.append(f"{row}, of which {before[row.k]} was acknowledged before, and {self.tried[row.k]} is the last")

    def leave(self) -> None:
        """A client that asks for much and goes away."""
        while not self.stop.wait(0.5):
            try:
                with Session(self.proxy.host, self.proxy.port, 4) as session:
                    select = session.prepare(READERS[0][1])
                    for _ in range(50):
                        session.execute_async(select, [random.sample(range(KEYS), KEYS_PER_QUERY)])
            except ERRORS:
                pass

    def more(self, count: int, within_seconds: float = 240) -> None:
        """Waits until each reader has this many more answers, and more were asked in parts."""
        wanted, split = [answered + count for answered in self.answered], counted(self.proxy, "split_total")

        def reached() -> bool:
            self.check()
            enough = all(answered >= least for answered, least in zip(self.answered, wanted))
            return enough and counted(self.proxy, "split_total") > split

        waits.until(reached, f"{wanted} answers, and some in parts", within_seconds, 0.05,
                    told=lambda: f"{self.answered}, {self.refused} refused\n{self.proxy.log_tail()}")


def counted(proxy: Proxy, name: str) -> int:
    return sum(int(number) for number in re.findall(rf"^shunt_multigets_{name}(?:{{.*}})? (\d+)$", proxy.get("/metrics")[1], re.MULTILINE))


@pytest.fixture(scope="module")
def split(ring):
    """A proxy that asks in parts, and the order in which a node answers all keys."""
    node = ring.nodes[0]
    # The driver waits until all nodes have the same schema.
    with Session(node.address, node.settings.cql_port, 4, None) as session:
        for statement in SCHEMA:
            session.execute(statement)
    with Proxy(ring.contacts, LISTEN, ADMIN, ["--multiget", "split", *PATIENT_PROXY]) as proxy:
        with Session(node.address, node.settings.cql_port, 4) as session:
            insert = session.prepare("INSERT INTO in_parts.pairs (k, c, number) VALUES (?, ?, 0)")
            insert.consistency_level = ConsistencyLevel.ALL
            for key in range(KEYS):
                for c in range(ROWS):
                    session.execute(insert, (key, c))
            select = session.prepare("SELECT k FROM in_parts.pairs WHERE k IN ?")
            order = list(dict.fromkeys(row.k for row in session.execute(select, [list(range(KEYS))])))
        assert sorted(order) == list(range(KEYS))
        yield proxy, {key: place for place, key in enumerate(order)}, [0] * KEYS, [0] * KEYS
        assert proxy.alive(), proxy.log_tail()


def at_rest(proxy: Proxy) -> None:
    """No parts of clients that are gone are kept for ever."""
    def kept() -> list:
        return [counted(proxy, "open"), counted(proxy, "kept_bytes")]

    waits.until(lambda: not any(kept()), "nothing is open and nothing kept", told=kept)


def through(split, scenario) -> None:
    with Load(*split) as load:
        load.more(100)
        scenario(load)
        load.more(100)
    load.check()
    at_rest(load.proxy)


def test_a_node_is_killed_and_comes_back(split, whole):
    def scenario(load: Load) -> None:
        whole.nodes[2].kill()
        load.more(100)
        whole.nodes[2].start()
        whole.nodes[2].wait_ready()

    through(split, scenario)


def test_a_node_stands_still_and_comes_to(split, whole):
    def scenario(load: Load) -> None:
        whole.nodes[1].pause()
        try:
            load.more(100)
        finally:
            whole.nodes[1].resume()

    through(split, scenario)


def test_columns_come_and_go(split, whole):
    """Changes of columns make nodes forget the statements, each at its own moment, and show other columns for a while."""
    def scenario(load: Load) -> None:
        with Session(load.proxy.host, load.proxy.port, 5) as session:
            for turn in range(TURNS):
                session.execute(f"ALTER TABLE pairs ADD aside{turn} text")
                load.more(30)
                session.execute(f"ALTER TABLE pairs DROP aside{turn}")
                load.more(30)

    through(split, scenario)

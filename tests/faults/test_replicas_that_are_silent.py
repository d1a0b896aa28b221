"""Queries that no thread of the node waits for end as Cassandra's own do: the same answers and errors, with the same counts, and
as many hints, whether they come in frames through the proxy or to the node's ordinary port."""

import contextlib
from collections import Counter

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout, WriteType
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import OverloadedErrorMessage

from harness import waits
from harness.driver import UNDISTURBED
from harness.jmx import Jmx

KEYS = 30
LEVELS = {name: getattr(ConsistencyLevel, name) for name in ("ONE", "QUORUM", "LOCAL_QUORUM", "ALL")}
ANSWERS_WITHIN_SECONDS = 120  # far beyond every time-out of Cassandra and the proxy
# A machine that stands still for as long may let nodes give up what they would not have: they have
# five seconds for an answer.
PAUSE_SECONDS = 2
WRITE = "INSERT INTO faults.writes (key, value) VALUES (?, ?)"
READ = "SELECT value FROM writes WHERE key = ?"  # as applications write that name their keyspace to the driver
DEFERRED = "org.apache.cassandra.metrics:type=ShuntAggregate,name=Deferred", "Count"
SWITCHES = "shunt.cassandra:type=PeerTraffic"
HINTS = "org.apache.cassandra.metrics:type=Storage,name=TotalHints", "Count"
STORAGE = "org.apache.cassandra.db:type=StorageService"
STORAGE_PROXY = "org.apache.cassandra.db:type=StorageProxy"
FAILURE_DETECTOR = "org.apache.cassandra.net:type=FailureDetector"
# The suspicion at which a node takes another for down: Cassandra's default, and one that never is.
SUSPICION, NO_SUSPICION = 8, 1_000_000


def total(jmx: Jmx, nodes, name: tuple) -> int:
    """Sum over nodes."""
    return sum(int(jmx.get(node, *name)) for node in nodes)


def set_ideal_level(jmx: Jmx, node, level: str) -> None:
    """Cassandra sets it, and then fails to say which one there was before if there was none."""
    with contextlib.suppress(RuntimeError):
        jmx.call(node, STORAGE_PROXY, "setIdealConsistencyLevel", level)
    assert jmx.get(node, STORAGE_PROXY, "IdealConsistencyLevel") == level


class Way:
    """A session by one way, with its statements prepared: one query is one request."""

    def __init__(self, hosts: list, port: int):
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy(hosts), retry_policy=FallthroughRetryPolicy(),
                                   request_timeout=ANSWERS_WITHIN_SECONDS)
        self.cluster = Cluster(hosts, port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                               **UNDISTURBED)
        self.session = self.cluster.connect("faults")
        self.write, self.read = self.session.prepare(WRITE), self.session.prepare(READ)

    def begin(self, kind: str, level: str, rows: list) -> list:
        bound = [getattr(self, kind).bind(row) for row in rows]
        for one in bound:
            one.consistency_level = LEVELS[level]
        return [self.session.execute_async(one) for one in bound]


def outcome(future) -> tuple:
    try:
        return ("rows", tuple(row.value for row in future.result() or ()))
    except WriteTimeout as error:
        return "WriteTimeout", error.consistency, error.received_responses, error.required_responses, error.write_type
    except ReadTimeout as error:
        # Whether the data was among the answers is left out: the node asks whom it likes for it, the silent one too.
        return "ReadTimeout", error.consistency, error.received_responses, error.required_responses
    except Unavailable as error:
        return "Unavailable", error.consistency, error.alive_replicas, error.required_replicas
    except OperationTimedOut as error:
        raise waits.Late("a query was never answered") from error
    except OverloadedErrorMessage as error:
        raise waits.Late("a query was taken by no node") from error


@pytest.fixture(scope="module")
def jmx(ring, pytestconfig):
    if pytestconfig.getoption("extended") < 3:
        pytest.skip("for a ring whose nodes have the extension: --extended 3")
    with Jmx() as nodes:
        yield nodes


@pytest.fixture
def ways(front, whole, jmx):
    """Through the proxy, and to the ordinary ports of the same nodes. Node 3 takes no clients: it is a
    replica only."""
    silent = whole.nodes[2]
    jmx.call(silent, STORAGE, "stopNativeTransport", False)
    stock = Way([node.address for node in whole.nodes[:2]], whole.nodes[0].settings.cql_port)
    shunt = Way([front.host], front.port)
    try:
        yield {"stock": stock, "Shunt": shunt}
    finally:
        for way in (stock, shunt):
            way.cluster.shutdown()
        if silent.state() == "T":
            silent.resume()
        jmx.call(silent, STORAGE, "startNativeTransport")
        for node in whole.nodes[:2]:
            jmx.set(node, FAILURE_DETECTOR, "PhiConvictThreshold", SUSPICION)


def ends(ways, kind: str, level: str, rows: list) -> dict:
    """Outcomes of the queries by either way, all at the same time."""
    begun = {name: way.begin(kind, level, rows) for name, way in ways.items()}
    return {name: Counter(outcome(future) for future in futures) for name, futures in begun.items()}


def alike(found: dict, what: str) -> Counter:
    assert found["Shunt"] == found["stock"], what
    return found["Shunt"]


def compared(ways, kind: str, level: str, rows: list) -> Counter:
    """Outcomes of the queries, which must be the same by either way; measured again if the machine paused meanwhile."""
    found = waits.unpaused(lambda: ends(ways, kind, level, rows), PAUSE_SECONDS)
    return alike(found, f"{kind} at {level}")


def rows_of(name: str, value: str) -> dict:
    keys = [f"silent-{name}-{number}" for number in range(KEYS)]
    return {"write": [(key, value) for key in keys], "read": [(key,) for key in keys]}


def test_beyond_the_most_that_may_be_deferred_threads_wait(ways, whole, jmx):
    rows, asked = rows_of("beyond", "done"), whole.nodes[:2]
    for node in asked:
        jmx.set(node, SWITCHES, "DeferredMax", 0)
    try:
        begun = total(jmx, asked, DEFERRED)
        for kind in ("write", "read"):
            compared(ways, kind, "ALL", rows[kind])
        assert total(jmx, asked, DEFERRED) == begun
    finally:
        for node in asked:
            jmx.set(node, SWITCHES, "DeferredMax", 8192)
    assert compared(ways, "read", "ALL", rows["read"]) == {("rows", ("done",)): KEYS}
    assert total(jmx, asked, DEFERRED) > begun


def test_outcomes_and_hints_are_those_of_cassandra(ways, whole, jmx):
    *asked, victim = whole.nodes
    for node in asked:
        # With it writes have a second handler, which may be done first, or later.
        set_ideal_level(jmx, node, "ONE")
    begun = total(jmx, asked, DEFERRED)
    for level in LEVELS:
        rows = rows_of(level, "whole")
        assert compared(ways, "write", level, rows["write"]) == {("rows", ()): KEYS}
    assert compared(ways, "read", "ALL", rows["read"]) == {("rows", ("whole",)): KEYS}
    # Not all: a node that has just started is slow, and hands over what its frames have no time for.
    deferred = total(jmx, asked, DEFERRED)
    assert deferred > begun

    for node in asked:
        set_ideal_level(jmx, node, "ALL")
        # They do not take it for down before they are told to, however long the machine takes.
        jmx.set(node, FAILURE_DETECTOR, "PhiConvictThreshold", NO_SUSPICION)
    rows = rows_of("silent", "two of three")
    victim.pause()

    def silent() -> tuple:
        """Outcomes while a replica is silent and no node knows why, and the number of hints."""
        before = total(jmx, asked, HINTS)

        def hints() -> int:
            return total(jmx, asked, HINTS) - before

        others = [("write", level) for level in LEVELS if level != "ALL"]
        found = {(kind, level): ends(ways, kind, level, rows[kind])
                 for kind, level in (("write", "ALL"), ("read", "ALL"), *others)}
        reads = ends(ways, "read", "QUORUM", rows["read"])
        # One for each write of either way, when the time for the replica's answer is over.
        waits.until(lambda: hints() >= 4 * 2 * KEYS, "a hint for each write", told=hints)
        return found, reads, hints()

    found, reads, hints = waits.unpaused(silent, PAUSE_SECONDS)
    found = {what: alike(by_way, str(what)) for what, by_way in found.items()}
    late_write = "WriteTimeout", ConsistencyLevel.ALL, 2, 3, WriteType.SIMPLE
    assert found.pop(("write", "ALL")) == {late_write: KEYS}
    assert found.pop(("read", "ALL")) == {("ReadTimeout", ConsistencyLevel.ALL, 2, 3): KEYS}
    assert all(by_way == {("rows", ()): KEYS} for by_way in found.values()), found
    # How many of these time out is a matter of whom the node asks first, and how soon it asks another one.
    known = {("rows", ("two of three",)), ("ReadTimeout", ConsistencyLevel.QUORUM, 1, 2)}
    assert {*reads["Shunt"], *reads["stock"]} <= known, reads
    assert hints == 4 * 2 * KEYS
    assert total(jmx, asked, DEFERRED) > deferred
    waits.until(lambda: not total(jmx, asked, (SWITCHES, "DeferredWaiting")), "nothing waits")

    for node in asked:
        jmx.set(node, FAILURE_DETECTOR, "PhiConvictThreshold", SUSPICION)
        waits.until(lambda node=node: victim.address in jmx.get(node, STORAGE, "UnreachableNodes"),
                    f"{victim.address} is down to {node.address}")
    for level in LEVELS:
        of_level = {kind: compared(ways, kind, level, rows[kind]) for kind in ("write", "read")}
        if level == "ALL":
            refused = {("Unavailable", ConsistencyLevel.ALL, 2, 3): KEYS}
            assert of_level == {"write": refused, "read": refused}
        else:
            rows_read = {("rows", ("two of three",)): KEYS}
            assert of_level == {"write": {("rows", ()): KEYS}, "read": rows_read}

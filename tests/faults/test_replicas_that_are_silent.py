"""Queries that no thread of the node waits for end as Cassandra's own do: the same answers and errors, with the same counts, and
as many hints, whether they come in frames through the proxy or to the node's ordinary port."""

import time
from collections import Counter

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout, WriteType
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy

from harness.driver import PATIENT

KEYS = 30
LEVELS = {name: getattr(ConsistencyLevel, name) for name in ("ONE", "QUORUM", "LOCAL_QUORUM", "ALL")}
ANSWERS_WITHIN_SECONDS = 60  # far beyond every time-out of Cassandra and the proxy
WRITE = "INSERT INTO faults.writes (key, value) VALUES (?, ?)"
READ = "SELECT value FROM writes WHERE key = ?"  # as applications write that name their keyspace to the driver
DEFERRED = "org.apache.cassandra.metrics:type=ShuntAggregate,name=Deferred", "Count"
SWITCHES = "shunt.cassandra:type=PeerTraffic"
HINTS = "org.apache.cassandra.metrics:type=Storage,name=TotalHints", "Count"


def mbean(ring, nodes, name: tuple) -> int:
    """Sum over nodes, by number from 1."""
    total = 0
    for number in nodes:
        result = ring.nodetool(number, "sjk", "mx", "-b", name[0], "-f", name[1], "-mg")
        assert result.returncode == 0, result.stderr
        total += int(result.stdout.split()[-1])
    return total


def set_mbean(ring, nodes, name: str, attribute: str, value) -> None:
    for number in nodes:
        result = ring.nodetool(number, "sjk", "mx", "-b", name, "-f", attribute, "-ms", "-v", str(value))
        assert result.returncode == 0, result.stderr


class Way:
    """A session by one way, with its statements prepared: one query is one request."""

    def __init__(self, hosts: list, port: int):
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy(hosts), retry_policy=FallthroughRetryPolicy(),
                                   request_timeout=ANSWERS_WITHIN_SECONDS)
        self.cluster = Cluster(hosts, port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **PATIENT)
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
    except OperationTimedOut:
        return ("never answered",)


@pytest.fixture
def ways(front, whole, pytestconfig):
    """Through the proxy, and to the ordinary ports of the same nodes. Node 3 takes no clients: it is a replica only."""
    if pytestconfig.getoption("extended") < 3:
        pytest.skip("for a ring whose nodes have the extension: --extended 3")
    assert whole.nodetool(3, "disablebinary").returncode == 0
    stock = Way([node.address for node in whole.nodes[:2]], whole.nodes[0].settings.cql_port)
    shunt = Way([front.host], front.port)
    try:
        yield {"stock": stock, "Shunt": shunt}
    finally:
        for way in (stock, shunt):
            way.cluster.shutdown()
        if whole.nodes[2].state() == "T":
            whole.nodes[2].resume()
        whole.nodetool(3, "enablebinary")


def compared(ways, kind: str, level: str, rows: list) -> Counter:
    """How the queries end, all of them at the same time, and by either way alike."""
    begun = {name: way.begin(kind, level, rows) for name, way in ways.items()}
    ends = {name: Counter(outcome(future) for future in futures) for name, futures in begun.items()}
    assert ends["Shunt"] == ends["stock"], f"{kind} at {level}"
    return ends["Shunt"]


def rows_of(name: str, value: str) -> dict:
    keys = [f"silent-{name}-{number}" for number in range(KEYS)]
    return {"write": [(key, value) for key in keys], "read": [(key,) for key in keys]}


def until(what, wanted, seconds: float = 180):
    deadline = time.monotonic() + seconds
    while (found := what()) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}, after {seconds} s"
        time.sleep(1)


def test_beyond_the_most_that_may_be_deferred_threads_wait(ways, whole):
    rows = rows_of("beyond", "done")
    set_mbean(whole, (1, 2), SWITCHES, "DeferredMax", 0)
    try:
        begun = mbean(whole, (1, 2), DEFERRED)
        for kind in ("write", "read"):
            compared(ways, kind, "ALL", rows[kind])
        assert mbean(whole, (1, 2), DEFERRED) == begun
    finally:
        set_mbean(whole, (1, 2), SWITCHES, "DeferredMax", 8192)
    assert compared(ways, "read", "ALL", rows["read"]) == {("rows", ("done",)): KEYS}
    assert mbean(whole, (1, 2), DEFERRED) > begun


def test_outcomes_and_hints_are_those_of_cassandra(ways, whole):
    # With it writes have a second handler, which may be done first, or later.
    set_mbean(whole, (1, 2), "org.apache.cassandra.db:type=StorageProxy", "IdealConsistencyLevel", "ONE")
    begun, victim = mbean(whole, (1, 2), DEFERRED), whole.nodes[2]
    for level in LEVELS:
        rows = rows_of(level, "whole")
        assert compared(ways, "write", level, rows["write"]) == {("rows", ()): KEYS}
    assert compared(ways, "read", "ALL", rows["read"]) == {("rows", ("whole",)): KEYS}
    # Not all: a node that has just started is slow, and hands over what its frames have no time for.
    deferred = mbean(whole, (1, 2), DEFERRED)
    assert deferred > begun

    set_mbean(whole, (1, 2), "org.apache.cassandra.db:type=StorageProxy", "IdealConsistencyLevel", "ALL")
    hints = mbean(whole, (1, 2), HINTS)
    victim.pause()
    # In this order: what takes its time-out comes while the others do not know yet that the node is gone.
    rows = rows_of("silent", "two of three")
    assert compared(ways, "write", "ALL", rows["write"]) == {("WriteTimeout", ConsistencyLevel.ALL, 2, 3, WriteType.SIMPLE): KEYS}
    assert compared(ways, "read", "ALL", rows["read"]) == {("ReadTimeout", ConsistencyLevel.ALL, 2, 3): KEYS}
    for level in ("ONE", "QUORUM", "LOCAL_QUORUM"):
        assert compared(ways, "write", level, rows["write"]) == {("rows", ()): KEYS}
    # How many of these time out is a matter of whom the node asks first, and how soon it asks another one.
    for future in [*ways["Shunt"].begin("read", "QUORUM", rows["read"]), *ways["stock"].begin("read", "QUORUM", rows["read"])]:
        assert outcome(future) in (("rows", ("two of three",)), ("ReadTimeout", ConsistencyLevel.QUORUM, 1, 2))
    # One for each write of either way, when the time for the replica's answer is over.
    until(lambda: mbean(whole, (1, 2), HINTS) - hints, 4 * 2 * KEYS)
    assert mbean(whole, (1, 2), DEFERRED) > deferred
    assert mbean(whole, (1, 2), (SWITCHES, "DeferredWaiting")) == 0

    until(lambda: whole.nodetool(1, "status").stdout.count("\nDN "), 1)
    until(lambda: whole.nodetool(2, "status").stdout.count("\nDN "), 1)
    for level in LEVELS:
        ends = {kind: compared(ways, kind, level, rows[kind]) for kind in ("write", "read")}
        if level == "ALL":
            assert ends == {kind: {("Unavailable", ConsistencyLevel.ALL, 2, 3): KEYS} for kind in ends}
        else:
            assert ends == {"write": {("rows", ()): KEYS}, "read": {("rows", ("two of three",)): KEYS}}

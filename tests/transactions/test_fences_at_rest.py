"""Writes with a fence that does not count any more, while a replica is away: when it has come back, its hints were replayed and all nodes were
repaired, nothing of them is on any node.

The holder of a lock writes without a pause, and goes on when its lock has passed to another, which reads all rows under guard and writes some.
From then on what the former holder writes is refused; what it had in progress is what the other has read. A replica that stands still hears of
all that later: from hints, from its own sockets, and by repair. Needs a ring.
"""

import os
import threading
import uuid
from contextlib import contextmanager

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.cluster import Cluster as Driver
from cassandra.policies import WhiteListRoundRobinPolicy

from harness import waits
from harness.cluster import Cluster
from harness.driver import PATIENT

from .conftest import KEYSPACE, prepare
from .test_guards import with_fence

pytestmark = pytest.mark.skipif(not os.environ.get("SHUNT_RING"), reason="an embedded node keeps each row once")
ROWS_OF_A_NODE = 4
AWAY = 3  # the node that stands still, by its number
FORMER, NEXT = "former", "next"


class Former(threading.Thread):
    """Writes rows with its fence, one after the other and again from the beginning, until it is told to end."""

    def __init__(self, session, rows, held):
        super().__init__(daemon=True)
        self.session, self.rows, self.held = session, rows, held
        self.turn, self.written, self.refused, self.wrong, self.errors = 0, 0, 0, [], {}
        self.going = True

    def run(self):
        while self.going:
            self.turn += 1
            row = self.rows[self.turn % len(self.rows)]
            try:
                self.session.execute(f"UPDATE accounts SET owner = '{FORMER} {self.turn}' WHERE id = {row}", custom_payload=self.held)
                self.written += 1
            except InvalidRequest as error:
                if "does not count any more" not in str(error):
                    self.wrong.append(repr(error))
                self.refused += 1
            except Exception as error:  # noqa: BLE001 (what a node that stands still causes)
                self.errors[type(error).__name__] = self.errors.get(type(error).__name__, 0) + 1


def until(what):
    """The result, as soon as there is one, whatever errors a paused node causes."""
    errors = []

    def found():
        try:
            return what()
        except InvalidRequest:
            raise
        except Exception as error:  # noqa: BLE001
            errors[:] = [repr(error)]
            return None

    return waits.until(found, "what the test waits for", told=lambda: errors)


@contextmanager
def at_node(node):
    """A session that asks this node only."""
    profile = ExecutionProfile(WhiteListRoundRobinPolicy([node.address]),
                               consistency_level=ConsistencyLevel.ONE, request_timeout=60)
    with Driver([node.address], port=node.settings.cql_port, protocol_version=5, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **PATIENT) as driver:
        yield driver.connect()


def rows_of_nodes(nodes):
    """For each address rows whose first replica it is: with the plain snitch that is the one which is read at ONE."""
    rows = {node.address: [] for node in nodes}
    with at_node(nodes[0]) as session:
        metadata = session.cluster.metadata
        while min(map(len, rows.values())) < ROWS_OF_A_NODE:
            row = uuid.uuid4().int % 2_000_000_000
            first = metadata.get_replicas(KEYSPACE, row.to_bytes(4, "big"))[0].address
            if len(rows[first]) < ROWS_OF_A_NODE:
                rows[first].append(row)
    return rows


def pending_hints(node):
    with at_node(node) as session:
        return list(session.execute("SELECT host_id FROM system_views.pending_hints"))


def at_one(session, address, row):
    """A row as this replica has it."""
    def read():
        result = session.execute(f"SELECT owner FROM {KEYSPACE}.accounts WHERE id = {row}", trace=True)
        events = result.get_query_trace(max_wait_sec=20).events
        asked = {event.source for event in events if "single-partition query" in event.description}
        return result.one().owner if asked == {address} else None

    return until(read)


def taken(session, name, owner):
    """The fence of who takes the lock, and may have been granted it in an answer that did not come."""
    row = session.execute("INSERT INTO shunt.locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 3600", (name, owner)).one()
    return row["fence"] if row["[applied]"] or row["owner"] == owner else None


def write_past_a_node_that_is_away(fleet, ring, session, rows, guard):
    """Reads and writes of the next holder, and of the former one that still works, with and without the guard."""
    name = f"rest {rows[0]}"
    held = with_fence(name, until(lambda: taken(session, name, FORMER)))
    former = Former(fleet.connect(to=0, timeout_seconds=10), rows, held if guard else None)
    former.session.execute(f"USE {KEYSPACE}")
    former.start()
    until(lambda: former.written >= 2 * len(rows))
    ring.nodes[AWAY - 1].pause()
    written = former.written
    until(lambda: former.written >= written + len(rows))
    # What is late reaches it from its sockets; this reaches it from others' disks.
    until(lambda: any(pending_hints(node) for number, node in enumerate(ring.nodes, 1) if number != AWAY))
    until(lambda: session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = %s", (name, FORMER)) is not None)
    held = with_fence(name, until(lambda: taken(session, name, NEXT)))
    seen = {}
    for number, row in enumerate(rows):
        read = f"SELECT owner FROM accounts WHERE id = {row}"
        seen[row] = until(lambda: session.execute(read, custom_payload=held).one())["owner"]  # noqa: B023
        if number % 2:
            write = f"UPDATE accounts SET owner = '{NEXT}' WHERE id = {row}"
            until(lambda: session.execute(write, custom_payload=held) is not None)  # noqa: B023
            seen[row] = NEXT
    written = former.written
    until(lambda: (former.refused if guard else former.written - written) > 2 * len(rows))
    return seen, former


@pytest.mark.parametrize("guard", [True, False], ids=["guarded", "without"])
def test_nothing_with_a_former_fence_is_on_any_node_when_all_are_repaired(fleet, nodes, guard):
    ring = Cluster.load("ring")
    session = fleet.connect(timeout_seconds=10)
    prepare(session, nodes[1])
    session.execute(f"USE {KEYSPACE}")
    rows = rows_of_nodes(ring.nodes)
    every = [row for of_node in zip(*rows.values()) for row in of_node]
    for row in every:
        session.execute(f"UPDATE accounts SET owner = 'nobody' WHERE id = {row}")
    try:
        seen, former = write_past_a_node_that_is_away(fleet, ring, session, every, guard)
    finally:
        ring.nodes[AWAY - 1].resume()
    ring.wait_up()
    until(lambda: not any(pending_hints(node) for node in ring.nodes))
    former.going = False
    waits.until(lambda: not former.is_alive(), "the former holder has its last answer")
    assert not former.wrong, former.wrong[:3]
    assert sum(value.startswith(FORMER) for value in seen.values()) == len(every) / 2
    for number in range(1, len(ring.nodes) + 1):
        repaired = ring.nodetool(number, "repair", "--full", KEYSPACE)
        assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    print(f"{former.written} written, {former.refused} refused, {former.errors}")
    different = {}
    for node in ring.nodes:
        with at_node(node) as asked:
            there = {row: at_one(asked, node.address, row) for row in rows[node.address]}
        different[node.address] = {row: (there[row], seen[row]) for row in there if there[row] != seen[row]}
    if guard:
        assert not any(different.values()), different
    else:
        assert all(different.values()), "the test would see it: without guards the former holder has written to each node"
    session.cluster.shutdown()
    former.session.cluster.shutdown()

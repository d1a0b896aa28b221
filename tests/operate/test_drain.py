"""`shunt nodes drain` and `undrain` before three nodes, while clients read and write."""

import json
import subprocess
import threading

import pytest
from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import binary
from harness.waits import until

CLIENTS = 4


class Clients:
    """Threads that write a row and read it, one query after the other, and what went wrong for them."""

    def __init__(self, session):
        session.execute("CREATE KEYSPACE drained WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE drained.t (k int PRIMARY KEY, v int)")
        self.session = session
        self.write = session.prepare("INSERT INTO drained.t (k, v) VALUES (?, ?)")
        self.read = session.prepare("SELECT v FROM drained.t WHERE k = ?")
        self.ended, self.rounds, self.faults = threading.Event(), [0] * CLIENTS, []
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(CLIENTS)]

    def work(self, number: int) -> None:
        while not self.ended.is_set() and not self.faults:
            round_number = self.rounds[number]
            key = number + CLIENTS * (round_number % 1000)
            try:
                self.session.execute(self.write, (key, round_number))
                found = self.session.execute(self.read, (key,)).one()
                assert found is not None and found.v == round_number, (key, round_number, found)
            except Exception as fault:
                self.faults.append(fault)
            self.rounds[number] += 1

    def __enter__(self) -> "Clients":
        [thread.start() for thread in self.threads]
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        [thread.join() for thread in self.threads]

    def go_on(self) -> None:
        """Waits until each client has made some more rounds, without a fault."""
        goal = [rounds + 50 for rounds in self.rounds]
        until(lambda: self.faults or all(map(int.__ge__, self.rounds, goal)), "the clients go on")
        assert self.faults == []


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    contact, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    port = free_port()
    arguments = ["up", "--nodes", "3", "--listen", contact, "--node-port", str(port), "--admin", admin]
    nodes = [f"127.0.0.{number}:{port}" for number in (1, 2, 3)]
    with Embedded("drain", contact, arguments, nodes, tmp_path_factory.mktemp("drain") / "up.log") as ring:
        ring.admin = admin
        yield ring


@pytest.fixture(scope="module")
def session(ring):
    host, port = ring.contact.split(":")
    cluster = Cluster([host], port=int(port), **UNDISTURBED)
    yield cluster.connect()
    cluster.shutdown()


def shunt(ring, *words, code=0) -> str:
    done = subprocess.run([str(binary()), "nodes", *words, "--admin", ring.admin], capture_output=True, text=True)
    assert done.returncode == code, (done, ring.log_tail())
    return done.stdout if code == 0 else done.stderr


def node(ring, address: str) -> dict:
    rows = map(json.loads, shunt(ring, "--json").splitlines())
    return next(row for row in rows if row["address"] == address)


def test_no_query_fails_and_none_goes_to_the_drained_node(ring, session):
    first, second, third = ring.nodes
    with Clients(session) as clients:
        clients.go_on()
        assert node(ring, second)["queries"] > 0 and node(ring, second)["state"] == "up"
        assert shunt(ring, "drain", second).startswith(f"drained {second}; queries in flight there: ")
        until(lambda: node(ring, second)["in_flight"] == 0, "the drained node is idle")
        before = node(ring, second)
        assert before["drained"] is True and before["state"] == "drained", before
        clients.go_on()
        assert node(ring, second)["queries"] == before["queries"]
        # One node is left, and it stays.
        shunt(ring, "drain", third.split(":")[0])
        clients.go_on()
        assert "last node" in shunt(ring, "drain", first, code=2)
        assert node(ring, first)["state"] == "up"
        assert shunt(ring, "undrain", second) == f"took {second} back into routing\n"
        shunt(ring, "undrain", third)
        clients.go_on()
        until(lambda: node(ring, second)["queries"] > before["queries"], "the node gets queries again")
        assert clients.faults == []


def test_a_node_that_is_not_there_is_named(ring):
    assert "no node with this address" in shunt(ring, "drain", "10.255.0.1", code=2)
    assert "no node with this address" in shunt(ring, "undrain", "\x1b[2J", code=2)

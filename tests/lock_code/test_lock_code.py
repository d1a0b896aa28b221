"""Lock code of applications, as it is published: ShedLock's provider for Cassandra, cqlmigrate, and Jaeger's lock. Each straight on the nodes,
through proxies that hand its statements on, through proxies that decide them, and so while its owner is killed."""

import os
import re
import subprocess
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.waits import Late, until
from transactions.conftest import connected
from transactions.known import wait_until_taken
from transactions.test_conditional import change_mode

HERE = Path(__file__).resolve().parent
TABLES = {
    "lock": "(name text PRIMARY KEY, lockUntil timestamp, lockedAt timestamp, lockedBy text)",  # ShedLock's
    "leases": "(name text PRIMARY KEY, owner text)",  # Jaeger's
    "locks": "(name text PRIMARY KEY, client text)",  # cqlmigrate's
}
TIMEOUT_SECONDS = 900  # of which the first build is most
# What clients say that got no answer; and what is said, perhaps beside it, of one that was wrong.
UNANSWERED = re.compile(
    "time-?out|timed out|no response received|no hosts available|no connections|unable to create session"
    "|connection closed|connection re(?:fused|set)|broken pipe|\\beof\\b"
    "|(?:AllNodesFailed|NoNodeAvailable|ClosedConnection|Heartbeat|ConnectionInit)Exception", re.IGNORECASE)
WRONG = re.compile(
    "Failures: [1-9]|two hold the lease|increments of|lease of another was|ended early|panic"
    r"|servererrors\.(?!Overloaded|Bootstrapping|Unavailable|ReadTimeout|WriteTimeout)\w+")


def keyspace(fleet, replicas, mode):
    with connected(fleet) as session:
        name = tables(session, replicas)
        if mode:
            made = [f"{name}.{table}" for table in TABLES]
            change_mode(session, mode, made, name)
            wait_until_taken(fleet, *made)
    return name


def tables(session, replicas):
    name = f"lock_code_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
    session.execute(f"CREATE TABLE {name}.counter (id int PRIMARY KEY, n int)")
    for table, columns in TABLES.items():
        session.execute(f"CREATE TABLE {name}.{table} {columns}")
    return name


def run(program, contact, keyspace, replicas, *arguments):
    environment = {**os.environ, "SHUNT_CONTACT": contact, "SHUNT_KEYSPACE": keyspace, "SHUNT_RF": str(replicas)}
    ended = subprocess.run([str(HERE / program / "run"), *arguments], env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                           check=False)
    said = ended.stdout[-6_000:] + ended.stderr[-2_000:]
    if ended.returncode and UNANSWERED.search(said) and not WRONG.search(said):
        raise Late(said)
    assert ended.returncode == 0, said
    return ended.stdout


@pytest.fixture(scope="session")
def decided(fleet, nodes):
    return keyspace(fleet, nodes[1], "conditional")


@pytest.fixture(scope="session", params=["nodes", "proxies", "conditional"])
def where(request, fleet, nodes):
    """(contact points, keyspace, replicas)"""
    is_decided = request.param == "conditional"
    made = request.getfixturevalue("decided") if is_decided else keyspace(fleet, nodes[1], None)
    contact = nodes[0] if request.param == "nodes" else ",".join(one.listen for one in fleet.proxies)
    return contact, made, nodes[1]


def test_shedlock_and_cqlmigrate(where):
    assert "Tests run: 7, Failures: 0, Errors: 0, Skipped: 0" in run("java", *where)


def test_jaeger(where):
    assert run("go", *where).count("--- PASS") == 2


@pytest.mark.parametrize("program, arguments", [("java", ["-Dtest=ShedLockTest#keepsIncrementsApart"]), ("go", ["-run", "KeepIncrements"])],
                         ids=["shedlock", "jaeger"])
def test_while_each_proxy_is_killed(fleet, nodes, decided, program, arguments):
    """No two programs hold a lock at once, and none holds it forever."""
    ended, killed = threading.Event(), []

    def kill():
        """Whichever owns the keyspace is among them."""
        while not ended.wait(1):
            one = fleet.proxies[len(killed) % 3]
            one.kill()
            fleet.wait_until_settled(2)
            one.start()
            fleet.wait_until_settled(3)
            killed.append(one)

    contact = ",".join(one.listen for one in fleet.proxies)

    def run_once():
        run(program, contact, decided, nodes[1], *arguments)
        if killing.done():
            killing.result()
        return len(killed) >= 3

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        try:
            until(run_once, "three proxies are killed meanwhile", told=lambda: len(killed))
        finally:
            ended.set()
    killing.result()

"""Lock code of applications, as it is published: ShedLock's provider for Cassandra, cqlmigrate, and Jaeger's lock. Each straight on the nodes,
through proxies that hand its statements on, through proxies that decide them, and so while its owner is killed."""

import os
import subprocess
import threading
import time
import uuid
from pathlib import Path

import pytest

from transactions.test_conditional import HELD_SECONDS

HERE = Path(__file__).resolve().parent
TABLES = {
    "lock": "(name text PRIMARY KEY, lockUntil timestamp, lockedAt timestamp, lockedBy text)",  # ShedLock's
    "leases": "(name text PRIMARY KEY, owner text)",  # Jaeger's
    "locks": "(name text PRIMARY KEY, client text)",  # cqlmigrate's
}
TIMEOUT_SECONDS = 900  # of which the first build is most


def keyspace(session, replicas, mode):
    name = f"lock_code_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
    session.execute(f"CREATE TABLE {name}.counter (id int PRIMARY KEY, n int)")
    for table, columns in TABLES.items():
        session.execute(f"CREATE TABLE {name}.{table} {columns}")
        if mode:
            session.execute(f"ALTER TABLE {name}.{table} WITH transactional_mode = '{mode}'")
    deadline = time.monotonic() + HELD_SECONDS + 45
    while mode:
        rows = session.execute("SELECT table_name, mode FROM shunt_meta.transactional WHERE keyspace_name = %s", (name,))
        if [row["mode"] for row in rows] == [mode] * len(TABLES):
            break
        assert time.monotonic() < deadline
        time.sleep(0.3)
    if mode:
        time.sleep(5)  # until every core of every proxy has read it
    return name


def run(program, contact, keyspace, replicas, *arguments):
    environment = {**os.environ, "SHUNT_CONTACT": contact, "SHUNT_KEYSPACE": keyspace, "SHUNT_RF": str(replicas)}
    ended = subprocess.run([str(HERE / program / "run"), *arguments], env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
                           check=False)
    assert ended.returncode == 0, ended.stdout[-6_000:] + ended.stderr[-2_000:]
    return ended.stdout


@pytest.fixture(scope="session", params=["nodes", "proxies", "conditional"])
def where(request, fleet, nodes):
    """(contact points, keyspace, replicas)"""
    session = fleet.connect()
    mode = "conditional" if request.param == "conditional" else None
    made = keyspace(session, nodes[1], mode)
    contact = nodes[0] if request.param == "nodes" else ",".join(one.listen for one in fleet.proxies)
    yield contact, made, nodes[1]
    session.cluster.shutdown()


def test_shedlock_and_cqlmigrate(where):
    assert "Tests run: 7, Failures: 0, Errors: 0, Skipped: 0" in run("java", *where)


def test_jaeger(where):
    assert run("go", *where).count("--- PASS") == 2


@pytest.fixture(scope="session")
def decided(fleet, nodes):
    session = fleet.connect()
    yield keyspace(session, nodes[1], "conditional")
    session.cluster.shutdown()


@pytest.mark.parametrize("program, arguments", [("java", ["-Dtest=ShedLockTest#keepsIncrementsApart"]), ("go", ["-run", "KeepIncrements"])],
                         ids=["shedlock", "jaeger"])
def test_while_each_proxy_is_killed(fleet, nodes, decided, program, arguments):
    """Whichever owns the keyspace is among them."""
    going, killed = threading.Event(), []

    def kill():
        while not going.wait(4):
            one = fleet.proxies[len(killed) % 3]
            one.kill()
            going.wait(6)
            one.start()
            killed.append(one)
            fleet.wait_until_settled(3)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        contact = ",".join(one.listen for one in fleet.proxies)
        deadline = time.monotonic() + 300
        while len(killed) < 3 and time.monotonic() < deadline:
            run(program, contact, decided, nodes[1], *arguments)
    finally:
        going.set()
        thread.join(120)
        for one in fleet.proxies:
            if not one.alive():
                one.start()
        fleet.wait_until_settled(3)
    assert len(killed) >= 3, f"{len(killed)} proxies were killed meanwhile"

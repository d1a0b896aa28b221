"""A fleet of three proxies before the ring that SHUNT_RING names, or before an embedded node, and tables that take part in transactions."""

import os
import re
from contextlib import contextmanager

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.policies import RoundRobinPolicy
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import IsBootstrappingErrorMessage
from cassandra.query import dict_factory

from harness.driver import PATIENT
from harness.waits import until
from locks import fleet as fleets
from locks.fleet import (  # noqa: F401 (test_cqlsh.py has VERSIONS from here)
    LEASE_MS, NODE_SILENCE, STEADY_LEASE_MS, VERSIONS, Fleet, insistent)

KEYSPACE = "transactions"
# Of the protocol, in which whole files run: what differs between versions is framing, which a few
# tests try in all of them.
FILE_VERSIONS = list(map(int, os.environ.get("SHUNT_TRANSACTION_VERSIONS", "4").split()))
# Of the proxies of these fleets some die or stand still, and their leases are waited for. Others have what operators have, which lasts on a busy
# machine: a lease that ends meanwhile, or a lock in memory, is nothing that their tests are about.
WAIT_FOR_LEASES = ("test_conditional_changes", "test_early", "test_faults", "test_fences_at_rest",
                   "test_guarded_registers", "test_still")
TABLES = (
    "CREATE TABLE IF NOT EXISTS {}.accounts (id int PRIMARY KEY, balance int, owner text, tags set<text>, notes map<text, int>)",
    "CREATE TABLE IF NOT EXISTS {}.moves (account int, number int, amount int, total int static, PRIMARY KEY (account, number))",
    "CREATE TABLE IF NOT EXISTS {}.named (k text PRIMARY KEY, v int)",
    "CREATE TABLE IF NOT EXISTS {}.timed (k timestamp PRIMARY KEY, v int)",
)


@pytest.fixture(scope="session")
def nodes():
    """(contact points, replicas of the tables)"""
    with fleets.nodes("transactions", 9247) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(nodes, request):
    contact, replicas = nodes
    name = request.module.__name__.rsplit(".", 1)[-1]
    waits = LEASE_MS, 5_000, 4_000
    steady = STEADY_LEASE_MS, 15_000, 90_000
    lease_ms, memory_ttl_ms, query_timeout_ms = waits if name in WAIT_FOR_LEASES else steady
    more = [] if name in WAIT_FOR_LEASES else NODE_SILENCE
    # Tests of locks have modules of the same names, and run on the same ring at the same time.
    fleet = Fleet(contact, f"transactions_{name}", replicas, 9380, lease_ms, memory_ttl_ms, query_timeout_ms=query_timeout_ms,
                  more=more)
    try:
        yield fleet.start()
    finally:
        fleet.stop()


def prepare(session, replicas):
    """The tables, with their mode."""
    texts = [f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"]
    texts += [text.format(KEYSPACE) for text in TABLES]
    texts += [f"ALTER TABLE {KEYSPACE}.{table} WITH transactional_mode = 'unsafe'" for table in ("accounts", "moves", "named", "timed")]
    for text in texts:
        insistently(session, text)


def insistently(session, text):
    """A change that is the same if it is made twice. A node that changes its schema with others beside, on a busy machine, may take longer than a
    proxy waits for it."""
    lost = NoHostAvailable, OperationTimedOut, WriteTimeout, ReadTimeout
    return answered(lambda: session.execute(text, timeout=60), lost, text)


def once_served(session, text, values=None):
    """A statement of a fleet that has just settled: who owns what may be known to one proxy a moment later than to another, which says to ask
    again. So does a proxy that did not run for as long as its lease, on a machine that is busy.
    All say that they have written nothing."""
    def ask():
        return session.execute(text, values, timeout=60)

    return answered(ask, NoHostAvailable, text, is_not_asked)


def is_not_asked(error):
    """True if each host has refused it, says that nothing was written, or was sent nothing."""
    return all(map(is_refusal, error.errors.values()))


def is_refusal(error):
    """True if nothing was written, for a reason that passes: a proxy refuses, or the driver has no
    connection to it at the moment."""
    said = str(error)
    return (isinstance(error, (IsBootstrappingErrorMessage, NoConnectionsAvailable, ConnectionBusy))
            or "nothing was written, ask again" in said
            or "marked down or removed" in said
            or re.match("Pool (for .* )?is shutdown", said) is not None)


def answered(ask, errors, what, may_ask_again=lambda error: True):
    """The final answer. Before it, these errors may come."""
    seen = []

    def ask_once():
        try:
            return [ask()]
        except errors as error:
            if not may_ask_again(error):
                raise
            seen[:] = [repr(error)]
            return None

    return until(ask_once, f"an answer to {what}", every_seconds=0.2, told=lambda: seen)[0]


def prepared(session, text):
    """A prepared statement, whichever proxy stands still meanwhile."""
    errors = NoHostAvailable, OperationTimedOut, ConnectionException
    return answered(lambda: session.prepare(text), errors, f"PREPARE {text}")


@contextmanager
def connected(fleet, **how):
    """An insistent session for a few statements."""
    session = insistent(fleet.connect(**how))
    try:
        yield session
    finally:
        session.cluster.shutdown()


@pytest.fixture(scope="module", params=FILE_VERSIONS)
def session(fleet, nodes, request):
    """A test that is about versions asks for all of them:
    @pytest.mark.parametrize("session", VERSIONS, indirect=True)"""
    session = insistent(fleet.connect(version=request.param))
    session.version = request.param
    prepare(session, nodes[1])
    session.execute(f"USE {KEYSPACE}")
    yield session
    session.cluster.shutdown()


@pytest.fixture
def past_the_proxies(nodes):
    """A session of a node: what it writes no proxy knows."""
    with past_the_proxies_of(nodes[0]) as session:
        yield session


@contextmanager
def past_the_proxies_of(contacts: str):
    host, port = contacts.split(",")[0].rsplit(":", 1)
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), row_factory=dict_factory, consistency_level=ConsistencyLevel.QUORUM,
                               request_timeout=60)
    cluster = Cluster([host], port=int(port), protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                      schema_metadata_enabled=False, **PATIENT)
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()

"""A fleet of three proxies before the ring that SHUNT_RING names, or before an embedded node, and tables that take part in transactions."""

import time
from contextlib import contextmanager

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy
from cassandra.protocol import IsBootstrappingErrorMessage
from cassandra.query import dict_factory

from harness.driver import PATIENT
from locks import fleet as fleets
from locks.fleet import VERSIONS, Fleet

KEYSPACE = "transactions"
# Of the proxies of these fleets some die or stand still, and their leases are waited for. Others have what operators have, which lasts on a busy
# machine: a lease that ends meanwhile, or a lock in memory, is nothing that their tests are about.
WAIT_FOR_LEASES = ("test_conditional", "test_conditional_changes", "test_early", "test_faults", "test_fences_at_rest", "test_guarded_registers",
                   "test_observe", "test_still")
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
    lease_ms, memory_ttl_ms, query_timeout_ms = (3_000, 5_000, 4_000) if name in WAIT_FOR_LEASES else (6_000, 15_000, 30_000)
    fleet = Fleet(contact, name, replicas, 9380, lease_ms, memory_ttl_ms, query_timeout_ms=query_timeout_ms)
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


def insistently(session, text, within_seconds=120):
    """A change that is the same if it is made twice. A node that changes its schema with others beside, on a busy machine, may take longer than a
    proxy waits for it."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            return session.execute(text, timeout=60)
        except (NoHostAvailable, OperationTimedOut, WriteTimeout, ReadTimeout):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def once_served(session, text, values=None, within_seconds=90):
    """A statement of a fleet that has just settled: who owns what may be known to one proxy a moment later than to another, which says to ask
    again. So does a proxy that did not run for as long as its lease, on a machine that is busy."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            return session.execute(text, values, timeout=60)
        except NoHostAvailable as error:
            if time.monotonic() > deadline or not all(isinstance(one, IsBootstrappingErrorMessage) for one in error.errors.values()):
                raise
            time.sleep(0.2)


@pytest.fixture(scope="module", params=VERSIONS)
def session(fleet, nodes, request):
    session = fleet.connect(version=request.param)
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
    cluster = Cluster([host], port=int(port), protocol_version=4, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **PATIENT)
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()

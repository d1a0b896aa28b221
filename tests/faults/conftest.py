"""A ring of its own and one proxy in front of it, which has to outlive every fault that these tests cause."""

import resource

import pytest

from harness import cql
from harness.cluster import Cluster
from harness.proxy import PATIENT_PROXY, Proxy

LISTEN, ADMIN = "127.0.0.1:9044", "127.0.0.1:9182"
FILES_NEEDED = 12_000

SCHEMA = (
    "CREATE KEYSPACE IF NOT EXISTS faults WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    "CREATE TABLE IF NOT EXISTS faults.writes (key text PRIMARY KEY, value text)",
)


def pytest_addoption(parser):
    parser.addoption("--extended", type=int, default=0, metavar="N",
                     help="the first N nodes, and those that join as far as N goes, load the Cassandra extension")


def pytest_collection_modifyitems(items):
    """The node that joins comes last: it changes the ring for good."""
    items.sort(key=lambda item: "joins" in item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_NEEDED if hard == resource.RLIM_INFINITY else min(FILES_NEEDED, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@pytest.fixture(scope="session")
def ring(pytestconfig):
    # A node that is killed loses nothing of what is in memory: the files are not its own.
    cluster = Cluster("faults", nodes=3, extended=pytestconfig.getoption("extended"), in_memory=True)
    try:
        cluster.start(wipe=True)
        first = cluster.nodes[0]
        with cql.Session(first.address, first.settings.cql_port, timeout_seconds=180) as session:
            for statement in SCHEMA:
                session.query(statement)
        yield cluster
    finally:
        cluster.stop(wipe=True)


@pytest.fixture(scope="session")
def front(ring):
    """The proxy of all scenarios except draining."""
    with Proxy(ring.contacts, LISTEN, ADMIN, PATIENT_PROXY) as proxy:
        yield proxy
        assert proxy.alive(), proxy.log_tail()


@pytest.fixture
def whole(ring):
    """Every node runs and is seen up by the others, before and after the test."""
    _mend(ring)
    yield ring
    _mend(ring)


def _mend(ring):
    for node in ring.nodes:
        if node.state() == "T":
            node.resume()
        node.start()
    for node in ring.nodes:
        node.wait_ready()
    ring.wait_up()

"""Sessions of the Python driver with its default settings but for time limits, once for protocol v4 and once for v5, with lz4."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster

from harness import cql, waits
from harness.driver import UNDISTURBED, profile

VERSIONS = [4, 5]
# Others change the schema at the same time, and nodes on a busy machine agree late.
DDL_SECONDS = 180


@pytest.fixture(scope="session", params=VERSIONS, ids=["v4", "v5"])
def version(request):
    return request.param


@pytest.fixture(scope="session")
def connect(backend):
    """Makes clusters with the driver's default settings, except that every replica has a write that was acknowledged.

    With fewer, a read could still see every write; but a replica that is behind would apply the rest of one test's
    writes after the TRUNCATE that empties the table for the next test.
    """
    clusters = []

    def make(version=None, **settings):
        if version is not None:
            settings["protocol_version"] = version
        profiles = {EXEC_PROFILE_DEFAULT: profile(consistency_level=ConsistencyLevel.ALL)}
        cluster = Cluster([backend.host], port=backend.port, execution_profiles=profiles,
                          **{**UNDISTURBED, "max_schema_agreement_wait": 180, **settings})
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.shutdown()


class Shared:
    """The cluster and the session that the tests of one version share. After a test that failed they are made anew,
    so that a connection without answers costs one test."""

    def __init__(self, connect, version):
        self._connect, self._version = connect, version
        self._cluster = self._session = None

    def cluster(self):
        self._cluster = self._cluster or self._connect(self._version)
        return self._cluster

    def session(self, keyspace: str):
        self._session = self._session or self.cluster().connect(keyspace)
        return self._session

    def forget(self) -> None:
        self._cluster = self._session = None
        made.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    item.has_failed = (yield).get_result().failed or getattr(item, "has_failed", False)


@pytest.fixture(scope="session")
def shared(connect, version):
    return Shared(connect, version)


@pytest.fixture
def cluster(shared, request):
    yield shared.cluster()
    if request.node.has_failed:
        shared.forget()


@pytest.fixture(scope="session")
def keyspace(backend, shared, version):
    """A keyspace with as many replicas as there are that exists as long as the tests of one protocol version."""
    name = f"python_v{version}"
    session = shared.cluster().connect()
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=DDL_SECONDS)
    session.execute(f"CREATE KEYSPACE {name} WITH replication = "
                    f"{{'class': 'SimpleStrategy', 'replication_factor': {backend.copies}}}", timeout=DDL_SECONDS)
    yield name
    session.execute(f"DROP KEYSPACE {name}", timeout=DDL_SECONDS)


@pytest.fixture
def session(shared, cluster, keyspace):
    return shared.session(keyspace)


@pytest.fixture
def table(backend, session, keyspace, request):
    """Gives the name of an empty table with the columns asked for.

    A schema change takes a second or more until all nodes agree, so tables are emptied and used again, unless the test
    wants one of its own to change it.
    """

    def create(columns: str, own: bool = False) -> str:
        existing = made.get((keyspace, columns))
        if existing and not own and existing not in used:
            session.execute(f"TRUNCATE {existing}", timeout=DDL_SECONDS)
            used.append(existing)
            return existing
        name = f"{request.node.originalname.removeprefix('test_')[:40]}_{len(names)}"
        names.append(name)
        session.execute(f"CREATE TABLE {name} ({columns})", timeout=DDL_SECONDS)
        wait_known(backend, keyspace, name)
        if not own:
            made[keyspace, columns] = name
        used.append(name)
        return name

    used = []
    return create


def wait_known(backend, keyspace: str, name: str) -> None:
    """Until every node knows the table. The proxy waits ten seconds for that; nodes on a busy machine may need longer."""
    look = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}' AND table_name = '{name}'"
    for contact in backend.nodes:
        host, port = contact.rsplit(":", 1)
        with cql.Session(host, int(port)) as node:
            waits.until(lambda: node.query(look), f"{contact} knows {keyspace}.{name}")


made = {}  # tables that may be used again, by keyspace and columns
names = []  # every table of the run

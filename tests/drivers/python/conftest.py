"""Sessions of the Python driver with its default settings but for time limits, once for protocol v4 and once for v5, with lz4."""

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session

from harness.driver import ANSWER_SECONDS, UNDISTURBED

VERSIONS = [4, 5]
# For clusters without an execution profile, and for PREPARE.
Session.default_timeout = ANSWER_SECONDS
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
        profile = ExecutionProfile(consistency_level=ConsistencyLevel.ALL, request_timeout=ANSWER_SECONDS)
        cluster = Cluster([backend.host], port=backend.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                          **{**UNDISTURBED, "max_schema_agreement_wait": 180, **settings})
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.shutdown()


@pytest.fixture(scope="session")
def cluster(connect, version):
    return connect(version)


@pytest.fixture(scope="session")
def keyspace(backend, cluster, version):
    """A keyspace with as many replicas as there are that exists as long as the tests of one protocol version."""
    name = f"python_v{version}"
    session = cluster.connect()
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=DDL_SECONDS)
    session.execute(f"CREATE KEYSPACE {name} WITH replication = "
                    f"{{'class': 'SimpleStrategy', 'replication_factor': {backend.copies}}}", timeout=DDL_SECONDS)
    yield name
    session.execute(f"DROP KEYSPACE {name}", timeout=DDL_SECONDS)


@pytest.fixture(scope="session")
def session(cluster, keyspace):
    return cluster.connect(keyspace)


@pytest.fixture
def table(session, keyspace, request):
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
        if not own:
            made[keyspace, columns] = name
        used.append(name)
        return name

    used = []
    return create


made = {}  # tables that may be used again, by keyspace and columns
names = []  # every table of the run

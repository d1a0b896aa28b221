"""Logins through one proxy: who may what is decided by the ring, and roles that share the proxy do not share rights."""

import json
import urllib.request

import pytest
from cassandra import AuthenticationFailed, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable

from harness import waits
from harness.cluster import Cluster as Ring
from harness.cluster import SUPERUSER
from harness.driver import UNDISTURBED
from harness.proxy import UNDISTURBED_PROXY, Proxy

LISTEN, ADMIN = "127.0.0.1:9043", "127.0.0.1:9181"
VERSIONS = [4, 5]


@pytest.fixture(scope="module")
def entrance(backend):
    """(host, port) of a proxy in front of a node with PasswordAuthenticator and CassandraAuthorizer."""
    backend.needs("logins: whoever reaches it may do everything")
    ring = Ring("auth", nodes=1, authentication=True, fleeting=True, patient=True)
    ring.start(wipe=True)
    try:
        if not backend.through_proxy:
            yield ring.nodes[0].address, ring.nodes[0].settings.cql_port
            return
        user, password = SUPERUSER
        options = ["--username", user, "--password", password]
        with Proxy(ring.contacts, LISTEN, ADMIN, [*options, *UNDISTURBED_PROXY]) as proxy:
            yield proxy.host, proxy.port
    finally:
        ring.stop(wipe=True)


@pytest.fixture(scope="module")
def login(entrance):
    clusters = []

    def connect(user, password, version=5):
        host, port = entrance
        provider = PlainTextAuthProvider(user, password) if user else None
        cluster = Cluster([host], port=port, auth_provider=provider, protocol_version=version,
                          **UNDISTURBED)
        clusters.append(cluster)
        return cluster.connect()

    yield connect
    for cluster in clusters:
        cluster.shutdown()


@pytest.fixture(scope="module")
def roles(login):
    """ann may use hers.t, bob may use his.t, both may log in."""
    session = login(*SUPERUSER)
    for role, keyspace in (("ann", "hers"), ("bob", "his")):
        session.execute(f"CREATE ROLE {role} WITH PASSWORD = '{role} secret' AND LOGIN = true")
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = "
                        "{'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v text)")
        session.execute(f"GRANT SELECT ON KEYSPACE {keyspace} TO {role}")
        session.execute(f"GRANT MODIFY ON KEYSPACE {keyspace} TO {role}")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_right_password(login, roles, version):
    session = login("ann", "ann secret", version)
    session.execute("INSERT INTO hers.t (id, v) VALUES (1, 'x')")
    assert session.execute("SELECT v FROM hers.t WHERE id = 1").one().v == "x"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("user, password", [("ann", "wrong"), ("ann", ""), ("ann", "bob secret"), ("nobody", "ann secret")])
def test_the_wrong_password(login, roles, version, user, password):
    login("ann", "ann secret", version).execute("SELECT * FROM hers.t")  # a good login is fresh in every cache
    assert is_refused(login, user, password, version)


def is_refused(login, user, password, version=5) -> bool:
    """True if the server says that these credentials are wrong. What else keeps a driver out is an
    error of its own."""
    try:
        login(user, password, version)
    except NoHostAvailable as failure:
        # A list names hosts whose pools were refused after a first connection was let in: the
        # server forgot the credentials in between.
        if isinstance(failure.errors, list):
            return False
        if all(isinstance(error, AuthenticationFailed) for error in failure.errors.values()):
            return True
        raise
    return False


def test_an_operator_sees_which_login_fails(backend, login, roles):
    if not backend.through_proxy:
        pytest.skip("the page is the proxy's")

    def failed() -> list:
        with urllib.request.urlopen(f"http://{ADMIN}/failed_logins", timeout=30) as answer:
            found = json.load(answer)["failed_logins"]
        return [(row["address"], row["reason"], "incorrect" in row["why"]) for row in found if row["role"] == "ann" and row["count"] > 0]

    assert is_refused(login, "ann", "not hers")
    waits.until(lambda: failed() == [("127.0.0.1", "authentication", True)], "the login is on the page", told=lambda: str(failed()))


def test_no_credentials(login, roles):
    assert is_refused(login, None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_two_roles_keep_to_their_own_rights(login, roles, version):
    """The same statements, interleaved on connections through one proxy."""
    ann, bob = login("ann", "ann secret", version), login("bob", "bob secret", version)
    for turn in range(20):
        ann.execute(f"INSERT INTO hers.t (id, v) VALUES ({turn}, 'ann')")
        bob.execute(f"INSERT INTO his.t (id, v) VALUES ({turn}, 'bob')")
        with pytest.raises(Unauthorized, match="ann"):
            ann.execute("SELECT v FROM his.t WHERE id = 0")
        with pytest.raises(Unauthorized, match="bob"):
            bob.execute("SELECT v FROM hers.t WHERE id = 0")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_statement_prepared_by_one_role_gives_the_other_nothing(login, roles, version):
    """The id of a prepared statement is the same for everybody: it is a hash of the text."""
    ann, bob = login("ann", "ann secret", version), login("bob", "bob secret", version)
    insert = ann.prepare("INSERT INTO hers.t (id, v) VALUES (?, ?)")
    ann.execute(insert, (100, "ann"))
    with pytest.raises(Unauthorized):
        bob.execute(insert, (100, "bob"))
    assert ann.execute("SELECT v FROM hers.t WHERE id = 100").one().v == "ann"


def test_rights_taken_away_are_gone(login, roles):
    session, ann = login(*SUPERUSER), login("ann", "ann secret")
    ann.execute("SELECT * FROM hers.t")
    session.execute("REVOKE SELECT ON KEYSPACE hers FROM ann")
    try:
        with pytest.raises(Unauthorized):
            ann.execute("SELECT * FROM hers.t")
    finally:
        session.execute("GRANT SELECT ON KEYSPACE hers TO ann")


def test_a_changed_password_lets_only_the_new_one_in(login, roles):
    session = login(*SUPERUSER)
    session.execute("CREATE ROLE eve WITH PASSWORD = 'first' AND LOGIN = true")
    login("eve", "first").execute("SELECT key FROM system.local")
    session.execute("ALTER ROLE eve WITH PASSWORD = 'second'")
    # A login may be remembered for a short while, as Cassandra itself does.
    waits.until(lambda: is_refused(login, "eve", "first"), "the first password is refused",
                every_seconds=0.5)
    login("eve", "second").execute("SELECT key FROM system.local")
    session.execute("DROP ROLE eve")


def test_many_sessions_of_two_roles_at_once(login, roles):
    pairs = [(login(role, f"{role} secret"), keyspace, role)
             for _ in range(5) for role, keyspace in (("ann", "hers"), ("bob", "his"))]
    futures = []
    for number in range(500):
        session, keyspace, role = pairs[number % len(pairs)]
        futures.append((session.execute_async(f"SELECT v FROM {keyspace}.t WHERE id = 1"), None))
        other = "his" if keyspace == "hers" else "hers"
        futures.append((session.execute_async(f"SELECT v FROM {other}.t WHERE id = 1"), role))
    for future, refused in futures:
        if refused:
            with pytest.raises(Unauthorized, match=refused):
                future.result()
        else:
            future.result()

"""Certificates as logins, in front of Cassandra with PasswordAuthenticator and CassandraAuthorizer."""

import json
import subprocess

import pytest
from cassandra import Unauthorized
from cassandra.cluster import Cluster, NoHostAvailable

from harness.certificates import client_context, place
from harness.cluster import SUPERUSER
from harness.cluster import Cluster as Ring
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, binary
from harness.waits import until

VERSIONS = [3, 4, 5]
USER, PASSWORD = SUPERUSER
PASSWORDS = {USER: PASSWORD, "ann": "ann secret", "bob": "bob secret"}
# The administrator is known by its common name, the others by a URI.
IDENTITIES = {"CN=admin": USER, "spiffe://test/ann": "ann", "spiffe://test/bob": "bob"}


def identities(directory, roles: dict) -> str:
    """The file's tables."""
    return "".join(f'[[identity]]\nmatch = "{match}"\nusername = "{role}"\npassword_file = "{directory / role}"\n\n'
                   for match, role in roles.items())


# Of those whose certificate has this name.
TENANT = """
[[tenant]]
name = "service-a"
match = { certificate = "spiffe://test/ann" }
"""


@pytest.fixture(scope="module")
def ring():
    ring = Ring("identities", nodes=1, authentication=True, fleeting=True, patient=True)
    ring.start(wipe=True)
    try:
        yield ring
    finally:
        ring.stop(wipe=True)


@pytest.fixture(scope="module")
def proxy(ring, secured, authority, clients_ca, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    for role, password in PASSWORDS.items():
        place(f"{password}\n".encode(), directory / role)
    place((identities(directory, IDENTITIES) + TENANT).encode(), directory / "shunt.toml")
    pair = authority.server().install(directory)
    options = ["--config", directory / "shunt.toml", "--tls", "required", "--tls-certificate", pair.certificate,
               "--tls-key", pair.key, *clients_ca, "--username", USER, "--password", PASSWORD, "--cores", "2", *UNDISTURBED_PROXY]
    with secured(ring.contacts, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", list(map(str, options)),
                 directory / "proxy.log", tls=client_context(authority.ca, authority.client("admin"))) as started:
        started.directory = directory
        yield started


@pytest.fixture(scope="module")
def connect(proxy, authority):
    """A session of a driver that has a certificate, and no login."""
    clusters, certificates = [], {name: authority.client(name) for name in ("admin", "ann", "bob", "stranger")}

    def begin(name: str, version: int = 5):
        cluster = Cluster([proxy.host], port=proxy.port, ssl_context=client_context(authority.ca, certificates[name]),
                          protocol_version=version, **UNDISTURBED)
        clusters.append(cluster)
        return cluster.connect()

    yield begin
    for cluster in clusters:
        cluster.shutdown()


@pytest.fixture(scope="module")
def tables(connect):
    """ann may use hers.t, bob may use his.t."""
    session = connect("admin")
    for role, keyspace in (("ann", "hers"), ("bob", "his")):
        session.execute(f"CREATE ROLE {role} WITH PASSWORD = '{PASSWORDS[role]}' AND LOGIN = true")
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v text)")
        session.execute(f"GRANT SELECT ON KEYSPACE {keyspace} TO {role}")
        session.execute(f"GRANT MODIFY ON KEYSPACE {keyspace} TO {role}")


@pytest.mark.parametrize("version", VERSIONS)
def test_each_certificate_has_the_rights_of_its_own_role(connect, tables, version):
    ann, bob = connect("ann", version), connect("bob", version)
    for own, other, keyspace, others in ((ann, bob, "hers", "his"), (bob, ann, "his", "hers")):
        insert = own.prepare(f"INSERT INTO {keyspace}.t (id, v) VALUES (?, ?)")
        own.execute(insert, (version, "x"))
        assert own.execute(f"SELECT v FROM {keyspace}.t WHERE id = {version}").one().v == "x"
        with pytest.raises(Unauthorized):
            own.execute(f"SELECT v FROM {others}.t")
        with pytest.raises(Unauthorized):
            other.execute(f"INSERT INTO {keyspace}.t (id, v) VALUES (0, 'y')")
    ann.set_keyspace("hers")
    assert ann.execute(f"SELECT v FROM t WHERE id = {version}").one().v == "x"


def test_the_status_page_names_the_identity(proxy, connect, tables):
    connect("ann")
    assert any((group["role"], group["identity"]) == ("ann", "URI:spiffe://test/ann") for group in proxy.client_groups())


def test_a_tenant_has_the_clients_of_a_certificate_and_no_others(proxy, connect, tables):
    def queries() -> int:
        (tenant,) = json.loads(proxy.get("/tenants")[1])["tenants"]
        return tenant["queries"]

    ann, bob = connect("ann"), connect("bob")
    before = queries()
    for number in range(100, 120):
        bob.execute(f"INSERT INTO his.t (id, v) VALUES ({number}, 'x')")
    after = queries()
    for number in range(100, 120):
        ann.execute(f"INSERT INTO hers.t (id, v) VALUES ({number}, 'x')")
    # Drivers ask for tables by themselves now and then, those of ann too.
    assert after - before < 20 <= queries() - after


def refusal(connect, name: str) -> str:
    with pytest.raises(NoHostAvailable) as refused:
        connect(name)
    return str(refused.value)


def test_a_certificate_that_no_identity_matches_is_refused_by_its_names(proxy, connect):
    assert "URI:spiffe://test/stranger, CN=stranger" in refusal(connect, "stranger")
    proxy.wait_until_it_says("closed a client", "no_identity", "spiffe://test/stranger")


def test_a_wrong_password_refuses_its_clients_and_a_new_file_lets_them_in(proxy, connect, tables):
    bob = connect("bob")
    place(b"wrong\n", proxy.directory / "ann")
    proxy.reload()
    proxy.wait_until_it_says("configuration applied", "identity")
    until(lambda: not lets_in(connect, "ann"), "its file is settled, and the wrong password counts", told=proxy.log_tail)
    assert "incorrect" in refusal(connect, "ann")
    assert bob.execute("SELECT count(*) FROM his.t").one() is not None
    connect("bob").execute("SELECT v FROM his.t")
    place(f"{PASSWORDS['ann']}\n".encode(), proxy.directory / "ann")
    proxy.reload()
    until(lambda: lets_in(connect, "ann"), "the password is read again", told=proxy.log_tail)


def lets_in(connect, name: str) -> bool:
    try:
        connect(name)
    except NoHostAvailable:
        return False
    return True


def test_an_identity_that_is_removed_closes_its_clients(proxy, connect, tables):
    connect("ann")
    bob = connect("bob")
    rest = {match: role for match, role in IDENTITIES.items() if role != "ann"}
    place(identities(proxy.directory, rest).encode(), proxy.directory / "shunt.toml")
    proxy.reload()
    proxy.wait_until_it_says("closed a client", "identity_changed", "spiffe://test/ann")
    assert "URI:spiffe://test/ann" in refusal(connect, "ann")
    bob.execute("SELECT v FROM his.t")
    place(identities(proxy.directory, IDENTITIES).encode(), proxy.directory / "shunt.toml")
    proxy.reload()
    until(lambda: lets_in(connect, "ann"), "the identity is back", told=proxy.log_tail)


def check(directory, text: str, *options) -> tuple:
    """The exit code of `shunt check`, and everything that it says."""
    (directory / "shunt.toml").write_text(text)
    done = subprocess.run([binary(), "check", "--config", directory / "shunt.toml", "--contact-points", "192.0.2.1",
                           *map(str, options)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_check_reads_the_files_and_asks_for_an_authority(authority, clients_ca, tmp_path):
    pair = authority.server()
    tls = ["--tls", "required", "--tls-certificate", pair.certificate, "--tls-key", pair.key]
    text = identities(tmp_path, {"CN=ann": "ann"})
    code, said = check(tmp_path, text, *tls, *clients_ca)
    assert code == 2 and "[[identity]] number 1: password_file" in said and "cannot read the file" in said, said
    (tmp_path / "ann").write_text("secret\n")
    assert check(tmp_path, text, *tls, *clients_ca)[0] == 0
    code, said = check(tmp_path, text, *tls)
    assert code == 2 and "`identity`: an identity needs clients' certificates: set tls_client_ca" in said, said
    code, said = check(tmp_path, f"{text}cores = 2\n", *tls, *clients_ca)
    assert code == 2 and "unknown key `cores`" in said and "before the first [[identity]]" in said, said

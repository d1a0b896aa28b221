"""Certificates as logins on both sides, in front of Cassandra that takes certificates for logins (`ADD IDENTITY`).

Cassandra has MutualTlsAuthenticator for connections with TLS. In clear text it takes passwords, by which the tests prepare it.
"""

import subprocess

import pytest
from cassandra import Unauthorized
from cassandra.cluster import Cluster, NoHostAvailable

from harness import cql
from harness.certificates import Authority, client_context, place
from harness.cluster import SUPERUSER
from harness.cluster import Cluster as Ring
from harness.driver import UNDISTURBED
from harness.ports import free_port
from harness.proxy import PATIENT_PROXY, binary
from harness.waits import until

VERSIONS = [3, 4, 5]
STORE_PASSWORD = "secret"
AUTHENTICATOR = ("{class_name: MutualTlsWithPasswordFallbackAuthenticator, "
                 "parameters: {validator_class_name: org.apache.cassandra.auth.SpiffeCertificateValidator}}")
ENCRYPTION = """\
client_encryption_options:
  enabled: true
  optional: true
  keystore: {store}
  keystore_password: {password}
  require_client_auth: true
  truststore: {trusted}
  truststore_password: {password}
  store_type: PKCS12
"""
ROLES = ("ann", "bob")


def seen_by_nodes(role: str) -> str:
    """The name in the certificate that the proxy shows for a role. The client's own certificate has another one."""
    return f"{role}-at-nodes"


@pytest.fixture(scope="module")
def ring(authority, tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    ring = Ring("identity-certificates", nodes=1, authentication=True, fleeting=True)
    settings = ring.nodes[0].settings
    store = authority.server("cassandra", [f"IP:{settings.address}"]).store(directory / "store.p12", STORE_PASSWORD)
    trusted = authority.truststore(directory / "trusted.p12", STORE_PASSWORD)
    settings.authenticator = AUTHENTICATOR
    settings.more_yaml = ENCRYPTION.format(store=store, trusted=trusted, password=STORE_PASSWORD)
    ring.start(wipe=True)
    try:
        yield ring
    finally:
        ring.stop(wipe=True)


@pytest.fixture(scope="module")
def at_node(ring):
    """Carries out statements at the node itself, as its superuser."""

    def execute(*statements: str) -> list:
        node = ring.nodes[0]
        with cql.Session(node.address, node.settings.cql_port, SUPERUSER) as session:
            return [session.query(statement) for statement in statements][-1]

    return execute


@pytest.fixture(scope="module")
def roles(at_node):
    """ann may use hers.t, bob may use his.t, and the proxy's own certificate may read the system's tables."""
    for role in (*ROLES, "proxy"):
        at_node(f"CREATE ROLE {role} WITH LOGIN = true", f"ADD IDENTITY 'spiffe://test/{seen_by_nodes(role)}' TO ROLE '{role}'")
    for role, keyspace in (("ann", "hers"), ("bob", "his")):
        at_node(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
                f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v text)",
                f"GRANT SELECT ON KEYSPACE {keyspace} TO {role}", f"GRANT MODIFY ON KEYSPACE {keyspace} TO {role}")


def identities(directory, roles=ROLES) -> bytes:
    """The file's tables."""
    return "".join(f'[[identity]]\nmatch = "spiffe://test/{role}"\ncertificate = "{directory / role}.crt"\n'
                   f'key = "{directory / role}.key"\n\n' for role in roles).encode()


def give(directory, role: str, pair) -> None:
    """Makes this the certificate that the proxy shows for a role."""
    place(pair.key.read_bytes(), directory / f"{role}.key")
    place(pair.certificate.read_bytes(), directory / f"{role}.crt")


@pytest.fixture(scope="module")
def proxy(ring, roles, secured, authority, clients_ca, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    for role in ROLES:
        give(directory, role, authority.client(seen_by_nodes(role)))
    place(identities(directory), directory / "shunt.toml")
    pair, own = authority.server().install(directory), authority.client(seen_by_nodes("proxy"))
    options = ["--config", directory / "shunt.toml", "--tls", "required", "--tls-certificate", pair.certificate,
               "--tls-key", pair.key, *clients_ca, "--node-tls", "on", "--node-tls-ca", authority.ca,
               "--node-tls-certificate", own.certificate, "--node-tls-key", own.key, "--cores", "2", *PATIENT_PROXY]
    with secured(ring.contacts, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", list(map(str, options)),
                 directory / "proxy.log", tls=client_context(authority.ca, authority.client("ann"))) as started:
        started.directory = directory
        yield started


@pytest.fixture(scope="module")
def connect(proxy, authority):
    """A session of a driver that has a certificate, and no login."""
    clusters, certificates = [], {name: authority.client(name) for name in (*ROLES, "stranger")}

    def begin(name: str, version: int = 5):
        cluster = Cluster([proxy.host], port=proxy.port, ssl_context=client_context(authority.ca, certificates[name]),
                          protocol_version=version, **UNDISTURBED)
        clusters.append(cluster)
        session = cluster.connect()
        session.default_timeout = 120
        return session

    yield begin
    for cluster in clusters:
        cluster.shutdown()


def lets_in(connect, name: str) -> bool:
    try:
        connect(name)
    except NoHostAvailable:
        return False
    return True


def refused(connect, name: str) -> str:
    """The text of a refusal, or nothing."""
    try:
        connect(name)
    except NoHostAvailable as failed:
        return str(failed)
    return ""


def refusal(connect, name: str) -> str:
    with pytest.raises(NoHostAvailable) as refused:
        connect(name)
    return str(refused.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_client_has_the_role_of_the_certificate_that_nodes_see(connect, version):
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


def test_the_status_page_and_the_metrics_name_both_sides(proxy, connect, at_node):
    connect("ann")
    connect("bob")
    assert any(group["identity"] == "URI:spiffe://test/ann" for group in proxy.client_groups())
    assert proxy.metric("shunt_certificate_expires_seconds", use="identities", path=str(proxy.directory / "ann.crt")) > 0
    rows = at_node("SELECT username, ssl_enabled FROM system_views.clients")
    assert {"ann", "bob", "proxy"} <= {row["username"] for row in rows if row["ssl_enabled"]}


def test_nobody_gets_the_role_of_the_proxys_own_certificate(connect):
    assert "node_tls_certificate" in refusal(connect, "stranger")


def test_a_renewed_certificate_closes_nobody(proxy, connect, authority):
    ann = connect("ann")
    give(proxy.directory, "ann", authority.client(seen_by_nodes("ann")))
    proxy.reload()
    proxy.wait_until_it_says("an identity has a new certificate", "spiffe://test/ann")
    ann.execute("SELECT v FROM hers.t")
    connect("ann").execute("SELECT v FROM hers.t")
    assert not proxy.says("closed a client", "identity_changed")


def test_a_certificate_of_another_role_closes_the_clients(proxy, connect, authority):
    connect("ann")
    bob = connect("bob")
    give(proxy.directory, "ann", authority.client(seen_by_nodes("bob")))
    proxy.reload()
    proxy.wait_until_it_says("has changed to another role or certificate", "spiffe://test/ann")
    proxy.wait_until_it_says("closed a client", "identity_changed", "spiffe://test/ann")
    bob.execute("SELECT v FROM his.t")
    now = connect("ann")
    now.execute("SELECT v FROM his.t")
    with pytest.raises(Unauthorized):
        now.execute("SELECT v FROM hers.t")
    give(proxy.directory, "ann", authority.client(seen_by_nodes("ann")))
    proxy.reload()
    until(lambda: lets_in(connect, "ann"), "the role is back", told=proxy.log_tail)


@pytest.mark.parametrize("name", ["authority", "stranger"])
def test_a_certificate_that_nodes_refuse_harms_its_own_clients_alone(proxy, connect, authority, tmp_path, name):
    """The certificate comes from an authority that the nodes do not know, with the name of theirs or
    another one. A certificate with another issuer counts as one with other names. Nodes may answer
    with the alert `internal_error` alone."""
    bob = connect("bob")
    give(proxy.directory, "ann", Authority(tmp_path, name).client(seen_by_nodes("ann")))
    proxy.reload()
    # The driver quotes the quotes of the message. Before the new certificate counts, others are right or wrong.
    until(lambda: "the certificate of this client" in refused(connect, "ann"), "the nodes refuse it", told=proxy.log_tail)
    bob.execute("SELECT v FROM his.t")
    connect("bob").set_keyspace("his")
    give(proxy.directory, "ann", authority.client(seen_by_nodes("ann")))
    proxy.reload()
    until(lambda: lets_in(connect, "ann"), "the certificate is right again", told=proxy.log_tail)


def test_a_file_that_cannot_be_used_changes_nothing(proxy, connect, authority):
    place(b"no certificate\n", proxy.directory / "ann.crt")
    proxy.reload()
    proxy.wait_until_it_says("the configuration stays as it is")
    connect("ann").execute("SELECT v FROM hers.t")
    give(proxy.directory, "ann", authority.client(seen_by_nodes("ann")))
    proxy.reload()


def test_an_identity_that_the_nodes_drop_gets_their_error(proxy, connect, at_node):
    name = f"spiffe://test/{seen_by_nodes('bob')}"
    at_node(f"DROP IDENTITY '{name}'")
    until(lambda: not lets_in(connect, "bob"), "the nodes refuse it", told=proxy.log_tail)
    # Nodes forget an identity one after the other. While some let it in, the driver names no error.
    said = until(lambda: next(filter(lambda text: "Certificate identity" in text, [refused(connect, "bob")]), None),
                 "the driver has the nodes' error", told=proxy.log_tail)
    # The driver quotes the quotes of the message.
    assert name in said and "not authorized" in said, said
    connect("ann").execute("SELECT v FROM hers.t")
    at_node(f"ADD IDENTITY '{name}' TO ROLE 'bob'")
    until(lambda: lets_in(connect, "bob"), "the identity is back", told=proxy.log_tail)


def test_an_identity_that_is_removed_closes_its_clients(proxy, connect):
    connect("ann")
    bob = connect("bob")
    place(identities(proxy.directory, ["bob"]), proxy.directory / "shunt.toml")
    proxy.reload()
    until(lambda: not any(group["identity"] == "URI:spiffe://test/ann" for group in proxy.client_groups()),
          "its clients are closed", told=proxy.log_tail)
    assert "node_tls_certificate" in refusal(connect, "ann")
    bob.execute("SELECT v FROM his.t")
    place(identities(proxy.directory), proxy.directory / "shunt.toml")
    proxy.reload()
    until(lambda: lets_in(connect, "ann"), "the identity is back", told=proxy.log_tail)


def test_check_reads_the_files_and_asks_for_tls(authority, clients_ca, tmp_path):
    pair, place_of = authority.server(), tmp_path / "shunt.toml"
    options = ["--contact-points", "192.0.2.1", "--tls", "required", "--tls-certificate", pair.certificate,
               "--tls-key", pair.key, *clients_ca]

    def check(*more) -> tuple:
        done = subprocess.run([binary(), "check", "--config", place_of, *map(str, [*options, *more])], capture_output=True,
                              text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    place_of.write_bytes(identities(tmp_path, ["ann"]))
    nodes = ["--node-tls", "on", "--node-tls-ca", authority.ca]
    code, said = check(*nodes)
    assert code == 2 and "[[identity]] number 1: certificate" in said and "cannot read the file" in said, said
    give(tmp_path, "ann", authority.client("ann"))
    assert check(*nodes)[0] == 0
    code, said = check()
    assert code == 2 and "[[identity]] number 1: the proxy can show its certificate only over TLS: set node_tls = on" in said, said
    code, said = check(*nodes, "--fleet", "main", "--fleet-tls", "on", "--fleet-tls-ca", authority.ca)
    assert code == 2 and "remove fleet" in said, said
    place(authority.client("ann").key.read_bytes(), tmp_path / "ann.key")
    code, said = check(*nodes)
    assert code == 2 and "the key does not belong to the certificate" in said, said

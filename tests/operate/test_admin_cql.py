"""The admin tables through a driver and cqlsh, and who may not use them."""

import json
import os
import subprocess
import urllib.request

import pytest
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.connection import UnixSocketEndPoint
from cassandra.protocol import SyntaxException
from cassandra.query import SimpleStatement

from harness import cqlsh
from harness.driver import UNDISTURBED, named_connection
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.waits import until

TOKEN = "a-token-of-operators-of-the-test"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("admin-cql", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def proxy(node, directory, port):
    file, tokens = directory / "shunt.toml", directory / "tokens"
    file.write_text('log = "info"\nslow_query_ms = 1\n')
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    options = ["--config", str(file), "--admin-cql", f"127.0.0.1:{port}", "--admin-token-file", str(tokens),
               *UNDISTURBED_PROXY]
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, directory / "log") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def client(proxy):
    cluster = Cluster([proxy.host], port=proxy.port, connection_class=named_connection("shop"), **UNDISTURBED)
    session = cluster.connect()
    session.execute("SELECT release_version FROM system.local")
    yield session
    cluster.shutdown()


def admin_cluster(port, password=TOKEN, **options) -> Cluster:
    login = PlainTextAuthProvider("operator", password)
    return Cluster(["127.0.0.1"], port=port, auth_provider=login, **{**UNDISTURBED, **options})


@pytest.fixture(scope="module")
def admin(proxy, port):
    cluster = admin_cluster(port)
    yield cluster.connect("shunt_admin")
    cluster.shutdown()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_driver_reads_tables_in_each_version(proxy, port, node, version):
    cluster = admin_cluster(port, protocol_version=version)
    session = cluster.connect()
    assert [row.address for row in session.execute("SELECT address, up FROM shunt_admin.nodes WHERE up = true")] == [node.contact]
    settings = cluster.metadata.keyspaces["shunt_admin"].tables["settings"]
    assert list(settings.columns)[:2] == ["name", "value"] and settings.columns["restart_needed"].cql_type == "boolean"
    cluster.shutdown()


def test_rows_are_those_of_the_pages(proxy, client, admin):
    def found():
        rows = admin.execute("SELECT address, queries FROM client_groups WHERE application = 'shop' ORDER BY queries DESC LIMIT 1")
        return [row.address for row in rows if row.queries > 0]

    until(lambda: found() == ["127.0.0.1"], "the client is counted", told=proxy.log_tail)
    prepared = admin.prepare("SELECT value, source, file_value FROM settings WHERE name IN ?")
    assert sorted(tuple(row) for row in admin.execute(prepared, [["log", "slow_query_ms"]])) == [("1", "file", "1"), ("info", "file", "info")]
    page = {option["key"] for option in json.loads(pages(proxy, "/config"))["options"]}
    small = SimpleStatement("SELECT name FROM settings ORDER BY name", fetch_size=7)
    names = [row.name for row in admin.execute(small)]
    assert names == sorted(page) and len(names) > 7
    assert admin.execute("SELECT count(*) FROM settings").one().count == len(page)
    for table in admin.cluster.metadata.keyspaces["shunt_admin"].tables:
        admin.execute(f"SELECT * FROM {table}")


def test_each_connection_has_a_row_with_its_links(proxy, client, node, admin):
    rows = list(admin.execute("SELECT * FROM clients WHERE application = 'shop' AND connection_stage = 'READY'"))
    assert rows and {row.address for row in rows} == {"127.0.0.1"} and len({row.port for row in rows}) == len(rows)
    assert all(row.client_options["APPLICATION_NAME"] == "shop" and row.ssl_enabled is False for row in rows)
    assert f"{rows[0].address}:{rows[0].port}" == rows[0].id and rows[0].local_address == proxy.listen
    pool = admin.execute("SELECT clients, links_ready FROM pools WHERE pool = %s AND core = %s", (rows[0].pool, rows[0].shard_id)).one()
    assert pool.clients >= 1 and pool.links_ready >= 1
    links = list(admin.execute("SELECT node, state FROM links WHERE pool = %s AND core = %s", (rows[0].pool, rows[0].shard_id)))
    assert {link.node for link in links} == {node.contact} and "ready" in {link.state for link in links}


def pages(proxy, path: str) -> str:
    asked = urllib.request.Request(f"http://{proxy.admin}{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.parametrize("name, value, former", [("log", "debug", "info"), ("clients_max", "77", None), ("slow_query_ms", "9", "1")])
def test_an_option_is_set_and_given_back(proxy, admin, name, value, former):
    def row():
        return admin.execute("SELECT value, source, file_value FROM settings WHERE name = %s", (name,)).one()

    before = row()
    assert before.source != "admin" and before.value == before.file_value and former in (None, before.value)
    admin.execute("UPDATE settings SET value = %s WHERE name = %s", (value, name))
    assert tuple(row()) == (value, "admin", before.value)
    admin.execute("UPDATE settings SET value = null WHERE name = %s", (name,))
    assert row() == before


@pytest.mark.parametrize("name, value, why", [("cores", "2", "needs a restart"), ("clients_max", "many", "whole number"),
                                              ("log", "loud", "no level"), ("password", "a", "login"), ("nothing", "a", "no option")])
def test_a_value_that_a_file_may_not_have_is_refused(admin, name, value, why):
    before = list(admin.execute("SELECT value, source FROM settings"))
    with pytest.raises(InvalidRequest, match=why):
        admin.execute("UPDATE settings SET value = %s WHERE name = %s", (value, name))
    assert list(admin.execute("SELECT value, source FROM settings")) == before


def test_the_only_node_cannot_be_drained(node, admin):
    with pytest.raises(InvalidRequest, match="down or drained"):
        admin.execute(f"UPDATE nodes SET drained = true WHERE address = '{node.contact}'")
    admin.execute(f"UPDATE nodes SET drained = false WHERE address = '{node.contact}'")
    assert admin.execute("SELECT count(*) FROM nodes WHERE drained = false").one().count == 1


def test_the_proxy_is_drained_and_taken_back(proxy, client, admin):
    def state() -> tuple:
        return tuple(admin.execute("SELECT ready, reason, draining FROM proxy WHERE key = 'local'").one())

    assert state() == (True, None, False) and proxy.get("/readyz")[0] == 200
    admin.execute("UPDATE proxy SET draining = true WHERE key = 'local'")
    assert state() == (False, "draining", True) and proxy.get("/readyz")[0] == 503
    admin.execute("UPDATE proxy SET draining = false WHERE key = 'local'")
    assert state() == (True, None, False) and proxy.get("/readyz")[0] == 200
    until(lambda: answers(client), "clients are served", told=proxy.log_tail)


def answers(client) -> bool:
    try:
        return bool(client.execute("SELECT release_version FROM system.local"))
    except NoHostAvailable:
        return False


def test_one_connection_is_closed_by_its_port(proxy, client, admin):
    def ports() -> set:
        return {row.port for row in admin.execute("SELECT port FROM clients WHERE application = 'shop'")}

    before = ports()
    closed = admin.execute_async("DELETE FROM clients WHERE address = '127.0.0.1' AND port = %s", (min(before),))
    closed.result()
    assert closed.warnings == ["closed 1 client"]
    until(lambda: min(before) not in ports(), "the connection is gone", told=proxy.log_tail)
    until(lambda: answers(client), "the driver is back", told=proxy.log_tail)
    with pytest.raises(InvalidRequest, match="needs the address"):
        admin.execute("DELETE FROM clients WHERE port = 7")


def test_clients_are_closed_and_come_back(proxy, client, admin):
    closed = admin.execute_async("DELETE FROM client_groups WHERE application = 'shop'")
    closed.result()
    assert closed.warnings and closed.warnings[0].startswith("closed ") and closed.warnings != ["closed 0 clients"]
    until(lambda: answers(client), "the driver is back", told=proxy.log_tail)
    for statement in ("TRUNCATE client_groups", "DELETE FROM client_groups"):
        with pytest.raises((InvalidRequest, SyntaxException)):
            admin.execute(statement)


def test_cqlsh_shows_tables_and_their_columns(proxy, port, node, directory):
    script = ("DESCRIBE KEYSPACES\nUSE shunt_admin;\nDESCRIBE TABLES\nDESCRIBE TABLE settings\n"
              "SELECT address, up FROM nodes;\nSELECT name, value FROM settings WHERE name = 'slow_query_ms';\n")
    said = cqlsh.run(script, "127.0.0.1", port, directory, ["-u", "operator", "-p", TOKEN])
    for words in ("shunt_admin", "client_groups", "restart_needed boolean", node.contact, "slow_query_ms"):
        assert words in said, said


@pytest.mark.parametrize("password, reason", [("wrong-token-of-the-test", "wrong_token"), ("", "no_token")])
def test_a_wrong_password_is_refused(proxy, port, password, reason):
    cluster = admin_cluster(port, password)
    with pytest.raises(NoHostAvailable, match="admin_token_file"):
        cluster.connect()
    cluster.shutdown()
    counted = [line for line in pages(proxy, "/metrics").splitlines() if f'refusals_total{{reason="{reason}"}}' in line]
    assert len(counted) == 1 and not counted[0].endswith(" 0"), counted


def test_a_driver_without_a_login_is_refused(proxy, port):
    cluster = Cluster(["127.0.0.1"], port=port, **UNDISTURBED)
    with pytest.raises(NoHostAvailable):
        cluster.connect()
    cluster.shutdown()


@pytest.mark.parametrize("statement", ["SELECT * FROM shunt_admin.nodes", "DELETE FROM shunt_admin.client_groups WHERE role = 'a'",
                                       "UPDATE \"shunt_admin\".settings SET value = 'a' WHERE name = 'log'"])
def test_the_clients_port_names_the_option(proxy, client, statement):
    with pytest.raises(InvalidRequest, match="admin_cql"):
        client.execute(statement)
    with pytest.raises(InvalidRequest, match="admin_cql"):
        client.prepare(statement)


def test_an_address_for_all_needs_a_login(node):
    command = [str(binary()), "proxy", "--listen", f"127.0.0.1:{free_port()}", "--admin", "off", "--contact-points", node.contact,
               "--admin-cql", f"0.0.0.0:{free_port()}"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "RUST_BACKTRACE": "0"})
    assert done.returncode == 2 and "admin_token_file" in done.stderr, done


def test_a_unix_socket_is_for_its_owner_alone(node, tmp_path):
    path = tmp_path / "admin.sock"
    options = ["--admin-cql", f"unix:{path}", *UNDISTURBED_PROXY]
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, tmp_path / "log"):
        assert path.stat().st_mode & 0o777 == 0o600
        cluster = Cluster([UnixSocketEndPoint(str(path))], **UNDISTURBED)
        assert [row.address for row in cluster.connect().execute("SELECT address FROM shunt_admin.nodes")] == [node.contact]
        cluster.shutdown()
    assert not path.exists()

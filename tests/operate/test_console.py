"""The commands about a running proxy: its clients, nodes and queries, its options, and changes."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cassandra.cluster import Cluster, NoHostAvailable

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.waits import until

FILE = 'log = "info"\nslow_query_ms = {slow}\ncores = {cores}\n'


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("console", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("proxy") / "shunt.toml"
    file.write_text(FILE.format(slow=500, cores=1))
    return file


@pytest.fixture(scope="module")
def proxy(node, file):
    options = ["--config", str(file), *UNDISTURBED_PROXY]
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, file.with_suffix(".log")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def session(proxy):
    cluster = Cluster([proxy.host], port=proxy.port, **UNDISTURBED)
    session = cluster.connect()
    session.execute("SELECT release_version FROM system.local")
    yield session
    cluster.shutdown()


def shunt(proxy, *words, code=0) -> str:
    """The standard output of a command, or its standard error if it fails."""
    return shunt_at(proxy, proxy.admin, *words, code=code)


def shunt_at(proxy, admin: str, *words, code=0) -> str:
    """The same at one of several admin addresses."""
    done = subprocess.run([str(binary()), *words, "--admin", admin], capture_output=True, text=True,
                          env={**os.environ, "RUST_BACKTRACE": "0"})
    assert done.returncode == code, (done, proxy.log_tail())
    return done.stdout if code == 0 else done.stderr


def rows(proxy, *words) -> list:
    return [json.loads(line) for line in shunt(proxy, *words, "--json").splitlines()]


def rows_at(proxy, admin: str, *words) -> list:
    return [json.loads(line) for line in shunt_at(proxy, admin, *words, "--json").splitlines()]


def option(proxy, key: str) -> dict:
    return next(row for row in rows(proxy, "config") if row["key"] == key)


def test_readiness_is_an_exit_code(proxy, tmp_path):
    assert shunt(proxy, "ready") == "ready\n"
    alone = Proxy(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", log=tmp_path / "log")
    assert "does not answer" in shunt(alone, "ready", code=4)
    with open(alone.log, "wb") as log:
        command = [str(binary()), "proxy", "--listen", alone.listen, "--admin", alone.admin, "--contact-points", alone.contact_points]
        alone.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        until(lambda: alone.get("/readyz")[0] == 503, "the page is there", told=alone.log_tail)
        assert shunt(alone, "ready", code=1) == "not ready: the ring is not known yet\n"
    finally:
        alone.stop()


def test_commands_use_a_unix_socket_whose_permissions_guard_it(node, tmp_path):
    path, token = tmp_path / "admin.sock", tmp_path / "token"
    token.write_text("a-token-of-20-letters\n")
    address, log = f"127.0.0.1:{free_port()}", tmp_path / "proxy.log"
    options = ["--cores", "1", "--admin-token-file", str(token), *UNDISTURBED_PROXY]
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"{address},unix:{path}", options, log) as guarded:
        assert path.stat().st_mode & 0o777 == 0o600, "its owner alone may connect"
        assert [row["address"] for row in rows_at(guarded, f"unix:{path}", "nodes")] == [node.contact]
        assert shunt_at(guarded, f"unix:{path}", "log-level", "debug") == "debug\n", "a change needs no token either"
        assert "token" in shunt_at(guarded, address, "nodes", code=2)
    assert not path.exists(), "the process removes the file at its end"
    assert "unix:" in shunt_at(guarded, f"unix:{path}", "nodes", code=4)


def test_clients_and_nodes_are_tables(node, proxy, session):
    until(lambda: sum(row["queries"] for row in rows(proxy, "clients")) > 0, "the query is counted", told=proxy.log_tail)
    heading, first = shunt(proxy, "clients").splitlines()[:2]
    assert heading.split()[0] == "role" and "127.0.0.1" in first
    assert [row["address"] for row in rows(proxy, "nodes")] == [node.contact]
    assert node.contact in shunt(proxy, "nodes", "--sort", "node") and " up " in shunt(proxy, "nodes")
    assert rows(proxy, "slow", "--sort", "total", "--limit", "1") is not None


def test_the_key_that_a_driver_reads_most_is_named(proxy, session):
    session.execute("CREATE KEYSPACE hot WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE hot.t (k int PRIMARY KEY, v int)")
    write, read = session.prepare("INSERT INTO hot.t (k, v) VALUES (?, 1)"), session.prepare("SELECT v FROM hot.t WHERE k = ?")
    for key in range(100):
        session.execute(write, (key,))
    token = session.execute("SELECT token(k) FROM hot.t WHERE k = 7").one()[0]

    def found() -> bool:
        for number in range(2_000):
            session.execute(read, (7 if number % 4 else number % 100,))
        hottest = rows(proxy, "hot", "--sort", "reads")[:1]
        return [(row["table"], row["key"]) for row in hottest] == [("hot.t", f"token {token}")]

    until(found, "the key is the hottest", told=lambda: shunt(proxy, "hot"))
    hottest = rows(proxy, "hot", "--sort", "reads")[0]
    assert hottest["reads_per_s"] > hottest["writes_per_s"] and f"token {token}" in shunt(proxy, "hot")


def test_queries_are_in_the_order_of_their_times(proxy, session):
    session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    until(lambda: rows(proxy, "queries"), "a query has a row", told=proxy.log_tail)
    heading, first = shunt(proxy, "queries").splitlines()[:2]
    assert "sum ms" in heading, heading

    # The page is some time old, and the same for both.
    def is_page() -> bool:
        page = json.loads(proxy.get("/digests")[1])
        shown = rows(proxy, "queries", "--limit", "100000")
        by_time = sorted(page["digests"], key=lambda digest: digest["sum_us"], reverse=True)
        return [row for row in shown if "others" not in row] == by_time

    until(is_page, "the command shows the page", told=proxy.log_tail)


def test_each_order_that_a_command_names_is_one(proxy, session):
    for command in ("clients", "connections", "failed-logins", "nodes", "slow", "queries", "hot", "rules", "tenants", "alerts"):
        told = shunt(proxy, command, "--sort", "nothing", code=2)
        orders = told.split("[possible values: ")[1].split("]")[0].split(", ")
        assert len(orders) > 2
        for order in orders:
            shunt(proxy, command, "--sort", order)


def test_keys_that_are_not_sampled_are_said_to_be_off(proxy, file):
    former = file.read_text()
    file.write_text(former + "hot_keys_sample = 0\n")
    assert "hot_keys_sample" in shunt(proxy, "reload")
    until(lambda: "switched off" in shunt(proxy, "hot"), "the command says so", told=proxy.log_tail)
    file.write_text(former)
    assert "hot_keys_sample" in shunt(proxy, "reload")


def test_options_have_their_source_and_what_waits(proxy, file):
    assert (option(proxy, "cores")["value"], option(proxy, "cores")["source"]) == ("1", "file")
    assert option(proxy, "query_timeout_ms")["source"] == "flag"
    file.write_text(FILE.format(slow=700, cores=2))
    assert shunt(proxy, "reload") == "applied: slow_query_ms\nneeds a restart: cores\n"
    assert option(proxy, "slow_query_ms")["value"] == "700"
    cores = option(proxy, "cores")
    assert (cores["value"], cores["value_after_restart"], cores["restart_needed"]) == ("1", "2", True)
    assert "cores" in shunt(proxy, "config", "--changed") and "clients_max" not in shunt(proxy, "config", "--changed")
    assert 'key="slow_query_ms" old="500" new="700"' in proxy.log.read_text()


def test_a_refused_reload_fails_and_says_why(proxy, file):
    good = file.read_text()
    file.write_text("slow_query_ms = 'soon'\n")
    told = shunt(proxy, "reload", code=1)
    assert "slow_query_ms" in told and f"{file}:1:" in told, told
    alert = next(row for row in rows(proxy, "alerts") if row["name"] == "ShuntConfigurationRefused")
    assert "slow_query_ms" in alert["text"] and alert["severity"] == "ticket" and alert["since_unix_ms"] > 0, alert
    assert "shunt_config_reload_success 0" in proxy.get("/metrics")[1]
    file.write_text(good)
    assert shunt(proxy, "reload") == "no options have changed\nneeds a restart: cores\n"
    assert "shunt_config_reload_success 1" in proxy.get("/metrics")[1]


def test_an_option_is_set_until_it_is_reset_or_the_file_is_read(proxy):
    former = option(proxy, "clients_max")["value"]
    assert shunt(proxy, "config", "set", "clients_max", "77") == f"clients_max: 77 (was {former})\n"
    row = option(proxy, "clients_max")
    assert (row["value"], row["source"], row["file_value"], row["restart_needed"]) == ("77", "admin", former, False)
    assert shunt(proxy, "config", "set", "clients-max", "77") == "clients_max: 77 already\n"
    assert shunt(proxy, "config", "reset", "clients_max") == f"clients_max: {former} (was 77)\n"
    assert option(proxy, "clients_max")["source"] == "default"
    shunt(proxy, "config", "set", "clients_max", "78")
    assert "clients_max" in shunt(proxy, "reload")
    assert (option(proxy, "clients_max")["value"], option(proxy, "clients_max")["source"]) == (former, "default")
    for name, value, why in (("cores", "3", "needs a restart"), ("clients_max", "0", "clients_max"), ("none", "1", "no option")):
        assert why in shunt(proxy, "config", "set", name, value, code=2)
    assert 'key="clients_max"' in proxy.log.read_text()


def test_the_level_of_the_log_holds_until_the_next_reload(proxy):
    assert shunt(proxy, "log-level") == "info\n"
    assert shunt(proxy, "log-level", "debug") == "debug\n"
    assert (option(proxy, "log")["value"], option(proxy, "log")["source"]) == ("debug", "admin")
    shunt(proxy, "log-level", "loud", code=2)
    assert "applied: log\n" in shunt(proxy, "reload")
    assert shunt(proxy, "log-level") == "info\n"


def answers(session) -> bool:
    try:
        return bool(session.execute("SELECT release_version FROM system.local"))
    except NoHostAvailable:
        return False


def test_one_connection_is_closed_by_its_id(proxy, session):
    def ids() -> list:
        return [row["id"] for row in rows(proxy, "connections", "--sort", "id")]

    before = ids()
    assert len(before) >= 2 and before[0] in shunt(proxy, "connections")
    assert shunt(proxy, "kick", "--id", before[0]) == "closed 1 client\n"
    until(lambda: before[0] not in ids(), "the connection is gone", told=proxy.log_tail)
    until(lambda: answers(session), "the driver is back", told=proxy.log_tail)
    assert shunt(proxy, "failed-logins") == "the proxy shows no failed logins\n"


def test_a_client_that_is_kicked_comes_back(proxy, session):
    assert shunt(proxy, "kick", "--application", "nobody") == "closed 0 clients\n"
    shunt(proxy, "kick", "--role", "shop", "--without-role", code=2)
    assert shunt(proxy, "kick", "--address", "127.0.0.0/8") != "closed 0 clients\n"
    assert 'shunt_clients_closed_total{reason="operator"} 0\n' not in proxy.get("/metrics")[1]
    until(lambda: answers(session), "the driver is back", told=proxy.log_tail)
    shunt(proxy, "kick", code=2)


def test_a_proxy_that_does_not_answer_has_its_own_code(proxy):
    done = subprocess.run([str(binary()), "clients", "--admin", f"127.0.0.1:{free_port()}"], capture_output=True, text=True)
    assert done.returncode == 4 and "--admin names its admin address" in done.stderr


@pytest.mark.parametrize("status, body, code, words", [
    (200, "<html></html>", 4, "is not a Shunt admin address"),
    (404, '{"error":"no such page"}', 2, "has no page /status: it is not a proxy"),
    (200, '{"backends":[]}', 2, "has no clients on its page /status: it is not a proxy"),
    (400, '{"error":"this port requires TLS: ask with https://"}', 2, "; give --tls"),
])
def test_an_address_that_is_no_proxy_is_named(status, body, code, words):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        admin = f"127.0.0.1:{server.server_address[1]}"
        done = subprocess.run([str(binary()), "clients", "--admin", admin], capture_output=True, text=True)
        thread.join()
    assert done.returncode == code and words in done.stderr, done

"""A slow query is found by its line in the log and by the page, with the application that sent it."""

import json
import signal

import pytest
from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED, named_connection
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy
from harness.waits import until


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("operate", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="module")
def proxy(node, tmp_path_factory):
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    options = ["--slow-query-ms", "1", "--log-format", "json", "--cores", "1", *UNDISTURBED_PROXY]
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, log) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def session(proxy):
    cluster = Cluster([proxy.host], port=proxy.port, connection_class=named_connection("checkout"), **UNDISTURBED)
    session = cluster.connect()
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, v text)")
    yield session
    cluster.shutdown()


def in_flight(proxy) -> int:
    return json.loads(proxy.get("/status")[1])["in_flight"]


def found(proxy, text: str) -> list:
    """The records with this text."""
    page = json.loads(proxy.get("/slow_queries")[1])
    assert page["cores_missing"] == []
    return [query for query in page["slow_queries"] if query["text"] == text]


def while_the_node_stands_still(node, proxy, session, *statement) -> None:
    """The query cannot be answered before the page has shown it, which takes more than a millisecond."""
    node.process.send_signal(signal.SIGSTOP)
    try:
        answer = session.execute_async(*statement)
        until(lambda: in_flight(proxy) > 0, "the query is with the node", told=proxy.log_tail)
    finally:
        node.process.send_signal(signal.SIGCONT)
    answer.result()


def test_a_text_and_a_prepared_statement(node, proxy, session):
    for statement, shown in (
        (("SELECT v FROM shop.items WHERE id = 4711",), "SELECT v FROM shop.items WHERE id = ?"),
        ((session.prepare("INSERT INTO shop.items (id, v) VALUES (?, ?)"), (4711, "secret")), "INSERT INTO shop.items (id, v) VALUES (?, ?)"),
    ):
        # The query in flight may be another one of this driver, and a second has a limited number of records.
        def is_shown() -> bool:
            while_the_node_stands_still(node, proxy, session, *statement)
            return bool(found(proxy, shown))

        until(is_shown, f"the page has {shown}", told=proxy.log_tail)
        query = found(proxy, shown)[0]
        assert (query["table"], query["application"], query["outcome"]) == ("shop.items", "checkout", "ok")
        assert query["node"] == node.contact and query["client"].startswith("127.0.0.1:") and query["total_ms"] >= 1
    assert "4711" not in proxy.get("/slow_queries")[1]


def test_the_line_has_the_same_fields(node, proxy, session):
    shown = "UPDATE shop.items SET v = ? WHERE id = ?"

    def lines() -> list:
        written = [json.loads(line) for line in proxy.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in written if line.get("text") == shown]

    # A second has a limited number of lines, and other statements of this driver are slow too.
    def is_told() -> bool:
        while_the_node_stands_still(node, proxy, session, "UPDATE shop.items SET v = 'secret' WHERE id = 4712")
        return bool(lines())

    until(is_told, "the log has the line", told=proxy.log_tail)
    line = lines()[0]
    assert line["message"] == "slow query" and line["application"] == "checkout" and line["table"] == "shop.items"
    assert "secret" not in proxy.log.read_text()


def test_the_groups_of_clients_name_the_application(proxy, session):
    groups = json.loads(proxy.get("/status")[1])["client_groups"]["groups"]
    assert "checkout" in {group["application"] for group in groups}
    assert sum(group["queries"] for group in groups if group["application"] == "checkout") > 0
    send = session.prepare("SELECT v FROM shop.items WHERE id = ?")

    def has_rate() -> bool:
        for key in range(10):
            session.execute(send, (key,))
        groups = json.loads(proxy.get("/status")[1])["client_groups"]["groups"]
        return any(group["queries_per_second"] > 0 for group in groups if group["application"] == "checkout")

    until(has_rate, "the page shows a rate", told=proxy.log_tail)

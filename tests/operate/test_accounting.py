"""Groups of clients: errors by kind, times by part, a trace of those who left, and an error for requests whose client is closed."""

import json
import signal
import subprocess

import pytest
from cassandra import InvalidRequest, WriteTimeout
from cassandra.cluster import Cluster
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import SimpleStatement

from harness.driver import UNDISTURBED, named_connection
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.waits import until


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("accounting", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="module")
def proxy(node, tmp_path_factory):
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", ["--cores", "1", *UNDISTURBED_PROXY], log) as proxy:
        yield proxy


def cluster_of(proxy, application) -> Cluster:
    return Cluster([proxy.host], port=proxy.port, connection_class=named_connection(application), **UNDISTURBED)


@pytest.fixture(scope="module")
def session(proxy):
    cluster = cluster_of(proxy, "checkout")
    session = cluster.connect()
    session.execute("CREATE KEYSPACE books WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE books.items (id int PRIMARY KEY, v text)")
    yield session
    cluster.shutdown()


def groups(proxy, application) -> list:
    page = json.loads(proxy.get("/status")[1])["client_groups"]
    assert page["cores_missing"] == []
    return [group for group in page["groups"] if group["application"] == application]


def total(proxy, application, field) -> int:
    return sum(group[field] for group in groups(proxy, application))


def invalid(proxy, application) -> int:
    return sum(group["errors_by_kind"]["invalid"] for group in groups(proxy, application))


def test_errors_count_by_kind_and_times_by_part(proxy, session):
    with pytest.raises(InvalidRequest):
        session.execute("SELECT absent FROM books.items")
    until(lambda: invalid(proxy, "checkout") > 0, "the page shows the error", told=proxy.log_tail)
    group = max(groups(proxy, "checkout"), key=lambda group: group["queries"])
    assert all(group[field] is not None for field in ("wait_p50_us", "wait_p99_us", "node_p50_us", "node_p99_us")), group
    shown = subprocess.run([str(binary()), "clients", "--admin", proxy.admin], capture_output=True, text=True, check=True).stdout
    assert "invalid 1" in shown and "node p99 ms" in shown, shown
    digests = json.loads(proxy.get("/digests")[1])["digests"]
    failed = next(row for row in digests if row["text"] == "SELECT absent FROM books.items")
    assert failed["errors_by_kind"] == {**dict.fromkeys(failed["errors_by_kind"], 0), "invalid": 1}
    assert failed["node_p99_us"] > 0 and failed["wait_p50_us"] is not None


def test_a_group_outlives_its_last_client(proxy):
    cluster = cluster_of(proxy, "nightly")
    cluster.connect().execute("SELECT release_version FROM system.local")
    # The page shows its last figures again for a second.
    until(lambda: total(proxy, "nightly", "clients") > 0, "the page shows the clients", told=proxy.log_tail)
    sent = total(proxy, "nightly", "queries")
    cluster.shutdown()
    until(lambda: total(proxy, "nightly", "clients") == 0, "the clients are gone", told=proxy.log_tail)
    left = groups(proxy, "nightly")
    assert left and all(group["left_unix_ms"] for group in left), left
    assert total(proxy, "nightly", "queries") >= sent > 0
    lines = [line for line in proxy.get("/metrics/groups")[1].splitlines() if 'application="nightly"' in line]
    values = {line.split("{")[0]: float(line.split()[-1]) for line in lines if "error=" not in line}
    assert values["shunt_group_clients"] == 0 and values["shunt_group_queries_total"] >= sent, lines


def test_requests_in_flight_of_a_closed_client_get_an_error(node, proxy):
    cluster = cluster_of(proxy, "stuck")
    session = cluster.connect()

    def statement(text: str) -> SimpleStatement:
        return SimpleStatement(text, retry_policy=FallthroughRetryPolicy())

    session.execute(statement("INSERT INTO books.items (id, v) VALUES (1, 'a')"))
    node.process.send_signal(signal.SIGSTOP)
    try:
        read = session.execute_async(statement("SELECT v FROM books.items WHERE id = 1"))
        write = session.execute_async(statement("INSERT INTO books.items (id, v) VALUES (2, 'b')"))
        until(lambda: total(proxy, "stuck", "in_flight") >= 2, "both are with the node", told=proxy.log_tail)
        subprocess.run([str(binary()), "kick", "--application", "stuck", "--admin", proxy.admin], check=True)
        with pytest.raises(WriteTimeout, match="an operator has closed this connection"):
            write.result()
        with pytest.raises(Exception, match="an operator has closed this connection; ask again over another"):
            read.result()
    finally:
        node.process.send_signal(signal.SIGCONT)

    def answers() -> bool:
        try:
            return bool(session.execute("SELECT v FROM books.items WHERE id = 1").one())
        except Exception:
            return False

    until(answers, "the driver is back", told=proxy.log_tail)
    cluster.shutdown()

"""Rules refuse statements of the Python driver, count them, and change on a reload."""

import json
import signal
import subprocess

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, ReadTimeout
from cassandra.cluster import Cluster
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import BatchStatement, SimpleStatement

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.waits import until

GUARDS = """
[[rule]]
name = "no full scans"
match = { unbounded = true }
refuse = "add LIMIT"

[[rule]]
name = "no filtering"
match = { allow_filtering = true }
refuse = "it reads the whole table"

[[rule]]
name = "frozen"
match = { table = "shop.prices", kind = ["insert", "update", "delete"] }
refuse = "prices are frozen"
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("operate", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("configuration") / "shunt.toml"


@pytest.fixture(scope="module")
def proxy(node, file, tmp_path_factory):
    file.write_text("cores = 1\n")
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    options = ["--config", str(file), *UNDISTURBED_PROXY]
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, log) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def session(proxy):
    cluster = Cluster([proxy.host], port=proxy.port, **UNDISTURBED)
    session = cluster.connect()
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    for table in ("items", "prices"):
        session.execute(f"CREATE TABLE shop.{table} (id int PRIMARY KEY, v text)")
    yield session
    cluster.shutdown()


def rules(proxy) -> dict:
    return {row["name"]: row for row in json.loads(proxy.get("/rules")[1])["rules"]}


def reload(proxy, file, text: str) -> None:
    file.write_text("cores = 1\n" + text)
    subprocess.run([str(binary()), "reload", "--admin", proxy.admin], check=True)


def refused(session, statement, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        session.execute(statement)


def test_a_dry_run_counts_and_then_rules_refuse(proxy, session, file):
    insert = session.prepare("INSERT INTO shop.prices (id, v) VALUES (?, ?)")
    session.execute(insert, (1, "a"))
    reload(proxy, file, GUARDS.replace("refuse =", "dry_run = true\nrefuse ="))
    session.execute("SELECT * FROM shop.items")
    session.execute("SELECT * FROM shop.items LIMIT 5")
    until(lambda: rules(proxy)["no full scans"]["would_hit"] == 1, "the dry run counts", told=proxy.log_tail)
    reload(proxy, file, GUARDS)
    refused(session, "SELECT * FROM shop.items", "rule `no full scans` refuses this statement: add LIMIT")
    refused(session, "SELECT * FROM shop.items WHERE v = 'a' LIMIT 5 ALLOW FILTERING", "it reads the whole table")
    for statement in (insert.bind((2, "b")), "/* a */ update SHOP.\"prices\" SET v = 'x' WHERE id = 1"):
        refused(session, statement, "prices are frozen")
    batch = BatchStatement()
    batch.add("INSERT INTO shop.items (id, v) VALUES (1, 'a')")
    batch.add(insert, (3, "c"))
    refused(session, batch, "prices are frozen")
    with pytest.raises(InvalidRequest, match="prices are frozen"):
        session.prepare("DELETE FROM shop.prices WHERE id = ?")
    assert [row.id for row in session.execute("SELECT id FROM shop.prices WHERE id IN (1, 2, 3)")] == [1]
    session.execute("INSERT INTO shop.items (id, v) VALUES (1, 'a')")
    assert session.execute("SELECT v FROM shop.items WHERE id = 1").one().v == "a"
    assert session.execute("SELECT v FROM shop.items LIMIT 5").one().v == "a"
    assert session.execute("SELECT * FROM system.local").one()
    counted = {name: (row["hits"], row["would_hit"]) for name, row in rules(proxy).items()}
    assert counted == {"no full scans": (1, 1), "no filtering": (1, 0), "frozen": (4, 0)}
    shown = subprocess.run([str(binary()), "rules", "--admin", proxy.admin], capture_output=True, text=True, check=True).stdout
    assert "frozen" in shown and "refuse 4" in shown, shown
    assert 'shunt_rule_hits_total{rule="frozen",action="refuse"} 4' in proxy.get("/metrics")[1]
    reload(proxy, file, "")
    session.execute(insert, (2, "b"))
    assert rules(proxy) == {}


def test_a_faulty_rule_changes_nothing_and_its_line_is_named(proxy, session, file):
    reload(proxy, file, GUARDS)
    faulty = GUARDS + '\n[[rule]]\nname = "odd"\nmatch = { kind = "read" }\nrefuse = "no"\n'
    file.write_text("cores = 1\n" + faulty)
    found = subprocess.run([str(binary()), "check", "--config", str(file), "--contact-points", "127.0.0.1"], capture_output=True, text=True)
    line = ("cores = 1\n" + faulty)[: ("cores = 1\n" + faulty).index('[[rule]]\nname = "odd"')].count("\n") + 1
    assert found.returncode == 2 and f":{line}:" in found.stderr and "`odd`" in found.stderr, found.stderr
    assert subprocess.run([str(binary()), "reload", "--admin", proxy.admin], capture_output=True).returncode == 1
    refused(session, "SELECT * FROM shop.items", "add LIMIT")


def test_a_rule_sets_the_level_and_the_deadline(proxy, node, session, file):
    rule = '[[rule]]\nname = "reads"\nmatch = { kind = "select", table = "items" }\n'
    reload(proxy, file, rule + 'consistency = "LOCAL_QUORUM"\ntimeout_ms = 500\ntag = "slow shelf"\n')
    read = SimpleStatement(
        "SELECT v FROM shop.items WHERE id = 1",
        consistency_level=ConsistencyLevel.ONE,
        retry_policy=FallthroughRetryPolicy(),
    )
    node.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(ReadTimeout):
            session.execute(read)
    finally:
        node.process.send_signal(signal.SIGCONT)
    last = json.loads(proxy.get("/slow_queries")[1])["slow_queries"]
    levels = [(row["consistency"], row["tag"]) for row in last if row["text"] == "SELECT v FROM shop.items WHERE id = ?"]
    assert levels == [("LOCAL_QUORUM", "slow shelf")], last
    assert rules(proxy)["reads"]["hits_by_action"] == {"timeout": 1, "consistency": 1, "tag": 1}
    reload(proxy, file, rule + "queries_per_s = 1\ndry_run = true\n")
    for _ in range(5):
        session.execute(read)
    assert 3 <= rules(proxy)["reads"]["hits_by_action"]["would_limit"] <= 4

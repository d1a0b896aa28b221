"""Queries with a sampled traceparent become spans at a collector, and exemplars of the metrics."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import pytest
from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy
from harness.waits import until

PARENT = "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Takes spans as OTLP/HTTP with JSON says, and refuses what has no token."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans, self.requests, self.answers = [], [], []

    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, self.headers["content-type"], self.headers["authorization"]))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 200:
            for resource in body["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    self.server.spans += [(span, resource["resource"]) for span in scope["spans"]]
        self.send_response(status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("operate", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="module")
def collector():
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever, daemon=True)
    thread.start()
    yield collector
    collector.shutdown()
    collector.server_close()
    thread.join()


@pytest.fixture(scope="module")
def proxy(node, collector, tmp_path_factory):
    directory = tmp_path_factory.mktemp("proxy")
    headers = directory / "headers"
    headers.write_text("# token of the tenant\nAuthorization: Bearer secret\n")
    headers.chmod(0o600)
    options = ["--otlp-endpoint", collector.url(), "--otlp-headers-file", str(headers)]
    options += ["--otlp-service-name", "shunt-test", *UNDISTURBED_PROXY]
    contact, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with Proxy(node.contact, contact, admin, options, directory / "proxy.log") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def session(proxy):
    cluster = Cluster([proxy.host], port=proxy.port, **UNDISTURBED)
    session = cluster.connect()
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, v text)")
    yield session
    cluster.shutdown()


def payload(trace: str, flags: str = "01") -> dict:
    return {"traceparent": f"00-{trace}-{PARENT}-{flags}".encode()}


def attributes(holder: dict) -> dict:
    return {entry["key"]: next(iter(entry["value"].values())) for entry in holder["attributes"]}


def spans_of(collector, trace: str) -> list:
    return [(span, resource) for span, resource in list(collector.spans) if span["traceId"] == trace]


def test_a_query_has_a_span_and_its_node_another(node, proxy, collector, session):
    trace, other = "4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000bad"
    insert = session.prepare("INSERT INTO shop.items (id, v) VALUES (?, ?)")
    session.execute(insert, (4711, "secret"), custom_payload=payload(other, "00"))
    session.execute(insert, (4711, "secret"), custom_payload={"traceparent": b"nonsense"})
    session.execute(insert, (4711, "secret"), custom_payload=payload(trace))
    until(lambda: len(spans_of(collector, trace)) == 2, "the spans arrive", told=proxy.log_tail)
    (own, resource), (of_node, _) = sorted(spans_of(collector, trace), key=lambda found: found[0]["kind"])
    assert own["parentSpanId"] == PARENT and own["kind"] == 2
    assert of_node["parentSpanId"] == own["spanId"] and of_node["kind"] == 3
    assert own["name"] == "INSERT shop.items"
    start, sent, end = (int(span[key]) for span, key in (
        (own, "startTimeUnixNano"), (of_node, "startTimeUnixNano"), (own, "endTimeUnixNano")))
    assert start <= sent <= end and of_node["endTimeUnixNano"] == own["endTimeUnixNano"]
    found = attributes(own)
    assert found["db.system.name"] == "cassandra" and found["db.namespace"] == "shop"
    assert found["db.query.text"] == "INSERT INTO shop.items (id, v) VALUES (?, ?)"
    assert int(found["shunt.wait_ns"]) + int(found["shunt.node_ns"]) == end - start
    host, port = node.contact.rsplit(":", 1)
    found = attributes(of_node)
    assert (found["server.address"], found["server.port"]) == (host, port)
    assert attributes(resource)["service.name"] == "shunt-test"
    assert spans_of(collector, other) == []
    assert collector.requests[0] == ("/v1/traces", "application/json", "Bearer secret")
    assert "secret" not in json.dumps(collector.spans) and "Bearer" not in proxy.log_tail()


def test_the_metrics_count_traces_and_have_exemplars_for_those_who_ask(proxy, collector, session):
    trace = "0af7651916cd43dd8448eb211c80319c"
    session.execute("SELECT v FROM shop.items WHERE id = 1", custom_payload=payload(trace))
    until(lambda: spans_of(collector, trace), "the spans arrive", told=proxy.log_tail)

    def metrics(accept: str) -> str:
        request = Request(f"http://{proxy.admin}/metrics", headers={"Accept": accept})
        with urlopen(request) as answer:
            return answer.read().decode()

    with_exemplars = metrics("application/openmetrics-text; version=1.0.0")
    lines = [line for line in with_exemplars.splitlines() if f'trace_id="{trace}"' in line]
    assert len(lines) == 1 and lines[0].startswith("shunt_query_duration_seconds_bucket{le="), lines
    bound = float(lines[0].split('"')[1])
    assert float(lines[0].split("} ")[2].split()[0]) <= bound
    assert "trace_id" not in metrics("text/plain")
    assert "trace_id" not in proxy.get("/metrics")[1]
    text = proxy.get("/metrics")[1]
    assert 'shunt_traced_requests_total{trace="sampled"} 0\n' not in text
    assert "shunt_spans_exported_total 0\n" not in text


def test_a_collector_that_is_busy_gets_the_spans_later(proxy, collector, session):
    trace = "11111111111111111111111111111111"
    collector.answers += [503, 429]
    session.execute("SELECT v FROM shop.items WHERE id = 2", custom_payload=payload(trace))
    until(lambda: len(spans_of(collector, trace)) == 2, "the spans arrive", told=proxy.log_tail)
    assert collector.answers == []
    failures = 'shunt_span_export_failures_total{reason="throttled"} 2'
    until(lambda: failures in proxy.get("/metrics")[1], "both refusals are counted", told=proxy.log_tail)

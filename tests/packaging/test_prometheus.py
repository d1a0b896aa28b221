"""Rules and dashboards for Prometheus: each alert fires for what it is about and for nothing else, and asks for metrics that exist."""

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest
import redis
from cassandra.cluster import Cluster

from harness.certificates import Authority
from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.programs import only_with
from harness.prometheus import Prometheus
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.redis import ANSWER_SECONDS, Multiget
from harness.relay import Relay

pytestmark = [only_with("metrics", "promtool", "prometheus"), only_with("redis net", "redis-server", "curl")]

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "packaging/prometheus/alerts.yml"
PROXY, FLEET = 'instance="a:9180",job="shunt"', 'instance="a:9180",job="shunt-fleet"'

# For each alert: series in which it fires after an hour, and series in which all is well. The values are those of promtool: one for each minute.
CASES = {
    "ShuntQueriesFail": (
        {f'shunt_query_outcomes_total{{outcome="ok",{PROXY}}}': "0+6000x60", f'shunt_query_outcomes_total{{outcome="timed_out",{PROXY}}}': "0+60x60"},
        {f'shunt_query_outcomes_total{{outcome="ok",{PROXY}}}': "0+6000x60", f'shunt_query_outcomes_total{{outcome="error",{PROXY}}}': "0+60x60",
         f'shunt_query_outcomes_total{{outcome="retried",{PROXY}}}': "0+60x60", f'shunt_query_outcomes_total{{outcome="overloaded",{PROXY}}}': "0+1x60"}),
    "ShuntSlow": (
        {f'shunt_query_duration_seconds_bucket{{le="0.1",{PROXY}}}': "0+900x60", f'shunt_query_duration_seconds_bucket{{le="1",{PROXY}}}': "0+1000x60",
         f'shunt_query_duration_seconds_bucket{{le="+Inf",{PROXY}}}': "0+1000x60"},
        {f'shunt_query_duration_seconds_bucket{{le="0.1",{PROXY}}}': "0+995x60", f'shunt_query_duration_seconds_bucket{{le="1",{PROXY}}}': "0+1000x60",
         f'shunt_query_duration_seconds_bucket{{le="+Inf",{PROXY}}}': "0+1000x60"}),
    "ShuntWithoutLinks": (
        {f'shunt_node_links{{node="n1",{PROXY}}}': "0x60", f'shunt_node_links{{node="n2",{PROXY}}}': "0x60", f'shunt_clients{{core="0",{PROXY}}}': "1x60"},
        {f'shunt_node_links{{node="n1",{PROXY}}}': "0x60", f'shunt_node_links{{node="n2",{PROXY}}}': "2x60", f'shunt_clients{{core="0",{PROXY}}}': "1x60"}),
    "ShuntNodeUnreachable": (
        {f'shunt_node_up{{node="n1",{PROXY}}}': "1x60", f'shunt_node_links{{node="n1",{PROXY}}}': "0x60", f'shunt_node_links{{node="n2",{PROXY}}}': "2x60"},
        {f'shunt_node_up{{node="n1",{PROXY}}}': "0x60", f'shunt_node_links{{node="n1",{PROXY}}}': "0x60", f'shunt_node_links{{node="n2",{PROXY}}}': "2x60"}),
    "ShuntNodeEjected": (
        {f'shunt_node_ejected{{node="n1",{PROXY}}}': "0x30 1x1 0x2 1x2 0x2 1x3 0x2 1x4 0x2 1x5 0x10"},
        {f'shunt_node_ejected{{node="n1",{PROXY}}}': "0x50 1x1 0x10"}),
    "ShuntStrangers": (
        {f'shunt_node_strangers_total{{node="n1",{PROXY}}}': "0x55 1x5"}, {f'shunt_node_strangers_total{{node="n1",{PROXY}}}': "4x60"}),
    "ShuntRefusesClients": (
        {f'shunt_clients_refused_total{{reason="too_many",{PROXY}}}': "0+10x60"},
        {f'shunt_clients_refused_total{{reason="authentication",{PROXY}}}': "0+10x60", f'shunt_clients_refused_total{{reason="too_many",{PROXY}}}': "7x60"}),
    "ShuntBackpressure": (
        {f"shunt_clients_paused{{{PROXY}}}": "10x60", f'shunt_clients{{core="0",{PROXY}}}': "50x60", f'shunt_clients{{core="1",{PROXY}}}': "50x60"},
        {f"shunt_clients_paused{{{PROXY}}}": "1x60", f'shunt_clients{{core="0",{PROXY}}}': "50x60", f'shunt_clients{{core="1",{PROXY}}}': "50x60"}),
    "ShuntRingViewOld": (
        {f"shunt_control_refreshed_at_seconds{{{PROXY}}}": "0x60"}, {f"shunt_control_refreshed_at_seconds{{{PROXY}}}": "0+60x60"}),
    "ShuntLoopStandsStill": (
        {f'shunt_loop_turn_age_seconds{{core="3",{PROXY}}}': "12x60"}, {f'shunt_loop_turn_age_seconds{{core="3",{PROXY}}}': "1x60"}),
    "ShuntFilesLow": (
        {f"process_open_fds{{{PROXY}}}": "950x60", f"process_max_fds{{{PROXY}}}": "1000x60"},
        {f"process_open_fds{{{PROXY}}}": "850x60", f"process_max_fds{{{PROXY}}}": "1000x60",
         'process_open_fds{job="other",instance="b"}': "950x60", 'process_max_fds{job="other",instance="b"}': "1000x60"}),
    "ShuntCertificateExpires": (
        {f'shunt_certificate_expires_seconds{{path="/c.pem",use="clients",{PROXY}}}': "1000000x60"},
        {f'shunt_certificate_expires_seconds{{path="/c.pem",use="clients",{PROXY}}}': "2000000x60"}),
    "ShuntCertificateUnusable": (
        {f'shunt_tls_reloads_total{{result="failed",{PROXY}}}': "0+1x60"},
        {f'shunt_tls_reloads_total{{result="failed",{PROXY}}}': "0x55 1x5", f'shunt_tls_reloads_total{{result="unchanged",{PROXY}}}': "0+1x60"}),
    "ShuntConfigurationRefused": (
        {f"shunt_config_reload_success{{{PROXY}}}": "0x60"}, {f"shunt_config_reload_success{{{PROXY}}}": "1x60"}),
    "ShuntWithoutTokenRouting": (
        {f"shunt_keyspaces_without_token_routing{{{PROXY}}}": "3x60"}, {f"shunt_keyspaces_without_token_routing{{{PROXY}}}": "0x60"}),
    "ShuntFleetNoLease": (
        {f"shunt_fleet_lease{{{FLEET}}}": "0x60"}, {f"shunt_fleet_lease{{{FLEET}}}": "1x60", f"shunt_fleet_lease{{{PROXY}}}": "0x60"}),
    "ShuntOwnStatementsFail": (
        {f'shunt_own_statement_outcomes_total{{outcome="ok",{FLEET}}}': "0+600x60", f'shunt_own_statement_outcomes_total{{outcome="timed_out",{FLEET}}}': "0+60x60"},
        {f'shunt_own_statement_outcomes_total{{outcome="ok",{FLEET}}}': "0+600x60", f'shunt_own_statement_outcomes_total{{outcome="error",{FLEET}}}': "0+60x60",
         f'shunt_own_statement_outcomes_total{{outcome="retried",{FLEET}}}': "0+60x60", f'shunt_own_statement_outcomes_total{{outcome="link_lost",{FLEET}}}': "0+1x60"}),
    "ShuntLockForeignRows": (
        {f"shunt_lock_foreign_tables{{{FLEET}}}": "1x60"}, {f"shunt_lock_foreign_tables{{{FLEET}}}": "0x60"}),
    "ShuntLockUnreadableRow": (
        {f'shunt_lock_unreadable_partitions{{bucket="9",{FLEET}}}': "1x60"}, {f'shunt_lock_unreadable_partitions{{bucket="9",{FLEET}}}': "1x20 _x40"}),
    "ShuntFleetFormat": (
        {f"shunt_fleet_unknown_format{{{FLEET}}}": "2x60"}, {f"shunt_fleet_unknown_format{{{FLEET}}}": "0x60"}),
    "ShuntTransactionsUnmade": (
        {f'shunt_transactions_unmade{{core="0",{FLEET}}}': "4x60"}, {f'shunt_transactions_unmade{{core="0",{FLEET}}}': "0x59 4x1"}),
    "ShuntTransactionRecordsStay": (
        {f'shunt_transactions_records{{core="0",{FLEET}}}': "1x45 100x15"}, {f'shunt_transactions_records{{core="0",{FLEET}}}': "100x60"}),
    "ShuntTransactionsOpening": (
        {f'shunt_transactions_opening{{core="0",{FLEET}}}': "1x60"}, {f'shunt_transactions_opening{{core="0",{FLEET}}}': "0x58 1x2"}),
    "ShuntModesUnknown": (
        {f'shunt_transactions_modes_unknown{{core="0",{FLEET}}}': "1x60"}, {f'shunt_transactions_modes_unknown{{core="0",{FLEET}}}': "0x60"}),
    "ShuntClockBehind": (
        {f"shunt_clock_behind_seconds{{{FLEET}}}": "0.7x60"}, {f"shunt_clock_behind_seconds{{{FLEET}}}": "0.1x60"}),
    "ShuntClockUnmeasured": (
        {f'shunt_clock_unmeasured{{core="0",{FLEET}}}': "1x60"}, {f'shunt_clock_unmeasured{{core="0",{FLEET}}}': "0x60"}),
    "ShuntWritesPastProxies": (
        {f'shunt_transaction_observations_total{{result="different",{FLEET}}}': "0x55 3x5"},
        {f'shunt_transaction_observations_total{{result="same",{FLEET}}}': "0+9x60", f'shunt_transaction_observations_total{{result="different",{FLEET}}}': "3x60"}),
    "ShuntAway": ({f"up{{{PROXY}}}": "0x60"}, {f"up{{{PROXY}}}": "1x60", 'up{job="other",instance="b"}': "0x60"}),
    "ShuntDispatchWithoutAgents": (
        {f'shunt_dispatch_backend_links{{backend="a",{PROXY}}}': "0x60", f'shunt_dispatch_backend_links{{backend="b",{PROXY}}}': "0x60"},
        {f'shunt_dispatch_backend_links{{backend="a",{PROXY}}}': "0x60", f'shunt_dispatch_backend_links{{backend="b",{PROXY}}}': "1x60"}),
    "ShuntDispatchRelaysAll": (
        {f"shunt_dispatch_loops_handing_over{{{PROXY}}}": "0x60"}, {f"shunt_dispatch_loops_handing_over{{{PROXY}}}": "2x60"}),
    "ShuntSidecarServerDown": (
        {f'shunt_sidecar_server_up{{server="s",{PROXY}}}': "0x60"}, {f'shunt_sidecar_server_up{{server="s",{PROXY}}}': "1x60"}),
    "ShuntSidecarFails": (
        {f"shunt_sidecar_failed_total{{{PROXY}}}": "0x55 2x5"}, {f"shunt_sidecar_failed_total{{{PROXY}}}": "2x60", f"shunt_sidecar_split_failed_total{{{PROXY}}}": "0x60"}),
    "ShuntStoreNotWritable": ({f"shunt_store_writable{{{PROXY}}}": "0x60"}, {f"shunt_store_writable{{{PROXY}}}": "1x60"}),
}


def promtool(*arguments):
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def firings(tmp_path_factory) -> dict:
    """The alerts that fire in each case, by the report of promtool on tests that expect no alert at all."""
    tests = [{
        "name": f"{alert} {kind}", "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "60m", "alertname": name, "exp_alerts": []} for name in CASES],
    } for alert, case in CASES.items() for kind, series in zip(("fault", "well"), case, strict=True)]
    path = tmp_path_factory.mktemp("promtool") / "test.yml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", str(path))
    found = {}
    for name, alert in re.findall(r"^\s*name: ([^,\n]+),\s*alertname: (\w+),", done.stdout + done.stderr, re.MULTILINE):
        found.setdefault(name, set()).add(alert)
    assert found, done
    return found


def test_the_rules_are_valid_and_each_has_a_case_and_a_runbook():
    assert promtool("check", "rules", str(ALERTS)).returncode == 0
    alerts = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    assert len(alerts) == len(set(alerts)) and set(alerts) == set(CASES)
    rows = [line.split("|")[1] for line in (ROOT / "docs/alerts.md").read_text().splitlines() if line.startswith("| `Shunt")]
    of_proxy = re.findall(r'"(Shunt\w+)"', (ROOT / "crates/proxy/src/admin/alert_kinds.rs").read_text())
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted({*alerts, *of_proxy})


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_for_its_fault_alone(alert, firings):
    assert firings[f"{alert} fault"] == {alert}
    assert f"{alert} well" not in firings


@pytest.mark.parametrize("file", [ALERTS, *sorted((ROOT / "packaging/grafana").glob("*.json"))], ids=lambda path: path.name)
def test_metrics_are_documented(file):
    """Alerts and dashboards ask for metrics that the reference pages list; tests of the binary compare those with what it serves."""
    pages = ["metrics.md", "node.md", "hand-over-reference.md", "multiget-redis-reference.md"]
    text = " ".join((ROOT / "docs" / page).read_text() for page in pages)
    listed = set(re.findall(r"`?\b(shunt_\w+|process_\w+)", text))
    # `shunt_dispatch_clients`, `_requests_total`: a name that begins with an underscore continues the first of its row.
    for line in text.splitlines():
        first = re.search(r"`(shunt_[a-z]+)_\w+", line)
        listed |= {first[1] + name for name in re.findall(r"`(_\w+)", line)} if first else set()
    asked = set(re.findall(r"\b(shunt_\w+|process_\w+)", file.read_text()))
    asked = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    assert asked - listed == set()


def test_the_dashboards_are_those_that_build_makes():
    done = subprocess.run([ROOT / "packaging/grafana/build", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


ADMIN_OF = ("shunt-node", "shunt-dispatch", "shunt-agent", "shunt-shim")


class Shims(Multiget):
    """A sidecar and shims, the first of which has admin pages."""

    def __init__(self, directory: Path, admin: str):
        super().__init__(directory, servers=2)
        self.first = ["--admin", admin]

    def start_shim(self, index: int):
        usual = self.shim_options
        self.shim_options = [*usual, *self.first] if index == 0 else usual
        super().start_shim(index)
        self.shim_options = usual


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Prometheus before an embedded node, a proxy of a fleet with TLS, a dispatcher and an agent that hand over, and sidecars with and
    without shims, all of which have work."""
    directory = tmp_path_factory.mktemp("prometheus")
    contact = f"127.0.0.1:{free_port()}"
    admin = {job: f"127.0.0.1:{free_port()}" for job in ADMIN_OF}
    pair = Authority(directory).server()
    with contextlib.ExitStack() as stack:
        arguments = ["node", "--listen", contact, "--admin", admin["shunt-node"]]
        node = stack.enter_context(Embedded("packaging", contact, arguments, [contact], directory / "node.log"))
        subprocess.run([binary(), "fleet", "init", "--contact-points", node.contact, "--name", "main", "--replicas", "1"], check=True, timeout=120)
        options = ["--cores", "1", "--fleet", "main", "--fleet-replicas-min", "1", "--tls", "optional", "--tls-certificate", str(pair.certificate),
                   "--tls-key", str(pair.key), *UNDISTURBED_PROXY]
        proxy = Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, directory / "proxy.log")
        stack.enter_context(proxy)
        relay = Relay(directory / "relay", servers=1, dispatch_options=["--admin", admin["shunt-dispatch"]],
                      agent_options=["--admin", admin["shunt-agent"]], shares_socket=True)
        stack.enter_context(relay)
        (directory / "redis").mkdir()
        (directory / "servers").mkdir()
        tiers = [stack.enter_context(Shims(directory / "redis", admin["shunt-shim"])),
                 stack.enter_context(Multiget(directory / "servers", servers=2, mode="tcp"))]
        sidecars = {f"shunt-multiget-{number}": f"127.0.0.1:{tier.admin_port}" for number, tier in enumerate(tiers)}
        server = Prometheus(directory, {**admin, **sidecars, "shunt-fleet": proxy.admin}, [ALERTS])
        stack.callback(server.stop)
        server.wait_for_scrapes(2)
        work(proxy, relay, tiers)
        server.wait_for_scrapes(3)
        yield server


def work(proxy: Proxy, relay: Relay, tiers: list) -> None:
    """Something to count for each part: queries, a lock, large and small answers, multigets."""
    cluster = Cluster([proxy.host], port=proxy.port, **UNDISTURBED)
    session = cluster.connect()
    for _ in range(50):
        session.execute("SELECT release_version FROM system.local")
    cluster.shutdown()
    (relay.files / "small").write_text("small")
    (relay.files / "large").write_bytes(bytes(4 << 20))
    for name in ("small", "large"):
        subprocess.run(["curl", "-s", "-f", "-o", "/dev/null", "--max-time", "120", relay.url(f"/{name}")], check=True)
    for tier in tiers:
        with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
            assert client.mget([f"key-{number}" for number in range(20)]) == [None] * 20


# Panels that are empty while all is well.
EMPTY = {"proxy": set(), "fleet": {"Partitions that cannot be read"}, "hand-over": set(), "multiget": set(), "node": set()}
# Metrics of alerts that do not exist while all is well.
ABSENT = {"shunt_lock_unreadable_partitions"}


@pytest.mark.parametrize("name", EMPTY)
def test_each_panel_has_data(name, prometheus):
    dashboard = json.loads((ROOT / f"packaging/grafana/shunt-{name}.json").read_text())
    values = {"$__rate_interval": "1m"}

    def filled(text: str) -> str:
        for variable, value in values.items():
            text = text.replace(variable, value)
        return text

    for variable in dashboard["templating"]["list"][1:]:
        # As Grafana does where all values are chosen.
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        found = prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": filled(selector)})
        values["$" + variable["name"]] = "|".join(map(re.escape, found)).replace("\\", "\\\\")
    empty = {panel["title"] for panel in dashboard["panels"] for target in panel.get("targets", [])
             if not prometheus.query(filled(target["expr"]))}
    assert empty == EMPTY[name]


def test_the_dashboards_are_all_tried():
    assert {path.name for path in (ROOT / "packaging/grafana").glob("*.json")} == {f"shunt-{name}.json" for name in EMPTY}


def test_the_metrics_of_each_alert_exist(prometheus):
    """An alert about a metric that nobody has would be silent for ever."""
    absent = set()
    for group in prometheus.get("/api/v1/rules")["groups"]:
        for rule in group["rules"]:
            names = set(re.findall(r"\b(?:shunt|process)_\w+", rule["query"]))
            assert names or rule["name"] == "ShuntAway", rule
            absent |= {name for name in names if not prometheus.query(name)}
    assert absent == ABSENT


def test_no_alert_is_about_a_proxy_that_is_well(prometheus):
    groups = prometheus.get("/api/v1/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == set(CASES)
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["alerts"]] == []

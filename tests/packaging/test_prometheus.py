"""Rules and dashboards for Prometheus: each alert fires for what it is about and for nothing else, and asks for metrics that exist."""

import json
import re
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy
from harness.waits import until

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


class Prometheus:
    """A server of Debian's package with the alerts, which scrapes each second."""

    def __init__(self, directory: Path, targets: dict):
        self.address = f"127.0.0.1:{free_port()}"
        jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(ALERTS)], "scrape_configs": jobs}
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self.log = open(directory / "prometheus.log", "wb")
        arguments = ["--config.file", directory / "prometheus.yml", "--storage.tsdb.path", directory / "data", "--web.listen-address", self.address]
        self.process = subprocess.Popen(["prometheus", *arguments], stdout=self.log, stderr=self.log)

    def get(self, path: str, **parameters) -> dict:
        with urlopen(f"http://{self.address}{path}?{urlencode(parameters)}", timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list:
        return self.get("/api/v1/query", query=expression)["result"]

    def scrapes(self) -> int:
        """How often the least of both targets was scraped; 0 while one was not."""
        try:
            found = self.query("sum_over_time(up[1h])")
        except (URLError, ConnectionError):
            return 0
        return min(int(sample["value"][1]) for sample in found) if len(found) == 2 else 0

    def wait_for_scrapes(self, count: int):
        until(lambda: self.scrapes() >= count, f"{count} scrapes", told=lambda: Path(self.log.name).read_text())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Prometheus before an embedded node and a proxy that have had queries."""
    directory = tmp_path_factory.mktemp("prometheus")
    contact, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    arguments = ["node", "--listen", contact, "--admin", admin]
    with Embedded("packaging", contact, arguments, [contact], directory / "node.log") as node:
        options = ["--cores", "1", *UNDISTURBED_PROXY]
        with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, directory / "proxy.log") as proxy:
            server = Prometheus(directory, {"shunt": proxy.admin, "shunt-node": admin})
            cluster = Cluster([proxy.host], port=proxy.port, **UNDISTURBED)
            try:
                server.wait_for_scrapes(2)
                session = cluster.connect()
                for _ in range(50):
                    session.execute("SELECT release_version FROM system.local")
                server.wait_for_scrapes(server.scrapes() + 3)
                yield server
            finally:
                cluster.shutdown()
                server.stop()


# Panels that are empty while all is well, or without the feature that they are about.
EMPTY = {"proxy": {"Certificates expire"}, "fleet": {"Partitions that cannot be read"}, "node": set()}


@pytest.mark.parametrize("name", EMPTY)
def test_each_panel_has_data(name, prometheus):
    dashboard = json.loads((ROOT / f"packaging/grafana/shunt-{name}.json").read_text())
    empty = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")
            if not prometheus.query(expression):
                empty.add(panel["title"])
    assert empty == EMPTY[name]


def test_no_alert_is_about_a_proxy_that_is_well(prometheus):
    groups = prometheus.get("/api/v1/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == set(CASES)
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["alerts"]] == []

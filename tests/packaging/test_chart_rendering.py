"""Helm renders the golden files of the chart, and refuses values that go wrong together. UPDATE_GOLDEN=1 writes the files anew."""

import json
import os
import re
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import pytest
import yaml

from harness import chart

HELM = chart.ROOT / "target/tools/helm"
NAMED = ["--set", "image.repository=registry.example/shunt", "--set", "contactPoints={cassandra}"]


def helm(*words) -> subprocess.CompletedProcess:
    return subprocess.run([str(HELM), *map(str, words)], capture_output=True, text=True)


def template(*words) -> subprocess.CompletedProcess:
    return helm("template", "shunt", chart.CHART, "--namespace", "db", "--kube-version", chart.RELEASES[0], *words)


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_golden_files_are_what_helm_renders(shape):
    done = template("--values", chart.values(shape))
    assert done.returncode == 0, done.stderr
    wanted = chart.heading(shape) + done.stdout
    if os.environ.get("UPDATE_GOLDEN"):
        chart.golden(shape).write_text(wanted)
    assert chart.golden(shape).read_text() == wanted


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_helm_has_nothing_to_say(shape):
    done = helm("lint", "--strict", chart.CHART, "--values", chart.values(shape))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words, reason", [
    (["--set", "contactPoints={cassandra}"], "image.repository: name the repository"),
    (["--set", "image.repository=r"], "contactPoints: name nodes of the ring"),
    ([*NAMED, "--set", "login.username=shunt"], "login.secretName: name the Secret"),
    ([*NAMED, "--set", "login.secretName=shunt"], "login.username: name the role"),
    ([*NAMED, "--set", "mode=fleet,tls.secretName=t"], "tls.mode: required refuses the other proxies of the fleet"),
    ([*NAMED, "--set", "mode=fleet,fleet.tls.enabled=true"], "fleet.tls.enabled: the proxies show each other"),
    ([*NAMED, "--set", "mode=sidecar,sidecar.podSpec.containers[0].name=shop,sidecar.podSpec.terminationGracePeriodSeconds=44"],
     "sidecar.podSpec.terminationGracePeriodSeconds: the proxy drains after"),
    ([*NAMED, "--set", "mode=sidecar"], "sidecar.podSpec.containers: name the containers"),
    ([*NAMED, "--set", "mode=sidecar,networkPolicy.enabled=true,sidecar.podSpec.containers[0].name=shop"], "networkPolicy: in mode sidecar"),
    ([*NAMED, "--set", "tls.clientAuth=required"], "tls.clientAuth: certificates of clients need tls.secretName"),
    ([*NAMED, "--set", "nodeTLS.enabled=true"], "nodeTLS.secretName: name the Secret"),
    ([*NAMED, "--set", "config.listen=a"], "config.listen: the chart sets it"),
    ([*NAMED, "--set-json", "config.clients_max=1.5"], "config: 1.5 is not whole"),
    ([*NAMED, "--set", "config.admin_tls_client_ca=a"], "the kubelet has no certificate"),
    ([*NAMED, "--set", "tls.secret=t"], "secret"),
    ([*NAMED, "--set", "mode=proxy"], "mode"),
    ([*NAMED, "--set", "replicas=many"], "replicas"),
])
def test_values_that_go_wrong_are_refused_with_a_reason(words, reason):
    done = template(*words)
    assert done.returncode != 0 and reason in done.stderr, done.stderr or done.stdout


def test_the_examples_of_the_page_render(tmp_path):
    """Each example of docs/kubernetes.md is for the smallest `values.yaml`, the first of them."""
    first, *others = re.findall(r"^```yaml\n(.*?)^```", (chart.ROOT / "docs/kubernetes.md").read_text(), re.MULTILINE | re.DOTALL)
    kinds = {}
    for number, text in enumerate(["", *others]):
        files = [tmp_path / f"{number}-{name}.yaml" for name in ("first", "other")]
        for file, content in zip(files, (first, text), strict=True):
            file.write_text(content)
        done = template(*[word for file in files for word in ("--values", file)])
        assert done.returncode == 0, (text, done.stderr)
        kinds[yaml.safe_load(text)["mode"] if text else "tier"] = {each["kind"] for each in yaml.safe_load_all(done.stdout) if each}
    assert {mode: found & {"Deployment", "StatefulSet", "Job"} for mode, found in kinds.items()} == {
        "tier": {"Deployment"}, "fleet": {"StatefulSet", "Job"}, "sidecar": {"Deployment"}}


def test_a_sidecar_keeps_the_time_that_the_application_asks_for():
    asked = "mode=sidecar,sidecar.podSpec.containers[0].name=shop,sidecar.podSpec.terminationGracePeriodSeconds=45"
    done = template(*NAMED, "--set", asked)
    assert done.returncode == 0 and done.stdout.count("terminationGracePeriodSeconds: 45\n") == 1, done.stderr


def test_addresses_of_version_6():
    done = template(*NAMED, "--set", "ipv6=true,mode=fleet")
    assert done.returncode == 0 and '"[$(POD_IP)]:9042"' in done.stdout and 'listen = ["[::]:9042"]' in done.stdout, done.stderr


def test_a_kubernetes_that_is_too_old_is_refused():
    done = helm("template", "shunt", chart.CHART, "--kube-version", "1.29.4", *NAMED)
    assert done.returncode != 0 and "kubeVersion" in done.stderr


def test_the_prometheus_operator_takes_its_objects(tmp_path):
    monitors = [chart.objects(shape)["PodMonitor"] for shape in ("tier-tls", "sidecar")]
    schemas = "@kubernetes-models/prometheus-operator"
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", tmp_path, f"{schemas}@6.0.0"], check=True)
    program = tmp_path / "check.mjs"
    program.write_text(f'import {{PodMonitor}} from "{schemas}/monitoring.coreos.com/v1/PodMonitor";\n'
                       "for (const each of JSON.parse(process.argv[2])) new PodMonitor(each).validate();\n")

    def check(objects: list) -> subprocess.CompletedProcess:
        return subprocess.run(["node", program, json.dumps(objects)], capture_output=True, text=True)

    done = check(monitors)
    assert done.returncode == 0, done.stderr
    wrong = yaml.safe_load(yaml.safe_dump(monitors[0]))
    wrong["spec"]["podMetricsEndpoints"][0]["authorization"] = "token"
    assert check([wrong]).returncode != 0


def test_helm_takes_the_archive_of_a_release(tmp_path):
    loader = SourceFileLoader("release", str(chart.ROOT / "scripts/release"))
    release = module_from_spec(spec_from_loader("release", loader))
    loader.exec_module(release)
    archive = tmp_path / "shunt-chart-0.1.0.tgz"
    archive.write_bytes(release.chart_archive("0.1.0", 1700000000))
    values = ["--namespace", "db", "--kube-version", chart.RELEASES[0], "--values", chart.values("tier")]
    done = helm("template", "shunt", archive, *values)
    assert done.returncode == 0 and done.stdout == chart.golden("tier").read_text().split("\n", 1)[1], done.stderr

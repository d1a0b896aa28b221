"""The golden files of the chart: Kubernetes takes their objects, and Shunt takes the configuration and the arguments in them.

`make test-long` renders them anew (test_chart_rendering.py): Helm takes minutes to build."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.proxy import binary
from harness import chart

# Kinds of other projects, whose schemas test_chart_rendering.py has.
OTHER_KINDS = {"PodMonitor"}
# Time that Kubernetes gives an application to end, by default.
KUBERNETES_SECONDS = 30
WORKLOADS = {"tier": "Deployment", "tier-tls": "Deployment", "fleet": "StatefulSet", "sidecar": "Deployment"}


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_golden_files_are_of_this_chart(shape):
    first = chart.golden(shape).read_text().splitlines(keepends=True)[0]
    assert first == chart.heading(shape), "the chart has changed; to render it anew: UPDATE_GOLDEN=1 scripts/test long --only 'chart rendered'"


def kubernetes(file: Path, release: str) -> tuple:
    """(whether a release takes the objects of a file, and how many have a schema). In a process of its own: the schemas' package
    needs another named `packaging`, as this folder is."""
    program = Path(sys.executable).with_name("kubernetes-validate")
    done = subprocess.run([program, "--strict", "--kubernetes-version", release, file], capture_output=True, text=True)
    said = done.stdout + done.stderr
    print(said)
    return done.returncode == 0, said.count(" passed for resource ")


@pytest.mark.parametrize("release", chart.RELEASES)
@pytest.mark.parametrize("shape", chart.SHAPES)
def test_kubernetes_takes_all_objects(shape, release):
    assert kubernetes(chart.golden(shape), release) == (True, len(chart.objects(shape).keys() - OTHER_KINDS))


def test_the_schemas_see_a_wrong_field(tmp_path):
    wrong = tmp_path / "tier.yaml"
    wrong.write_text(chart.golden("tier").read_text().replace("seconds: 5", "second: 5"))
    assert kubernetes(wrong, chart.RELEASES[0])[0] is False


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_selectors_find_the_pods(shape):
    found = chart.objects(shape)
    workload = found[WORKLOADS[shape]]
    labels = workload["metadata"]["labels"].items()
    assert labels <= workload["spec"]["template"]["metadata"]["labels"].items()
    selectors = [workload["spec"]["selector"]["matchLabels"], found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
    selectors += [each["labelSelector"]["matchLabels"] for each in workload["spec"]["template"]["spec"].get("topologySpreadConstraints", [])]
    selectors += [found["Service"]["spec"]["selector"]] if "Service" in found else []
    selectors += [found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]] if "NetworkPolicy" in found else []
    selectors += [found["PodMonitor"]["spec"]["selector"]["matchLabels"]] if "PodMonitor" in found else []
    for selector in selectors:
        assert selector and selector.items() <= labels
    # The job that creates a fleet is no proxy.
    if "Job" in found:
        assert not selectors[0].items() <= found["Job"]["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_mounts_and_ports_have_their_counterparts(shape):
    found = chart.objects(shape)
    spec = found[WORKLOADS[shape]]["spec"]["template"]["spec"]
    proxy = chart.containers(found[WORKLOADS[shape]])["shunt"]
    volumes = {each["name"] for each in spec["volumes"]}
    assert {each["name"] for each in proxy["volumeMounts"]} <= volumes
    ports = {each["name"] for each in proxy["ports"]}
    asked = [proxy["livenessProbe"]["httpGet"]["port"], proxy["readinessProbe"]["httpGet"]["port"]]
    asked += [each["targetPort"] for each in found.get("Service", {"spec": {"ports": []}})["spec"]["ports"]]
    asked += [port["port"] for rule in found.get("NetworkPolicy", {"spec": {"ingress": []}})["spec"]["ingress"] for port in rule["ports"]]
    asked += [each["port"] for each in found.get("PodMonitor", {"spec": {"podMetricsEndpoints": []}})["spec"]["podMetricsEndpoints"]]
    assert set(asked) <= ports
    # Every file that the configuration names is below a mount.
    mounts = tuple(each["mountPath"] + "/" for each in proxy["volumeMounts"])
    paths = re.findall(r'"(/[^"]*)"', found["ConfigMap"]["data"]["shunt.toml"])
    assert all(path.startswith(mounts) for path in paths), (paths, mounts)


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_an_old_pod_has_time_to_drain(shape):
    found = chart.objects(shape)
    spec = found[WORKLOADS[shape]]["spec"]["template"]["spec"]
    drain = int(re.search(r'drain_timeout_ms = "(\d+)s"', found["ConfigMap"]["data"]["shunt.toml"])[1])
    if shape == "sidecar":
        proxy = spec["initContainers"][0]
        # A sidecar starts before all other containers, and Kubernetes ends it after them, within the time of the whole pod.
        assert (proxy["name"], proxy["restartPolicy"]) == ("shunt", "Always")
        assert spec["terminationGracePeriodSeconds"] > KUBERNETES_SECONDS + drain + 10
        return
    pause = chart.containers(found[WORKLOADS[shape]])["shunt"]["lifecycle"]["preStop"]["sleep"]["seconds"]
    # Ten seconds after the drain a proxy ends, whatever its clients do.
    assert spec["terminationGracePeriodSeconds"] > pause + drain + 10


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_renewed_secrets_reach_the_proxy(shape):
    """A Secret that is mounted by a path inside it stays as it was, and one that the pods' annotations follow restarts them."""
    found = chart.objects(shape)
    spec = found[WORKLOADS[shape]]["spec"]["template"]
    assert not [mount for mount in chart.containers(found[WORKLOADS[shape]])["shunt"]["volumeMounts"] if "subPath" in mount]
    assert [key for key in spec["metadata"]["annotations"] if key.startswith("checksum/")] == ["checksum/config"]


@pytest.mark.parametrize("shape", chart.SHAPES)
def test_shunt_takes_the_configuration(shape, tmp_path, certificates):
    found = chart.objects(shape)
    text = found["ConfigMap"]["data"]["shunt.toml"].replace("/etc/shunt/", f"{tmp_path}/").replace("/run/shunt/", f"{tmp_path}/")
    # The Service's name is known in a cluster alone.
    text = re.sub(r'^advertise = "\w+\.db\.svc:', 'advertise = "127.0.0.1:', text, flags=re.MULTILINE)
    for path in re.findall(rf'"{tmp_path}/([^"]*)"', text):
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        kind = "key" if path.endswith(".key") else "crt"
        file.write_text(certificates[kind] if path.endswith((".key", ".crt")) else "0123456789abcdef\n")
        file.chmod(0o440)
    (tmp_path / "shunt.toml").write_text(text)
    done = subprocess.run([str(binary()), "check", "--config", tmp_path / "shunt.toml"], capture_output=True, text=True)
    assert done.returncode == 0, (done.stderr, text)
    assert "admin" in done.stderr or "warning" not in done.stderr, done.stderr


def test_shunt_takes_the_arguments_of_containers(certificates, tmp_path):
    found = chart.objects("fleet")
    proxy = chart.containers(found["StatefulSet"])["shunt"]
    assert [each["name"] for each in proxy["env"]] == ["POD_IP"]
    words = [word.replace("$(POD_IP)", "10.244.1.7") for word in proxy["args"]]
    config = tmp_path / "shunt.toml"
    config.write_text('contact_points = ["10.244.0.7"]\nfleet = "main"\n')
    words[words.index("--config") + 1] = str(config)
    assert words[0] == "proxy"
    done = subprocess.run([str(binary()), "check", *words[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "ca.crt").write_text(certificates["crt"])
    words = [re.sub(r"/etc/shunt/[\w-]+/", f"{tmp_path}/", word) for word in chart.containers(found["Job"])["init"]["args"]]
    words = [f"--contact-points=127.0.0.1:{free_port()}" if word.startswith("--contact-points=") else word for word in words]
    done = subprocess.run([str(binary()), *words], capture_output=True, text=True)
    # The command line is right, and nobody answers.
    assert done.returncode == 4, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                    "-subj", "/CN=shunt", "-addext", "subjectAltName=DNS:shunt", "-keyout", folder / "key", "-out", folder / "crt"],
                   check=True, capture_output=True)
    return {name: (folder / name).read_text() for name in ("key", "crt")}

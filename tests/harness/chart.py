"""The Helm chart and its golden files: each shape of `SHAPES` has its values and what Helm makes of them in tests/packaging/charts."""

import hashlib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "packaging/helm/shunt"
FOLDER = ROOT / "tests/packaging/charts"
SHAPES = ("tier", "tier-tls", "fleet", "sidecar")
# The oldest release that the chart admits, and the newest that the schemas know.
RELEASES = ("1.30", "1.37")


def values(shape: str) -> Path:
    return FOLDER / f"{shape}.values.yaml"


def golden(shape: str) -> Path:
    return FOLDER / f"{shape}.yaml"


def heading(shape: str) -> str:
    """The first line of a golden file. It changes with every file that the rendering depends on."""
    digest = hashlib.sha256()
    for path in [*sorted(path for path in CHART.rglob("*") if path.is_file()), values(shape)]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"# The chart with {values(shape).name}, whose sha256 together is {digest.hexdigest()}\n"


def objects(shape: str) -> dict:
    """The objects of a golden file, by kind."""
    found = [each for each in yaml.safe_load_all(golden(shape).read_text()) if each]
    by_kind = {each["kind"]: each for each in found}
    assert len(by_kind) == len(found), [each["kind"] for each in found]
    return by_kind


def containers(workload: dict) -> dict:
    """The containers of a Deployment, StatefulSet or Job by their names, sidecars included."""
    spec = workload["spec"]["template"]["spec"]
    return {each["name"]: each for each in [*spec.get("initContainers", []), *spec["containers"]]}

"""Materials of a release: the SBOM, the licences of all crates, and those rules of deny.toml that need no network.

`make test-long` and scripts/release run cargo-deny itself, which takes minutes to build."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing

ROOT = Path(__file__).parents[2]
RULES = tomllib.loads((ROOT / "deny.toml").read_text())
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
LICENSING = get_spdx_licensing()


def write(folder: Path, *options: str) -> None:
    done = subprocess.run([ROOT / "scripts/materials", folder, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=["shunt", "shunt-node"])
def materials(request, tmp_path_factory):
    """The folder, and the name of the binary."""
    folder = tmp_path_factory.mktemp(request.param)
    write(folder, "--binary", request.param)
    return folder, request.param


@pytest.fixture(scope="module")
def bill(materials) -> dict:
    folder, binary = materials
    return json.loads((folder / f"{binary}.cdx.json").read_text())


def permits(expression, allowed: set) -> bool:
    """Whether a user may choose allowed licences alone."""
    if hasattr(expression, "args") and expression.args:
        choose = all if expression.operator.strip() == "AND" else any
        return choose(permits(each, allowed) for each in expression.args)
    return expression.render() in allowed


def test_the_bill_has_the_form_of_cyclonedx(materials):
    folder, binary = materials
    text = (folder / f"{binary}.cdx.json").read_text()
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"required"', '"needed"', 1)) is not None


def test_the_bill_has_what_cargo_links(materials, bill):
    names = {each["name"]: each["scope"] for each in bill["components"]}
    # Of the workspace, of crates.io, and of the build alone.
    assert (names["shunt-proxy"], names["rustls"], names["aya-build" if "aya-build" in names else "cc"]) == ("required", "required", "excluded")
    assert ("librocksdb-sys" in names) == (materials[1] == "shunt-node")
    assert "shunt-testing" not in names and "proptest" not in names, "tests alone need these"
    known = {each["bom-ref"] for each in [bill["metadata"]["component"], *bill["components"]]}
    used = {each for entry in bill["dependencies"] for each in [entry["ref"], *entry["dependsOn"]]}
    assert used == known


def test_each_crate_of_others_has_its_checksum_and_its_licence(materials, bill):
    folder, binary = materials
    text = (folder / f"{binary}-licences.txt").read_text()
    crates = [each for each in bill["components"] if each["purl"].startswith("pkg:cargo/")]
    foreign = [each for each in crates if "hashes" in each]
    assert len(foreign) > 150
    assert {each["name"] for each in crates} - {each["name"] for each in foreign} == {
        each["name"] for each in crates if each["name"].startswith("shunt-")}
    for each in foreign:
        line = f"\n{each['name']} {each['version']} ({each['licenses'][0]['expression']})\n"
        assert line in text, line
    for phrase in ("Permission is hereby granted", "Apache License", "Redistribution and use"):
        assert phrase in text


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="the libraries are packages of Debian")
def test_shunt_node_has_the_libraries_that_the_package_links(materials, bill):
    """`with_node` of packaging/build names the libraries beside RocksDB."""
    folder, binary = materials
    libraries = {each["name"]: each for each in bill["components"] if each["purl"].startswith("pkg:deb/")}
    text = (folder / f"{binary}-licences.txt").read_text()
    assert ("\nlibrocksdb-dev " in text) == bool(libraries)
    if binary == "shunt":
        assert not libraries
        return
    linked = re.search(r"for library in ([\w ]+); do", (ROOT / "packaging/build").read_text())[1].split()
    files = [f"/usr/lib/{os.uname().machine}-linux-gnu/lib{name}.a" for name in ["rocksdb", *linked]]
    owners = subprocess.run(["dpkg-query", "--search", *files], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.split(":")[0] for line in owners} == libraries.keys()
    uses = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    rocksdb = libraries["librocksdb-dev"]["bom-ref"]
    assert [ref for ref, used in uses.items() if rocksdb in used and ref.startswith("pkg:cargo/librocksdb-sys@")]
    assert set(uses[rocksdb]) == {each["bom-ref"] for name, each in libraries.items() if name != "librocksdb-dev"}
    for each in libraries.values():
        assert f"\n{each['name']} {each['version']} of Debian (" in text


# Licences of C libraries, which no crate has.
LICENCES_IN_C = {"bzip2-1.0.6"}


def test_licences_are_those_of_the_rules(bill):
    allowed = set(RULES["licenses"]["allow"]) | LICENCES_IN_C
    for each in bill["components"]:
        expression = LICENSING.parse(each["licenses"][0]["expression"])
        assert permits(expression, allowed), f"{each['name']}: deny.toml does not allow {expression}"
    assert not permits(LICENSING.parse("MIT AND GPL-3.0-only"), allowed)
    assert permits(LICENSING.parse("GPL-3.0-only OR (MIT AND ISC)"), allowed)


def test_crates_come_from_the_registry_and_none_is_banned():
    """The whole lock file: tests and tools included."""
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert RULES["sources"] == {"unknown-registry": "deny", "unknown-git": "deny"}
    assert {each.get("source", CRATES_IO) for each in locked} == {CRATES_IO}
    own = {each["name"] for each in locked if "source" not in each}
    assert all(name.startswith("shunt") for name in own), own
    banned = {each["crate"] for each in RULES["bans"]["deny"]}
    assert banned and not banned & {each["name"] for each in locked}


def test_the_same_commit_has_the_same_materials(materials, tmp_path):
    folder, binary = materials
    write(tmp_path, "--binary", binary)
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name

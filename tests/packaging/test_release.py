"""scripts/release: the source is fit for a release, and what does not go with one is named."""

import io
import os
import re
import subprocess
import tarfile
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


@pytest.fixture(scope="module")
def release():
    loader = SourceFileLoader("release", str(ROOT / "scripts/release"))
    module = module_from_spec(spec_from_loader("release", loader))
    loader.exec_module(module)
    return module


def test_all_places_have_one_version(release):
    # Whoever runs the tests may have changed files.
    assert [fault for fault in release.faults(VERSION) if "work tree" not in fault] == []


def test_each_place_with_another_version_is_named(release):
    found = "\n".join(release.faults("99.0.0"))
    for place in (f"Cargo.toml: the version of the workspace is {VERSION}, not 99.0.0", "Chart.yaml: the version of the chart",
                  "Chart.yaml: the version that the chart installs", "CHANGELOG.md: the newest chapter"):
        assert place in found, found
    assert "a version is MAJOR.MINOR.PATCH" in release.faults("v0.1")[0]


def test_what_the_steps_need_is_asked_for_before_the_first(release, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert [line.split()[0] for line in release.missing_programs()] == list(release.PROGRAMS)


def test_the_environment_of_the_caller_changes_no_binary(release, monkeypatch, capfd):
    monkeypatch.setenv("RUSTFLAGS", "-C opt-level=0")
    monkeypatch.setenv("CARGO_PROFILE_RELEASE_DEBUG", "2")
    release.run("sh", "-c", "echo $RUSTFLAGS/$CARGO_PROFILE_RELEASE_DEBUG/$SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH="7")
    assert capfd.readouterr().out.splitlines()[-1] == "//7"


def test_binaries_for_both_machines_hide_the_same_paths(release):
    (line,) = re.findall(r'^flags="(.*)"$', (ROOT / "packaging/build").read_text(), re.MULTILINE)
    assert line.replace("$PWD", str(ROOT)).replace("${CARGO_HOME:-$HOME/.cargo}", os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))) \
        == release.remapped()


def test_the_command_ends_with_the_faults():
    done = subprocess.run([ROOT / "scripts/release", "99.0.0", "--check"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "CHANGELOG.md" in done.stderr


def test_a_binary_without_its_crates_or_of_another_commit_is_refused(release, tmp_path):
    program = tmp_path / "shunt"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(release.Fault, match="without cargo auditable"):
        release.check_binary(program)
    for commit, fits in (("0" * 12, False), (release.output("git", "rev-parse", "HEAD")[:12], True)):
        program.write_text(f"#!/bin/sh\necho 'shunt 0.1.0'; echo 'commit: {commit}' # .dep-v0\n")
        program.chmod(0o755)
        # A script stands for a program of this machine.
        release.AMD64_IN_ELF = program.read_bytes()[18:20]
        if fits:
            release.check_binary(program)
        else:
            with pytest.raises(release.Fault, match="is of the commit 000000000000"):
                release.check_binary(program)


def test_the_archive_of_the_chart_has_its_files_and_no_chance(release):
    archive = release.chart_archive(VERSION, 1700000000)
    assert archive == release.chart_archive(VERSION, 1700000000)
    with tarfile.open(fileobj=io.BytesIO(archive)) as file:
        names = set(file.getnames())
        assert {each.mtime for each in file.getmembers()} == {1700000000}
    assert {"shunt/Chart.yaml", "shunt/values.yaml", "shunt/values.schema.json", "shunt/templates/tier.yaml"} <= names


def test_packages_of_earlier_versions_are_left_out(release, tmp_path, monkeypatch):
    monkeypatch.setattr(release, "PACKAGES", tmp_path)
    wanted = ["shunt_2.0.0_amd64.deb", "shunt-2.0.0-1.x86_64.rpm", "shunt-node_2.0.0_amd64.deb", "shunt-node-2.0.0-1.x86_64.rpm"]
    for name in [*wanted, "shunt_1.0.0_amd64.deb", "shunt.debug"]:
        (tmp_path / name).touch()
    assert [path.name for path in release.built_packages("2.0.0")] == wanted
    (tmp_path / wanted[2]).unlink()
    with pytest.raises(release.Fault, match=wanted[2]):
        release.built_packages("2.0.0")


def test_the_bill_of_an_image_is_of_the_target_that_is_built(release):
    assert "target=$machine-unknown-linux-gnu\n" in (ROOT / "packaging/build").read_text()
    assert (release.AMD64, release.ARM64) == ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


def test_the_sums_are_those_of_sha256sum(release, tmp_path):
    (tmp_path / "a").write_text("a file\n")
    (tmp_path / "b").write_bytes(b"\0" * 70000)
    (tmp_path / "SHA256SUMS").write_text(release.sums(tmp_path))
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "a").write_text("another\n")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1

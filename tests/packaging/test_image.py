"""The container image: the same to the byte each time, without anything it does not need, and its proxy serves as a stranger to the host.

The image's root is started by bubblewrap, with the image's own command and user: hosts that forbid containers run that too."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from cassandra.cluster import Cluster

from harness import waits
from harness.driver import UNDISTURBED
from harness.embedded import Embedded
from harness.ports import free_port
from harness.programs import only_with
from harness.proxy import binary

ROOT = Path(__file__).parents[2]
NOBODY = 65532
ARM64_IN_ELF = (183).to_bytes(2, "little")

pytestmark = only_with("image", "buildah", "bwrap")


def build(archive: Path, epoch: str = "1700000000", umask: int = 0o022, program: Path = None) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "scripts/image", program or binary(), archive], capture_output=True, text=True,
                          env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, preexec_fn=lambda: os.umask(umask))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    archive = tmp_path_factory.mktemp("image") / "shunt.tar"
    done = build(archive)
    assert done.returncode == 0, done.stderr
    return archive


@pytest.fixture(scope="module")
def image(archive) -> dict:
    """The image's configuration, as engines read it."""
    with tarfile.open(archive) as file:
        manifest = json.load(file.extractfile("manifest.json"))[0]
        return json.load(file.extractfile(manifest["Config"]))


@pytest.fixture(scope="module")
def root(archive):
    root = archive.parent / "root"
    with tarfile.open(archive) as file:
        layers = json.load(file.extractfile("manifest.json"))[0]["Layers"]
        assert len(layers) == 1, "files that a later layer hides are in the image all the same"
        with tarfile.open(fileobj=file.extractfile(layers[0])) as layer:
            # Modes as in the image. Of owners only root could tell; test_nothing_but_the_program reads them from the layer.
            layer.extractall(root, filter="tar")
    # Engines make these.
    (root / "proc").mkdir()
    (root / "dev").mkdir()
    return root


def test_two_builds_are_the_same_to_the_byte(archive, tmp_path):
    again = tmp_path / "again.tar"
    assert build(again, umask=0o077).returncode == 0
    assert again.read_bytes() == archive.read_bytes()
    # The comparison sees a time.
    assert build(again, epoch="1700000001").returncode == 0
    assert again.read_bytes() != archive.read_bytes()


def test_nothing_but_the_program(archive):
    with tarfile.open(archive) as file:
        layer = json.load(file.extractfile("manifest.json"))[0]["Layers"][0]
        members = tarfile.open(fileobj=file.extractfile(layer)).getmembers()
    files = [each.name for each in members if not each.isdir()]
    libraries = [name for name in files if name.startswith(("lib/", "lib64/", "usr/lib/"))]
    assert sorted(set(files) - set(libraries)) == ["etc/nsswitch.conf", "usr/bin/shunt", "usr/share/doc/shunt/LICENSE"]
    assert not [each.name for each in members if each.mode & 0o7022], "nobody but the owner writes, and nothing gives rights"
    assert [each.name for each in members if (each.uid, each.gid) != (0, 0)] == ["run/shunt"]
    assert {each.mtime for each in members} == {1700000000}


def test_engines_start_it_as_a_user_without_rights(image):
    config = image["config"]
    assert config["User"] == f"{NOBODY}:{NOBODY}", "by number: Kubernetes compares it with 0"
    assert config["Healthcheck"]["Test"][0] == "CMD", "the image has no shell"
    assert (image["os"], image["architecture"]) == ("linux", {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine])
    assert config["Labels"]["org.opencontainers.image.version"] and len(config["Labels"]["org.opencontainers.image.revision"]) == 40


def test_a_file_that_is_no_program_is_refused(tmp_path):
    done = build(tmp_path / "shunt.tar", program=ROOT / "README.md")
    assert done.returncode == 1 and "README.md is no Linux program for amd64 or arm64" in done.stderr


def test_a_binary_for_another_machine_that_needs_libraries_is_refused(tmp_path):
    """Its libraries cannot be found here, and without them it would not start there."""
    program = tmp_path / "shunt"
    content = bytearray(Path(sys.executable).read_bytes())
    content[18:20] = ARM64_IN_ELF
    program.write_bytes(content)
    done = build(tmp_path / "shunt.tar", program=program)
    assert done.returncode == 1 and "must be linked statically" in done.stderr, done.stderr


def within(root: Path, folder: Path, command: list) -> list:
    """A command in the image: another user, no rights, nothing of the host but its network and `folder`."""
    return ["bwrap", "--ro-bind", root, "/", "--ro-bind", folder, "/etc/shunt", "--tmpfs", "/run/shunt", "--proc", "/proc", "--dev", "/dev",
            "--unshare-user", "--unshare-pid", "--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL", "--clearenv",
            "--die-with-parent", "--", *command]


def test_the_proxy_in_it_serves_and_drains(image, root, tmp_path):
    config = image["config"]
    contact, listen, admin = (f"127.0.0.1:{free_port()}" for _ in range(3))
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "shunt.toml").write_text(f'listen = ["{listen}"]\nadmin = "{admin}"\ncontact_points = ["{contact}"]\ncores = 1\n')
    check = within(root, folder, [*config["Healthcheck"]["Test"][1:], "--admin", admin])

    def healthy() -> bool:
        return subprocess.run(check, capture_output=True).returncode == 0

    assert not healthy(), "nobody is there yet"
    with Embedded("image", contact, ["node", "--listen", contact, "--admin", "off"], [contact], tmp_path / "node.log"), \
            open(tmp_path / "proxy.log", "wb") as log:
        reader, writer = os.pipe()
        command = within(root, folder, [*config["Entrypoint"], *config["Cmd"]])
        # As the first process of its container, it has no signal's default.
        command[1:1] = ["--info-fd", str(writer), "--as-pid-1"]
        proxy = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, pass_fds=[writer])
        os.close(writer)
        with os.fdopen(reader) as file:
            inside = json.load(file)["child-pid"]
        try:
            waits.until(lambda: proxy.poll() is not None or healthy(), "the health check succeeds", told=(tmp_path / "proxy.log").read_text)
            host, port = listen.split(":")
            cluster = Cluster([host], port=int(port), **UNDISTURBED)
            assert cluster.connect().execute("SELECT release_version FROM system.local").one()
            cluster.shutdown()
            os.kill(inside, signal.SIGTERM)
            assert proxy.wait(waits.DEADLINE_SECONDS) == 0, (tmp_path / "proxy.log").read_text()
        finally:
            proxy.kill()
            proxy.wait()

"""The rpm packages: read, and installed, upgraded and removed in a root of their own.

The root has a shell, and programs in place of systemctl, getent and useradd that write down how they were called. Rpm runs the
packages' scripts there. A distribution with rpm that boots is not tested.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.programs import only_with
from harness.proxy import binary

ROOT = Path(__file__).parents[2]
PACKAGES = ("shunt", "shunt-node")
SERVICES = "shunt.service shunt-dispatch.service shunt-agent.service shunt-multiget.service"
CONFIGURATION = "etc/shunt/shunt.toml"
USER = 990

pytestmark = only_with("packages", "rpm", "rpmbuild", "dpkg-deb")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="rpm --root needs root")

# Programs of the root that a package calls.
PROGRAMS = {
    "systemctl": 'echo "systemctl $*" >>/calls; [ ! -e /refuses ]',
    "getent": 'read -r line <"/etc/$1"; case "$line" in "$2":*) exit 0 ;; *) exit 2 ;; esac',
    "groupadd": f'echo "groupadd $*" >>/calls; echo "shunt:x:{USER}:" >/etc/group',
    "useradd": f'echo "useradd $*" >>/calls; echo "shunt:x:{USER}:{USER}::/:" >/etc/passwd',
}


def output(*words) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(out: Path, version: str, *formats: str) -> None:
    # Without compression, which takes most of the time. Rpm reads its macros from the home directory, where Rust's tools are, too.
    (out / ".rpmmacros").write_text("%_binary_payload w0.gzdio\n")
    program = str(binary().absolute())
    more = {"SHUNT_BINARY": program, "SHUNT_NODE_BINARY": program, "SHUNT_PACKAGES": str(out), "SHUNT_VERSION": version, "HOME": str(out),
            "DPKG_DEB_COMPRESSOR_LEVEL": "0"}
    for tool in ("cargo", "rustup"):
        more.setdefault(f"{tool.upper()}_HOME", os.environ.get(f"{tool.upper()}_HOME", str(Path.home() / f".{tool}")))
    done = subprocess.run(["packaging/build", *formats], cwd=ROOT, env=os.environ | more, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """The binary of the tests as packages of two versions, and as Debian's of the first."""
    out = tmp_path_factory.mktemp("packages")
    build(out, "0.1.0", "rpm", "deb")
    build(out, "99.0.0", "rpm")
    return out


def package(packages: Path, name: str, version: str = "0.1.0") -> Path:
    return packages / f"{name}-{version}-1.{os.uname().machine}.rpm"


@pytest.mark.parametrize("name", PACKAGES)
def test_both_kinds_of_package_have_the_same_files(packages, name):
    deb, = packages.glob(f"{name}_0.1.0_*.deb")
    contents = output("dpkg-deb", "--contents", deb).splitlines()
    wanted = {line.split(maxsplit=5)[5].removeprefix(".") for line in contents if line[0] != "d"}
    # Rpm owns the directories that the spec names, as Debian's package owns all.
    listed = output("rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", package(packages, name)).splitlines()
    assert {line.split()[1] for line in listed if line[0] != "d"} == wanted
    assert [line for line in listed if line[0] != "d" and (line[5] == "w" or line[8] == "w")] == []


def test_the_configuration_is_kept_and_closed_to_others(packages):
    assert output("rpm", "-qp", "--configfiles", package(packages, "shunt")) == f"/{CONFIGURATION}\n"
    rows = output("rpm", "-qp", "--queryformat", "[%{FILEFLAGS:fflags} %{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]",
                  package(packages, "shunt")).splitlines()
    assert f"cn -rw-r----- root:shunt /{CONFIGURATION}" in rows
    assert any(row.strip() == "drwxr-x--- root:root /etc/shunt/private" for row in rows)


def test_a_package_requires_what_its_files_need(packages):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", binary())))
    for name in PACKAGES:
        requires = output("rpm", "-qp", "--requires", package(packages, name)).splitlines()
        libraries = {re.match(r"[^(]*", line)[0] for line in requires if ".so" in line}
        assert libraries - {"rtld"} == needed, name
        others = {line for line in requires if ".so" not in line and not line.startswith(("rpmlib(", "rtld(", "config("))}
        assert others == ({"/bin/sh", "shadow-utils"} if name == "shunt" else {"/bin/sh", "shunt = 0.1.0"})


class System:
    """A root with a database of rpm, and with what the scripts of packages call."""

    def __init__(self, root: Path):
        self.root = root
        for folder in ("etc", "dev", "run/systemd/system", "usr/bin", "usr/sbin", "tmp", "var/tmp"):
            (root / folder).mkdir(parents=True)
        (root / "dev/null").touch()
        for link in ("bin", "sbin"):
            (root / link).symlink_to(f"usr/{link}")
        shell = Path(shutil.which("sh")).resolve()
        for path in [str(shell), *re.findall(r"(/\S+) \(0x", output("ldd", shell))]:
            target = root / (path[1:] if ".so" in path else "usr/bin/sh")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        for name, text in PROGRAMS.items():
            self.program(name, text)
        (root / "etc/passwd").write_text("root:x:0:0::/:root\n")
        (root / "etc/group").write_text("root:x:0:\n")

    def program(self, name: str, text: str) -> None:
        path = self.root / "usr/bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def rpm(self, *words) -> list:
        """Runs rpm on the root; gives the calls of programs that its scripts made."""
        (self.root / "calls").write_text("")
        # The root has no database of what other packages bring.
        done = subprocess.run(["rpm", "--root", self.root, "--nodeps", *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0 and "scriptlet failed" not in done.stderr, done.stdout + done.stderr
        return (self.root / "calls").read_text().splitlines()

    def files(self) -> list:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*shunt*"))


@pytest.fixture
def system(tmp_path) -> System:
    return System(tmp_path / "root")


@as_root
def test_the_life_of_an_installation(packages, system):
    calls = system.rpm("--install", package(packages, "shunt"), package(packages, "shunt-node"))
    assert calls[:2] == ["groupadd --system shunt",
                         "useradd --system --gid shunt --no-create-home --home-dir /nonexistent --shell /sbin/nologin shunt"]
    assert set(calls[2:]) == {"systemctl daemon-reload"}, "nothing starts before it is configured"
    configuration = system.root / CONFIGURATION
    assert (configuration.stat().st_gid, configuration.stat().st_mode & 0o777) == (USER, 0o640)
    assert (system.root / "etc/shunt/private").stat().st_mode & 0o777 == 0o750
    assert {"usr/bin/shunt", "usr/bin/shunt-node", "usr/lib/systemd/system/shunt.service"} <= set(system.files())

    # An upgrade keeps the configuration, and restarts services that run. The socket keeps its clients.
    configuration.write_text('contact_points = ["10.0.0.1"]\n')
    (system.root / "etc/shunt/private/ring").write_text("secret\n")
    calls = system.rpm("--upgrade", package(packages, "shunt", "99.0.0"), package(packages, "shunt-node", "99.0.0"))
    assert set(calls) == {"systemctl daemon-reload", f"systemctl try-restart {SERVICES}", "systemctl try-restart shunt-node.service"}
    assert configuration.read_text() == 'contact_points = ["10.0.0.1"]\n'
    assert output("rpm", "--root", system.root, "-q", *PACKAGES).count("-99.0.0-") == 2

    calls = system.rpm("--erase", *PACKAGES)
    assert f"systemctl stop shunt.socket {SERVICES}" in calls and f"systemctl --quiet disable shunt.socket {SERVICES}" in calls
    assert "systemctl stop shunt-node.service" in calls and "systemctl --quiet disable shunt-node.service" in calls
    assert not [call for call in calls if "restart" in call]
    # Rpm sets aside a configuration that somebody has changed. Secrets stay, too.
    assert system.files() == ["etc/shunt", "etc/shunt/shunt.toml.rpmsave"]
    assert (system.root / "etc/shunt/private/ring").exists()


@as_root
def test_a_service_manager_that_refuses_leaves_no_package_half_removed(packages, system):
    system.rpm("--install", package(packages, "shunt"), package(packages, "shunt-node"))
    (system.root / "refuses").touch()
    system.rpm("--upgrade", package(packages, "shunt", "99.0.0"), package(packages, "shunt-node", "99.0.0"))
    system.rpm("--erase", *PACKAGES)
    assert [path for path in system.files() if path.startswith("usr")] == []


@as_root
def test_a_group_without_its_user_is_taken(packages, system):
    (system.root / "etc/group").write_text("shunt:x:7:\n")
    assert [call.split()[0] for call in system.rpm("--install", package(packages, "shunt"))] == ["useradd", "systemctl"]
    assert (system.root / CONFIGURATION).stat().st_gid == 7


@as_root
def test_a_root_without_systemd_and_with_the_user_is_left_alone(packages, system):
    """As in a container, or on a host whose operator has created the user and its group."""
    for name in ("useradd", "groupadd"):
        system.program(name, "exit 9")
    (system.root / "etc/passwd").write_text("shunt:x:7:7::/:\n")
    (system.root / "etc/group").write_text("shunt:x:7:\n")
    (system.root / "usr/bin/systemctl").unlink()
    (system.root / "run/systemd/system").rmdir()
    assert system.rpm("--install", package(packages, "shunt")) == []
    assert system.rpm("--erase", "shunt") == []

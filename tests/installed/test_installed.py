"""The packages in a system that boots: installed, started by systemd, reloaded, upgraded, removed, purged.

SHUNT_PACKAGED names a directory with packages that are built already; without it packaging/build builds them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import cqlsh, jars
from harness.booted import Booted
from harness.waits import DEADLINE_SECONDS, until

ROOT = Path(__file__).parents[2]
PROXY, NODE = ("127.0.0.1", 9042), ("127.0.0.2", 9042)
UNITS = ["shunt.service", "shunt-dispatch.service", "shunt-agent.service", "shunt-multiget.service"]

# Connects and asks again and again until a file is there, and prints how often a connection was refused.
CLIENT = """
import socket, sys, pathlib
asked = refused = 0
while not pathlib.Path(sys.argv[1]).exists():
    try:
        with socket.create_connection(("127.0.0.1", 9042), 180) as client:
            client.sendall(bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]))
            asked += client.recv(9)[4:5] == b"\\x06"
    except ConnectionRefusedError:
        refused += 1
    except ConnectionResetError:
        pass  # the proxy that ended had accepted it
print(asked, refused)
"""


def build(out: Path, **more: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SHUNT_BINARY"}
    done = subprocess.run(["packaging/build", "deb"], cwd=ROOT, env=environment | {"SHUNT_PACKAGES": str(out)} | more,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """Packages of this version, and of one that replaces it."""
    out = Path(os.environ.get("SHUNT_PACKAGED", jars.TARGET / "packages")).absolute()
    if "SHUNT_PACKAGED" not in os.environ:
        build(out)
    newer = tmp_path_factory.mktemp("newer")
    build(newer, SHUNT_BINARY=str(out / "root/shunt/usr/bin/shunt"), SHUNT_NODE_BINARY=str(out / "root/shunt-node/usr/bin/shunt-node"),
          SHUNT_VERSION="99.0.0", DPKG_DEB_COMPRESSOR_LEVEL="0")
    both = tmp_path_factory.mktemp("packages")
    for package in [*out.glob("*.deb"), *newer.glob("*.deb")]:
        shutil.copy(package, both)
    return both


@pytest.fixture
def system(tmp_path):
    with Booted(tmp_path) as system:
        yield system


def install(system: Booted, packages: Path, pattern: str) -> None:
    found = sorted(packages.glob(pattern))
    assert len(found) == 2, found
    system.run("dpkg", "--install", *[system.put(package, f"/opt/{package.name}") for package in found])


def property_of(system: Booted, unit: str, name: str) -> str:
    return system.run("systemctl", "show", "--property", name, "--value", unit)[0].strip()


def is_active(system: Booted, unit: str) -> bool:
    return property_of(system, unit, "ActiveState") == "active"


def journal(system: Booted) -> list:
    return [json.loads(line) for line in system.run("journalctl", "--unit=shunt", "--output=json", "--no-pager")[0].splitlines()]


def ask(system: Booted, statement: str) -> str:
    """cqlsh of this machine, in the system's network."""
    host, port = PROXY
    within = ["nsenter", "--target", system.init, "--net"]
    done = subprocess.run([*within, sys.executable, cqlsh.CQLSH, host, str(port), "--no-color", "--connect-timeout", "60", "--request-timeout",
                           "180", "-e", statement], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr + "\n".join(str(entry.get("MESSAGE")) for entry in journal(system)[-30:])
    return done.stdout


def configure(system: Booted, *lines: str) -> None:
    """Adds lines to the file that the package has installed."""
    (system.root / "etc/shunt/shunt.toml").write_text((system.root / "usr/share/shunt.toml.installed").read_text() + "\n".join(lines) + "\n")


def test_the_life_of_an_installation(system, packages, tmp_path):
    install(system, packages, "*_0.*.deb")
    shutil.copy(system.root / "etc/shunt/shunt.toml", system.root / "usr/share/shunt.toml.installed")
    assert [unit for unit in UNITS if is_active(system, unit)] == [], "nothing starts unconfigured"
    assert system.run("stat", "-c", "%U:%G %a", "/etc/shunt/shunt.toml", "/etc/shunt/private")[0] == "root:shunt 640\nroot:root 750\n"

    # Without nodes the service fails once, and the journal says what is missing.
    system.run("systemctl", "start", "shunt", fails=True)
    assert property_of(system, "shunt", "NRestarts") == "0" and property_of(system, "shunt", "ExecMainStatus") == "2"
    assert any("contact_points" in entry["MESSAGE"] for entry in journal(system))

    (system.root / "etc/shunt/node.env").write_text('SHUNT_NODE_OPTIONS="--listen {}:{} --admin off"\n'.format(*NODE))
    system.run("systemctl", "start", "shunt-node")
    configure(system, 'contact_points = ["127.0.0.2"]')
    system.run("systemctl", "enable", "--now", "shunt.socket")
    system.run("systemctl", "enable", "--now", "shunt.service")
    pid = property_of(system, "shunt", "MainPID")
    assert system.run("stat", "-c", "%U", f"/proc/{pid}")[0] == "shunt\n"
    assert "shunt up" in system.run("shunt", "up", "--help")[0], "the build with the node runs it"
    ask(system, "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}; "
                "CREATE TABLE k.t (k int PRIMARY KEY, v text); INSERT INTO k.t (k, v) VALUES (1, 'kept')")
    started = next(entry for entry in journal(system) if entry.get("MESSAGE", "").startswith("shunt::proxy: started"))
    assert started["SHUNT_ADMIN"] == "127.0.0.1:9180" and started["PRIORITY"] == "6" and started["SYSLOG_IDENTIFIER"] == "shunt"
    assert "listening=[127.0.0.1:9042]" in started["MESSAGE"]

    # A reload of a broken file fails, says why, and changes nothing.
    configure(system, 'contact_points = ["127.0.0.2"]', "query_timeout_ms = 'soon'")
    system.run("systemctl", "reload", "shunt", fails=True)
    told = system.run("journalctl", "--unit=shunt", "--output=cat", "--no-pager")[0]
    assert "error: /etc/shunt/shunt.toml:" in told and "query_timeout_ms" in told
    configure(system, 'contact_points = ["127.0.0.2"]', "query_timeout_ms = '20s'")
    system.run("systemctl", "reload", "shunt")
    assert property_of(system, "shunt", "MainPID") == pid and "kept" in ask(system, "SELECT * FROM k.t")

    # A process that stands still is replaced. The watchdog of the unit would take 30 s.
    system.run("mkdir", "-p", "/run/systemd/system/shunt.service.d")
    system.run("sh", "-c", "printf '[Service]\\nWatchdogSec=2\\n' >/run/systemd/system/shunt.service.d/short.conf")
    system.run("systemctl", "daemon-reload")
    system.run("systemctl", "restart", "shunt")
    system.run("sh", "-c", "kill -STOP " + property_of(system, "shunt", "MainPID"))
    until(lambda: property_of(system, "shunt", "NRestarts") == "1" and is_active(system, "shunt"), "the watchdog has restarted it")
    assert "kept" in ask(system, "SELECT * FROM k.t")

    # An upgrade replaces the process, keeps the configuration, and refuses no client.
    pid, done = property_of(system, "shunt", "MainPID"), tmp_path / "done"
    client = subprocess.Popen(["nsenter", "--target", system.init, "--net", sys.executable, "-c", CLIENT, str(done)], stdout=subprocess.PIPE, text=True)
    install(system, packages, "*_99.0.0_*.deb")
    assert is_active(system, "shunt") and property_of(system, "shunt", "MainPID") not in (pid, "0")
    assert "kept" in ask(system, "SELECT * FROM k.t")
    done.touch()
    asked, refused = client.communicate(timeout=DEADLINE_SECONDS)[0].split()
    assert int(asked) > 0 and refused == "0"
    assert "'20s'" in system.run("cat", "/etc/shunt/shunt.toml")[0]

    system.run("dpkg", "--remove", "shunt-node", "shunt")
    assert not system.run("find", "/proc", "-maxdepth", "1", "-user", "shunt")[0] and (system.root / "etc/shunt/shunt.toml").exists()
    assert property_of(system, "shunt.socket", "ActiveState") == "inactive"
    system.run("dpkg", "--purge", "shunt-node", "shunt")
    left = system.run("find", "/etc", "/usr", "/run", "-name", "*shunt*", "-not", "-name", "shunt.toml.installed", "-not", "-path", "/run/systemd/*")[0]
    assert left.split() in ([], ["/etc/shunt"]), left
    assert (system.root / "var/lib/shunt-node").is_dir(), "data outlives the package"
    assert system.run("systemctl", "--failed", "--plain", "--no-legend")[0] == ""

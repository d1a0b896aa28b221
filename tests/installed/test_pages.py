"""The commands of docs/install.md and docs/services.md for an installed package, as somebody types them who has only the pages.

The ring is a stub of the package's own binary, so shunt-node need not be built. SHUNT_PACKAGED is as in test_installed.py.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import jars
from harness.booted import Booted
from harness.waits import until

ROOT = Path(__file__).parents[2]
RING = "127.0.0.2"
# RING and port 9042, as /proc/net/tcp has them.
LISTENS = "0200007F:2352"


def commands(page: str, heading: str) -> list:
    """The lines of all shell examples below a heading of a page."""
    text = (ROOT / "docs" / page).read_text()
    chapter = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    return [line for block in re.findall(r"^```sh\n(.*?)^```", chapter, re.MULTILINE | re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """The package of the proxy, built as docs/install.md says."""
    out = Path(os.environ.get("SHUNT_PACKAGED", jars.TARGET / "packages")).absolute()
    if "SHUNT_PACKAGED" not in os.environ:
        line = next(line for line in re.findall(r"`(.*?)`", (ROOT / "docs/install.md").read_text()) if line.endswith("packaging/build deb") and "=none" in line)
        done = subprocess.run(line, shell=True, cwd=ROOT, env=os.environ | {"SHUNT_PACKAGES": str(out)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found, = out.glob("shunt_*.deb")
    return found


def test_an_operator_follows_the_pages(package, tmp_path):
    install = commands("install.md", "Packages")
    install = install[next(index for index, line in enumerate(install) if line.startswith("apt-get install ")):]
    kinds = [line.split()[0] for line in install]
    assert kinds == ["apt-get", "editor", "shunt", "systemctl", "until"], "this test plays the operator: teach it the new commands"
    with Booted(tmp_path) as system:
        # There is no network, so apt must not look for what the package recommends.
        (system.root / "etc/apt/apt.conf.d/99-alone").write_text('APT::Install-Recommends "false";\n')
        folder = system.root / "root/target/packages"
        folder.mkdir(parents=True)
        shutil.copy(package, folder)

        def follow(line: str) -> str:
            if line.startswith("editor "):
                assert line.split()[1] == "/etc/shunt/shunt.toml"
                file = system.root / "etc/shunt/shunt.toml"
                text, changed = re.subn(r"^#? ?contact_points = .*$", f'contact_points = ["{RING}"]', file.read_text(), flags=re.MULTILINE)
                assert changed == 1
                file.write_text(text)
                system.run("systemd-run", "--unit=ring", "shunt", "bench", "stub", "--listen", f"{RING}:9042")
                until(lambda: LISTENS in system.run("cat", "/proc/net/tcp")[0], "the ring listens")
                return ""
            return system.run("sh", "-e", "-c", f"cd /root; {line}\n")[0]

        said = [follow(line) for line in install]
        assert RING in said[-1], f"`shunt nodes` lists the ring: {said[-1]}"
        pid = system.run("systemctl", "show", "--property=MainPID", "--value", "shunt")[0]
        for line in commands("services.md", "Restarts that refuse no client"):
            follow(line)
        assert system.run("systemctl", "is-active", "shunt.socket", "shunt.service")[0] == "active\nactive\n"
        assert system.run("systemctl", "show", "--property=MainPID", "--value", "shunt")[0] != pid
        until(lambda: system.run("shunt", "ready", fails=None)[1] == "", "the proxy is ready again")
        journal = [line for line in commands("services.md", "The journal") if "|" not in line]
        assert len(journal) == 2
        assert "SHUNT_TARGET=shunt::proxy" in follow(journal[1] + " -o verbose")
        follow(journal[0])
        system.run("apt-get", "remove", "--yes", "shunt")
        assert not system.run("find", "/usr/bin", "-name", "shunt")[0]

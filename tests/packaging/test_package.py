"""The Debian package and its units, without installing them. tests/installed boots a system with them."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from harness.ports import free_port
from harness.programs import only_with
from harness.proxy import binary
from harness.waits import DEADLINE_SECONDS

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))
EXPOSURE_MAX = 2.0


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """The binary of the tests, packaged."""
    out = tmp_path_factory.mktemp("packages")
    environment = os.environ | {"SHUNT_BINARY": str(binary().absolute()), "SHUNT_NODE_BINARY": "none", "SHUNT_PACKAGES": str(out),
                                "DPKG_DEB_COMPRESSOR_LEVEL": "0"}
    done = subprocess.run(["packaging/build", "deb"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def root(packages, tmp_path_factory) -> Path:
    """The directory with the files that the package would install."""
    root = tmp_path_factory.mktemp("root")
    package, = packages.glob("shunt_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    return root


def test_the_package_has_what_a_service_needs(packages, root):
    package, = packages.glob("shunt_*.deb")
    conffiles = subprocess.run(["dpkg-deb", "--info", package, "conffiles"], capture_output=True, text=True, check=True).stdout
    assert conffiles == "/etc/shunt/shunt.toml\n"
    for path in ["usr/bin/shunt", "etc/shunt/private", "usr/lib/sysusers.d/shunt.conf", "usr/lib/systemd/system/shunt.service",
                 "usr/lib/systemd/system/shunt.socket", "usr/share/man/man1/shunt-proxy.1.gz", "usr/share/doc/shunt/copyright",
                 "usr/lib/shunt/shunt-multiget.so", "usr/share/doc/shunt/redismodule-licence.txt",
                 "usr/share/bash-completion/completions/shunt"]:
        assert (root / path).exists(), path
    for path in root.rglob("*"):
        assert path.owner() == "root" and not path.stat(follow_symlinks=False).st_mode & 0o022, path
    assert (root / "etc/shunt/private").stat().st_mode & 0o777 == 0o750
    assert "no symbols" in subprocess.run(["nm", root / "usr/bin/shunt"], capture_output=True, text=True).stderr
    assert (packages / "shunt.debug").stat().st_size > 0


@only_with("redis", "redis-server")
def test_a_server_loads_the_module(root, tmp_path):
    port = free_port()
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path,
               "--loadmodule", root / "usr/lib/shunt/shunt-multiget.so", "port", free_port(socket.SOCK_DGRAM)]
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True) as server:
        try:
            lines = []
            for line in server.stdout:
                lines.append(line)
                if "Ready to accept connections" in line:
                    break
            assert any("listening for datagrams" in line for line in lines), "".join(lines)
        finally:
            server.terminate()


def test_every_unit_starts_a_file_of_a_package(root):
    for unit in UNITS:
        program = re.search("^ExecStart=(/usr/bin/[a-z-]+) ", unit.read_text(), re.M)[1]
        assert program == "/usr/bin/shunt-node" or (root / program[1:]).exists(), unit


@pytest.mark.parametrize("package", ["shunt", "shunt-node"])
@pytest.mark.parametrize("script, words", [("postinst", ["configure", "0.1.0"]), ("prerm", ["remove"]), ("postrm", ["remove"])])
def test_a_service_that_does_not_obey_leaves_no_package_half_installed(package, script, words, tmp_path):
    """The scripts run with a systemctl that can do nothing but read units again."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in [("systemctl", '[ "$1" = daemon-reload ]'), ("systemd-sysusers", "true")]:
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    text = (ROOT / "packaging/deb" / package / script).read_text().replace("/run/systemd/system", str(tmp_path))
    done = subprocess.run(["sh", "-c", text, script, *words], capture_output=True, text=True,
                          env={"PATH": f"{programs}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert (script == "postinst") == ("not started again" in done.stderr), done.stderr


@only_with("units", "systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_hardened(unit, root):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={int(EXPOSURE_MAX * 10)}", unit],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_each_service_can_make_a_unix_socket_and_none_removes_that_of_another(unit):
    assert {"RuntimeDirectory=shunt", "RuntimeDirectoryPreserve=yes", "User=shunt"} <= set(unit.read_text().splitlines())


@only_with("units", "man")
def test_man_pages_are_readable(root):
    page = subprocess.run(["man", "--warnings", "-l", root / "usr/share/man/man1/shunt-proxy.1.gz"], capture_output=True, text=True,
                          env=os.environ | {"MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
    assert page.returncode == 0 and not page.stderr, page.stderr
    text = re.sub(".\b", "", page.stdout)
    assert "--contact-points" in text and re.search("\n +shunt proxy --config shunt.toml --log debug\n", text), text[-3000:]


def test_bash_completes_commands_and_options(root):
    script = root / "usr/share/bash-completion/completions/shunt"
    ask = (f"source {script}; COMP_WORDS=(shunt proxy --contact-p); COMP_CWORD=2; _shunt shunt --contact-p proxy; "
           "echo ${COMPREPLY[*]}")
    assert subprocess.run(["bash", "-c", ask], capture_output=True, text=True).stdout == "--contact-points\n"


def test_the_installed_configuration_lacks_only_the_nodes(root):
    program, file = root / "usr/bin/shunt", root / "etc/shunt/shunt.toml"
    done = subprocess.run([program, "check", "--config", file], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("error: ") == 1 and "contact_points" in done.stderr, done.stderr
    file.write_text(re.sub("^#contact_points", "contact_points", file.read_text(), flags=re.M))
    done = subprocess.run([program, "check", "--config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Service:
    """A process that a service manager has started: the test plays systemd."""

    def __init__(self, root: Path, at: Path, name: str, listener: socket.socket, watchdog_us: int = 0):
        self.heard, self.log = "", at / f"{name}.log"
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(at / f"{name}.sock"))
        self.manager.settimeout(DEADLINE_SECONDS)
        environment = os.environ | {"NOTIFY_SOCKET": str(at / f"{name}.sock"), "LISTEN_FDS": "1"}
        if watchdog_us:
            environment["WATCHDOG_USEC"] = str(watchdog_us)
        command = [str(root / "usr/bin/shunt"), "proxy", "--contact-points", "127.0.0.1:1", "--admin", "off", "--cores", "1",
                   "--listen", f"127.0.0.1:{listener.getsockname()[1]}"]
        # The shell puts the socket where systemd puts it, and its own number, which exec keeps, into LISTEN_PID.
        shell = f'export LISTEN_PID=$$; exec "$@" 3<&{listener.fileno()}'
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["bash", "-c", shell, "bash", *command], env=environment, pass_fds=[listener.fileno()],
                                            stdout=log, stderr=log)

    def hears(self, message: str) -> None:
        while message not in self.heard:
            assert self.process.poll() is None, self.log.read_text()
            self.heard += self.manager.recv(4096).decode() + "\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self.manager.close()


@pytest.fixture
def listener():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))
        listener.listen()
        yield listener


def is_answered(client: socket.socket) -> bool:
    """Sends OPTIONS of protocol version 4, and waits for an answer of that version: without nodes it is an error."""
    client.settimeout(DEADLINE_SECONDS)
    client.sendall(bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]))
    return client.recv(9)[:1] == b"\x84"


def test_systemd_learns_when_the_proxy_starts_lives_reloads_and_ends(root, tmp_path, listener):
    with Service(root, tmp_path, "one", listener, watchdog_us=2_000_000) as service:
        service.hears("READY=1")
        service.hears("WATCHDOG=1")
        service.process.send_signal(1)
        service.hears("RELOADING=1")
        assert re.search("RELOADING=1\nMONOTONIC_USEC=[0-9]+", service.heard), service.heard
        service.process.terminate()
        service.hears("STOPPING=1")
        assert service.process.wait(DEADLINE_SECONDS) == 0


def test_a_client_that_connects_between_two_processes_waits_for_the_second(root, tmp_path, listener):
    with Service(root, tmp_path, "one", listener) as first:
        first.hears("READY=1")
        with socket.create_connection(listener.getsockname()) as client:
            assert is_answered(client)
        first.process.terminate()
        assert first.process.wait(DEADLINE_SECONDS) == 0
    with socket.create_connection(listener.getsockname()) as between, Service(root, tmp_path, "two", listener) as second:
        assert is_answered(between)
        second.hears("READY=1")


def test_a_socket_without_an_option_is_refused_by_its_address(root, tmp_path, listener):
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        name = "{}:{}".format(*other.getsockname())
        shell = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&{other.fileno()}'
        done = subprocess.run(["bash", "-c", shell, "bash", root / "usr/bin/shunt", "proxy", "--contact-points", "127.0.0.1:1", "--admin", "off",
                               "--listen", f"127.0.0.1:{port}"], pass_fds=[other.fileno()], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 2 and name in done.stderr and "ListenStream=" in done.stderr, done.stderr

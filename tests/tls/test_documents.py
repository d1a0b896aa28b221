"""docs/tls.md leads from nothing to mutual TLS: its commands and files are used as a reader does, with other addresses and paths.

A reader may not do what the pages do not say. So each block is used once, in its order, by its section.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import jars
from harness.addresses import first_of
from harness.certificates import client_context, place
from harness.cql import ANSWER_SECONDS
from harness.ports import free_port
from harness.programs import only_with
from harness.proxy import UNDISTURBED_PROXY, binary
from harness.waits import until

PAGE = jars.ROOT / "docs" / "tls.md"
# The port that the page names.
PORT = 9042
QUERY = "SELECT cluster_name FROM system.local;\n"


@dataclass
class Block:
    kind: str
    text: str

    @property
    def commands(self) -> list:
        """The commands that a reader types, each with its output."""
        found = []
        for command in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = command.splitlines(keepends=True)
            end = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\\n"))
            found.append(("".join(lines[:end]), "".join(lines[end:])))
        return found


def blocks(section: str) -> list:
    """The fenced blocks of a section, in their order."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(kind, re.sub(f"^{indent}", "", body, flags=re.MULTILINE)) for indent, kind, body in found]


class Reader:
    """A host with a directory in place of /etc, an address in place of the example's, and a proxy."""

    def __init__(self, directory: Path, address: str, node, secured):
        self.directory, self.address, self.node, self.secured = directory, address, node, secured
        self.configuration, self.proxy = {}, None
        (directory / "bin").mkdir()
        (directory / "bin" / "shunt").symlink_to(binary().resolve())
        (directory / "shunt").mkdir()
        (directory / "ssl").mkdir()

    def adapted(self, text: str) -> str:
        for example, own in (("shunt.example", self.address), ("10.0.9.1", self.address), ("/etc/", f"{self.directory}/")):
            text = text.replace(example, own)
        return text

    def run(self, command: str, typed: str = "") -> subprocess.CompletedProcess:
        path = f"{self.directory / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"
        return subprocess.run(["bash", "-ec", self.adapted(command)], input=typed, capture_output=True, text=True, cwd=self.directory,
                              timeout=ANSWER_SECONDS, check=False, env={"HOME": str(self.directory), "PATH": path})

    def obey(self, block: Block, typed: str = "") -> str:
        """Carries out the commands of a block, which must succeed and print what the page shows. Returns all that they print."""
        said = ""
        assert block.kind == "console" and block.commands, block
        for command, shown in block.commands:
            done = self.run(command, typed)
            assert done.returncode == 0 and shown in done.stdout, f"{command}{done.stdout}{done.stderr}\n{self.log_tail()}"
            said += done.stdout
        return said

    def configure(self, block: Block) -> None:
        """Adds options to the configuration. Later ones replace those of the same name."""
        assert block.kind == "toml", block
        self.configuration |= dict(line.split(" = ", 1) for line in self.adapted(block.text).splitlines())
        given = {"listen": f'["{self.address}:{PORT}"]', "contact_points": f'["{self.node.contact}"]', **self.configuration}
        text = "".join(f"{key} = {value}\n" for key, value in given.items())
        place(text.encode(), self.directory / "shunt.toml")

    def install(self, *names: str) -> None:
        """Copies files to where the configuration names them."""
        for name in names:
            place((self.directory / name).read_bytes(), self.directory / "shunt" / name)

    def start(self, pair=None) -> None:
        self.proxy = self.secured(self.node.contact, f"{self.address}:{PORT}", f"127.0.0.1:{free_port()}",
                                  ["--config", str(self.directory / "shunt.toml"), "--cores", "1", *UNDISTURBED_PROXY],
                                  self.directory / "proxy.log", tls=client_context(self.directory / "ca.crt", pair))
        self.proxy.start()

    def log_tail(self) -> str:
        return self.proxy.log_tail() if self.proxy else ""

    def stop(self) -> None:
        if self.proxy:
            self.proxy.stop()


@pytest.fixture
def reader(node, secured, tmp_path):
    reader = Reader(tmp_path, f"127.0.0.{first_of('documents')}", node, secured)
    yield reader
    reader.stop()


def test_from_nothing_to_mutual_tls(reader):
    make, configure, check, settings, connect, driver = blocks("From nothing to TLS")
    reader.obey(make)
    reader.install("tls.crt", "tls.key")
    reader.configure(configure)
    reader.obey(check)
    reader.start()
    shutil.copy(reader.directory / "ca.crt", reader.directory / "ssl" / "our-ca.crt")
    cqlshrc = reader.directory / ".cassandra" / "cqlshrc"
    cqlshrc.parent.mkdir()
    assert settings.kind == "ini"
    cqlshrc.write_text(reader.adapted(settings.text))
    assert "cluster_name" in reader.obey(connect, QUERY)
    program = reader.adapted(driver.text) + "print(session.execute('SELECT cluster_name FROM system.local').one())\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    assert driver.kind == "python" and "cluster_name" in done.stdout, done

    make, configure = blocks("Mutual TLS")
    reader.obey(make)
    shutil.copy(reader.directory / "ca.crt", reader.directory / "clients-ca.crt")
    reader.install("clients-ca.crt")
    reader.configure(configure)
    assert reader.run("shunt check --config shunt.toml").returncode == 0
    assert reader.run(f"shunt reload --admin {reader.proxy.admin}").returncode == 0, reader.log_tail()
    ((command, _),) = connect.commands
    refused = reader.run(command, QUERY)
    assert refused.returncode != 0 and "cluster_name" not in refused.stdout, refused
    reader.proxy.wait_until_it_says("a TLS handshake with a client failed", "the peer gave no certificate")
    assert "`usercert` and `userkey`" in PAGE.read_text()
    cqlshrc.write_text(f"{cqlshrc.read_text()}usercert = {reader.directory}/shop.crt\nuserkey = {reader.directory}/shop.key\n")
    assert "cluster_name" in reader.obey(connect, QUERY)

    make, configure = blocks("Resume sessions at every proxy")
    reader.obey(make)
    reader.install("ticket-keys")
    reader.configure(configure)
    assert reader.run("shunt check --config shunt.toml").stdout == "shunt.toml: valid\n"


def test_files_of_cert_manager(reader, authority, application):
    """A secret is mounted as links to a directory that Kubernetes replaces as a whole."""
    mount = reader.directory / "shunt" / "tls"

    def issue(number: int) -> bytes:
        pair, content = authority.server(f"issue-{number}", [f"IP:{reader.address}"]), mount / f"..{number}"
        content.mkdir(parents=True)
        for source, name in ((pair.certificate, "tls.crt"), (pair.key, "tls.key"), (authority.ca, "ca.crt")):
            shutil.copy(source, content / name)
        (mount / "..new").symlink_to(content.name)
        os.replace(mount / "..new", mount / "..data")
        return pair.der

    def shown() -> bytes:
        import socket

        with socket.create_connection((reader.address, PORT), ANSWER_SECONDS) as plain:
            with client_context(authority.ca, application).wrap_socket(plain, server_hostname=reader.address) as client:
                return client.getpeercert(True)

    first = issue(1)
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (mount / name).symlink_to(f"..data/{name}")
    (configure,) = blocks("Certificates from cert-manager")
    reader.configure(configure)
    shutil.copy(authority.ca, reader.directory / "ca.crt")
    reader.start(application)
    assert shown() == first
    second = issue(2)
    reader.proxy.reload()
    until(lambda: shown() == second, "the proxy shows the new certificate", told=reader.log_tail)


@only_with("java", "keytool")
def test_from_a_java_key_store(reader, authority):
    (convert,) = blocks("From a Java key store")
    password = "secret"
    pair = authority.server("stored", [f"IP:{reader.address}"])
    stores = {"keystore": pair.store(reader.directory / "own.p12", password),
              "truststore": authority.truststore(reader.directory / "trusted.p12", password)}
    for name, source in stores.items():
        done = reader.run(f"keytool -importkeystore -srckeystore {source} -srcstoretype PKCS12 -srcstorepass {password} "
                          f"-destkeystore {name}.jks -deststoretype JKS -deststorepass {password}")
        assert done.returncode == 0, done
    # Each command asks for passwords, as often as it needs one.
    reader.obey(convert, f"{password}\n" * 3)
    reader.install("tls.crt", "tls.key", "clients-ca.crt")
    reader.configure(blocks("From nothing to TLS")[1])
    reader.configure(blocks("Mutual TLS")[1])
    done = reader.run("shunt check --config shunt.toml")
    assert done.returncode == 0, done

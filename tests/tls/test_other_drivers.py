"""The Go, Java, Rust and Node.js drivers, unmodified, with mutual TLS. Their programs are in tests/drivers."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.certificates import client_context
from harness.cql import Session

DRIVERS = Path(__file__).resolve().parents[1] / "drivers"
PASSWORD = "secret"


def needs(tool: str, name: str) -> None:
    if shutil.which(tool) is not None:
        return
    if os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(f"{tool} is missing: scripts/prerequisites {name}")
    pytest.skip(f"{tool} is missing: scripts/prerequisites {name}")


@pytest.fixture(scope="module")
def mutual(start, authority, application, clients_ca):
    return start("required", *clients_ca, client=client_context(authority.ca, application))


def run(driver: str, proxy, sign: str, **environment) -> None:
    """Runs a driver's program. `sign` is what it prints when its tests were not skipped."""
    names = {f"SHUNT_SECURED{name}": str(value) for name, value in environment.items()}
    done = subprocess.run([DRIVERS / driver / "run"], env={**os.environ, "SHUNT_SECURED": f"{proxy.host}:{proxy.port}", **names},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)
    assert done.returncode == 0 and sign in done.stdout, f"{done.stdout[-6000:]}\n{proxy.log_tail()}"


def test_go_drivers(mutual, authority, application):
    needs("go", "go")
    run("go", mutual, "--- PASS: TestMutualTls/v5", _CA=authority.ca, _CERTIFICATE=application.certificate, _KEY=application.key)


@pytest.fixture(scope="module")
def datacentre(node):
    host, port = node.contact.rsplit(":", 1)
    with Session(host, int(port)) as session:
        (row,) = session.query("SELECT data_center FROM system.local")
    return row["data_center"]


def test_java_driver(mutual, datacentre, authority, application, tmp_path):
    needs("mvn", "java")
    trusted = tmp_path / "trusted.p12"
    subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "authority", "-file", authority.ca, "-keystore", trusted,
                    "-storetype", "PKCS12", "-storepass", PASSWORD], check=True, capture_output=True)
    run("java", mutual, "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", _KEYS=application.store(tmp_path / "keys.p12", PASSWORD),
        _TRUSTED=trusted, _DATACENTRE=datacentre)


def test_rust_driver(mutual, authority, application):
    needs("cargo", "rust")
    run("rust", mutual, "test mutual_tls ... ok", _CA=authority.ca, _CERTIFICATE=application.certificate, _KEY=application.key)


def test_node_driver(mutual, datacentre, authority, application):
    needs("npm", "node")
    run("node", mutual, "pass 2", _CA=authority.ca, _CERTIFICATE=application.certificate, _KEY=application.key,
        _DATACENTRE=datacentre)

"""Programs of drivers with mutual TLS: `secured` of the suites in `tests/drivers`."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from cassandra.cluster import Cluster
from cassandra.query import SimpleStatement

from . import cqlsh
from .certificates import Authority, Pair, client_context
from .driver import UNDISTURBED
from .proxy import Proxy

DRIVERS = Path(__file__).resolve().parents[1] / "drivers"
PASSWORD = "secret"
MIB = 1 << 20
KEYSPACE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"


def needs(tool: str, name: str) -> None:
    if shutil.which(tool) is not None:
        return
    if os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(f"{tool} is missing: scripts/prerequisites {name}")
    pytest.skip(f"{tool} is missing: scripts/prerequisites {name}")


@dataclass
class SecuredDrivers:
    """Unmodified drivers that verify this proxy by the authority, and show it this pair."""

    proxy: Proxy
    authority: Authority
    pair: Pair
    datacentre: str

    def python(self, version: int) -> None:
        cluster = Cluster([self.proxy.host], port=self.proxy.port, ssl_context=client_context(self.authority.ca, self.pair),
                          protocol_version=version, **UNDISTURBED)
        try:
            session, keyspace = cluster.connect(), f"secured_python_{version}"
            session.execute(KEYSPACE.format(keyspace))
            session.set_keyspace(keyspace)
            session.execute("CREATE TABLE items (k int PRIMARY KEY, v blob)")
            insert, select = session.prepare("INSERT INTO items (k, v) VALUES (?, ?)"), session.prepare("SELECT v FROM items WHERE k = ?")
            written = {0: b"", 1: b"small", 2: bytes(range(256)) * (MIB // 256)}
            for key, value in written.items():
                session.execute(insert, (key, value))
            assert {key: session.execute(select, (key,)).one().v for key in written} == written
            pages = session.execute(SimpleStatement("SELECT k FROM items", fetch_size=2))
            assert pages.has_more_pages and sorted(row.k for row in pages) == [0, 1, 2]
        finally:
            cluster.shutdown()

    def cqlsh(self, directory: Path) -> None:
        settings = (f"[ssl]\ncertfile = {self.authority.ca}\nvalidate = true\nuserkey = {self.pair.key}\n"
                    f"usercert = {self.pair.certificate}\n")
        script = (f"{KEYSPACE.format('secured_cqlsh')};"
                  "CREATE TABLE secured_cqlsh.items (k int PRIMARY KEY, v text);"
                  "INSERT INTO secured_cqlsh.items (k, v) VALUES (1, 'written');"
                  "PAGING 2;"
                  "SELECT v FROM secured_cqlsh.items;")
        said = cqlsh.run(script, self.proxy.host, self.proxy.port, directory, ["--ssl"], more_settings=settings)
        assert "written" in said and "(1 rows)" in said, said

    def go(self) -> None:
        needs("go", "go")
        self._run("go", "--- PASS: TestMutualTls/v5", **self._files)

    def java(self, directory: Path) -> None:
        """Makes the stores of the Java driver in this directory."""
        needs("mvn", "java")
        keys, trusted = self.pair.store(directory / "keys.p12", PASSWORD), self.authority.truststore(directory / "trusted.p12", PASSWORD)
        self._run("java", "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", _KEYS=keys, _TRUSTED=trusted, _DATACENTRE=self.datacentre)

    def rust(self) -> None:
        needs("cargo", "rust")
        self._run("rust", "test mutual_tls ... ok", **self._files)

    def node(self) -> None:
        needs("npm", "node")
        self._run("node", "pass 2", **self._files, _DATACENTRE=self.datacentre)

    @property
    def _files(self) -> dict:
        return {"_CA": self.authority.ca, "_CERTIFICATE": self.pair.certificate, "_KEY": self.pair.key}

    def _run(self, driver: str, sign: str, **environment) -> None:
        """Runs a driver's program. `sign` is what it prints when its tests were not skipped."""
        names = {f"SHUNT_SECURED{name}": str(value) for name, value in environment.items()}
        address = f"{self.proxy.host}:{self.proxy.port}"
        done = subprocess.run([DRIVERS / driver / "run"], env={**os.environ, "SHUNT_SECURED": address, **names},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False)
        assert done.returncode == 0 and sign in done.stdout, f"{done.stdout[-6000:]}\n{self.proxy.log_tail()}"

"""Programs of drivers with mutual TLS: `secured` of the suites in `tests/drivers`."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from .certificates import Authority, Pair
from .proxy import Proxy

DRIVERS = Path(__file__).resolve().parents[1] / "drivers"
PASSWORD = "secret"


def needs(tool: str, name: str) -> None:
    if shutil.which(tool) is not None:
        return
    if os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(f"{tool} is missing: scripts/prerequisites {name}")
    pytest.skip(f"{tool} is missing: scripts/prerequisites {name}")


@dataclass
class SecuredDrivers:
    """Drivers that verify this proxy by the authority, and show it this pair."""

    proxy: Proxy
    authority: Authority
    pair: Pair
    datacentre: str

    def go(self) -> None:
        needs("go", "go")
        self._run("go", "--- PASS: TestMutualTls/v5", **self._files)

    def java(self, directory: Path) -> None:
        """Its stores are made in this directory."""
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

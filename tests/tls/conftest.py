"""Proxies with TLS before one embedded node, and the certificates of both sides."""

import json
import re
import signal
from pathlib import Path

import pytest

from harness.certificates import Authority, client_context
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import Proxy, undisturbed
from harness.waits import until


class Secured(Proxy):
    """A proxy with `tls`, whose certificate is in a directory of its own."""

    @property
    def address(self) -> tuple:
        return self.host, self.port

    def metric(self, name: str, **labels: str) -> float:
        """A sum over all label sets that have these labels."""
        page, wanted = self.get("/metrics")[1], {f'{key}="{value}"' for key, value in labels.items()}
        samples = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
        return sum(float(value) for own, value in samples if wanted <= set(own.split(",")))

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def says(self, *words: str) -> bool:
        """Whether a line of the log has all these words."""
        return any(all(word in line for word in words) for line in self.log.read_text(errors="replace").splitlines())

    def wait_until_it_says(self, *words: str) -> None:
        until(lambda: self.says(*words), f"the log has a line with {words}", told=self.log_tail)

    def client_groups(self) -> list:
        """The groups with clients, as /status shows them."""
        parts = json.loads(self.get("/status")[1])
        return [group for group in parts["client_groups"]["groups"] if group["clients"]]


@pytest.fixture(scope="session")
def secured() -> type:
    """The class of proxies, for fixtures elsewhere."""
    return Secured


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    contact = f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("tls", contact, ["node", "--listen", contact, "--admin", "off"], [contact], log) as node:
        yield node


@pytest.fixture(scope="session")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory) -> Authority:
    """An authority that neither side trusts."""
    return Authority(tmp_path_factory.mktemp("certificates"), "stranger")


@pytest.fixture(scope="session")
def application(authority):
    """A client's certificate."""
    return authority.client()


@pytest.fixture(scope="session")
def clients_ca(authority) -> list:
    """Options of a proxy that verifies clients."""
    return ["--tls-client-ca", str(authority.ca), "--tls-client-auth", "required"]


@pytest.fixture(scope="module")
def start(node, authority, tmp_path_factory):
    """Starts proxies, which end with the module. `tls` is the option, `pair` what the proxy shows, `client` how the harness
    asks whether it is ready."""
    proxies = []

    def begin(tls: str = "required", *options: str, pair=None, client=None, listen: str = None) -> Secured:
        directory = tmp_path_factory.mktemp("proxy")
        listen, admin = listen or f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        pair = (pair or authority.server()).install(directory)
        files = ["--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key)]
        client = None if tls != "required" else client or client_context(authority.ca)
        proxy = Secured(node.contact, listen, admin, ["--tls", tls, *files, "--cores", "2", *undisturbed(*options)],
                        directory / "proxy.log", tls=client)
        proxy.directory = Path(directory)
        proxies.append(proxy)
        return proxy.start()

    yield begin
    for proxy in proxies:
        proxy.stop()

"""curl with TLS against a dispatcher: the same bytes as in clear text, and no connection leaves."""

import random
import re
import socket
import subprocess
import urllib.request

import pytest

from harness.certificates import Authority
from harness.ports import free_port
from harness.relay import Relay, expect, steady, why_not
from harness.waits import DEADLINE_SECONDS

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")

SIZES = [0, 1, 16_384, 65_537, 1_000_000, 16 << 20]


class Secured(Relay):
    """A dispatcher whose clients may have TLS, or must."""

    def __init__(self, directory, tls: str, **how):
        self.authority, self.admin_port, self.is_required = Authority(directory / "certificates"), free_port(), tls == "required"
        pair = self.authority.server()
        options = ["--tls", tls, "--tls-certificate", pair.certificate, "--tls-key", pair.key, "--admin", f"127.0.0.1:{self.admin_port}"]
        super().__init__(directory, dispatch_options=[*options, *how.pop("dispatch_options", [])], **how)

    def wait_until_it_answers(self):
        if not self.is_required:
            super().wait_until_it_answers()

    def curl(self, path: str, *options: str, scheme: str = "https") -> subprocess.CompletedProcess:
        command = ["curl", "-s", "-S", "--max-time", str(DEADLINE_SECONDS), "--cacert", str(self.authority.ca), *options]
        return subprocess.run([*command, f"{scheme}://127.0.0.1:{self.port}{path}"], capture_output=True, check=False)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=DEADLINE_SECONDS) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE))


@pytest.fixture(scope="module", params=("relayed", "handed over"))
def relay(tmp_path_factory, request):
    with Secured(tmp_path_factory.mktemp("tls"), "optional", shares_socket=request.param == "handed over") as relay:
        generator = random.Random(7)
        for size in SIZES:
            (relay.files / str(size)).write_bytes(generator.randbytes(size))
        yield relay


@pytest.mark.parametrize("size", SIZES)
@steady
def test_files_are_the_same(relay, size):
    encrypted = relay.metric('shunt_dispatch_relayed_total{reason="encrypted"}')
    done = relay.curl(f"/{size}")
    expect(done.returncode == 0, done.stderr)
    assert done.stdout == (relay.files / str(size)).read_bytes()
    offers = relay.metric("shunt_dispatch_offers_total")
    if size == SIZES[-1] and relay.metric("shunt_dispatch_hands_over"):
        assert offers > 0 and relay.metric('shunt_dispatch_relayed_total{reason="encrypted"}') > encrypted


@steady
def test_an_upload_arrives_and_a_connection_is_kept(relay, tmp_path):
    content = random.Random(3).randbytes(10_000_000)
    (tmp_path / "upload").write_bytes(content)
    done = relay.curl("/put/secured", "-T", str(tmp_path / "upload"))
    expect(done.returncode == 0, done.stderr)
    assert (relay.files / "put" / "secured").read_bytes() == content
    twice = relay.curl("/1000000", f"https://127.0.0.1:{relay.port}/65537", "-w", "%{num_connects} ", "-o", "/dev/null", "-o", "/dev/null")
    expect(twice.returncode == 0, twice.stderr)
    assert sorted(twice.stdout.split()) == [b"0", b"1"]


@steady
def test_clear_text_is_served_on_the_same_port(relay):
    done = relay.curl("/65537", scheme="http")
    expect(done.returncode == 0, done.stderr)
    assert done.stdout == (relay.files / "65537").read_bytes()


def test_clear_text_is_refused_where_tls_is_required(tmp_path):
    with Secured(tmp_path, "required") as relay:
        done = relay.curl("/1", "-w", "%{http_code}", scheme="http")
        assert done.returncode == 0 and b"requires TLS" in done.stdout and done.stdout.endswith(b"400"), done
        assert relay.metric('shunt_tls_handshakes_total{result="clear_text"}') >= 1
        with socket.create_connection(("127.0.0.1", relay.port), DEADLINE_SECONDS) as client:
            client.settimeout(DEADLINE_SECONDS)
            client.sendall(b"\x16\x03\x01\x00\x02no")
            assert client.recv(100)[:1] in (b"\x15", b"")


def test_only_clients_with_a_certificate_are_served(tmp_path):
    stranger = Authority(tmp_path / "stranger", "stranger").client()
    ca = tmp_path / "certificates" / "authority" / "ca.crt"
    options = ["--tls-client-ca", ca, "--tls-client-auth", "required"]
    with Secured(tmp_path, "required", dispatch_options=options) as relay:
        (relay.files / "small").write_bytes(b"content")
        own = relay.authority.client()
        pair = lambda pair: ["--cert", str(pair.certificate), "--key", str(pair.key)]
        relay._await(lambda: relay.curl("/small", *pair(own)).stdout == b"content", "the dispatcher answers")
        assert relay.curl("/small").returncode != 0 and relay.curl("/small", *pair(stranger)).returncode != 0

"""The admin pages with TLS and a token, asked by curl: of a proxy, a dispatcher and embedded nodes."""

import json
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, binary
from harness.waits import until

TOKEN, NEXT_TOKEN = "a-token-of-a-test-0123456789", "the-next-token-of-a-test-01234"
REFUSALS, HANDSHAKES = "shunt_admin_refusals_total", "shunt_http_tls_handshakes_total"


class Pages:
    """The admin pages of a process, as curl gets them."""

    def __init__(self, authority, port: int, pair=None, token: str = None):
        self.authority, self.port, self.pair, self.token = authority, port, pair, token

    def curl(self, path: str, *options, pair="own", token="own", scheme: str = "https") -> tuple:
        """(curl's exit code, status, text)."""
        pair, token = self.pair if pair == "own" else pair, self.token if token == "own" else token
        command = ["curl", "-s", "--max-time", str(ANSWER_SECONDS), "-w", "\n%{http_code}", "--cacert", str(self.authority.ca)]
        command += ["--cert", str(pair.certificate), "--key", str(pair.key)] if pair else []
        command += ["-H", f"Authorization: Bearer {token}"] if token else []
        done = subprocess.run([*command, *options, f"{scheme}://127.0.0.1:{self.port}{path}"], capture_output=True, text=True, check=False)
        text, _, status = done.stdout.rpartition("\n")
        return done.returncode, int(status), text

    def metric(self, name: str, *labels: str) -> float:
        lines = self.curl("/metrics")[2].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{") and all(label in line for label in labels))


def guard(directory, authority) -> list:
    """Options of pages with a certificate and a token."""
    pair = authority.server().install(directory)
    token = directory / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    return ["--admin-tls-certificate", str(pair.certificate), "--admin-tls-key", str(pair.key), "--admin-token-file", str(token)]


@pytest.fixture(scope="module")
def proxy(node, secured, authority, tmp_path_factory):
    class Guarded(secured):
        """A proxy whose pages have TLS and a token."""

        def get(self, path: str) -> tuple:
            request = urllib.request.Request(f"https://{self.admin}{path}", headers={"Authorization": f"Bearer {self.pages.token}"})
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=client_context(authority.ca, self.pages.pair)) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except OSError:
                return 0, ""

    started = []

    def begin(*options, pair=None):
        directory = tmp_path_factory.mktemp("pages")
        port = free_port()
        proxy = Guarded(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}",
                        [*guard(directory, authority), "--cores", "1", *UNDISTURBED_PROXY, *options], directory / "proxy.log")
        proxy.directory, proxy.pages = directory, Pages(authority, port, pair, TOKEN)
        started.append(proxy)
        return proxy.start()

    yield begin
    for proxy in started:
        proxy.stop()


@pytest.fixture(scope="module")
def guarded(proxy):
    return proxy()


def test_a_token_opens_metrics_and_status(guarded):
    pages = guarded.pages
    assert pages.curl("/status")[:2] == (0, 200)
    assert "shunt_build" in pages.curl("/metrics")[2]
    for path in ("/healthz", "/readyz"):
        assert pages.curl(path, token=None)[:2] == (0, 200)
    assert f"metrics and status on https://{guarded.admin}/status" in guarded.log.read_text()
    assert pages.metric("shunt_certificate_expires_seconds", 'use="admin"') > 0
    shown = {row["option"]: row for row in json.loads(pages.curl("/status")[2])["certificates"] if row["use"] == "admin"}
    row = shown["admin_tls_certificate"]
    assert row["path"].startswith(str(guarded.directory)) and row["san"] and all(":" in name for name in row["san"]), row
    assert int(row["serial"], 16) > 0 and row["subject"] and row["in_use_by"] == "the admin pages and tables", row
    assert 0 < row["loaded_unix_ms"] < row["not_after_unix_ms"], row


def test_a_wrong_token_is_counted_and_answered_with_words(guarded):
    pages = guarded.pages
    before = [pages.metric(REFUSALS, reason) for reason in ("no_token", "wrong_token")]
    code, status, text = pages.curl("/metrics", token=None)
    assert (code, status) == (0, 401) and "Authorization: Bearer TOKEN" in json.loads(text)["error"]
    code, status, text = pages.curl("/status", token=TOKEN + "x")
    assert (code, status) == (0, 401) and "no token of admin_token_file" in json.loads(text)["error"]
    assert [pages.metric(REFUSALS, reason) for reason in ("no_token", "wrong_token")] == [before[0] + 1, before[1] + 1]


def test_clear_text_is_counted_and_answered_with_words(guarded):
    pages = guarded.pages
    before = pages.metric(HANDSHAKES, 'use="admin"', 'result="clear_text"')
    code, status, text = pages.curl("/status", scheme="http")
    assert (code, status) == (0, 400) and "requires TLS" in json.loads(text)["error"]
    assert pages.metric(HANDSHAKES, 'use="admin"', 'result="clear_text"') == before + 1
    with socket.create_connection(("127.0.0.1", pages.port), ANSWER_SECONDS) as client:
        client.settimeout(ANSWER_SECONDS)
        client.sendall(b"\x16\x03\x01\x00\x02no")
        assert client.recv(100)[:1] in (b"\x15", b"")
    assert pages.curl("/readyz")[:2] == (0, 200)


def test_a_port_in_clear_text_survives_tls(start):
    proxy = start("optional")
    with socket.create_connection(("127.0.0.1", int(proxy.admin.rsplit(":", 1)[1])), ANSWER_SECONDS) as client:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            client_context().wrap_socket(client)
    assert proxy.get("/readyz")[0] == 200


def test_tokens_change_without_a_restart(guarded, authority, tmp_path):
    file, pages = guarded.directory / "token", guarded.pages
    file.write_text(f"{TOKEN}\n{NEXT_TOKEN}\n")
    guarded.reload()
    until(lambda: pages.curl("/status", token=NEXT_TOKEN)[1] == 200, "the next token is accepted", told=guarded.log_tail)
    assert pages.curl("/status")[1] == 200
    file.write_text("short\n")
    guarded.reload()
    guarded.wait_until_it_says("the tokens stay as they are", "line 1: a token needs 16 characters")
    own = tmp_path / "token"
    own.write_text(TOKEN + "\n")
    command = [binary(), "reload", "--admin", guarded.admin, "--tls-ca", authority.ca, "--token-file", own]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    assert done.returncode == 1 and "a token needs 16 characters" in done.stderr, done
    assert pages.curl("/status")[1] == 200
    file.write_text(f"{NEXT_TOKEN}\n")
    guarded.reload()
    until(lambda: pages.curl("/status")[1] == 401, "the former token is gone", told=guarded.log_tail)
    pages.token = NEXT_TOKEN


def test_a_new_certificate_comes_into_use_without_a_restart(guarded, authority):
    def shown() -> bytes:
        with socket.create_connection(("127.0.0.1", guarded.pages.port), ANSWER_SECONDS) as client:
            return client_context().wrap_socket(client).getpeercert(True)

    renewed = authority.server("renewed")
    renewed.install(guarded.directory)
    guarded.reload()
    until(lambda: shown() == renewed.der, "the new certificate is in use", told=guarded.log_tail)


def test_pages_serve_only_clients_with_a_certificate(proxy, authority, application, stranger):
    guarded = proxy("--admin-tls-client-ca", str(authority.ca), pair=application)
    pages = guarded.pages
    assert pages.curl("/status")[:2] == (0, 200)
    for pair in (None, stranger.client()):
        failed = pages.metric(HANDSHAKES, 'use="admin"', 'result="failed"')
        code, status, _ = pages.curl("/readyz", pair=pair)
        assert code != 0 and status == 0
        until(lambda: pages.metric(HANDSHAKES, 'use="admin"', 'result="failed"') > failed, "it is counted")
    assert pages.curl("/status", token=None)[1] == 401


def dispatcher(tmp_path) -> list:
    key = tmp_path / "key"
    key.write_text("an example of a key for a test\n")
    key.chmod(0o600)
    return ["dispatch", "--listen", f"127.0.0.1:{free_port()}", "--backend", f"127.0.0.1:{free_port()}", "--key-file", key]


def embedded_node(tmp_path) -> list:
    return ["node", "--listen", f"127.0.0.1:{free_port()}", "--data", tmp_path / "data"]


def embedded_ring(tmp_path) -> list:
    return ["up", "--nodes", "1", "--listen", f"127.0.0.1:{free_port()}", "--node-port", free_port(), "--data", tmp_path / "data"]


@pytest.mark.parametrize("command", [dispatcher, embedded_node, embedded_ring])
def test_another_command_guards_its_pages(command, authority, tmp_path):
    port = free_port()
    options = [*command(tmp_path), "--admin", f"127.0.0.1:{port}", *guard(tmp_path, authority)]
    pages = Pages(authority, port, token=TOKEN)
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([str(part) for part in (binary(), *options)], stdout=log, stderr=subprocess.STDOUT)
    try:
        until(lambda: pages.curl("/status")[:2] == (0, 200), "the pages are served", told=(tmp_path / "log").read_text)
        assert pages.curl("/status", token=None)[1] == 401
        assert pages.metric(HANDSHAKES, 'use="admin"', 'result="ok"') > 0
        assert f"https://127.0.0.1:{port}" in (tmp_path / "log").read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(ANSWER_SECONDS)


def test_check_warns_of_pages_that_others_can_read(authority, tmp_path):
    def check(*options) -> tuple:
        done = subprocess.run([str(binary()), "check", "--contact-points", "192.0.2.1", *map(str, options)], capture_output=True, text=True,
                              timeout=ANSWER_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = check("--admin", "0.0.0.0:9180")
    assert code == 0 and "warning: admin: other machines can reach 0.0.0.0:9180" in said, said
    options = guard(tmp_path, authority)
    assert check("--admin", "0.0.0.0:9180", *options) == (0, "valid\n")
    code, said = check("--admin", "0.0.0.0:9180", *options[4:])
    assert code == 0 and "the token travels in clear text" in said, said
    code, said = check(*options[:2])
    assert code == 2 and "--admin-tls-certificate: needs its private key" in said, said
    (tmp_path / "token").write_text("short")
    code, said = check(*options)
    assert code == 2 and "a token needs 16 characters" in said, said

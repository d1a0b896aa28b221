"""A dispatcher and agents with TLS between them: what it carries, whom either side refuses, and new certificates."""

import random
import re
import signal
import socket
import ssl
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest

from harness.certificates import EXPIRED, Authority, client_context, place
from harness.ports import free_port
from harness.proxy import binary
from harness.relay import Relay, expect, steady, why_not
from harness.waits import DEADLINE_SECONDS

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")

SIZES = [1, 65_537, 1_000_000, 16 << 20]
MARK = b"a line that every file of this test has\n"
UNUSABLE = 2
HANDSHAKES = "shunt_outgoing_tls_handshakes_total"


class Tap:
    """Passes connections on to a port, and keeps what they carry."""

    def __init__(self, port: int):
        self.target, self.carried, self.listener = port, [], socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                carried = bytearray()
                self.carried.append(carried)
                threading.Thread(target=self.carry, args=(source, sink, carried), daemon=True).start()

    @staticmethod
    def carry(source, sink, carried):
        try:
            while part := source.recv(1 << 16):
                carried.extend(part)
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def has(self, words: bytes) -> bool:
        return any(words in carried for carried in self.carried)


class Control(Relay):
    """An agent and a dispatcher with a tap between them. `is_served`: the dispatcher reaches the agent."""

    def __init__(self, directory, is_served: bool = True, **how):
        self.is_served, self.admin_port, self.agent_admin_port = is_served, free_port(), free_port()
        dispatch = ["--admin", f"127.0.0.1:{self.admin_port}", *how.pop("dispatch_options", [])]
        agent = ["--admin", f"127.0.0.1:{self.agent_admin_port}", *how.pop("agent_options", [])]
        super().__init__(directory, servers=1, dispatch_options=dispatch, agent_options=agent, **how)
        (self.files / "mark").write_bytes(MARK)
        self.agent_port = self.agent_ports[0]
        self.tap = Tap(self.agent_port)

    def start_dispatcher(self):
        self.agent_ports[0] = self.tap.port
        super().start_dispatcher()
        self.agent_ports[0] = self.agent_port

    def wait_until_it_answers(self):
        if self.is_served:
            super().wait_until_it_answers()

    def __exit__(self, *_):
        super().__exit__()
        self.tap.listener.close()

    def curl(self, path: str, *options: str) -> subprocess.CompletedProcess:
        command = ["curl", "-s", "-S", "--max-time", str(DEADLINE_SECONDS), *options, self.url(path)]
        return subprocess.run(command, capture_output=True, check=False)

    def metric(self, name: str, port: int = None) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.admin_port}/metrics", timeout=DEADLINE_SECONDS) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))

    def wait_for(self, name: str, *words: str):
        """Waits until a line of a process's log has all these words."""
        self._await(lambda: any(all(word in line for word in words) for line in self.log(name).splitlines()), f"{name} says {words}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "stranger")


def of_agent(pair, ca=None) -> list:
    return ["--tls-certificate", pair.certificate, "--tls-key", pair.key, *(["--tls-client-ca", ca] if ca else [])]


def of_dispatcher(ca, pair=None) -> list:
    own = ["--agent-tls-certificate", pair.certificate, "--agent-tls-key", pair.key] if pair else []
    return ["--agent-tls", "on", "--agent-tls-ca", ca, *own]


@pytest.fixture(scope="module", params=("relayed", "handed over"))
def control(tmp_path_factory, authority, request):
    options = {"agent_options": of_agent(authority.server(), authority.ca), "dispatch_options": of_dispatcher(authority.ca, authority.client())}
    with Control(tmp_path_factory.mktemp("control"), shares_socket=request.param == "handed over", **options) as control:
        generator = random.Random(7)
        for size in SIZES:
            (control.files / str(size)).write_bytes(generator.randbytes(size))
        yield control


@pytest.mark.parametrize("size", SIZES)
@steady
def test_files_are_the_same(control, size):
    done = control.curl(f"/{size}")
    expect(done.returncode == 0, done.stderr)
    assert done.stdout == (control.files / str(size)).read_bytes()


@steady
def test_an_upload_arrives(control, tmp_path):
    content = random.Random(3).randbytes(10_000_000)
    (tmp_path / "upload").write_bytes(content)
    done = control.curl("/put/secured", "-T", str(tmp_path / "upload"))
    expect(done.returncode == 0, done.stderr)
    assert (control.files / "put" / "secured").read_bytes() == content


@steady
def test_nothing_is_readable_on_the_way(control):
    done = control.curl("/mark")
    expect(done.returncode == 0, done.stderr)
    assert done.stdout == MARK
    assert not control.tap.has(MARK) and not control.tap.has(b"GET /mark")
    assert all(carried[:1] == b"\x16" for carried in control.tap.carried if carried)


@steady
def test_connections_of_clients_in_clear_text_are_handed_over_still(control):
    handed_over = control.metric("shunt_dispatch_handovers_total")
    done = control.curl(f"/{SIZES[-1]}")
    expect(done.returncode == 0, done.stderr)
    if control.metric("shunt_dispatch_loops_handing_over"):
        assert control.metric("shunt_dispatch_handovers_total") > handed_over


def test_without_tls_the_tap_reads_all(tmp_path):
    with Control(tmp_path) as control:
        assert control.curl("/mark").stdout == MARK and control.tap.has(MARK)


def refused(directory: Path, agent: list, dispatch: list) -> Control:
    return Control(directory, is_served=False, agent_options=agent, dispatch_options=dispatch)


@pytest.mark.parametrize("case, words", [
    ("foreign agent", "the CA of the peer's certificate is unknown"),
    ("another name", "the peer's certificate is for another name"),
    ("expired agent", "the peer's certificate has expired"),
    ("plain agent", "the peer does not speak TLS"),
    ("plain dispatcher", "set --agent-tls on")])
def test_a_dispatcher_gives_a_wrong_agent_nothing(authority, stranger, tmp_path, case, words):
    agent, dispatch = {
        "foreign agent": (of_agent(stranger.server()), of_dispatcher(authority.ca)),
        "another name": (of_agent(authority.server()), [*of_dispatcher(authority.ca), "--agent-tls-name", "elsewhere.example"]),
        "expired agent": (of_agent(authority.server()), of_dispatcher(authority.ca)),
        "plain agent": ([], of_dispatcher(authority.ca)),
        "plain dispatcher": (of_agent(authority.server()), [])}[case]
    if case == "expired agent":
        # An agent does not start with such a certificate, so that another server stands for it.
        return expired(authority, tmp_path, words)
    with refused(tmp_path, agent, dispatch) as control:
        control.wait_for("dispatch", "an agent cannot be reached", words)
        assert MARK not in control.curl("/mark").stdout and not control.tap.has(b"GET /mark")
        assert control.metric("shunt_dispatch_backend_links") == 0
        assert case == "plain dispatcher" or control.metric(HANDSHAKES + '{use="agents",result="failed"}') > 0


def expired(authority, directory, words):
    pair = authority.server("former", end=EXPIRED)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    context.wrap_socket(listener.accept()[0], server_side=True)
                except ssl.SSLError:
                    continue
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        with refused(directory, [], of_dispatcher(authority.ca)) as control:
            control.tap.target = listener.getsockname()[1]
            control.wait_for("dispatch", "an agent cannot be reached")
            control.signal("dispatch", signal.SIGKILL).wait()
            control.names.pop("dispatch")
            control.start_dispatcher()
            control.wait_for("dispatch", "an agent cannot be reached", words)


@pytest.mark.parametrize("case, words", [
    ("no certificate", "the peer gave no certificate"),
    ("foreign certificate", "the CA of the peer's certificate is unknown"),
    ("an agent's certificate", "is for another purpose")])
def test_an_agent_serves_no_wrong_dispatcher(authority, stranger, tmp_path, case, words):
    pair = {"no certificate": lambda: None, "foreign certificate": stranger.client, "an agent's certificate": authority.server}[case]()
    with refused(tmp_path, of_agent(authority.server(), authority.ca), of_dispatcher(authority.ca, pair)) as control:
        control.wait_for("agent-0", "a TLS handshake with a client failed", words)
        control.wait_for("dispatch", "an agent cannot be reached")
        assert MARK not in control.curl("/mark").stdout
        assert control.metric("shunt_agent_requests_total", control.agent_admin_port) == 0


def test_an_agent_closes_a_connection_in_clear_text(authority, tmp_path):
    options = {"agent_options": of_agent(authority.server()), "dispatch_options": of_dispatcher(authority.ca)}
    with Control(tmp_path, **options) as control:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x02no"):
            with socket.create_connection(("127.0.0.1", control.agent_port), DEADLINE_SECONDS) as client:
                client.settimeout(DEADLINE_SECONDS)
                client.sendall(garbage)
                assert client.recv(100)[:1] in (b"\x15", b"")
        assert control.metric('shunt_tls_handshakes_total{result="clear_text"}', control.agent_admin_port) == 1
        assert control.curl("/mark").stdout == MARK


def shown_by(port: int, pair) -> bytes:
    """The certificate that an agent shows to a client with this one."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as client:
        with client_context(pair=pair).wrap_socket(client) as secured:
            return secured.getpeercert(binary_form=True)


def test_another_authority_takes_over_without_a_restart_of_the_dispatcher(authority, stranger, tmp_path):
    trusted = tmp_path / "ca.crt"
    place(authority.ca.read_bytes(), trusted)
    (tmp_path / "agent").mkdir()
    (tmp_path / "dispatch").mkdir()
    agent, dispatch = authority.server().install(tmp_path / "agent"), authority.client().install(tmp_path / "dispatch")
    options = {"agent_options": of_agent(agent, trusted), "dispatch_options": of_dispatcher(trusted, dispatch)}
    with Control(tmp_path, **options) as control:
        place(authority.ca.read_bytes() + stranger.ca.read_bytes(), trusted)
        next_pair, own = stranger.server(), stranger.client()
        next_pair.install(tmp_path / "agent")
        own.install(tmp_path / "dispatch")
        control.signal("agent-0", signal.SIGHUP)
        control.signal("dispatch", signal.SIGHUP)
        control._await(lambda: shown_by(control.agent_port, authority.client()) == next_pair.der, "the agent has a new certificate")
        control.wait_for("dispatch", "a certificate is in use", "--agent-tls-certificate", "application")
        assert control.metric("shunt_dispatch_backend_links_lost_total") == 0 and control.curl("/mark").stdout == MARK
        # Only the new authority counts from here on, for a new connection.
        place(stranger.ca.read_bytes(), trusted)
        before = control.metric('shunt_tls_reloads_total{result="changed"}')
        control.signal("dispatch", signal.SIGHUP)
        control._await(lambda: control.metric('shunt_tls_reloads_total{result="changed"}') > before, "the dispatcher has the new authority")
        control.signal("agent-0", signal.SIGKILL).wait()
        control.names.pop("agent-0")
        control.start_agent(0)
        control._await(lambda: control.curl("/mark").stdout == MARK, "the dispatcher reaches the agent again")


def check(*arguments) -> tuple:
    done = subprocess.run([binary(), "check", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_check_reads_the_files(authority, stranger, tmp_path):
    key = tmp_path / "key"
    key.write_text("an example of a key for a test\n")
    key.chmod(0o600)
    server, client = authority.server(), authority.client()
    agent = ["agent", "--listen", "127.0.0.1:1", "--upstream", "127.0.0.1:2", "--key-file", key]
    dispatch = ["dispatch", "--listen", "127.0.0.1:1", "--backend", "127.0.0.1:2", "--key-file", key]
    assert check(*agent, *of_agent(server, authority.ca)) == (0, "valid\n")
    assert check(*dispatch, *of_dispatcher(authority.ca, client)) == (0, "valid\n")
    strange = stranger.server()
    for arguments, words in [
            ([*agent, "--tls-certificate", server.certificate], "set --tls-key"),
            ([*agent, "--tls-key", server.key], "set --tls-certificate"),
            ([*agent, "--tls-client-ca", authority.ca], "needs TLS"),
            ([*agent, "--tls-certificate", server.certificate, "--tls-key", strange.key], "the key does not belong to the certificate"),
            ([*dispatch, "--agent-tls-ca", authority.ca], "has no effect without --agent-tls on"),
            ([*dispatch, *of_dispatcher(tmp_path / "nowhere")], "cannot read the file"),
            ([*dispatch, *of_dispatcher(authority.ca), "--agent-tls-key", client.key], "--agent-tls-certificate"),
            ([*dispatch, *of_dispatcher(authority.ca), "--agent-tls-name", "no name"], "neither a DNS name nor an IP address"),
            ([*dispatch, "--agent-tls", "optional"], "expected on or off")]:
        code, said = check(*arguments)
        assert code == UNUSABLE and words in said, (arguments, said)

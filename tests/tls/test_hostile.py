"""Clients that break the protocol of TLS, or use it as no driver does. Each harms its own connection alone."""

import asyncio
import socket
import ssl
import struct
import subprocess

import pytest

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, HEADER, OPTIONS, READY, STARTUP, SUPPORTED, Connection
from harness.waits import until

QUERY = "SELECT cluster_name FROM system.local"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
CLEAR_STARTUP = HEADER.pack(4, 0, 1, STARTUP, 22) + b"\0\1\0\x0bCQL_VERSION\0\x053.0.0"
# A header that promises more than a record may have.
OVERSIZED = b"\x17\x03\x03\xff\xff"


@pytest.fixture(scope="module")
def proxy(start):
    return start("required")


@pytest.fixture(autouse=True)
def others(proxy, authority):
    """After each test nothing is left of its clients, and others are served."""
    yield
    assert len(asyncio.run(ask(proxy, client_context(authority.ca)))) == 1
    until(lambda: proxy.metric("shunt_tls_connections") == 0, "no client is left", told=proxy.client_groups)


async def ask(proxy, context) -> list:
    connection = await Connection.open(proxy.host, proxy.port, tls=context)
    try:
        return await connection.query(QUERY)
    finally:
        connection.close()


class Hand:
    """A client that sends its records as a test wants it."""

    def __init__(self, proxy, context):
        self.socket = socket.create_connection(proxy.address, ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname=proxy.host)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def output(self, step=None) -> bytes:
        """The output of the next step of the session."""
        try:
            (step or self._session.do_handshake)()
        except ssl.SSLWantReadError:
            pass
        return self._outgoing.read()

    def handshake(self, send=None) -> bytes:
        """Completes the handshake but for its last bytes, which it returns."""
        send = send or self.socket.sendall
        while True:
            try:
                self._session.do_handshake()
                return self._outgoing.read()
            except ssl.SSLWantReadError:
                send(self._outgoing.read())
                self._incoming.write(self._received())

    def _received(self) -> bytes:
        data = self.socket.recv(65_536)
        if not data:
            raise EOFError("the server has closed the connection")
        return data

    def seal(self, plain: bytes) -> bytes:
        return self.output(lambda: self._session.write(plain))

    def end(self) -> bytes:
        """The alert that nothing more comes."""
        return self.output(self._session.unwrap)

    def read(self, count: int) -> bytes:
        plain = b""
        while len(plain) < count:
            try:
                more = self._session.read(count - len(plain))
                if not more:
                    raise EOFError("the server has ended the session")
                plain += more
            except ssl.SSLWantReadError:
                self._incoming.write(self._received())
        return plain

    def answer(self) -> int:
        """The opcode of the next answer."""
        _, _, _, opcode, length = HEADER.unpack(self.read(HEADER.size))
        self.read(length)
        return opcode

    def is_closed(self) -> bool:
        """Reads to the end of the connection."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        return True


@pytest.fixture
def begin(proxy, authority):
    """Begins a client, of TLS 1.3 unless the test wants another version."""
    return lambda version=ssl.TLSVersion.TLSv1_3: Hand(proxy, client_context(authority.ca, version=version))


def failed(proxy) -> float:
    return proxy.metric("shunt_tls_handshakes_total", result="failed")


@pytest.mark.parametrize("version", VERSIONS)
def test_records_may_come_a_byte_at_a_time(begin, version):
    with begin(version) as client:
        def send(data: bytes) -> None:
            for byte in data:
                client.socket.sendall(bytes([byte]))

        send(client.handshake(send) + client.seal(CLEAR_STARTUP) + client.seal(HEADER.pack(4, 0, 1, OPTIONS, 0)))
        assert [client.answer(), client.answer()] == [READY, SUPPORTED]


@pytest.mark.parametrize("version", VERSIONS)
def test_many_records_may_come_with_the_end_of_the_handshake(begin, version):
    count = 200
    with begin(version) as client:
        options = [client.handshake(), client.seal(CLEAR_STARTUP)]
        # A record for each request, and one request in two records.
        options += [client.seal(HEADER.pack(4, 0, stream, OPTIONS, 0)) for stream in range(count)]
        last = HEADER.pack(4, 0, count, OPTIONS, 0)
        client.socket.sendall(b"".join([*options, client.seal(last[:5]), client.seal(last[5:])]))
        assert [client.answer() for _ in range(count + 2)] == [READY] + [SUPPORTED] * (count + 1)


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "not announced"])
@pytest.mark.parametrize("version", VERSIONS)
def test_answers_reach_a_client_that_sends_no_more(begin, version, announced):
    with begin(version) as client:
        client.socket.sendall(client.handshake() + client.seal(CLEAR_STARTUP))
        assert client.answer() == READY
        client.socket.sendall(client.seal(HEADER.pack(4, 0, 1, OPTIONS, 0)) + (client.end() if announced else b""))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answer() == SUPPORTED
        assert client.is_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_that_is_cut_is_no_request(begin, proxy, version):
    before = proxy.metric("shunt_clients_closed_total")
    with begin(version) as client:
        client.socket.sendall(client.handshake() + client.seal(CLEAR_STARTUP))
        assert client.answer() == READY
        client.socket.sendall(client.seal(HEADER.pack(4, 0, 1, OPTIONS, 0))[:-1])
        client.socket.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            client.answer()
    # That is the end of a client, and no offence.
    assert proxy.metric("shunt_clients_closed_total") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_clear_text_after_a_client_hello(begin, proxy, version):
    before = failed(proxy)
    with begin(version) as client:
        client.socket.sendall(client.output() + CLEAR_STARTUP)
        assert client.is_closed()
    until(lambda: failed(proxy) == before + 1, "the handshake is counted", told=proxy.log_tail)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offence", [CLEAR_STARTUP, OVERSIZED, b"\x15\x03\x03\0\2\2\x14"], ids=["clear text", "oversized", "alert"])
def test_what_is_not_sealed_ends_a_session(begin, proxy, version, offence):
    before = proxy.metric("shunt_clients_closed_total", reason="tls")
    with begin(version) as client:
        client.socket.sendall(client.handshake() + client.seal(CLEAR_STARTUP))
        assert client.answer() == READY
        client.socket.sendall(offence)
        assert client.is_closed()
    until(lambda: proxy.metric("shunt_clients_closed_total", reason="tls") == before + 1, "the log says why", told=proxy.log_tail)


def test_a_cut_handshake_is_counted(begin, proxy):
    before, cuts = failed(proxy), (1, 5, 100)
    for cut in cuts:
        with begin() as client:
            client.socket.sendall(client.output()[:cut])
            client.socket.shutdown(socket.SHUT_WR)
            assert client.is_closed()
    until(lambda: failed(proxy) == before + len(cuts), "all of them are counted", told=proxy.log_tail)


def test_renegotiation_is_refused(proxy, authority):
    """OpenSSL sends a ClientHello within the session at an R, and takes a refusal for a failure."""
    done = subprocess.run(["openssl", "s_client", "-connect", proxy.listen, "-CAfile", authority.ca, "-tls1_2"], input="R\n",
                          capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert "RENEGOTIATING" in said and "Verify return code: 0" in said, said
    assert "no renegotiation" in said or "alert" in said, said


def test_connections_that_are_reset_at_any_time(begin, proxy):
    """Right after the connect, in the handshake, behind it, and with a request."""
    def reset(client: Hand) -> None:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    for steps in range(4):
        with begin() as client:
            reset(client)
            if steps == 1:
                client.socket.sendall(client.output())
            elif steps > 1:
                client.socket.sendall(client.handshake() + (client.seal(CLEAR_STARTUP) if steps == 3 else b""))

"""curl and plain sockets against stock nginx behind agents: what comes through the dispatcher is what comes from the server."""

import hashlib
import random
import re
import signal
import socket
import subprocess

import pytest

from harness.relay import Relay, expect, steady, why_not
from harness.waits import DEADLINE_SECONDS

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")

SIZES = [0, 1, 1000, 65_535, 65_536, 65_537, 1_000_000, 16 << 20]
# Of the connection, of the moment, or of one of the two servers.
OWN_HEADERS = ("connection", "date", "keep-alive", "x-server")


@pytest.fixture(scope="module", params=("relayed", "handed over"))
def relay(tmp_path_factory, request):
    with Relay(tmp_path_factory.mktemp("relay"), shares_socket=request.param == "handed over") as relay:
        generator = random.Random(7)
        for size in SIZES:
            (relay.files / str(size)).write_bytes(generator.randbytes(size))
        yield relay


def curl(url: str, *options: str):
    """Status, headers and body as the client gets them."""
    command = ["curl", "-s", "-S", "--max-time", "240", "-D", "/dev/stderr", *options, url]
    done = subprocess.run(command, capture_output=True, check=False)
    expect(done.returncode == 0, (done.returncode, done.stderr))
    head = done.stderr.decode().strip().split("\r\n\r\n")[-1].split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return int(head[0].split()[1]), headers, done.stdout


def assert_same(relay, path: str, *options: str):
    through, direct = curl(relay.url(path), *options), curl(relay.direct(path), *options)
    for answer in (through, direct):
        for name in OWN_HEADERS:
            answer[1].pop(name, None)
    expect(through[0] not in (502, 503, 504), through[2])
    assert through[:2] == direct[:2]
    assert hashlib.sha256(through[2]).digest() == hashlib.sha256(direct[2]).digest(), (len(through[2]), len(direct[2]))
    return through


@pytest.mark.parametrize("size", SIZES)
@steady
def test_files_are_the_same(relay, size):
    assert len(assert_same(relay, f"/{size}")[2]) == size
    assert_same(relay, f"/{size}", "--http1.0")
    assert assert_same(relay, f"/{size}", "-I", "-o", "/dev/null")[1]["content-length"] == str(size)


@pytest.mark.parametrize("size", SIZES)
@steady
def test_files_in_chunks_are_the_same(relay, size):
    status, headers, body = assert_same(relay, f"/chunked/{size}")
    assert (status, len(body)) == (200, size)
    assert headers.get("transfer-encoding") == "chunked" or size == 0
    assert_same(relay, f"/chunked/{size}", "--http1.0")


@steady
def test_answers_without_a_body_are_the_same(relay):
    assert assert_same(relay, "/empty")[0] == 204
    etag = curl(relay.direct("/1000"))[1]["etag"]
    assert assert_same(relay, "/1000", "-H", f"If-None-Match: {etag}")[0] == 304
    assert assert_same(relay, "/nothing-of-that-name")[0] == 404


@pytest.mark.parametrize("part", ["0-0", "5-70000", "-100", "16000000-", "99999999-"])
@steady
def test_ranges_are_the_same(relay, part):
    assert assert_same(relay, f"/{16 << 20}", "-r", part)[0] in (206, 416)


@pytest.mark.parametrize("options", [(), ("-H", "Expect:"), ("-H", "Transfer-Encoding: chunked")])
@steady
def test_an_upload_of_10_mb_arrives(relay, tmp_path, options):
    content = random.Random(3).randbytes(10_000_000)
    (tmp_path / "upload").write_bytes(content)
    name = f"upload-{len(options)}-{'chunked' in ''.join(options)}"
    status, headers, told = curl(relay.url(f"/put/{name}"), "-T", str(tmp_path / "upload"), *options)
    expect(status not in (502, 503, 504), told)
    # Of one that is there already the server says 204, where the test runs again.
    assert status in (201, 204)
    expect(headers["x-server"] == "server-0", headers)
    assert (relay.files / "put" / name).read_bytes() == content


@steady
def test_reads_on_one_connection_are_answered_by_both_servers(relay):
    command = ["curl", "-s", "-S", "-v", *["-o", "/dev/null", relay.url("/1000")] * 8]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expect(done.returncode == 0, done.stderr)
    told = done.stderr
    expect(told.count("Connected to") == 1, "the connection is kept")
    servers = [line.split(": ")[1].strip() for line in told.splitlines() if "X-Server" in line]
    expect(len(servers) == 8, told)
    expect({"server-0", "server-1"} == set(servers), servers)


def receive_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(1 << 16):
        received += piece
    return received


@steady
def test_requests_sent_ahead_are_answered_in_order(relay):
    paths = ["/1000", "/chunked/65537", "/1", "/empty", "/closed", "/65536", "/0"] * 4
    requests = "".join(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n" for path in paths)
    requests += "HEAD /1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

    def answers(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(requests.encode())
            return receive_all(connection)

    received = answers(relay.port)
    expect(not re.search(rb"^HTTP/1.1 50[234] ", received, re.MULTILINE), "a backend was lost")
    at = 0
    for path in paths:
        size = int(path.rsplit("/", 1)[1]) if path[-1].isdigit() else 6 if path == "/closed" else 0
        head_end = received.index(b"\r\n\r\n", at) + 4
        head = received[at:head_end].lower()
        at = head_end
        if b"transfer-encoding: chunked" in head:
            body = b""
            while True:
                line_end = received.index(b"\r\n", at)
                length = int(received[at:line_end], 16)
                body += received[line_end + 2:line_end + 2 + length]
                at = line_end + 2 + length + 2
                if not length:
                    break
        else:
            body = received[at:at + size]
            at += size
        expected = b"closed" if path == "/closed" else (relay.files / str(size)).read_bytes() if path != "/empty" else b""
        assert body == expected, path
    assert received[at:].startswith(b"HTTP/1.1 200 OK\r\n") and received.endswith(b"\r\n\r\n")


def test_smuggled_requests_are_refused_and_told_why(relay):
    for head, status, word in [
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "both"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n", 400, "more than one"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400, "chunked"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "colon"),
        ("GET / HTTP/1.1\nHost: a\n\n", 400, "line feed"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: " + "y" * 70_000 + "\r\n\r\n", 431, "more than"),
        ("PUT /put/x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413, "more than"),
    ]:
        with socket.create_connection(("127.0.0.1", relay.port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(head.encode())
            received = receive_all(connection)
        assert received.startswith(f"HTTP/1.1 {status} ".encode()) and word.encode() in received, (head[:60], received)


@steady
def test_a_killed_agent_is_done_without_and_used_again(tmp_path):
    with Relay(tmp_path) as relay:
        (relay.files / "file").write_bytes(b"x" * 100_000)
        relay.signal("agent-1", signal.SIGKILL).wait()
        for _ in range(10):
            status, headers, body = curl(relay.url("/file"))
            expect(status not in (502, 503, 504), body)
            assert (status, headers["x-server"], len(body)) == (200, "server-0", 100_000)
        del relay.names["agent-1"]
        relay.start_agent(1)
        relay._await(lambda: curl(relay.url("/file"))[1].get("x-server") == "server-1", "the agent is used again")
        relay.signal("agent-0", signal.SIGKILL).wait()
        status = curl(relay.url("/file"))[0]
        expect(status not in (502, 503, 504), status)
        assert status == 200
        status, _, body = curl(relay.url("/put/x"), "-X", "PUT", "-d", "x")
        assert status in (502, 503) and b"backend" in body


def test_processes_drain_and_end_with_0(tmp_path):
    with Relay(tmp_path) as relay:
        for name in ("dispatch", "agent-0", "agent-1"):
            assert relay.signal(name).wait(DEADLINE_SECONDS) == 0, relay.log(name)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    relay = Relay(tmp_path)
    relay.key.chmod(0o644)
    with pytest.raises(RuntimeError, match="chmod 600"):
        relay.__enter__()

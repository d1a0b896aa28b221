"""Large answers on the clients' own connections, between hosts that are network namespaces, with stock nginx and curl."""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness import hosts
from harness.moved import Moved
from harness.relay import IS_WHOLE, expect, expect_whole, steady, why_not as no_relay
from harness.waits import until

WHY_NOT = hosts.why_not() or no_relay()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

SIZES = [0, 1, 1000, 65_535, 65_536, 1_000_000, 16 << 20]
# More than the kernels between a server and a client that reads nothing can hold.
LARGE = 32 << 20
# Packets of a hundred that are lost, and sent twice; `make test-long` has fewer of the first, so that more connections move.
IMPAIRED = [(1, 5), (5, 5)] if IS_WHOLE else [(5, 5)]
# How often each of four clients asks for several large answers at once.
PIPELINES_TIMES = 400 if IS_WHOLE else 100


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    with Moved(tmp_path_factory.mktemp("moved")) as moved:
        generator = random.Random(7)
        for size in [*SIZES, LARGE]:
            (moved.files / str(size)).write_bytes(generator.randbytes(size))
        yield moved


def content_of(moved, size: int) -> bytes:
    return (moved.files / str(size)).read_bytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path", ["/{}", "/chunked/{}"])
@steady
def test_files_are_the_same_and_large_ones_pass_the_dispatcher_by(moved, size, path):
    before = moved.counted("dispatcher", "steered"), moved.hosts.sent("dispatcher")
    done = moved.curl("client", moved.url(path.format(size)))
    expect_whole(done.returncode, done.stdout, content_of(moved, size), done.stderr)
    sent = moved.hosts.sent("dispatcher") - before[1]
    # Chunks have lines of their own, which count.
    if size >= (65_535 if "chunked" in path else 65_536):
        expect(moved.counted("dispatcher", "steered") > before[0], "no connection was moved")
        # Requests, control, and what the client acknowledges, which is sent on.
        expect(sent < size / 2, sent)
    else:
        assert sent >= size


@steady
def test_one_connection_is_moved_a_hundred_times_and_both_servers_answer(moved):
    urls = [argument for _ in range(50) for argument in ("-o", "/dev/null", moved.url("/1000000"), "-o", "/dev/null", moved.url("/1000"))]
    done = moved.curl("client", "-v", "-w", "%{http_code} %{size_download}\n", *urls)
    expect(done.returncode == 0, done.stderr[-2000:])
    assert done.stdout.decode().split("\n")[:-1] == ["200 1000000", "200 1000"] * 50
    told = done.stderr.decode(errors="replace")
    expect(told.count("Connected to") == 1, "the connection is kept")
    expect(set(re.findall(r"X-Server: (\S+)", told)) == {"server-0", "server-1"}, "both servers answer")


@steady
def test_many_clients_at_once_have_what_they_asked_for(moved):
    urls = [argument for _ in range(4) for argument in ("-o", "/dev/stdout", moved.url("/1000000"))]
    clients = [moved.start_client(*urls) for _ in range(16)]
    ended = [client.communicate(timeout=600) for client in clients]
    for client, (received, told) in zip(clients, ended, strict=True):
        expect_whole(client.returncode, received, content_of(moved, 1_000_000) * 4, told)


@steady
def test_ranges_and_heads_are_as_the_server_has_them(moved):
    done = moved.curl("client", "-r", "5-7000000", moved.url(f"/{16 << 20}"))
    expect_whole(done.returncode, done.stdout, content_of(moved, 16 << 20)[5:7_000_001], done.stderr)
    done = moved.curl("client", "-I", moved.url(f"/{16 << 20}"))
    expect(done.returncode == 0, done.stderr)
    assert f"Content-Length: {16 << 20}" in done.stdout.decode()


@pytest.mark.parametrize("lost, doubled", IMPAIRED)
@steady
def test_packets_that_are_lost_and_doubled_change_no_byte(moved, lost, doubled):
    def sent_again() -> int:
        return sum(moved.hosts.sent_again(host) for host in ("client", "dispatcher", "backend0", "backend1"))

    before, again = moved.counted("dispatcher", "steered"), sent_again()
    moved.hosts.impair(lost, doubled)
    try:
        urls = [argument for _ in range(8) for argument in ("-o", "/dev/stdout", moved.url("/1000000"), "-o", "/dev/stdout", moved.url("/1000"))]
        clients = [moved.start_client(*urls) for _ in range(4)]
        ended = [client.communicate(timeout=600) for client in clients]
    finally:
        moved.hosts.impair(0, 0)
    for client, (received, told) in zip(clients, ended, strict=True):
        expect_whole(client.returncode, received, (content_of(moved, 1_000_000) + content_of(moved, 1000)) * 8, told)
    expect(moved.counted("dispatcher", "steered") > before, "no connection was moved")
    assert sent_again() > again


def put_back(moved, name: str, start) -> None:
    """Starts a process again that is gone, and waits until all is as it was."""
    del moved.names[name]
    start()
    moved.wait_until_it_answers()
    moved.await_agents()


@steady
def test_an_answer_completes_when_the_dispatcher_is_killed_within_it(moved):
    moved.await_agents()
    before = moved.away()
    client = moved.start_client(moved.url(f"/{LARGE}"))
    moved.backend_of_moved(before)
    moved.signal("dispatch", signal.SIGKILL).wait(60)
    received, told = client.communicate(timeout=600)
    put_back(moved, "dispatch", moved.start_dispatcher)
    expect_whole(client.returncode, received, content_of(moved, LARGE), told)
    status = moved._status("/1000")
    expect(status == 200, status)


@steady
def test_a_client_of_an_agent_that_is_killed_never_takes_a_part_for_the_whole(moved):
    moved.await_agents()
    before = moved.away()
    # Of which nobody can be asked for the rest; test_salvage.py has the others.
    client = moved.start_client(moved.url(f"/untagged/{LARGE}"))
    victim = moved.backend_of_moved(before)
    moved.signal(f"agent-{victim}", signal.SIGKILL).wait(60)
    if IS_WHOLE:  # it stays away, so that the dispatcher is to give it up, after 15 s
        received, told = client.communicate(timeout=600)
    put_back(moved, f"agent-{victim}", lambda: moved.start_agent(victim))
    if not IS_WHOLE:
        received, told = client.communicate(timeout=600)
    assert client.returncode != 0 and len(received) < LARGE, (client.returncode, told)
    assert content_of(moved, LARGE).startswith(received)
    are_both_answering(moved)


def are_both_answering(moved) -> None:
    moved._await(lambda: [moved._status("/1000000") for _ in range(4)] == [200] * 4, "both servers answer")


WAITS = """
import socket, sys
address, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
connection = socket.create_connection((address, port), timeout=300)
connection.sendall(b"GET %b HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % path.encode())
print(connection.recv(1), flush=True)
sys.stdin.readline()
try:
    while connection.recv(1 << 20):
        pass
    print("ended")
except ConnectionResetError:
    print("reset")
"""


@steady
def test_a_client_that_only_waits_hears_that_its_agent_was_killed(moved):
    """The client sends nothing, not even keep-alives."""
    moved.await_agents()
    before = moved.away()
    command = moved.hosts.on("client", [sys.executable, "-c", WAITS, hosts.VIP, moved.port, f"/untagged/{LARGE}"])
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    victim = moved.backend_of_moved(before)
    assert client.stdout.readline()
    moved.signal(f"agent-{victim}", signal.SIGKILL).wait(60)
    put_back(moved, f"agent-{victim}", lambda: moved.start_agent(victim))
    told = client.communicate("\n", timeout=600)[0]
    assert told.strip() == "reset"


def without_its_server(moved, path: str, *options: str) -> tuple:
    """The outcome for a client whose server dies during its answer: (curl's code, received bytes, messages)."""
    moved.await_agents()
    before = moved.away()
    client = moved.start_client(*options, moved.url(path))
    victim = moved.backend_of_moved(before)
    moved.signal(f"nginx-{victim}").wait(60)
    received, told = client.communicate(timeout=600)
    put_back(moved, f"nginx-{victim}", lambda: moved.start_server(victim))
    return client.returncode, received, told


@pytest.mark.parametrize("first", [0, 1_000_000])
@steady
def test_an_answer_goes_on_from_the_other_server_when_its_own_dies_within_it(moved, first):
    code, received, told = without_its_server(moved, f"/{LARGE}", "-r", f"{first}-")
    expect_whole(code, received, content_of(moved, LARGE)[first:], told)


@steady
def test_a_client_of_a_server_that_dies_within_an_answer_of_unknown_length_is_reset(moved):
    code, received, told = without_its_server(moved, f"/chunked/{LARGE}")
    assert len(received) < LARGE and content_of(moved, LARGE).startswith(received)
    # It does not wait for anything of its own: it waits for the rest of the answer.
    assert code == 56, told
    are_both_answering(moved)


UPLOAD_BEHIND = """
import socket, sys
address, port, size, upload = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with socket.create_connection((address, port), timeout=180) as connection:
    connection.sendall(b"GET /%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size)
    stream = connection.makefile("rb")
    begun = stream.read(100_000)
    body = bytes(range(256)) * (upload // 256)
    import threading
    head = b"PUT /put/behind HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body)
    sender = threading.Thread(target=connection.sendall, args=(head + body,))
    sender.start()
    rest = stream.read()
    sender.join(180)
    sys.stdout.buffer.write(begun + rest)
"""


@steady
def test_a_large_upload_that_is_sent_behind_a_request_for_a_large_answer_arrives(moved):
    size, upload = 16 << 20, 4 << 20
    command = moved.hosts.on("client", [sys.executable, "-c", UPLOAD_BEHIND, hosts.VIP, moved.port, size, upload])
    before = moved.counted("dispatcher", "steered")
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    expect(done.returncode == 0, done.stderr.decode())
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    expect(head.startswith(b"HTTP/1.1 200 "), head)
    expect_whole(0, rest[:size], content_of(moved, size), "the client was cut off")
    expect(rest[size:].startswith(b"HTTP/1.1 201 "), rest[size:])
    assert (moved.files / "put" / "behind").read_bytes() == bytes(range(256)) * (upload // 256)
    expect(moved.counted("dispatcher", "steered") > before, "no connection was moved")


class OverIp6(Moved):
    ip6 = True


@steady
def test_by_ip6_alone_it_is_the_same(tmp_path):
    size = 16 << 20
    with OverIp6(tmp_path) as moved:
        content = random.Random(8).randbytes(size)
        (moved.files / str(size)).write_bytes(content)
        done = moved.curl("client", *[word for _ in range(10) for word in ("-o", "-", moved.url(f"/{size}"))])
        expect_whole(done.returncode, done.stdout, content * 10, done.stderr)
        expect(moved.counted("dispatcher", "steered") > 0, "no connection was moved")
        # Each of the ten answers passed the dispatcher by.
        expect(moved.hosts.sent("dispatcher") < size, moved.hosts.sent("dispatcher"))


PAUSES = """
import socket, sys, time
address, port, size, left, pause = sys.argv[1], *map(int, sys.argv[2:])
with socket.create_connection((address, port), timeout=180) as connection:
    connection.sendall(b"GET /%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size)
    stream = connection.makefile("rb")
    received = stream.read(size - left)
    time.sleep(pause)
    head = received.index(b"\\r\\n\\r\\n") + 4
    received += stream.read(head + size - len(received))
    connection.sendall(b"GET /1000 HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
    sys.stdout.buffer.write(received[head:] + stream.read().partition(b"\\r\\n\\r\\n")[2])
"""


@steady
def test_a_client_that_pauses_when_all_of_its_answer_is_with_the_kernels_has_it_whole(moved):
    """More than may move with a connection is with the server's then, whose buffers have come to be so large."""
    before = moved.counted("dispatcher", "steered")
    # Its agent gives a connection back after 5 s, and cannot. However long the client pauses, it is to have all.
    command = moved.hosts.on("client", [sys.executable, "-c", PAUSES, hosts.VIP, moved.port, 16 << 20, 4 << 20, 8])
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    expect_whole(done.returncode, done.stdout, content_of(moved, 16 << 20) + content_of(moved, 1000), done.stderr.decode())
    expect(moved.counted("dispatcher", "steered") > before, "no connection was moved")


ENDS = """
import socket, sys, time
address, port, size, pause = sys.argv[1], *map(int, sys.argv[2:])
with socket.create_connection((address, port), timeout=180) as connection:
    connection.sendall(b"GET /%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size)
    stream = connection.makefile("rb")
    received = stream.read(10_000 if pause else 1)
    connection.shutdown(socket.SHUT_WR)
    # So that its end comes to who has the connection; how long does not matter.
    time.sleep(pause)
    sys.stdout.buffer.write((received + stream.read()).partition(b"\\r\\n\\r\\n")[2])
"""


@pytest.mark.parametrize("size, pause", [(1_000_000, 0), (1_000_000, 1), (16 << 20, 0), (16 << 20, 1)])
@steady
def test_a_client_that_ends_its_direction_while_its_connection_is_away_has_all_and_is_closed(moved, size, pause):
    before = moved.counted("dispatcher", "steered")
    command = moved.hosts.on("client", [sys.executable, "-c", ENDS, hosts.VIP, moved.port, size, pause])
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    expect_whole(done.returncode, done.stdout, content_of(moved, size), done.stderr.decode())
    expect(moved.counted("dispatcher", "steered") > before, "no connection was moved")


ASKS_FOR_THE_END = """
import socket, sys
address, port, size = sys.argv[1], *map(int, sys.argv[2:])
with socket.create_connection((address, port), timeout=180) as connection:
    # While no packet comes, its kernel asks each second whether the connection is still there.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.sendall(b"GET /%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size)
    stream = connection.makefile("rb")
    received = stream.read(10_000)
    connection.shutdown(socket.SHUT_WR)
    head = received.index(b"\\r\\n\\r\\n") + 4
    received += stream.read(head + size - len(received))
    connection.settimeout(5)
    try:
        received += connection.recv(4096)
    except TimeoutError:
        print("has all but the end", file=sys.stderr, flush=True)
        connection.settimeout(180)
        received += connection.recv(4096)
    sys.stdout.buffer.write(received[head:])
"""


@steady
def test_a_client_that_the_end_of_its_answer_reaches_late_is_not_reset(moved):
    """The connection stays with its agent until the client has acknowledged the end: any other host would answer it with a reset."""
    size, before = 1_000_000, moved.counted("dispatcher", "steered")
    moved.hosts.impair(0, 0, ends_of=moved.port)
    try:
        command = moved.hosts.on("client", [sys.executable, "-c", ASKS_FOR_THE_END, hosts.VIP, moved.port, size])
        client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        told = client.stderr.readline().decode()
    finally:
        moved.hosts.impair(0, 0)
    received, more = client.communicate(timeout=600)
    expect_whole(client.returncode, received, content_of(moved, size), told + more.decode())
    expect(told == "has all but the end\n", told)
    expect(moved.counted("dispatcher", "steered") > before, "no connection was moved")
    # Nobody has it any more.
    until(lambda: not moved.away(), "the connection is over")


class MostlyRelayed(Moved):
    """The second agent hands nothing over."""

    def start_agent(self, index: int):
        self.agent_options = ["--handover-threshold", "off"] if index else []
        super().start_agent(index)


ENDS_LATE = """
import socket, sys
address, port, size = sys.argv[1], *map(int, sys.argv[2:])
with socket.socket() as connection:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.settimeout(180)
    connection.connect((address, port))
    connection.sendall(b"GET /%d HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size)
    stream = connection.makefile("rb")
    received = stream.read(300_000)
    print("has a part", flush=True)
    sys.stdin.readline()
    received += stream.read(size // 2)
    sys.stdin.readline()
    connection.shutdown(socket.SHUT_WR)
    sys.stdout.buffer.write((received + stream.read(size)).partition(b"\\r\\n\\r\\n")[2])
"""


@steady
def test_a_client_that_ends_its_direction_once_its_answer_goes_on_relayed_has_all(tmp_path):
    """The connection is back because the server of the answer is gone. The other server's agent hands nothing over."""
    with MostlyRelayed(tmp_path) as moved:
        (moved.files / str(LARGE)).write_bytes(random.Random(10).randbytes(LARGE))
        before = moved.counted("dispatcher", "steered")

        def has_a_part() -> subprocess.Popen | None:
            """A client whose connection is away."""
            command = moved.hosts.on("client", [sys.executable, "-u", "-c", ENDS_LATE, hosts.VIP, moved.port, LARGE])
            client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert client.stdout.readline() == b"has a part\n"
            if moved.counted("dispatcher", "steered") > before:
                return client
            client.kill()
            client.communicate()
            return None

        client = until(has_a_part, "a client's connection is away")
        moved.signal("nginx-0").wait(60)
        moved.names.pop("nginx-0")
        client.stdin.write(b"take as much as was under way\n")
        client.stdin.flush()
        moved._await(lambda: not moved.away(), "the connection is back")
        received, told = client.communicate(b"end, and take all\n", timeout=600)
        expect_whole(client.returncode, received, content_of(moved, LARGE), told)


PIPELINES = """
import socket, sys
address, port, times, sizes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(",")
for _ in range(times):
    with socket.create_connection((address, port), timeout=180) as connection:
        requests = [b"GET /%s HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" % size.encode() for size in sizes]
        connection.sendall(b"".join(requests) + b"GET /1000 HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
        received = 0
        # One that stands still is an error, by the time limit.
        while data := connection.recv(1 << 20):
            received += len(data)
        assert received > sum(map(int, sizes)), received
"""


@steady
def test_no_client_that_asks_for_several_large_answers_at_once_comes_to_stand_still(moved):
    """A byte that the kernel sends after a connection was looked at last is one that the next host of it must know of."""
    sizes = [70_000, 200_000, 65_536, 70_000, 120_000, 70_000]
    for size in sizes:
        (moved.files / str(size)).write_bytes(random.Random(size).randbytes(size))
    command = moved.hosts.on("client", [sys.executable, "-c", PIPELINES, hosts.VIP, moved.port, PIPELINES_TIMES, ",".join(map(str, sizes))])
    clients = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    told = [client.communicate(timeout=900)[1] for client in clients]
    expect([client.returncode for client in clients] == [0] * 4, told)


NOBODY = 65_534


@pytest.fixture
def open_directory():
    """One that every user can go into."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@steady
def test_dispatcher_and_agents_need_no_more_than_cap_net_admin_once_the_programs_are_loaded(open_directory):
    with Moved(open_directory, user=NOBODY) as moved:
        (moved.files / "1000000").write_bytes(random.Random(9).randbytes(1_000_000))
        done = moved.curl("client", moved.url("/1000000"), moved.url("/1000000"))
        expect_whole(done.returncode, done.stdout, content_of(moved, 1_000_000) * 2, done.stderr)
        expect(moved.counted("dispatcher", "steered") > 0, "no connection was moved")


@steady
def test_without_privileges_or_tables_all_is_relayed_and_the_log_says_why(open_directory):
    with Moved(open_directory) as moved:
        (moved.files / "1000000").write_bytes(random.Random(9).randbytes(1_000_000))
        moved.signal("dispatch", signal.SIGKILL).wait(60)
        moved.names.pop("dispatch")
        moved.switch("dispatcher", "clean")
        moved.start_dispatcher()
        moved.wait_until_it_answers()
        done = moved.curl("client", moved.url("/1000000"))
        expect_whole(done.returncode, done.stdout, content_of(moved, 1_000_000), done.stderr)
        assert "shunt switch load" in moved.log("dispatch") and "relayed" in moved.log("dispatch")

"""Shims and servers that are killed or stand still: multigets go on over TCP, or fail in time with the server's name."""

import random
import signal
import socket
import struct
import urllib.request

import pytest

from harness.redis import ANSWER_SECONDS, Multiget, only_with, patient, why_not
from harness.waits import DEADLINE_SECONDS, unpaused, until

# Of how many multigets in a row each is to go as it should again, which on a busy machine not each does.
IN_A_ROW = 8

pytestmark = only_with(why_not())

KEYS = [f"key:{number}" for number in range(200)]


@pytest.fixture
def tier(tmp_path):
    with Multiget(tmp_path, servers=3) as tier:
        yield tier


@pytest.fixture
def client(tier):
    with filled(tier) as client:
        yield client


def filled(tier):
    import redis

    client = redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS)
    for key in KEYS:
        client.set(key, key)
    return client


def values():
    return [key.encode() for key in KEYS]


def ask_for_few(client, times: int):
    """Multigets that fit one datagram, and so go to a coordinator as a whole."""
    for first in range(times):
        keys = KEYS[first:first + 12]
        assert client.mget(keys) == [key.encode() for key in keys]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_a_shim_its_server_is_asked_over_tcp_and_datagrams_come_back_by_themselves(tier, client, number):
    def are_silent(count: int) -> bool:
        """True if this many shims are silent. Any other may count as silent for a moment, if it did not run for a tenth of a second."""
        assert client.mget(KEYS) == values()
        return tier.status()["silent"] == count

    until(lambda: are_silent(0), "no shim is silent")
    tier.signal("shim-1", number)
    for _ in range(20):
        assert client.mget(KEYS) == values()
    until(lambda: are_silent(1), "one shim is silent")
    state = tier.status()
    assert state["keys_fallen_back"] > 0 and state["failed"] == 0
    if number == signal.SIGSTOP:
        tier.signal("shim-1", signal.SIGCONT)
    else:
        tier.processes["shim-1"].wait(DEADLINE_SECONDS)
        tier.start_shim(1)
    until(lambda: are_silent(0), "no shim is silent any more")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_a_coordinator_another_or_the_sidecar_asks_and_it_comes_back_by_itself(tmp_path, number):
    import redis

    with Multiget(tmp_path, servers=3, mode="coordinator") as tier, redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        for key in KEYS:
            client.set(key, key)
        for count in range(0, 30, 10):  # one after the other, until there is none
            ask_for_few(client, 50)
            state = tier.status()
            assert state["failed"] == 0 and state["coordinated"] > 0 and (state["uncoordinated"] > 0 or count == 0)
            tier.signal(f"shim-{count // 10}", number)
        assert client.mget(KEYS) == values()
        for index in range(3):
            if number == signal.SIGSTOP:
                tier.signal(f"shim-{index}", signal.SIGCONT)
            else:
                tier.processes[f"shim-{index}"].wait(DEADLINE_SECONDS)
                tier.start_shim(index)

        def is_back():
            before = tier.status()
            ask_for_few(client, IN_A_ROW)
            after = tier.status()
            # All are asked, and all answer.
            return after["silent"] == 0 and after["coordinated"] == before["coordinated"] + IN_A_ROW and after["uncoordinated"] == before["uncoordinated"]

        until(is_back, "all coordinate again")


def test_shims_that_coordinate_nothing_cost_a_coordinated_multiget_its_time_and_nothing_else(tmp_path):
    import redis

    with Multiget(tmp_path, servers=3) as tier:
        tier.stop("sidecar")
        tier.serve_options = patient(["--mode", "coordinator"])
        tier.start_sidecar()
        with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
            for key in KEYS:
                client.set(key, key)
            ask_for_few(client, 50)

            def is_nobody_silent():
                ask_for_few(client, 1)
                return tier.status()["silent"] == 0

            until(is_nobody_silent, "no shim is silent")
        state = tier.status()
        assert state["failed"] == 0 and state["uncoordinated"] > 0


@pytest.mark.parametrize("mode", ["cli", "coordinator"])
def test_shims_that_name_their_peers_in_another_order_cost_time_and_no_value(tmp_path, mode):
    import redis

    with Multiget(tmp_path, servers=3, mode="coordinator") as tier:
        tier.stop("sidecar")
        tier.serve_options = patient(["--mode", mode])
        for index in range(3):
            tier.stop(f"shim-{index}")
        first = tier.shim_options.index("--peer") + 1
        peers = tier.shim_options[first:]
        tier.shim_options[first:] = peers[1:] + peers[:1]
        for index in range(3):
            tier.start_shim(index)
        tier.start_sidecar()
        with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
            for key in KEYS:
                client.set(key, key)
            ask_for_few(client, 50)
        assert tier.status()["failed"] == 0
        assert all(tier.processes[f"shim-{index}"].poll() is None for index in range(3))


def test_an_answer_that_is_too_long_is_an_error_to_who_asked_and_to_nobody_else(tier, client):
    import redis

    for port in tier.server_ports:
        with redis.Redis(port=port) as server:
            server.execute_command("SETRANGE", "huge", str(70 << 20), "x")

    for _ in range(3):
        with pytest.raises(redis.ResponseError, match="more than 67108864 bytes.*ask for less"):
            client.get("huge")
        assert client.set(KEYS[0], KEYS[0]) and client.mget(KEYS) == values()
    with urllib.request.urlopen(f"http://127.0.0.1:{tier.admin_port}/metrics", timeout=DEADLINE_SECONDS) as answer:
        assert "\nshunt_sidecar_links_lost_total 0\n" in answer.read().decode()


def test_without_a_server_the_error_names_it_and_others_are_served(tier, client):
    import redis

    port = tier.server_ports[2]
    tier.stop("redis-2", signal.SIGKILL)
    with pytest.raises(redis.ResponseError, match=f"127.0.0.1:{port}"):
        client.mget(KEYS)
    found = 0
    for key in KEYS:
        try:
            found += client.mget(key, key) == [key.encode()] * 2
        except redis.ResponseError as error:
            assert f"127.0.0.1:{port}" in str(error)
    assert len(KEYS) // 2 < found < len(KEYS)
    tier.start_server(2)

    def is_back():
        try:
            return client.mget(KEYS).count(None) == len(KEYS) - found
        except redis.ResponseError:
            return False

    until(is_back, "the server answers again, of which nothing is left")


def test_a_server_that_stands_still_is_named_by_the_deadline(tmp_path):
    import redis

    def told(tier, client) -> str:
        tier.signal("redis-0", signal.SIGSTOP)
        try:
            return f"values, and no error: {client.mget(KEYS)}"
        except redis.ResponseError as error:
            return str(error)
        finally:
            tier.signal("redis-0", signal.SIGCONT)

    with Multiget(tmp_path, servers=3, serve_options=["--timeout-ms", "5s"], shim_options=["--timeout-ms", "500"]) as tier:
        # Whoever stands still for as long as a command may take, the sidecar or another server, may be the one that is named.
        client = unpaused(lambda: filled(tier), 3)
        assert f"127.0.0.1:{tier.server_ports[0]} has not answered within" in unpaused(lambda: told(tier, client), 3)

        def is_back():
            try:
                return client.mget(KEYS) == values()
            except redis.ResponseError:
                return False

        until(is_back, "the server answers again")


def test_connections_that_a_server_closes_are_made_again_for_the_next_command(tier, client):
    import redis

    for port in tier.server_ports:
        with redis.Redis(port=port) as server:
            server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    for key in KEYS:
        assert client.set(key, key)
    assert client.mget(KEYS) == values()


def test_noise_does_no_harm(tier, client):
    generator = random.Random(5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noise:
        for _ in range(2_000):
            data = generator.randbytes(generator.randrange(0, 100))
            if generator.random() < 0.7:
                head = struct.pack(">BIBBHBBB", 0x10 | generator.randrange(8), generator.randrange(100), 0, generator.randrange(4),
                                   generator.choice([0x8000, 0x4000, 0xC000]), 0, generator.randrange(4), generator.randrange(3))
                data = head + data
            noise.sendto(data, ("127.0.0.1", generator.choice(tier.shim_ports)))
        assert client.mget(KEYS) == values()
    state = tier.status()
    assert state["failed"] == 0


def test_an_order_to_end_finishes_what_there_is(tier, client):
    assert client.mget(KEYS) == values()
    assert tier.stop("sidecar") == 0
    assert all(tier.stop(f"shim-{index}") == 0 for index in range(3))


def test_a_source_that_nobody_vouches_for_is_not_answered_or_little(tmp_path):
    def request(keys):
        body = b"".join(struct.pack(">H", len(key)) + key for key in keys)
        bits = 1 << (16 - len(keys))
        return struct.pack(">BIBBHBBBBH", 0x11, 7, 0, len(keys), bits, 0, 0, 1, 0, len(body)) + body

    import redis

    for others, answered in (("0", False), ("100", True)):
        directory = tmp_path / others
        directory.mkdir()
        with Multiget(directory, servers=1, shim_options=["--allow", "10.0.0.0/8", "--others-rate-max", others]) as tier:
            with redis.Redis(port=tier.server_ports[0]) as server:
                server.set("large", b"x" * 1000)
                server.set("small", b"y")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
                # Of who is not answered nothing comes, however long it waits.
                asker.settimeout(DEADLINE_SECONDS if answered else 1)
                data = request([b"large", b"small"])
                bytes_back = 0
                for _ in range(50):
                    asker.sendto(data, ("127.0.0.1", tier.shim_ports[0]))
                    try:
                        reply = asker.recv(2000)
                    except TimeoutError:
                        if answered:
                            raise
                        break
                    assert answered and len(reply) <= 3 * len(data) and b"large" in reply and b"xxx" not in reply
                    bytes_back += len(reply)
                assert (bytes_back > 0) == answered
            # The sidecar is such a source, too: what it gets no answer to it asks over TCP.
            with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
                assert client.mget("large", "small", "none") == [b"x" * 1000, b"y", None]

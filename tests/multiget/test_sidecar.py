"""redis-py and redis-cli, unmodified, against a sidecar in front of five stock Redis servers: what MGET brings is what GETs bring one by one, whoever splits."""

import random
import socket
import subprocess

import pytest

from harness.redis import ANSWER_SECONDS, Multiget, only_with, why_not

pytestmark = only_with(why_not())

KEYS = 400


def value_of(number: int) -> bytes:
    """Some do not fit a datagram, and a few do not fit several."""
    length = {0: 2_000, 1: 70_000, 2: 1_440, 3: 0}.get(number % 40, number % 500)
    return random.Random(number).randbytes(length)


@pytest.fixture(scope="module", params=["tcp", "cli", "coordinator"])
def tier(tmp_path_factory, request):
    with Multiget(tmp_path_factory.mktemp("multiget"), mode=request.param) as tier:
        yield tier


@pytest.fixture(params=[2, 3])
def client(tier, request):
    import redis

    with redis.Redis(port=tier.port, protocol=request.param, socket_timeout=ANSWER_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def filled(tier):
    """Written through the sidecar; returns a client of each server."""
    import redis

    with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        for number in range(KEYS):
            client.set(f"key:{number}", value_of(number))
    return [redis.Redis(port=port, socket_timeout=ANSWER_SECONDS) for port in tier.server_ports]


def test_keys_are_spread_over_all_servers(filled):
    sizes = [server.dbsize() for server in filled]
    assert sum(sizes) >= KEYS and min(sizes) > KEYS // 10, sizes


def test_mget_is_what_gets_bring(client, filled, tier):
    generator = random.Random(1)
    before = tier.status()
    for count in [1, 2, 3, 8, 9, 16, 17, 40, 100, 1000]:
        keys = [f"key:{generator.randrange(KEYS + 100)}" for _ in range(count)]
        keys += keys[: count // 3]  # some twice
        expected = [client.get(key) for key in keys]
        assert client.mget(keys) == expected
        direct = [next((value for server in filled if (value := server.get(key)) is not None), None) for key in keys]
        assert expected == direct
    after = tier.status()
    assert (after["datagrams_sent"] > before["datagrams_sent"]) == (after["mode"] != "tcp") and after["keys_over_tcp"] > before["keys_over_tcp"]
    assert after["failed"] == 0
    if after["mode"] != "coordinator":
        assert after["coordinated"] == before["coordinated"]
        return

    def is_coordinated() -> bool:
        """False while each shim that is asked counts as silent: it was not run for a moment."""
        assert client.mget("key:4", "key:5", "none") == [value_of(4), value_of(5), None]
        return tier.status()["coordinated"] > before["coordinated"]

    tier.until(is_coordinated, "a multiget is coordinated")


def test_keys_of_all_lengths(client):
    keys = [b"k" * length for length in (0, 1, 250, 1023, 1024, 1025, 5000)] + [bytes(range(256)), b"\r\n", b"{tag}a", b"{tag}b"]
    for number, key in enumerate(keys):
        client.set(key, number)
    keys = keys * 3
    assert client.mget(keys) == [str(number % (len(keys) // 3)).encode() for number in range(len(keys))]


def test_written_values_are_read(client):
    for number in range(200):
        client.set("own", number)
        assert client.mget("own", "none") == [str(number).encode(), None]
    client.delete("own")
    assert client.mget("own", "own") == [None, None]


def test_pipelined_commands_do_not_overtake_one_another(client):
    with client.pipeline(transaction=False) as pipeline:
        expected = []
        for number in range(300):
            pipeline.set("turn", number)
            pipeline.mget("turn", "key:5", "turn")
            pipeline.incr("turn")
            pipeline.get("turn")
            expected += [True, [str(number).encode(), value_of(5), str(number).encode()], number + 1, str(number + 1).encode()]
        client.set("key:5", value_of(5))
        assert pipeline.execute() == expected


def test_a_key_of_another_kind_is_an_error_of_get_and_nothing_to_mget(client):
    import redis

    client.delete("list")
    client.rpush("list", "x")
    client.hset("hash", mapping={"a": "1"})
    assert client.hgetall("hash") == {b"a": b"1"}
    assert client.mget("list", "key:1", "hash") == [None, value_of(1), None]
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.get("list")


def test_commands_that_are_not_passed_on_are_named(client):
    import redis

    for command, why in [(("FLUSHALL",), "flushall"), (("MULTI",), "multi"), (("SUNION", *[f"key:{n}" for n in range(20)]), "several servers"),
                         (("SELECT", "1"), "database 0"), (("GET",), "wrong number"), (("MGET", *["x"] * 10_001), "10000 keys")]:
        with pytest.raises(redis.ResponseError, match=why):
            client.execute_command(*command)
    assert client.ping()


def test_redis_cli(tier, filled):
    def cli(*arguments, stdin=None):
        command = ["redis-cli", "-p", str(tier.port), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True).stdout

    assert cli("set", "cli", "value") == "OK\n"
    assert cli("mget", "cli", "nothing", "cli") == "value\n\nvalue\n"
    assert cli("-3", "--no-raw", "mget", "cli", "nothing") == '1) "value"\n2) (nil)\n'
    assert cli("--no-raw", "get", "cli", stdin="") == '"value"\n'
    assert cli(stdin="mget cli nothing cli\nping\n") == "value\n\nvalue\nPONG\n"


def test_bytes_that_are_not_resp_get_an_error_and_a_close(tier):
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n:1\r\n", b"*1\r\n$99999999999\r\n", b"*9999999\r\n"):
        with socket.create_connection(("127.0.0.1", tier.port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(text)
            answer = b""
            while part := connection.recv(4096):
                answer += part
            assert answer.startswith(b"-ERR Protocol error"), answer


def test_many_clients_at_a_time(tier, filled):
    import threading

    import redis

    wrong = []

    def work(seed):
        generator = random.Random(seed)
        with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
            for _ in range(60):
                keys = [generator.randrange(KEYS) for _ in range(generator.randrange(1, 30))]
                expected = [value_of(number) for number in keys]
                if client.mget([f"key:{number}" for number in keys]) != expected:
                    wrong.append(keys)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_configurations_are_checked_and_what_is_wrong_is_named(tmp_path):
    from harness.proxy import binary

    def check(*arguments):
        done = subprocess.run([binary(), "check", "multiget", *arguments], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    file = tmp_path / "sidecar.toml"
    file.write_text('server = ["127.0.0.1:1", "127.0.0.2:1"]\n')
    assert check("serve", "--config", file) == (0, "valid\n")
    assert check("shim")[0] == 0
    assert check("serve", "--server", "[::1]:1", "[::1]:2")[0] == 0
    for arguments, why in [(("serve", "--server", "127.0.0.1:1", "127.0.0.1:1"), "named twice"),
                           (("serve", "--server", "127.0.0.1:1=127.0.0.1:2"), "uses no shims"),
                           (("serve", "--mode", "cli", "--server", "127.0.0.1:1", "127.0.0.1:2"), "named twice"),
                           (("serve", "--mode", "cli", "--server", "[::1]:1"), "give one of its kind"),
                           (("serve", "--server", "127.0.0.1:1", "--mode", "netmc"), "give --switch"),
                           (("serve", "--server", "127.0.0.1:1", "--switch", "127.0.0.1:9"), "--mode netmc alone"),
                           (("serve", "--server", "127.0.0.1:1", "--mode", "netmc", "--switch", "[::1]:9"), "give one of its kind"),
                           (("serve", "--server", "127.0.0.1:1", "--mode", "netmc", "--switch", "127.0.0.1:9700"), "is a shim of --server"),
                           (("serve", "--server", "127.0.0.1:1", "--cluster", "--mode", "netmc", "--switch", "127.0.0.1:9"), "use --mode tcp or cli"),
                           (("serve", "--mode", "cli", "--server", "127.0.0.1:1", "--cores", "2", "--from", "0.0.0.0:5000"), "a separate port"),
                           (("serve", "--server", "127.0.0.1"), "give HOST:PORT"),
                           (("serve", "--mode", "guess", "--server", "127.0.0.1:1"), "tcp, cli, coordinator"),
                           (("shim", "--peer", "127.0.0.1:9701"), "not among them"),
                           (("shim", "--peer", "127.0.0.1:9700", "127.0.0.1:9700"), "named twice"),
                           (("shim", "--cores", "2", "--peer", "127.0.0.1:9700"), "leave --cores at 1"),
                           (("shim", "--allow", "10.0.0/8"), "such as 10.0.0.0/8")]:
        code, text = check(*arguments)
        assert code == 2 and why in text, text

"""A server with the module answers as a shim beside it does, and is harmed by nothing that comes in a datagram."""

import os
import random
import signal
import socket
import subprocess
import threading

import pytest

from harness.netmc import DATAGRAM_BYTES_MAX, GET, HIT, MISS, OVER_TCP, TOO_BIG, items, parts, whole
from harness.ports import free_port
from harness.processes import stop
from harness.proxy import binary
from harness.redis import ANSWER_SECONDS, only_with, why_not
from harness.redis_module import MultigetByModule, Server, servers
from harness.waits import DEADLINE_SECONDS, until

pytestmark = only_with(why_not())

REQUESTS = int(os.environ.get("SHUNT_MULTIGET_REQUESTS", "300"))
SENTINEL = b"sentinel"


@pytest.fixture(params=servers(), ids=lambda program: os.path.basename(program))
def program(request):
    return request.param


@pytest.fixture
def start(tmp_path, program):
    """Starts servers of one kind, each in a directory of its own; all end with the test."""
    begun = []

    def begin(options=(), server_options=()):
        directory = tmp_path / f"server-{len(begun)}"
        directory.mkdir()
        begun.append(Server(directory, options, server_options, program))
        return begun[-1].__enter__()

    yield begin
    for server in reversed(begun):
        server.__exit__()


def fill(redis, generator) -> list:
    """Values of all sizes about limits, numbers, other types, keys of all lengths. Returns the keys, some of which are missing."""
    sizes = [0, 1, 5, 44, 45, 64, 127, 128, 129, 256, 1000, *range(1425, 1440), 2000, 100_000]
    names = [b"k%03d" % number for number in range(400)]
    for name in names:
        kind = generator.random()
        if kind < 0.15:
            continue
        if kind < 0.2:
            redis.rpush(name, b"x")
        elif kind < 0.3:
            redis.set(name, generator.randrange(-10**6, 10**18))
        else:
            redis.set(name, generator.randbytes(generator.choice(sizes)))
    for name in (b"", b"K" * 1024, *(generator.randbytes(generator.randrange(1, 80)) for _ in range(60))):
        redis.set(name, generator.randbytes(generator.randrange(1400)))
        names.append(name)
    redis.set(SENTINEL, "here")
    return names


def datagrams(names, generator, count: int):
    """Requests of all forms, and mutations of them."""
    for number in range(count):
        keys = generator.sample(names, generator.randrange(1, 17))
        while sum(len(key) + 2 for key in keys) > 1300:
            keys.pop()
        cut = generator.randrange(1, len(keys)) if len(keys) > 1 else 0
        groups = [(9, keys[:cut]), (4, keys[cut:])] if cut else [(3, keys)]
        found = [whole(number, [(3, keys)]), whole(number, [(3, keys[:1])], GET), whole(number, groups), *parts(number, groups, trimmed=bool(number % 2))]
        data = found[number % len(found)]
        if generator.random() < 0.5:
            yield data
            continue
        data = bytearray(data)
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(min(len(data), generator.choice([20, len(data)])))] = generator.randrange(256)
        if generator.random() < 0.3:
            data = data[:generator.randrange(len(data) + 1)]
        if generator.random() < 0.1:
            data += generator.randbytes(generator.choice([1, 40, DATAGRAM_BYTES_MAX]))
        yield bytes(data)


@pytest.fixture
def shim(start):
    """A server, and the port of a shim beside it."""
    import contextlib

    @contextlib.contextmanager
    def begin(server, *options):
        port = server.datagram_port + 1 if server.datagram_port % 2 else server.datagram_port - 1
        server.run("shim", [binary(), "multiget", "shim", "--listen", f"127.0.0.1:{port}", "--server", f"127.0.0.1:{server.port}", "--timeout-ms", "60s", *options])
        server.until(lambda: "listening for datagrams" in server.said("shim"), "the shim listens", "shim")
        from harness.netmc import Client

        with Client(port) as client:
            server.until(lambda: client.statuses(SENTINEL) == [HIT], "the shim is connected", "shim")
            yield client

    return begin


@pytest.mark.parametrize("allow", ["127.0.0.0/8", "192.0.2.1"], ids=["listed", "unlisted"])
def test_answers_are_those_of_a_shim_to_the_byte(start, shim, allow):
    server, generator = start(["allow", allow, "others-rate-max", 1_000_000]), random.Random(7)
    redis = server.redis()
    names = fill(redis, generator)
    encodings = {name: redis.object("encoding", name) for name in names if redis.exists(name)}
    statuses = [0] * 4
    with server.client() as module, shim(server, "--allow", allow, "--others-rate-max", "1000000") as other:
        for data in datagrams(names, generator, REQUESTS):
            replies, expected = module.replies(data, SENTINEL), other.replies(data, SENTINEL)
            assert replies == expected, data.hex()
            assert allow.startswith("127.") or sum(map(len, replies)) <= 3 * len(data)
            for reply in replies:
                for _, status, _, _ in items(reply):
                    statuses[status] += 1
    assert statuses[HIT] and statuses[MISS] and statuses[TOO_BIG] and (statuses[OVER_TCP] or allow != "127.0.0.0/8")
    # To read a value leaves it as it is: its bytes are not copied into an object of their own.
    assert {name: redis.object("encoding", name) for name in encodings} == encodings
    counts = server.info()
    assert counts["rejected_malformed"] and counts["rejected_not_split"] and counts["state"] == "serving"


def test_values_are_right_while_others_write_expire_evict_and_save(start):
    server = start(server_options=["--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lfu", "--appendonly", "yes", "--appendfsync", "no"])
    names, finished, failures = [b"key%03d" % number for number in range(500)], threading.Event(), []

    def write():
        redis, generator, turn = server.redis(), random.Random(1), 0
        try:
            while not finished.is_set():
                pipeline = redis.pipeline(transaction=bool(turn % 2))
                for name in generator.sample(names, 20):
                    value = name * generator.choice([1, 10, 30, 100, 5000])
                    pipeline.set(name, value, px=generator.choice([None, 1, 20]))
                    pipeline.delete(generator.choice(names))
                pipeline.execute()
                turn += 1
                if turn % 100 == 0 and not redis.info("persistence")["aof_rewrite_in_progress"]:
                    redis.bgrewriteaof()
        except Exception as failure:  # noqa: BLE001
            failures.append(failure)

    writer = threading.Thread(target=write)
    writer.start()
    generator, statuses = random.Random(2), [0] * 4
    try:
        with server.client() as client:

            def ask():
                keys = generator.sample(names, 16)
                for key, (status, value) in zip(keys, client.get(*keys), strict=True):
                    statuses[status] += 1
                    assert value == (key * (len(value) // len(key)) if status == HIT else b"")
                client.send(generator.randbytes(generator.randrange(60)))

            def has_happened() -> bool:
                ask()
                counts = server.redis().info("stats")
                return all(statuses[:3]) and counts["evicted_keys"] and counts["expired_keys"]

            for _ in range(REQUESTS):
                ask()
            until(has_happened, "keys were there, missing, large, expired and evicted")
    finally:
        finished.set()
        writer.join()
    assert not failures and not statuses[OVER_TCP]


def test_an_expired_key_is_missing_and_its_deletion_reaches_replica_and_file(start):
    server = start(server_options=["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"])
    replica = start(server_options=["--replicaof", "127.0.0.1", str(server.port)])
    redis, copy = server.redis(), replica.redis()
    until(lambda: copy.info("replication")["master_link_status"] == "up", "the replica is connected")
    redis.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    redis.mset({"left": "x" * 300})
    redis.set("short", "v", px=1)
    redis.set("long", "v" * 300, px=1)
    with server.client() as client:
        until(lambda: client.statuses(b"short", b"long", b"left") == [MISS, MISS, HIT], "the keys have expired")
    # Not DBSIZE: a replica counts expired keys that nobody has deleted.
    until(lambda: copy.dbsize() == 1, "the deletions reach the replica")
    files = list(server.directory.glob("**/*.incr.aof"))
    assert files and b"".join(file.read_bytes() for file in files).count(b"DEL") + b"".join(file.read_bytes() for file in files).count(b"UNLINK") == 2
    assert redis.dbsize() == 1 and redis.info("stats")["expired_keys"] == 2


def test_a_value_is_in_the_file_before_a_datagram_shows_it(start):
    server = start(server_options=["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"])
    redis = server.redis()
    redis.ping()
    [file] = until(lambda: list(server.directory.glob("**/*.incr.aof")), "the file is there")
    with server.client() as client:
        client.socket.settimeout(DEADLINE_SECONDS)
        for round_ in range(20):
            value = b"value-%d" % round_
            # The file takes longer to write than the answer to come: the key is behind much else.
            pipeline = redis.pipeline(transaction=True).set("large", b"x" * (4 << 20)).set("key", value)
            writer = threading.Thread(target=pipeline.execute)
            writer.start()
            waiting = 8
            for _ in range(waiting):
                client.send(client.request([b"key"]))
            while waiting:
                [(_, _, _, found)] = items(client.socket.recv(65536))
                if found == value:
                    with file.open("rb") as text:
                        text.seek(max(0, file.stat().st_size - 200))
                        assert value in text.read(), "a crash now would undo what a client has seen"
                    waiting -= 1
                else:
                    client.send(client.request([b"key"]))
            writer.join()


def test_nobody_reads_more_than_the_user_may(start):
    server = start(["user", "datagrams"], ["--user", "datagrams", "on", ">secret", "~open:*", "+mget", "--requirepass", "secret"])
    redis = server.redis(password="secret")
    redis.mset({"open:short": "v", "open:long": "v" * 300, "shut:short": "v", "shut:long": "v" * 300})
    keys = [b"open:short", b"shut:short", b"open:long", b"shut:long", b"shut:none"]
    with server.client() as client:
        assert client.statuses(*keys) == [HIT, OVER_TCP, HIT, OVER_TCP, OVER_TCP]
        assert client.statuses(b"open:long", op=GET) == [OVER_TCP], "the user may not GET"
        redis.execute_command("ACL", "SETUSER", "datagrams", "+get", "~shut:*")
        assert client.statuses(*keys) == [HIT, HIT, HIT, HIT, MISS]
        assert client.statuses(b"open:long", op=GET) == [HIT]
        for rule in ("off", "on"):
            redis.execute_command("ACL", "SETUSER", "datagrams", rule)
            expected = [OVER_TCP if rule == "off" else HIT]
            until(lambda expected=expected: client.statuses(b"open:long") == expected, f"the user is {rule}")
        redis.execute_command("ACL", "DELUSER", "datagrams")
        until(lambda: client.statuses(b"open:long") == [OVER_TCP] and server.info(redis)["state"] == "the user does not exist", "the user is gone")


def test_a_password_is_not_passed_by_datagrams_unless_a_user_is_named(start):
    server = start()
    redis = server.redis()
    redis.set("key", "v" * 300)
    with server.client() as client:
        assert client.statuses(b"key") == [HIT]
        redis.config_set("requirepass", "secret")
        until(lambda: client.statuses(b"key") == [OVER_TCP], "the password counts")
    assert "the default user has a password" in server.said("server")


def test_while_a_data_set_is_loaded_each_key_is_for_tcp(start):
    server = start()
    redis = server.redis()
    pipeline = redis.pipeline(transaction=False)
    for number in range(3000):
        pipeline.set(f"key{number}", "v" * 200)
    pipeline.execute()
    redis.save()
    server.stop("server")
    server.run("server", server.command("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"))
    seen = []
    with server.client() as client:

        def is_loaded() -> bool:
            seen.extend(client.statuses(b"key0", b"key2999", b"none"))
            return seen[-3:] != [OVER_TCP] * 3

        until(is_loaded, "the server has loaded", every_seconds=0.02)
        assert seen[-3:] == [HIT, HIT, MISS], "all of the data set, or nothing"
    assert set(seen[:-3]) == {OVER_TCP}


def test_a_script_that_has_written_half_is_not_read(start):
    server = start(server_options=["--busy-reply-threshold", "1"])
    redis = server.redis()
    redis.set("key", "before" * 50)
    script = """redis.call('SET', 'key', 'half')
        local now = redis.call('TIME')
        local till = now[1] * 1000000 + now[2] + 300000
        repeat now = redis.call('TIME') until now[1] * 1000000 + now[2] > till
        return redis.call('SET', 'key', 'whole')"""
    runner = threading.Thread(target=lambda: server.redis().eval(script, 0))
    runner.start()
    values = set()
    with server.client() as client:
        while runner.is_alive():
            values.update(value for _, value in client.get(b"key"))
        assert client.get(b"key") == [(HIT, b"whole")]
    assert values <= {b"before" * 50, b"whole"}


def test_one_database_is_read(start):
    server = start(["database", 3])
    server.redis(db=3).set("key", "third")
    server.redis().set("other", "first")
    with server.client() as client:
        assert client.get(b"key", b"other") == [(HIT, b"third"), (MISS, b"")]


def test_sources_of_ipv6_are_answered_where_they_are_allowed(start):
    server = start(["bind", "::1", "allow", "::1/64"])
    server.redis().set("key", "value")
    with server.client("::1") as client:
        assert client.get(b"key", b"none") == [(HIT, b"value"), (MISS, b"")]


def test_a_stale_replica_and_paused_clients_have_no_values(start):
    server = start()
    redis = server.redis()
    redis.set("key", "value")
    with server.client() as client:
        assert client.statuses(b"key") == [HIT]
        redis.client_pause(DEADLINE_SECONDS * 1000, all=False)
        assert client.statuses(b"key") == [OVER_TCP]
        redis.client_unpause()
        assert client.statuses(b"key") == [HIT]
        # Nobody listens there.
        redis.replicaof("127.0.0.1", 1)
        assert client.statuses(b"key") == [OVER_TCP]
        assert server.info()["state"] == "stale replica"
        redis.replicaof("NO", "ONE")
        assert client.statuses(b"key") == [HIT]


def test_a_node_of_a_cluster_answers_for_its_own_slots(start):
    # By default a node takes the port 10,000 above its own, which may be another program's.
    server = start(server_options=["--cluster-enabled", "yes", "--cluster-port", str(free_port())])
    redis = server.redis()
    redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    until(lambda: "cluster_state:ok" in str(redis.execute_command("CLUSTER", "INFO")), "the cluster is complete")
    redis.set("foo", "v" * 300)
    redis.set("bar", "short")
    redis.rpush("hello", "x")
    keys = [b"foo", b"bar", b"hello", b"none"]
    with server.client() as client:
        assert client.statuses(*keys) == [HIT, HIT, MISS, MISS]
        assert client.statuses(b"hello", op=GET) == [OVER_TCP]
        # The slot of "foo".
        redis.execute_command("CLUSTER", "SETSLOT", 12182, "NODE", redis.execute_command("CLUSTER", "MYID"))
        redis.execute_command("CLUSTER", "DELSLOTS", 12182)
        redis.config_set("cluster-require-full-coverage", "no")
        until(lambda: client.statuses(*keys) == [OVER_TCP, HIT, MISS, MISS], "one slot is nobody's")


def test_sources_that_nobody_allowed_get_nothing_and_others_their_rate(start):
    server = start(["allow", "127.0.0.9,192.0.2.0/24", "rate-max", 1])
    redis = server.redis()
    redis.set("key", "value")
    with server.client() as stranger, server.client("127.0.0.9") as client:
        stranger.send(stranger.request([b"key"]))
        until(lambda: server.info()["rejected_source"] == 1, "it is counted")
        pid = server.processes["server"].pid
        stop(pid)
        for _ in range(40):
            client.send(client.request([b"key"]))
        os.kill(pid, signal.SIGCONT)
        until(lambda: server.info()["datagrams"] == 41, "all have come")
    counts = server.info()
    assert counts["requests"] + counts["rejected_rate"] == 40 and counts["requests"] < 40 and counts["items_hit"] == counts["requests"]


def test_a_turn_ends_and_the_servers_own_clients_come_before_the_next(start):
    limit, flood = 16, 240
    server = start(["turn-datagrams-max", limit])
    redis = server.redis(single_connection_client=True)
    redis.mset({f"key{number}": "v" * 40 for number in range(16)})
    before = server.info(redis)["datagrams"]
    pid = server.processes["server"].pid
    with server.client() as client, socket.create_connection(("127.0.0.1", server.port)) as tcp:
        stop(pid)
        for _ in range(flood):
            client.send(client.request([b"key%d" % number for number in range(4)]))
        tcp.sendall(b"INFO shunt_multiget\r\n")
        os.kill(pid, signal.SIGCONT)
        tcp.settimeout(DEADLINE_SECONDS)
        answer = b""
        while b"gso_refused" not in answer:
            answer += tcp.recv(65536)
        until(lambda: server.info(redis)["datagrams"] == before + flood, "all datagrams are served")
    # The command was there with the first datagram: it waited for two turns at most.
    served = int(answer.split(b"shunt_multiget_datagrams:")[1].split(b"\r\n")[0]) - before
    counts = server.info(redis)
    assert served <= 2 * limit, served
    assert counts["turn_datagrams_max"] == limit and counts["turns_full"] >= flood // limit


def test_a_turn_ends_when_keys_take_long(start):
    """The user may read by the last of very many patterns, each of which is compared with each key."""
    server = start(["user", "cache", "turn-datagrams-max", 4096])
    redis = server.redis()
    redis.execute_command("ACL", "SETUSER", "cache", "on", "nopass", "+mget", *(f"~{number}:*" for number in range(5000)), "~key*")
    names = [b"key%d" % number for number in range(16)]
    redis.mset({name: "v" for name in names})
    flood, pid = 160, server.processes["server"].pid
    with server.client() as client:
        until(lambda: client.statuses(*names) == [HIT] * len(names), "the user counts")
        before = server.info(redis)["datagrams"]
        stop(pid)
        for _ in range(flood):
            client.send(client.request(names))
        os.kill(pid, signal.SIGCONT)
        until(lambda: server.info(redis)["datagrams"] == before + flood, "all datagrams are served")
    counts = server.info(redis)
    assert counts["turn_datagrams_max"] <= 32 and counts["turns_full"] >= flood // 32 - 1, counts


def test_it_can_be_unloaded_and_loaded_again(start):
    from harness.redis_module import module

    server = start()
    redis = server.redis()
    redis.set("key", "value")
    with server.client() as client:
        for _ in range(3):
            assert client.statuses(b"key") == [HIT]
            redis.execute_command("MODULE", "UNLOAD", "shunt_multiget")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.bind(("127.0.0.1", server.datagram_port))
            redis.execute_command("MODULE", "LOAD", str(module()), "port", server.datagram_port)
        assert client.statuses(b"key") == [HIT]
        assert server.info()["items_hit"] == 1


def test_a_child_that_saves_does_not_keep_the_port(start):
    server = start(server_options=["--rdb-key-save-delay", "1000000"])
    redis = server.redis()
    redis.mset({f"key{number}": "value" for number in range(DEADLINE_SECONDS)})
    redis.bgsave()
    assert redis.info("persistence")["rdb_bgsave_in_progress"] == 1
    server.stop("server", signal.SIGKILL)
    # Its child saves on, a key a second.
    server.start()
    with server.client() as client:
        assert client.statuses(b"key1") == [MISS]


@pytest.mark.parametrize(("options", "expected"), [
    (["port", "0"], "option port 0: expected a port from 1 to 65535"),
    (["allow", "10.0.0.0/33"], "option allow 10.0.0.0/33: expected up to 64 networks"),
    (["rate-max", "-1"], "option rate-max -1: expected a number"),
    (["database", "99"], "option database 99: the server has no such database"),
    (["user"], "option user has no value"),
    (["gso", "maybe"], "expected yes or no"),
    (["bind", "192.0.2.1"], "cannot listen for datagrams on 192.0.2.1 port"),
    (["turns", "3"], "expected one of bind, port, allow"),
])
def test_wrong_options_are_named_and_the_server_does_not_start(tmp_path, program, options, expected):
    server = Server(tmp_path, options, (), program)
    done = subprocess.run([str(part) for part in server.command()], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 1 and expected in done.stdout, done.stdout


def test_a_second_server_with_the_same_port_does_not_start(start):
    server = start()
    directory = server.directory / "second"
    directory.mkdir()
    second = Server(directory, (), (), server.program)
    second.datagram_port = server.datagram_port
    done = subprocess.run([str(part) for part in second.command()], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 1 and "Address already in use" in done.stdout


@pytest.mark.parametrize("gso", ["yes", "no"])
def test_many_replies_to_one_peer_leave_together_where_they_may(start, gso):
    server = start(["gso", gso])
    server.redis().mset({f"key{number:02}": bytes([number]) * 1000 for number in range(16)})
    keys = [b"key%02d" % number for number in range(16)]
    with server.client() as client:
        assert client.get(*keys) == [(HIT, bytes([number]) * 1000) for number in range(16)]
    counts = server.info()
    # On a slow machine the client has asked twice, and both may have one message.
    assert counts["replies"] == 16 * counts["requests"] and counts["replies_unsent"] == counts["gso_refused"] == 0
    assert counts["messages"] <= counts["requests"] if gso == "yes" else counts["messages"] == 16 * counts["requests"]


@pytest.mark.parametrize("mode", ["cli"])
def test_a_sidecar_asks_servers_with_the_module_as_it_asks_shims(tmp_path, mode):
    import redis

    with MultigetByModule(tmp_path, servers=3, mode=mode) as tier, redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        values = {f"key:{number}": bytes([number]) * (number * 7) for number in range(120)} | {"large": b"v" * 5000}
        for key, value in values.items():
            client.set(key, value)
        keys = [*values, "none"]
        assert client.mget(keys) == [*values.values(), None]

        def bring_datagrams_all() -> bool:
            before = tier.status()["keys_over_tcp"]
            assert client.mget(keys[:100]) == list(values.values())[:100]
            return tier.status()["keys_over_tcp"] == before

        until(bring_datagrams_all, "datagrams have all that is asked for")
        for port in tier.server_ports:
            with redis.Redis(port=port) as server:
                assert server.info("shunt_multiget")["shunt_multiget_items_hit"] > 0
        assert tier.status()["failed"] == 0

"""DEL, UNLINK, EXISTS, TOUCH and MSET over several servers: a sidecar answers as one Redis server
would, and a command that fails in part says so."""

import os
import random
import signal
import subprocess

import pytest

from harness.ports import free_port
from harness.redis import ANSWER_SECONDS, Multiget, Processes, only_with, why_not
from harness.redis_cluster import Cluster
from harness.waits import unpaused, until

pytestmark = only_with(why_not())

KEYS = [f"key:{number}" for number in range(60)]


class One(Processes):
    """One Redis server, which has all keys."""

    def start(self):
        self.port = free_port()
        self.run("one", ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.directory])
        self.until(lambda: "eady to accept connections" in self.log("one"), "the server answers", "one")


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    with One(tmp_path_factory.mktemp("one")) as one:
        yield one


@pytest.fixture(scope="module", params=["tcp", "cli", "cluster"])
def tier(tmp_path_factory, request):
    directory = tmp_path_factory.mktemp("split")
    with Cluster(directory, mode="tcp") if request.param == "cluster" else Multiget(directory, servers=3, mode=request.param) as tier:
        yield tier


def client_of(port: int, protocol: int = 2):
    import redis

    return redis.Redis(port=port, protocol=protocol, socket_timeout=ANSWER_SECONDS)


def made_up(generator: random.Random) -> list:
    """A command, of which most have keys on several servers, and some stand there twice."""
    keys = generator.choices(KEYS, k=generator.choice([1, 2, 3, 8, 20]))
    value = generator.choice(["", "x", "y" * 2_000])
    match generator.randrange(12):
        case 0:
            return ["MSET", *(word for number, key in enumerate(keys) for word in (key, f"{value}{number}"))]
        case 1:
            return [generator.choice(["DEL", "del", "UNLINK"]), *keys]
        case 2 | 3:
            return [generator.choice(["EXISTS", "TOUCH", "Touch"]), *keys]
        case 4 | 5:
            return ["MGET", *keys]
        case 6:
            return ["SET", keys[0], value]
        case 7:
            return ["GET", keys[0]]
        case 8:
            return ["RPUSH", "list:" + keys[0], "x"]
        case 9:
            return ["DEL", "list:" + keys[0], *keys]
        case 10:
            return [generator.choice(["MSET", "DEL", "EXISTS", "UNLINK", "TOUCH"])]
        case _:
            return ["MSET", *keys[:1], "x", *keys[1:2]]


def outcome(found):
    """The number of arguments is the only mistake that is made here, and versions of Redis have different words for it."""
    import redis

    if isinstance(found, redis.ResponseError):
        assert "wrong number of arguments" in str(found), found
        return "an error"
    return found


@pytest.mark.parametrize("protocol", [2, 3])
def test_answers_are_those_of_one_server(tier, one, protocol):
    seed = int(os.environ.get("SHUNT_MULTIGET_SEED", protocol))
    generator = random.Random(seed)
    with client_of(tier.port, protocol) as split, client_of(one.port, protocol) as whole:
        whole.flushall()
        for key in [*KEYS, *("list:" + key for key in KEYS)]:
            split.delete(key)
        before = tier.status()
        for _ in range(150):
            commands = [made_up(generator) for _ in range(generator.choice([1, 5, 40]))]
            answers = []
            for client in (split, whole):
                with client.pipeline(transaction=False) as pipeline:
                    for command in commands:
                        pipeline.execute_command(*command)
                    answers.append([outcome(found) for found in pipeline.execute(raise_on_error=False)])
            for command, found, expected in zip(commands, *answers, strict=True):
                assert found == expected, (seed, command)
        assert split.mget(KEYS) == whole.mget(KEYS)
        after = tier.status()
        assert after["split"] > before["split"] + 100 and after["split_failed"] == before["split_failed"]


def test_library_calls_over_several_servers(tier):
    with client_of(tier.port) as client:
        assert client.mset({key: number for number, key in enumerate(KEYS)})
        assert client.mget(KEYS) == [str(number).encode() for number in range(len(KEYS))]
        assert client.exists(*KEYS, *KEYS, "none") == 2 * len(KEYS)
        assert client.touch(*KEYS, "none") == len(KEYS)
        assert client.unlink(*KEYS[:10], "none") == 10
        assert client.delete(*KEYS, *KEYS) == len(KEYS) - 10
        assert client.exists(*KEYS) == 0
    command = ["redis-cli", "-p", str(tier.port), "mset", "a", "1", "b", "2", "c", "3"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True).stdout == "OK\n"


def test_atomic_commands_are_not_split(tier):
    import redis

    with client_of(tier.port) as client:
        client.delete("a", "b", "c", "{tag}a", "{tag}b")
        with pytest.raises(redis.ResponseError, match="keys of 'msetnx' are on several servers, which cannot set all|same slot"):
            client.msetnx({"a": 1, "b": 1, "c": 1})
        assert client.exists("a", "b", "c") == 0
        assert client.msetnx({"{tag}a": 1, "{tag}b": 1}) and not client.msetnx({"{tag}a": 2, "{tag}c": 2})
        # There is no transaction that a split could tear: nothing is queued, and each command stands for itself.
        answers = []
        with client.pipeline(transaction=False) as pipeline:
            for command in (["MULTI"], ["MSET", "a", "1", "b", "2"], ["DEL", "a", "b"], ["EXEC"]):
                pipeline.execute_command(*command)
            answers = pipeline.execute(raise_on_error=False)
        assert "'multi' is not passed on" in str(answers[0]) and "'exec' is not passed on" in str(answers[3]), answers
        assert answers[1] in (True, b"OK") and answers[2] == 2


def test_a_split_command_has_a_bound_of_keys(tier):
    import redis

    keys = [f"many:{number}" for number in range(10_000)]
    with client_of(tier.port) as client:
        assert client.mset(dict.fromkeys(keys, "x"))
        assert client.exists(*keys) == len(keys)
        assert client.delete(*keys) == len(keys)
        for command in (["DEL", *keys, "more"], ["MSET", *(word for key in [*keys, "more"] for word in (key, "x"))]):
            with pytest.raises(redis.ResponseError, match="over several servers has at most 10000 keys"):
                client.execute_command(*command)
        assert client.exists(*keys) == 0


def test_a_server_that_is_gone_leaves_the_parts_of_others_done_and_the_error_says_so(tmp_path):
    import redis

    with Multiget(tmp_path, servers=3, mode="tcp") as tier, client_of(tier.port) as client:
        client.mset({key: "old" for key in KEYS})
        with client_of(tier.server_ports[0]) as server:
            theirs = [key for key in KEYS if server.exists(key)]
        others = [key for key in KEYS if key not in theirs]
        assert theirs and others
        tier.stop("redis-0", signal.SIGKILL)
        def told() -> str:
            """The first of them finds the connection lost, the next one tries the server, and for a short time all others know that it is not there."""
            with pytest.raises(redis.ResponseError) as told:
                client.mset({key: "new" for key in KEYS})
            return str(told.value)

        def told_that_it_is_gone() -> str:
            text = told()
            return text if text.startswith("MSET was carried out for ") and address in text else ""

        address = f"the server 127.0.0.1:{tier.server_ports[0]} refuses connections"
        text = until(told_that_it_is_gone, "a command is carried out in part")
        assert text.startswith(f"MSET was carried out for {len(others)} of {len(KEYS)} keys, not for {len(theirs)}: {address}"), text
        assert client.mget(others) == [b"new"] * len(others)
        with pytest.raises(redis.ResponseError, match=f"^the server 127.0.0.1:{tier.server_ports[0]} "):
            client.exists(*KEYS)


def test_a_server_that_takes_no_writes_is_named_with_its_own_words(tmp_path):
    import redis

    with Multiget(tmp_path, servers=3, mode="tcp") as tier, client_of(tier.port) as client, client_of(tier.server_ports[0]) as server:
        client.mset({key: "old" for key in KEYS})
        theirs = [key for key in KEYS if server.exists(key)]
        server.config_set("maxmemory", "1")
        with pytest.raises(redis.ResponseError) as told:
            client.mset({key: "new" for key in KEYS})
        count = len(KEYS) - len(theirs)
        start = f"MSET was carried out for {count} of {len(KEYS)} keys, not for {len(theirs)}: the server 127.0.0.1:{tier.server_ports[0]} has answered OOM "
        assert str(told.value).startswith(start), told.value
        assert client.mget(theirs) == [b"old"] * len(theirs)
        # Of what is refused as a whole the code of the server is the answer's.
        for number in (1, 2):
            with client_of(tier.server_ports[number]) as other:
                other.config_set("maxmemory", "1")
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.mset({key: "new" for key in KEYS})


def test_a_part_whose_server_stands_still_may_have_been_carried_out(tmp_path):
    import redis

    with Multiget(tmp_path, servers=3, mode="tcp", serve_options=["--timeout-ms", "5s"]) as tier, client_of(tier.port) as client:

        def told() -> str:
            def is_written():
                try:
                    return client.mset({key: "x" for key in KEYS})
                except redis.ResponseError:
                    return False

            until(is_written, "all servers answer")
            tier.signal("redis-0", signal.SIGSTOP)
            try:
                return f"a number, and no error: {client.delete(*KEYS)}"
            except redis.ResponseError as error:
                return str(error)
            finally:
                tier.signal("redis-0", signal.SIGCONT)

        # Whoever stands still for as long as a command may take may be the one that is named.
        text = unpaused(told, 3)
        assert text.startswith("DEL was carried out for ") and " of them existed), perhaps for " in text, text
        assert f"the server 127.0.0.1:{tier.server_ports[0]} has not answered within 5000 ms" in text, text

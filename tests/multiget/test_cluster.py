"""redis-py, unmodified and knowing of no cluster, through a sidecar in front of a stock Redis Cluster: what MGET brings is what GETs bring one by one."""

import random
import threading

import pytest

from harness.redis import ANSWER_SECONDS, only_with, why_not
from harness.redis_cluster import PORT, Cluster
from harness.waits import until

pytestmark = only_with(why_not())

KEYS = [f"key:{number}" for number in range(400)]


def value_of(number: int) -> bytes:
    """Some do not fit a datagram."""
    return random.Random(number).randbytes({0: 2_000, 1: 70_000}.get(number % 40, number % 500))


def client_of(cluster, protocol: int = 2):
    import redis

    return redis.Redis(port=cluster.port, protocol=protocol, socket_timeout=ANSWER_SECONDS)


def fill(client, is_patient: bool = False):
    """If it is patient errors are no matter: a node that did not run for its short time may have taken the cluster for down."""
    import redis

    def is_set(number: int, key: str) -> bool:
        try:
            return client.set(key, value_of(number))
        except redis.ResponseError:
            if not is_patient:
                raise
            return False

    for number, key in enumerate(KEYS):
        until(lambda number=number, key=key: is_set(number, key), f"{key} is written")


@pytest.mark.parametrize("mode", ["tcp", "cli"])
def test_mget_is_what_gets_bring_and_what_the_nodes_have(tmp_path, mode):
    with Cluster(tmp_path, mode=mode) as cluster:
        for protocol in (2, 3):
            with client_of(cluster, protocol) as client:
                bring_what_the_nodes_have(cluster, client, mode)


def bring_what_the_nodes_have(cluster, client, mode: str):
    import redis

    fill(client)
    generator, before = random.Random(1), cluster.status()
    with redis.RedisCluster(host=cluster.nodes[1], port=PORT) as direct:
        for count in [1, 2, 9, 16, 17, 100, 600]:
            keys = [f"key:{generator.randrange(len(KEYS) + 50)}" for _ in range(count)]
            keys += keys[: count // 3]
            expected = [client.get(key) for key in keys]
            assert client.mget(keys) == expected == [direct.get(key) for key in keys]
        after = cluster.status()
        assert after["failed"] == before["failed"] and (after["datagrams_sent"] > before["datagrams_sent"]) == (mode == "cli")
        client.rpush("list", "x")
        assert client.mget("list", *KEYS[:5]) == [None, *(value_of(number) for number in range(5))]
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.get("list")
        # Of several slots; the answer is the sidecar's or the node's.
        with pytest.raises(redis.ResponseError, match="several servers|same slot"):
            client.sunion(*KEYS[:20])
        assert client.mset({"{tag}a": 1, "{tag}b": 2}) and client.mget("{tag}a", "{tag}b") == [b"1", b"2"]
    state = cluster.status()
    # Once it is known where slots are nothing is asked of the wrong node: what is small goes in datagrams alone.
    small = [key for number, key in enumerate(KEYS) if number % 40 > 1]
    for _ in range(5):
        client.mget(small)
    assert cluster.status()["keys_over_tcp"] == state["keys_over_tcp"] + (5 * len(small) if mode == "tcp" else 0)


def test_while_slots_move_every_value_is_found_and_writes_keep_their_order(tmp_path):
    with Cluster(tmp_path, spare=1) as cluster, client_of(cluster) as client:
        fill(client)
        wrong, ends = [], threading.Event()

        def write(index: int):
            with client_of(cluster) as own:
                number = 0
                while not ends.is_set():
                    with own.pipeline(transaction=False) as pipeline:
                        expected = []
                        for key in (f"own:{index}:{number % 50}", f"own:{index}:{(number + 7) % 50}"):
                            for _ in range(3):
                                number += 1
                                pipeline.set(key, number)
                            pipeline.mget(key, KEYS[number % 400])
                            expected += [True, True, True, [str(number).encode(), value_of(number % 400)]]
                        # Were a part carried out twice, fewer keys would be there to be deleted; were one left out, more would be there afterwards.
                        several = [f"several:{index}:{(number + other) % 70}" for other in range(9)]
                        pipeline.execute_command("MSET", *(word for key in [*several, several[0]] for word in (key, number)))
                        pipeline.exists(*several, several[0])
                        pipeline.delete(*several[:5], several[0])
                        pipeline.unlink(*several)
                        pipeline.exists(*several)
                        expected += [True, 10, 5, 4, 0]
                        found = pipeline.execute(raise_on_error=False)
                    if found != expected:
                        wrong.append((found, expected))
                        return

        def read():
            generator = random.Random(5)
            with client_of(cluster) as own:
                while not ends.is_set():
                    numbers = [generator.randrange(400) for _ in range(generator.randrange(1, 40))]
                    if own.mget([KEYS[number] for number in numbers]) != [value_of(number) for number in numbers]:
                        wrong.append(numbers)
                        return

        threads = [threading.Thread(target=write, args=(index,)) for index in range(2)] + [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            first, new = (cluster.cli("-h", node, "-p", PORT, "cluster", "myid").strip() for node in (cluster.nodes[0], cluster.nodes[3]))
            cluster.cli("--cluster", "reshard", f"{cluster.nodes[0]}:{PORT}", "--cluster-from", first, "--cluster-to", new, "--cluster-slots", "1500",
                        "--cluster-yes")
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        assert not wrong, wrong[:1]
        assert client.mget(KEYS) == [value_of(number) for number in range(len(KEYS))]
        assert cluster.status()["failed"] == 0


def test_a_node_that_is_killed_is_followed_by_its_replica(tmp_path):
    import redis

    with Cluster(tmp_path, nodes=6, replicas=1, serve_options=["--timeout-ms", "5s"], node_timeout_ms=4000) as cluster, client_of(cluster) as client:
        fill(client, is_patient=True)
        cluster.until(lambda: sum(int(cluster.cli("-h", node, "-p", PORT, "dbsize")) for node in cluster.nodes) >= 2 * len(KEYS), "replicas have all keys")

        def is_there():
            try:
                return client.mget(KEYS) == [value_of(number) for number in range(len(KEYS))]
            except redis.ResponseError:
                return False

        cluster.until(is_there, "all keys are there")
        # The one that the sidecar was told of.
        cluster.kill(0)
        cluster.until(is_there, "its replica answers")
        fill(client, is_patient=True)


def test_options_that_a_cluster_lacks_are_refused(tmp_path):
    import subprocess

    from harness.proxy import binary

    for arguments, why in [(["serve", "--cluster", "--server", "127.0.0.1:1", "--database", "1"], "only database 0"),
                           (["serve", "--cluster", "--server", "127.0.0.1:1", "--mode", "coordinator"], "use --mode tcp or cli"),
                           (["shim", "--cluster", "--peer", "127.0.0.1:9700"], "cannot be used with")]:
        done = subprocess.run([binary(), "check", "multiget", *arguments], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        assert done.returncode == 2 and why in done.stdout + done.stderr

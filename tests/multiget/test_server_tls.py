"""A sidecar with TLS to stock Redis servers: what it carries, whom either side refuses, and new files."""

import random
import re
import signal
import subprocess
import urllib.request

import pytest

from harness.certificates import Authority, place
from harness.proxy import binary
from harness.redis import ANSWER_SECONDS, Multiget, only_with, why_not
from harness.redis_cluster import NETWORK, Cluster
from harness.waits import DEADLINE_SECONDS

pytestmark = only_with(why_not())

HANDSHAKES = "shunt_outgoing_tls_handshakes_total"
UNUSABLE = 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """An authority that neither side trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def own(authority):
    """The options by which a sidecar shows a certificate."""
    pair = authority.client("sidecar")
    return ["--server-tls-certificate", pair.certificate, "--server-tls-key", pair.key]


@pytest.fixture(scope="module")
def tier(tmp_path_factory, authority, own):
    """Servers that have TLS alone, and require a certificate."""
    pair = authority.server("redis")
    servers = ["--tls-cert-file", pair.certificate, "--tls-key-file", pair.key, "--tls-ca-cert-file", authority.ca, "--tls-auth-clients", "yes"]
    options = ["--server-tls", "on", "--server-tls-ca", authority.ca, *own]
    with Multiget(tmp_path_factory.mktemp("server-tls"), servers=3, mode="tcp", serve_options=options, server_tls=servers) as tier:
        tier.usual_options = tier.serve_options
        yield tier


@pytest.fixture
def restart(tier):
    """Starts the sidecar anew with other options; afterwards it has the usual ones."""
    def begin(*options):
        tier.stop("sidecar")
        tier.serve_options = [*tier.usual_options[:2], "--timeout-ms", "60s", *map(str, options)]
        tier.start_sidecar()

    yield begin
    tier.stop("sidecar")
    tier.serve_options = tier.usual_options
    tier.start_sidecar()


def metric(tier, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{tier.admin_port}/metrics", timeout=DEADLINE_SECONDS) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE))


def failure(tier) -> str:
    """The error that an application gets."""
    import redis

    with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client, pytest.raises(redis.RedisError) as failed:
        client.set("key", "value")
    return str(failed.value)


@pytest.mark.parametrize("protocol", [2, 3])
def test_values_of_all_lengths_come_back(tier, protocol):
    import redis

    generator = random.Random(5)
    values = {f"key:{number}": generator.randbytes(length) for number, length in enumerate([0, 1, 500, 16_384, 70_000, 3_000_000])}
    with redis.Redis(port=tier.port, protocol=protocol, socket_timeout=ANSWER_SECONDS) as client:
        client.mset(values)
        assert client.mget([*values, "none"]) == [*values.values(), None]
        with client.pipeline(transaction=False) as pipeline:
            for number in range(500):
                pipeline.set(f"line:{number}", number).get(f"line:{number}")
            assert pipeline.execute()[1::2] == [str(number).encode() for number in range(500)]
        assert client.delete(*values) == len(values)
    assert metric(tier, f'{HANDSHAKES}{{use="redis",result="ok"}}') >= 3
    assert metric(tier, f'{HANDSHAKES}{{use="redis",result="failed"}}') == 0


def test_failures_say_why_and_what_to_do(tier, restart, authority, stranger, own):
    on = ["--server-tls", "on"]
    for options, words in [([*on, "--server-tls-ca", stranger.ca, *own], "the CA of the peer's certificate is unknown"),
                           ([*on, "--server-tls-ca", authority.ca, "--server-tls-name", "redis.example", *own], "for another name"),
                           ([*on, "--server-tls-ca", authority.ca], "certificate"),
                           ([], "--server-tls on")]:
        restart(*options)
        assert words in failure(tier), options
        # A server that closes a connection in clear text may be up.
        assert ('shunt_sidecar_server_up{server="' in page(tier)) == bool(options)


def page(tier) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{tier.admin_port}/metrics", timeout=DEADLINE_SECONDS) as answer:
        return answer.read().decode()


def test_a_server_in_clear_text_gets_no_command(tmp_path, authority):
    with Multiget(tmp_path, servers=1, mode="tcp", serve_options=["--server-tls", "on", "--server-tls-ca", authority.ca]) as tier:
        said = failure(tier)
        assert "TLS" in said and "may have been carried out" not in said, said
        assert metric(tier, f'{HANDSHAKES}{{use="redis",result="ok"}}') == 0


def test_new_files_are_read_on_a_signal(tier, restart, authority, stranger, own, tmp_path):
    import redis

    trusted = tmp_path / "ca.crt"
    place(stranger.ca.read_bytes(), trusted)
    restart("--server-tls", "on", "--server-tls-ca", trusted, *own)
    assert "is unknown" in failure(tier)
    place(authority.ca.read_bytes(), trusted)
    tier.signal("sidecar", signal.SIGHUP)

    def answers() -> bool:
        try:
            with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
                return client.set("key", "value")
        except redis.RedisError:
            return False

    tier.until(answers, "the sidecar trusts the servers", "sidecar")


def test_the_nodes_of_a_cluster(authority, own, tmp_path):
    """The sidecar is told one node. The others' certificates are for the addresses by which the nodes name each other."""
    import redis

    hosts = [f"IP:{NETWORK}.{last}" for last in range(1, 4)]
    pair, operator = authority.member("node", hosts), authority.client("operator")
    nodes = ["--tls-cert-file", pair.certificate, "--tls-key-file", pair.key, "--tls-ca-cert-file", authority.ca]
    client = ["--tls", "--cacert", authority.ca, "--cert", operator.certificate, "--key", operator.key]
    options = ["--server-tls", "on", "--server-tls-ca", authority.ca, *own]
    with Cluster(tmp_path, mode="tcp", serve_options=options, tls=(nodes, client)) as cluster:
        values = {f"key:{number}": f"value:{number}".encode() for number in range(100)}
        with redis.Redis(port=cluster.port, socket_timeout=ANSWER_SECONDS) as client:
            for key, value in values.items():
                assert client.set(key, value)
            assert client.mget(list(values)) == list(values.values())
        assert metric(cluster, f'{HANDSHAKES}{{use="redis",result="ok"}}') >= 3
        assert metric(cluster, f'{HANDSHAKES}{{use="redis",result="failed"}}') == 0


def test_check_finds_contradictions(authority, own):
    for options, words in [(["--server-tls-ca", authority.ca], "has no effect without --server-tls on"),
                           (["--server-tls", "on", "--mode", "cli"], "use --mode tcp"),
                           (["--server-tls", "on", "--server-tls-ca", "nowhere"], "cannot read the file"),
                           (["--server-tls", "on", *own[:2]], "--server-tls-key")]:
        command = [binary(), "check", "multiget", "serve", "--server", "192.0.2.1:6379", *options]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        assert done.returncode == UNUSABLE and words in done.stderr, done

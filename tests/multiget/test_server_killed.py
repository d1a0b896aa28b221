"""Stock Redis servers that are killed and started again behind a sidecar: what its log, its metrics and /readyz say."""

import json
import signal
import urllib.error
import urllib.request

import pytest

from harness.redis import ANSWER_SECONDS, Multiget, only_with, why_not
from harness.waits import DEADLINE_SECONDS, until

pytestmark = only_with(why_not())

# So many that each server has some.
KEYS = [f"key:{number}" for number in range(40)]


@pytest.fixture
def tier(tmp_path):
    with Multiget(tmp_path, servers=2, mode="tcp") as tier:
        yield tier


@pytest.fixture
def client(tier):
    import redis

    with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        yield client


def page(tier, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{tier.admin_port}{path}", timeout=DEADLINE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def address(tier, index: int) -> str:
    return f"127.0.0.1:{tier.server_ports[index]}"


def asked(client) -> int:
    """How many of the keys were written: each command tells the sidecar how its server is."""
    import redis

    count = 0
    for key in KEYS:
        try:
            count += bool(client.set(key, key))
        except redis.ResponseError:
            pass
    return count


def ups(tier) -> list:
    """`shunt_sidecar_server_up` of both servers."""
    lines = page(tier, "/metrics")[1].splitlines()
    named = [f'shunt_sidecar_server_up{{server="{address(tier, index)}"}} ' for index in (0, 1)]
    return [int(float(line.removeprefix(name))) for name in named for line in lines if line.startswith(name)]


def lines(tier, index: int, words: str) -> int:
    return sum(words in line and address(tier, index) in line for line in tier.said("sidecar").splitlines())


def expect(tier, client, wanted: list) -> None:
    """Sends commands until the metric is as wanted; then the page of the state and the browser's have the same."""
    until(lambda: asked(client) >= 0 and ups(tier) == wanted, f"the servers are {wanted}", told=lambda: tier.log("sidecar"))
    assert [server["up"] for server in tier.status()["servers"]] == [bool(up) for up in wanted]


def test_log_metrics_and_readiness_follow_servers_that_die_and_come_back(tier, client):
    assert page(tier, "/readyz")[0] == 200
    assert asked(client) == len(KEYS) and ups(tier) == [1, 1]

    tier.stop("redis-0", signal.SIGKILL)
    expect(tier, client, [0, 1])
    assert lines(tier, 0, "a server has failed") == 1 and lines(tier, 1, "a server has failed") == 0
    assert 0 < asked(client) < len(KEYS), "the other server goes on"
    assert page(tier, "/readyz")[0] == 200, "a part of the keys can be had"

    tier.stop("redis-1", signal.SIGKILL)
    expect(tier, client, [0, 0])
    assert lines(tier, 1, "a server has failed") == 1
    assert asked(client) == 0

    # A failure counts for ten seconds: the commands keep it fresh.
    def refusal() -> str:
        asked(client)
        code, text = page(tier, "/readyz")
        return text if code == 503 else ""

    told = until(refusal, "balancers are told", told=lambda: tier.log("sidecar"))
    assert json.loads(told)["reason"] == "no server answers"

    for index in (0, 1):
        tier.start_server(index)
    until(lambda: asked(client) == len(KEYS), "both answer", told=lambda: tier.log("sidecar"))
    expect(tier, client, [1, 1])
    assert page(tier, "/readyz")[0] == 200
    # The second news of a server within a short time waits for its turn in the log.
    for index in (0, 1):
        back = ("a server answers again", "a server failed and came back")
        until(lambda index=index: asked(client) and any(lines(tier, index, words) for words in back), "the log says so",
              told=lambda: tier.log("sidecar"))


def test_a_server_that_closes_idle_connections_has_not_failed(tmp_path):
    import redis

    with Multiget(tmp_path, servers=2, mode="tcp", server_options=["--timeout", "1"]) as tier, \
            redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        assert asked(client) == len(KEYS)
        until(lambda: ups(tier) == [], "the servers have closed their connections", told=lambda: tier.log("sidecar"))
        assert [server["up"] for server in tier.status()["servers"]] == [None, None]
        assert page(tier, "/readyz")[0] == 200
        assert asked(client) == len(KEYS)
        assert "a server has failed" not in tier.said("sidecar")

"""redis-py and redis-cli with TLS against a sidecar."""

import random
import socket
import subprocess

import pytest

from harness.certificates import Authority, client_context
from harness.redis import ANSWER_SECONDS, Multiget, only_with, why_not
from harness.tickets import resumed_by, ticket_key

pytestmark = only_with(why_not())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def application(authority):
    return authority.client()


@pytest.fixture(scope="module")
def tier(tmp_path_factory, authority):
    pair = authority.server()
    keys = tmp_path_factory.mktemp("tickets") / "keys"
    keys.write_bytes(ticket_key())
    keys.chmod(0o600)
    options = ["--tls", "required", "--tls-certificate", pair.certificate, "--tls-key", pair.key,
               "--tls-client-ca", authority.ca, "--tls-client-auth", "required", "--tls-ticket-keys", keys, "--tls-threads", "2"]
    with Multiget(tmp_path_factory.mktemp("tls"), servers=2, serve_options=options, mode="tcp") as tier:
        yield tier


@pytest.fixture(params=[2, 3])
def client(tier, authority, application, request):
    import redis

    url = f"rediss://127.0.0.1:{tier.port}?protocol={request.param}"
    with redis.Redis.from_url(url, ssl_ca_certs=str(authority.ca), ssl_certfile=str(application.certificate),
                              ssl_keyfile=str(application.key), socket_timeout=ANSWER_SECONDS) as client:
        yield client


def test_multigets_bring_values_of_all_lengths(client):
    generator = random.Random(5)
    values = {f"key:{number}": generator.randbytes(length) for number, length in enumerate([0, 1, 500, 16_384, 70_000, 3_000_000])}
    client.mset(values)
    assert client.mget([*values, "none"]) == [*values.values(), None]
    assert client.delete(*values) == len(values)


def test_a_pipeline_is_answered_in_order(client):
    with client.pipeline(transaction=False) as pipeline:
        for number in range(500):
            pipeline.set(f"line:{number}", number).get(f"line:{number}")
        assert pipeline.execute()[1::2] == [str(number).encode() for number in range(500)]


def test_redis_cli_reads_what_it_wrote(tier, authority, application):
    command = ["redis-cli", "--tls", "--cacert", authority.ca, "--cert", application.certificate, "--key", application.key, "-p", tier.port]
    for words, expected in [(["SET", "greeting", "hello"], "OK"), (["MGET", "greeting", "none"], "hello\n")]:
        done = subprocess.run([str(word) for word in [*command, *words]], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        if "Unrecognized option" in done.stdout + done.stderr:
            pytest.skip("redis-cli was built without TLS")
        assert done.stdout.strip() == expected.strip(), done


def test_clear_text_gets_an_error_of_redis(tier):
    import redis

    with redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client, pytest.raises(redis.RedisError, match="requires TLS"):
        client.get("greeting")


def test_a_client_without_a_certificate_gets_nothing(tier, authority):
    import redis

    with redis.Redis(port=tier.port, ssl=True, ssl_ca_certs=str(authority.ca), socket_timeout=ANSWER_SECONDS) as client:
        with pytest.raises((redis.ConnectionError, OSError)):
            client.get("greeting")


def test_bytes_that_are_no_tls_harm_nobody(tier, client):
    with socket.create_connection(("127.0.0.1", tier.port), ANSWER_SECONDS) as stranger:
        stranger.settimeout(ANSWER_SECONDS)
        stranger.sendall(b"\x16\x03\x01\x00\x02no")
        assert stranger.recv(100)[:1] in (b"\x15", b"")
    assert client.ping()


def test_sessions_are_resumed_after_a_restart(tier, authority, application):
    context = client_context(authority.ca, application)
    was_resumed, session = resumed_by(tier.port, context, None, b"PING\r\n")
    assert not was_resumed
    tier.stop("sidecar")
    tier.start_sidecar()
    assert resumed_by(tier.port, context, session, b"PING\r\n")[0]

"""Handshakes that fail: each side says why, and the log names the client's address."""

import asyncio
import socket
import ssl
import time

import pytest

from harness.certificates import EXPIRED, client_context
from harness.cql import ANSWER_SECONDS, Connection, ConnectionLost
from harness.waits import until_async

QUERY = "SELECT cluster_name FROM system.local"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
# Long enough for a client to connect on any machine that the tests run on.
VALID_SECONDS = 15
UNKNOWN = "the CA of the peer's certificate is unknown"
REFUSED = (ssl.SSLError, ConnectionLost, ConnectionError)


@pytest.fixture(scope="module")
def mutual(start, authority, application, clients_ca):
    return start("required", *clients_ca, client=client_context(authority.ca, application))


async def ask(proxy, context) -> list:
    connection = await Connection.open(proxy.host, proxy.port, tls=context)
    try:
        return await connection.query(QUERY)
    finally:
        connection.close()


def refused(proxy, context, *words: str) -> None:
    """The client is refused, and a line of the log has these words. The server of TLS 1.3 learns of a client's certificate
    when the client has ended its handshake, so the refusal may come with the first answer."""
    failed = proxy.metric("shunt_tls_handshakes_total", result="failed")
    with pytest.raises(REFUSED):
        asyncio.run(ask(proxy, context))
    proxy.wait_until_it_says("handshake", "127.0.0.1", *words)
    assert proxy.metric("shunt_tls_handshakes_total", result="failed") > failed


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_a_certificate(mutual, authority, version):
    refused(mutual, client_context(authority.ca, version=version), "gave no certificate")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_of_another_authority(mutual, authority, stranger, version):
    refused(mutual, client_context(authority.ca, stranger.client(), version), UNKNOWN)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_whose_certificate_has_expired(mutual, authority, version):
    refused(mutual, client_context(authority.ca, authority.client("former", EXPIRED), version), "expired")


def test_a_certificate_that_expires_ends_no_connection_and_no_other_begins(mutual, authority):
    end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + VALID_SECONDS))
    pair = authority.client("brief", end)
    contexts = [client_context(authority.ca, pair, version) for version in VERSIONS]

    async def is_refused(context) -> bool:
        try:
            await ask(mutual, context)
        except REFUSED:
            return True
        return False

    async def work() -> None:
        connections = [await Connection.open(mutual.host, mutual.port, tls=context) for context in contexts]
        for context in contexts:
            await until_async(lambda: is_refused(context), "the certificate has expired", told=mutual.log_tail)
        for connection in connections:
            assert len(await connection.query(QUERY)) == 1
            connection.close()

    asyncio.run(work())
    mutual.wait_until_it_says("handshake", "127.0.0.1", "expired")


def test_a_client_that_does_not_trust_the_proxy(mutual, stranger, application):
    # asyncio would close the connection without the alert that says why.
    with socket.create_connection(mutual.address, ANSWER_SECONDS) as client, pytest.raises(ssl.SSLCertVerificationError):
        client_context(stranger.ca, application).wrap_socket(client, server_hostname=mutual.host)
    mutual.wait_until_it_says("handshake", "127.0.0.1", "does not know the CA of our certificate")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_client_that_offers_only_an_old_version(mutual, authority, application):
    old = client_context(authority.ca, application)
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    refused(mutual, old, "neither TLS 1.2 nor TLS 1.3")


def test_with_optional_certificates_a_client_may_have_none_but_no_wrong_one(start, authority, application, stranger):
    proxy = start("required", "--tls-client-ca", str(authority.ca), "--tls-client-auth", "optional")
    for pair in (None, application):
        assert len(asyncio.run(ask(proxy, client_context(authority.ca, pair)))) == 1
    refused(proxy, client_context(authority.ca, stranger.client()), UNKNOWN)

"""Clear text and TLS on one port, by the option `tls`."""

import asyncio
import socket
import ssl

import pytest

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, HEADER, STARTUP, Connection, CqlError

PROTOCOL_ERROR = 0x000A
QUERY = "SELECT cluster_name FROM system.local"


async def asked(proxy, tls=None, version: int = 4) -> list:
    connection = await Connection.open(proxy.host, proxy.port, version, tls=tls)
    try:
        return await connection.query(QUERY)
    finally:
        connection.close()


def answer_in_clear_text(proxy, version: int) -> bytes:
    """The bytes that a client of this version gets for its STARTUP until the connection ends."""
    body = b"\0\1\0\x0bCQL_VERSION\0\x053.0.0"
    with socket.create_connection(proxy.address, ANSWER_SECONDS) as client:
        client.sendall(HEADER.pack(version, 0, 1, STARTUP, len(body)) + body)
        received = b""
        while more := client.recv(4096):
            received += more
    return received


def test_optional_serves_both(start, authority):
    proxy = start("optional")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        assert len(asyncio.run(asked(proxy, client_context(authority.ca, version=version)))) == 1
    assert len(asyncio.run(asked(proxy))) == 1
    # The harness asked in clear text whether it is ready.
    assert proxy.metric("shunt_tls_handshakes_total", result="ok") == 2


@pytest.mark.parametrize("version", [3, 4, 5])
def test_required_tells_a_client_without_tls(start, version):
    proxy = start()
    with pytest.raises(CqlError) as refused:
        asyncio.run(asked(proxy, version=version))
    assert refused.value.code == PROTOCOL_ERROR and "TLS" in refused.value.message
    received = answer_in_clear_text(proxy, version)
    assert HEADER.unpack_from(received)[0] == 0x80 | version, received
    proxy.wait_until_it_says("closed a client", "clear_text")


def test_off_says_that_the_port_has_no_tls(start, authority):
    proxy = start("off")
    with pytest.raises(ssl.SSLError):
        asyncio.run(asked(proxy, client_context(authority.ca)))
    proxy.wait_until_it_says("closed a client", "this looks like TLS")
    assert proxy.says("tls is off", "tls_certificate"), proxy.log_tail()
    assert len(asyncio.run(asked(proxy))) == 1

"""Clients that connect and say nothing, or only the first byte of a ClientHello: they delay nobody, and are closed."""

import asyncio
import socket
import ssl

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, Connection
from harness.waits import DEADLINE_SECONDS, until

SILENT = 300
QUERIES = 20
# Long enough that all others are served before, on any machine that the tests run on.
HANDSHAKE_MS = 15_000
CLIENT_HELLO = b"\x16"
# The storm: more handshakes than the proxy keeps, from so many addresses that none has more than one may.
STORM, SOURCES, HANDSHAKES_MAX = 10_000, 20, 4_096
MEMORY_BYTES_MAX = 256 << 20


def test_silent_connections_delay_nobody_and_end(start, authority):
    context = client_context(authority.ca)
    proxy = start("optional", "--handshake-timeout-ms", str(HANDSHAKE_MS))
    silent = []
    for number in range(SILENT):
        client = socket.create_connection(proxy.address, ANSWER_SECONDS)
        if number % 2:
            client.sendall(CLIENT_HELLO)
        silent.append(client)

    async def others() -> None:
        for tls in (context, None):
            connection = await Connection.open(proxy.host, proxy.port, tls=tls)
            for _ in range(QUERIES):
                assert len(await connection.query("SELECT cluster_name FROM system.local")) == 1
            connection.close()

    asyncio.run(others())
    for client in silent:
        client.settimeout(DEADLINE_SECONDS)
        try:
            while client.recv(4096):
                pass
        except ConnectionResetError:
            pass
        client.close()
    proxy.wait_until_it_says("handshake", "took too long")
    until(lambda: proxy.metric("shunt_tls_handshakes_total", result="failed") == SILENT, "all of them are counted")
    asyncio.run(others())


def hello(context) -> bytes:
    """The whole ClientHello of a client, which a server answers with its certificate and a signature."""
    outgoing = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def test_ten_thousand_client_hellos_and_silence(start, authority):
    """The oldest ones make room, memory has a bound, and others are served meanwhile."""
    context = client_context(authority.ca)
    proxy = start("optional")
    before, first, silent = proxy.resident_bytes(), hello(context), []

    async def others() -> None:
        for tls in (context, None):
            connection = await Connection.open(proxy.host, proxy.port, tls=tls)
            for _ in range(QUERIES):
                assert len(await connection.query("SELECT cluster_name FROM system.local")) == 1
            connection.close()

    def failed() -> float:
        return proxy.metric("shunt_tls_handshakes_total", result="failed")

    try:
        for number in range(STORM):
            client = socket.create_connection(proxy.address, ANSWER_SECONDS, source_address=(f"127.0.1.{1 + number % SOURCES}", 0))
            client.sendall(first)
            silent.append(client)
            if number % (STORM // 10) == 0:
                asyncio.run(others())
        until(lambda: failed() >= STORM - HANDSHAKES_MAX, "the oldest ones have made room", told=proxy.log_tail)
        asyncio.run(others())
        assert proxy.says("too many handshakes at a time")
        grown = proxy.resident_bytes() - before
        assert grown < MEMORY_BYTES_MAX, grown
    finally:
        for client in silent:
            client.close()
    until(lambda: failed() == STORM, "all of them have ended", told=proxy.log_tail)
    asyncio.run(others())

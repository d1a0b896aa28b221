"""Clients that connect and say nothing, or only the first byte of a ClientHello: they delay nobody, and are closed."""

import asyncio
import socket

from harness.certificates import client_context
from harness.cql import ANSWER_SECONDS, Connection
from harness.waits import DEADLINE_SECONDS, until

SILENT = 300
QUERIES = 20
# Long enough that all others are served before, on any machine that the tests run on.
HANDSHAKE_MS = 15_000
CLIENT_HELLO = b"\x16"


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

"""Tickets by which clients resume their sessions of TLS."""

import base64
import os
import socket

from .cql import ANSWER_SECONDS, HEADER, OPTIONS, SUPPORTED


def resumed(proxy, context, session) -> tuple:
    """Whether a new client resumes the session, and the session that the proxy gives it for the next one."""
    with socket.create_connection(proxy.address, ANSWER_SECONDS) as plain:
        with context.wrap_socket(plain, server_hostname=proxy.host, session=session) as client:
            # Tickets of TLS 1.3 come behind the handshake.
            client.sendall(HEADER.pack(4, 0, 1, OPTIONS, 0))
            assert HEADER.unpack(client.recv(HEADER.size))[3] == SUPPORTED
            return client.session_reused, client.session


def resumed_by(port: int, context, session, question: bytes) -> tuple:
    """The same for a server of another protocol at a port of this host, which is asked a question."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as plain:
        with context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as client:
            client.sendall(question)
            assert client.recv(1)
            return client.session_reused, client.session


def ticket_key() -> bytes:
    return base64.b64encode(os.urandom(48)) + b"\n"

"""A CQL client that is deliberately not a driver: one socket, no reconnecting, no retrying, no looking around in the ring.

What happens to its socket or to a query is reported as it is, which is what the fault tests count. It speaks protocol v3
and v4 without compression (native_protocol_v4.spec, sections 2, 4 and 6).
"""

import asyncio
import ipaddress
import socket
import ssl
import struct
import uuid

ERROR, STARTUP, READY, AUTHENTICATE, OPTIONS, SUPPORTED = 0x00, 0x01, 0x02, 0x03, 0x05, 0x06
QUERY, RESULT, PREPARE, EXECUTE, REGISTER, EVENT = 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C
AUTH_RESPONSE, AUTH_SUCCESS = 0x0F, 0x10
ONE, TWO, THREE, QUORUM, ALL, LOCAL_QUORUM = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
STREAMS_MAX = 32768
ANSWER_SECONDS = 60  # unless a caller knows better: a busy machine is no reason to give a query up
HEADER = struct.Struct(">BBhBi")


class CqlError(Exception):
    """An ERROR message from the server."""

    def __init__(self, code: int, message: str):
        super().__init__(f"[{code:#06x}] {message}")
        self.code = code
        self.message = message


class ConnectionLost(Exception):
    """The socket ended under the client."""


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _string_map(entries: dict) -> bytes:
    return struct.pack(">H", len(entries)) + b"".join(_string(key) + _string(value) for key, value in entries.items())


class _Reader:
    """Takes values off the front of a message body."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        piece = self.data[self.at:self.at + count]
        if len(piece) < count:
            raise ValueError("message body ends early")
        self.at += count
        return piece

    def integer(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def short(self) -> int:
        return struct.unpack(">H", self.take(2))[0]

    def string(self) -> str:
        return self.take(self.short()).decode()

    def bytes(self) -> bytes | None:
        length = self.integer()
        return None if length < 0 else self.take(length)

    def type(self):
        """A type option; collections are returned as tuples."""
        code = self.short()
        if code == 0x0000:
            return self.string()
        if code in (0x20, 0x22):
            return code, self.type()
        if code == 0x21:
            return code, self.type(), self.type()
        if code == 0x30:
            self.string(), self.string()
            return code, *[(self.string(), self.type()) for _ in range(self.short())]
        if code == 0x31:
            return code, *[self.type() for _ in range(self.short())]
        return code


def _value(kind, data: bytes | None):
    if data is None:
        return None
    if kind in (0x01, 0x0D):
        return data.decode()
    if kind in (0x02, 0x05, 0x09, 0x0B):
        return int.from_bytes(data, "big", signed=True)
    if kind == 0x04:
        return data != b"\0"
    if kind in (0x0C, 0x0F):
        return uuid.UUID(bytes=data)
    if kind == 0x10:
        return str(ipaddress.ip_address(data))
    return data


def rows(body: bytes) -> list:
    """The rows of a RESULT body as dictionaries; an empty list for any other kind of result."""
    reader = _Reader(body)
    if reader.integer() != 2:
        return []
    flags, count = reader.integer(), reader.integer()
    if flags & 2:
        reader.bytes()
    if flags & 1:
        reader.string(), reader.string()
    columns = []
    for _ in range(count):
        if not flags & 1:
            reader.string(), reader.string()
        columns.append((reader.string(), reader.type()))
    return [{name: _value(kind, reader.bytes()) for name, kind in columns} for _ in range(reader.integer())]


class Connection(asyncio.Protocol):
    """One socket. Any number of requests may be outstanding; each waits for the answer with its stream id."""

    def __init__(self, version: int = 4):
        self.version = version
        self.lost = asyncio.get_running_loop().create_future()
        self.strays = 0  # answers with a stream id that nobody waits for
        self.events = []
        self._input = bytearray()
        self._pending = {}
        self._next_stream = 0
        self._transport = None

    @classmethod
    async def open(cls, host: str, port: int, version: int = 4, credentials=None, timeout_seconds: float = ANSWER_SECONDS,
                   tls: ssl.SSLContext = None, connected: socket.socket = None):
        """Connects, or takes a socket that is `connected`, and goes through STARTUP, with (user, password) if the server asks."""
        loop = asyncio.get_running_loop()
        to = {"host": host, "port": port}
        if connected:
            to = {"sock": connected, "server_hostname": host if tls else None}
        _, connection = await asyncio.wait_for(
            loop.create_connection(lambda: cls(version), ssl=tls, **to), timeout_seconds)
        try:
            opcode, body = await connection.request(STARTUP, _string_map({"CQL_VERSION": "3.0.0"}), timeout_seconds)
            if opcode == AUTHENTICATE:
                user, password = credentials or ("", "")
                token = f"\0{user}\0{password}".encode()
                opcode, body = await connection.request(
                    AUTH_RESPONSE, struct.pack(">i", len(token)) + token, timeout_seconds)
            if opcode not in (READY, AUTH_SUCCESS):
                raise RuntimeError(f"unexpected opcode {opcode:#x} at start")
        except BaseException:
            connection.close()
            raise
        return connection

    def connection_made(self, transport):
        self._transport = transport

    def connection_lost(self, error):
        reason = ConnectionLost(str(error or "closed by the server"))
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(reason)
        self._pending.clear()
        if not self.lost.done():
            self.lost.set_result(reason)

    def data_received(self, data):
        self._input += data
        while len(self._input) >= 9:
            _, flags, stream, opcode, length = HEADER.unpack_from(self._input)
            if len(self._input) < 9 + length:
                return
            body = bytes(self._input[9:9 + length])
            del self._input[:9 + length]
            self._answer(stream, opcode, self._without_prefix(flags, body))

    @staticmethod
    def _without_prefix(flags: int, body: bytes) -> bytes:
        reader = _Reader(body)
        if flags & 0x02:
            reader.take(16)
        if flags & 0x08:
            for _ in range(reader.short()):
                reader.string()
        if flags & 0x04:
            for _ in range(reader.short()):
                reader.string(), reader.bytes()
        return body[reader.at:]

    def _answer(self, stream: int, opcode: int, body: bytes):
        if opcode == EVENT:
            self.events.append(body)
            return
        waiting = self._pending.pop(stream, None)
        if waiting is None:
            self.strays += 1
        elif waiting.done():
            pass  # the caller gave up; the stream id is free again from here on
        elif opcode == ERROR:
            reader = _Reader(body)
            waiting.set_exception(CqlError(reader.integer(), reader.string()))
        else:
            waiting.set_result((opcode, body))

    def _free_stream(self) -> int:
        for _ in range(STREAMS_MAX):
            stream = self._next_stream
            self._next_stream = (stream + 1) % STREAMS_MAX
            if stream not in self._pending:
                return stream
        raise RuntimeError("all stream ids are in use")

    async def request(self, opcode: int, body: bytes, timeout_seconds: float = ANSWER_SECONDS):
        """Sends a request and returns (opcode, body) of its answer; raises CqlError, ConnectionLost or TimeoutError."""
        if self.lost.done():
            raise ConnectionLost(str(self.lost.result()))
        stream = self._free_stream()
        answer = asyncio.get_running_loop().create_future()
        self._pending[stream] = answer
        self._transport.write(HEADER.pack(self.version, 0, stream, opcode, len(body)) + body)
        return await asyncio.wait_for(answer, timeout_seconds)

    async def query(self, text: str, consistency: int = ONE, timeout_seconds: float = ANSWER_SECONDS) -> list:
        data = text.encode()
        body = struct.pack(">i", len(data)) + data + struct.pack(">HB", consistency, 0)
        _, result = await self.request(QUERY, body, timeout_seconds)
        return rows(result)

    async def prepare(self, text: str, timeout_seconds: float = ANSWER_SECONDS) -> bytes:
        """The statement id."""
        data = text.encode()
        _, result = await self.request(PREPARE, struct.pack(">i", len(data)) + data, timeout_seconds)
        reader = _Reader(result)
        reader.integer()
        return reader.take(reader.short())

    async def execute(self, statement: bytes, values: list, consistency: int = ONE, timeout_seconds: float = ANSWER_SECONDS) -> list:
        """Values are serialized already: bytes, or None for null."""
        parts = [struct.pack(">H", len(statement)), statement, struct.pack(">HBH", consistency, 1, len(values))]
        for value in values:
            parts.append(struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value)
        _, result = await self.request(EXECUTE, b"".join(parts), timeout_seconds)
        return rows(result)

    async def register(self, *kinds: str) -> None:
        await self.request(REGISTER, struct.pack(">H", len(kinds)) + b"".join(map(_string, kinds)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Session:
    """The same for code that does not run in an event loop."""

    def __init__(self, host: str, port: int, credentials=None, timeout_seconds: float = ANSWER_SECONDS):
        self._runner = asyncio.Runner()
        self._timeout_seconds = timeout_seconds
        try:
            self._connection = self._runner.run(
                Connection.open(host, port, credentials=credentials, timeout_seconds=timeout_seconds))
        except BaseException:
            self._runner.close()
            raise

    def query(self, text: str, consistency: int = ONE) -> list:
        return self._runner.run(self._connection.query(text, consistency, self._timeout_seconds))

    def close(self) -> None:
        self._runner.run(self._closed())
        self._runner.close()

    async def _closed(self) -> None:
        self._connection.close()
        await self._connection.lost

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def answers(host: str, port: int, timeout_seconds: float = 5, tls: ssl.SSLContext = None) -> bool:
    """Whether a CQL server answers OPTIONS there. Asks for nothing that needs a login."""
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection:
            if tls is not None:
                with tls.wrap_socket(connection, server_hostname=host) as encrypted:
                    return _supports(encrypted)
            return _supports(connection)
    except OSError:
        return False


def _supports(connection: socket.socket) -> bool:
    connection.sendall(HEADER.pack(4, 0, 1, OPTIONS, 0))
    header = b""
    while len(header) < HEADER.size:
        more = connection.recv(HEADER.size - len(header))
        if not more:
            return False
        header += more
    return HEADER.unpack(header)[3] == SUPPORTED

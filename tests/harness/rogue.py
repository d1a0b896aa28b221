"""The control protocol as an agent speaks it that has the key and does what it likes."""

import hashlib
import hmac
import os
import struct

HELLO, WELCOME, BODY = 1, 2, 3
REQUEST, PING, RESPONSE, HELD_END, PONG = 16, 24, 32, 40, 41


def over(key, word, transcript):
    return hmac.new(key, b"shunt hand-over " + word + b"\0" + transcript, hashlib.sha256).digest()


class Control:
    """A control connection."""

    def __init__(self, conn, key):
        self.conn, self.key, self.sent, self.buffer = conn, key, 0, b""

    def exact(self, count):
        while len(self.buffer) < count:
            data = self.conn.recv(1 << 18)
            if not data:
                raise EOFError
            self.buffer += data
        got, self.buffer = self.buffer[:count], self.buffer[count:]
        return got

    def be_agent(self, instance=b"\x01" * 8):
        hello = struct.pack(">HB", 1, 1) + instance + os.urandom(32)
        self.conn.sendall(struct.pack(">IBQ", 9 + len(hello), HELLO, 0) + hello)
        length, kind, _ = struct.unpack(">IBQ", self.exact(13))
        said = self.exact(length - 9)
        claim, proof = said[:-32], said[-32:]
        transcript = hello + claim
        assert proof == over(self.key, b"owner", transcript)
        self.conn.sendall(struct.pack(">IBQ", 9 + 32, WELCOME, 0) + over(self.key, b"agent", transcript))
        self.mine = over(self.key, b"key of the agent's messages", transcript)
        return self

    def message(self, kind, ticket=0, payload=b""):
        said = struct.pack(">IBQ", 9 + len(payload) + 16, kind, ticket) + payload
        mac = hmac.new(self.mine, struct.pack(">Q", self.sent) + said, hashlib.sha256).digest()[:16]
        self.sent += 1
        return said + mac

    def say(self, *args):
        self.conn.sendall(self.message(*args))

    def body(self, ticket, data):
        self.sent += 1
        return struct.pack(">IBQ", 9 + len(data), BODY, ticket) + data

    def hear(self):
        length, kind, ticket = struct.unpack(">IBQ", self.exact(13))
        payload = self.exact(length - 9)
        return kind, ticket, payload if kind == BODY else payload[:-16]


def response(head, framing=2, length=0):
    return struct.pack(">BQ", framing, length) + head

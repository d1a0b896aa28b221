"""NetMC's datagrams (docs/internals/netmc.md) from a client without a library: requests, and what replies say."""

import socket
import struct

from .waits import DEADLINE_SECONDS

HIT, MISS, TOO_BIG, OVER_TCP = range(4)
MULTIGET, GET = 0x11, 0x12
DATAGRAM_BYTES_MAX, HEADER_BYTES, KEYS_MAX = 1452, 12, 16


def encoded(keys) -> bytes:
    return b"".join(struct.pack(">H", len(key)) + key for key in keys)


def header(op: int, number: int, oid: int, numkey: int, keyidx: int, startidx: int, clo: int, groups) -> bytes:
    ends, total = b"", 0
    for _, keys in groups:
        total += len(encoded(keys))
        ends += struct.pack(">H", total)
    return struct.pack(">BIBBHBBB", op, number, oid, numkey, keyidx, startidx, clo, len(groups)) + bytes(server for server, _ in groups) + ends


def whole(number: int, groups, op: int = MULTIGET) -> bytes:
    """A request as a client sends it; `groups` has a server's number and keys for each server."""
    count, bits = 0, 0
    for _, keys in groups:
        count += len(keys)
        bits |= 1 << (KEYS_MAX - count)
    return header(op, number, 0, count, bits, 0, 0, groups) + b"".join(encoded(keys) for _, keys in groups)


def parts(number: int, groups, trimmed: bool) -> list:
    """A request as a switch splits it."""
    bits, start, found = struct.unpack(">H", whole(number, groups)[7:9])[0], 0, []
    for oid, (_, keys) in enumerate(groups):
        left = bits << (start + len(keys)) & 0xFFFF
        sent = [groups[oid]] if trimmed else groups
        found.append(header(MULTIGET, number, oid, len(keys), left, start, 3 if trimmed else 1, groups) + b"".join(encoded(keys) for _, keys in sent))
        start += len(keys)
    return found


def items(reply: bytes) -> list:
    """Position, status, key and value of each item of a reply."""
    assert len(reply) <= DATAGRAM_BYTES_MAX
    found, at = [], HEADER_BYTES
    for index in range(reply[6]):
        status, key_bytes, value_bytes = struct.unpack(">BHH", reply[at:at + 5])
        at += 5
        found.append((reply[9] + index, status, reply[at:at + key_bytes], reply[at + key_bytes:at + key_bytes + value_bytes]))
        at += key_bytes + value_bytes
    assert at == len(reply)
    return found


class Client:
    """Asks one server, by a socket of its own."""

    def __init__(self, port: int, own: str = "127.0.0.1"):
        self.to, self.number = ("::1" if ":" in own else "127.0.0.1", port), 0
        self.socket = socket.socket(socket.AF_INET6 if ":" in own else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((own, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data: bytes):
        self.socket.sendto(data, self.to)

    def request(self, keys, op: int = MULTIGET) -> bytes:
        self.number += 1
        return whole(self.number, [(0, keys)], op)

    def get(self, *keys, op: int = MULTIGET, repeat_seconds: float = 1.0) -> list:
        """Status and value of each key. Repeated for as long as there is no answer: a datagram may be lost."""
        request = self.request(keys, op)
        found = {}
        for _ in range(int(DEADLINE_SECONDS / repeat_seconds)):
            self.send(request)
            self.socket.settimeout(repeat_seconds)
            try:
                while len(found) < len(keys):
                    reply = self.socket.recv(65536)
                    if reply[1:5] == request[1:5]:
                        found |= {at: (status, value) for at, status, key, value in items(reply) if key == keys[at]}
            except TimeoutError:
                continue
            return [found[at] for at in range(len(keys))]
        raise TimeoutError(f"no answer to {keys}")

    def statuses(self, *keys, **options) -> list:
        return [status for status, _ in self.get(*keys, **options)]

    def replies(self, data: bytes, sentinel: bytes) -> list:
        """All replies to a datagram, which may be none. Two questions for a sentinel key follow it, one after the other: replies to what was sent
        before the first are there when the second is answered."""
        self.send(data)
        found = []
        for _ in range(2):
            question = whole(0xFFFFFFFF - self.number, [(0, [sentinel])])
            self.number += 1
            self.send(question)
            self.socket.settimeout(DEADLINE_SECONDS)
            while True:
                reply = self.socket.recv(65536)
                if reply[1:5] == question[1:5] and sentinel in reply:
                    break
                found.append(reply)
        return sorted(found)

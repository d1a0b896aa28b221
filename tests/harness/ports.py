"""Ports of 127.0.0.1 for servers that a test starts. A kernel gives its own free ports to whoever connects, too, and to whoever asks next: one
that was free when it was asked for may be somebody else's when the server binds it."""

import random
import socket

# Below those that Linux takes for connections by default, and beside all that tests and experiments have by number.
FIRST, PORTS, BLOCKS = 24_000, 400, 20


class Block:
    """Ports that no other process gets while this one runs."""

    def __init__(self):
        self.reserved = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for number in random.sample(range(BLOCKS), BLOCKS):
            try:
                # A name without a file: it goes with the process, however that ends.
                self.reserved.bind(f"\0shunt-test-ports-{number}")
            except OSError:
                continue
            self.first, self.turn = FIRST + number * PORTS, 0
            return
        raise RuntimeError(f"all {BLOCKS} blocks of ports are reserved by tests that run: end some, or raise BLOCKS in {__file__}")

    def next(self, kind: socket.SocketKind) -> int:
        for _ in range(PORTS):
            port = self.first + self.turn % PORTS
            self.turn += 1
            with socket.socket(socket.AF_INET, kind) as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return port
        raise RuntimeError(f"no port from {self.first} to {self.first + PORTS - 1} is free: something else than tests listens there")


_block = None


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One that this process was not given for long, and no other process that asks here."""
    global _block
    _block = _block or Block()
    return _block.next(kind)

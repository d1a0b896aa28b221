"""A network of some length between clients and nodes: what comes in leaves again a fixed time later, in either direction.

`python -m experiments.distance MICROSECONDS LISTEN=FORWARD...` runs until it is killed. It stands for the time that a network takes, and
for nothing else of it: no bytes are lost, and what two nodes say to each other does not pass it.
"""

import queue
import socket
import sys
import threading
import time

CHUNKS_MAX = 4096  # under way in one direction of a connection
CHUNK_BYTES = 1 << 16


def carry(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Hands on what comes, each as late as it is to be, until one of both ends."""
    under_way = queue.Queue(CHUNKS_MAX)

    def write() -> None:
        while (chunk := under_way.get())[1]:
            time.sleep(max(0.0, chunk[0] - time.monotonic()))
            try:
                target.sendall(chunk[1])
            except OSError:
                break
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    threading.Thread(target=write, daemon=True).start()
    while True:
        try:
            received = source.recv(CHUNK_BYTES)
        except OSError:
            received = b""
        under_way.put((time.monotonic() + seconds, received))
        if not received:
            return


def listen(at: str, forward: str, seconds: float) -> None:
    host, port = at.rsplit(":", 1)
    to_host, to_port = forward.rsplit(":", 1)
    with socket.create_server((host, int(port)), backlog=256) as server:
        while True:
            client, _ = server.accept()
            node = socket.create_connection((to_host, int(to_port)), timeout=10)
            node.settimeout(None)
            for one, other in ((client, node), (node, client)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=carry, args=(one, other, seconds), daemon=True).start()


def main() -> None:
    sys.setswitchinterval(0.0005)
    seconds = int(sys.argv[1]) / 1e6
    for pair in sys.argv[2:]:
        threading.Thread(target=listen, args=(*pair.split("=", 1), seconds), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()

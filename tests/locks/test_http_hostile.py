"""What one client of locks over HTTP can do to the others."""

import socket
import threading
import time
from contextlib import ExitStack

import pytest

from locks.fleet import NETWORK, Fleet
from locks.over_http import PORT, ask, listen
from locks.test_http import PART, gauge, received, send, until, waiting

QUEUES_PART = 8  # of 16 queues that are shown at a time, what one address gets


@pytest.fixture(scope="module")
def one(nodes):
    contact, replicas = nodes
    fleet = Fleet(contact, "test_http_hostile", replicas, 9393, 6_000, 30_000, proxies=1)
    listen(fleet)
    try:
        yield fleet.start().proxies[0]
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def shared(one):
    """A lock that a thousand share."""
    name = "m" * 1024

    def take(first):
        for number in range(first, 1000, 8):
            assert ask(one, "PUT", name, owner="\x01" * 250 + str(number), ttl=3600, shared=True).status == 200

    threads = [threading.Thread(target=take, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return name


def test_who_waits_keeps_nobody_from_renewing_or_releasing(one):
    source = f"{NETWORK}.205"
    assert ask(one, "PUT", "herd", owner="holder", ttl=60, source=source).status == 200
    with ExitStack() as stack:
        for number in range(PART):
            stack.enter_context(send(one, waiting("herd", f"w{number}", 60), source))
        time.sleep(2)
        renewed = ask(one, "PATCH", "herd", owner="holder", ttl=60, source=source)
        released = ask(one, "DELETE", "herd", owner="holder", source=source)
    assert (renewed.status, released.status) == (200, 200), (renewed, released)


def test_who_sends_a_body_slowly_has_no_place_of_a_request(one):
    head = "PUT /v1/locks/body?owner=o HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
    until(lambda: gauge(one, "shunt_lock_http_in_flight") == 0, "others are carried out")
    with ExitStack() as stack:
        for source in (f"{NETWORK}.206", f"{NETWORK}.207"):
            for _ in range(PART):
                stack.enter_context(send(one, head, source))
        time.sleep(0.5)
        assert ask(one, "PUT", "beside", owner="o").status == 200


def test_of_answers_that_nobody_takes_one_address_has_few(one, shared):
    """Each has more than a megabyte."""
    head = f"GET /v1/locks/{shared}/queue HTTP/1.1\r\nHost: x\r\n\r\n"
    with ExitStack() as stack:
        socks = []
        for _ in range(24):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.settimeout(60)
            sock.bind((f"{NETWORK}.208", 0))
            sock.connect((one.host, PORT))
            sock.sendall(head.encode())
            socks.append(sock)
        begun = [sock.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) for sock in socks]
        assert begun.count(b"HTTP/1.1 200") <= QUEUES_PART and begun.count(b"HTTP/1.1 429") >= 24 - QUEUES_PART, begun
        assert ask(one, "GET", shared, "/queue", source=f"{NETWORK}.209").status == 200, "others have theirs"
    until(lambda: ask(one, "GET", shared, "/queue", source=f"{NETWORK}.208").status == 200, "it does not come back")


def test_who_sends_much_behind_a_request_is_gone(one):
    assert ask(one, "PUT", "tail", owner="holder", ttl=60).status == 200
    deadline = time.monotonic() + 60
    with send(one, waiting("tail", "t", 60), f"{NETWORK}.210") as sock:
        with pytest.raises(OSError):
            while time.monotonic() < deadline:
                sock.send(b"x" * 65536)
    until(lambda: gauge(one, "shunt_lock_http_in_flight") == 0, "its request is carried out still")


def test_two_logins_in_one_request_are_none(one):
    head = "GET /v1/locks/a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YTpi\r\nAuthorization: Basic YzpkCg==\r\n\r\n"
    with send(one, head) as sock:
        assert received(sock).startswith(b"HTTP/1.1 400")

"""Harm that one client of locks over HTTP could do to others."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from harness.waits import DEADLINE_SECONDS, Late, unpaused, until
from locks.conftest import steady
from locks.fleet import NETWORK
from locks.over_http import PORT, ask, ask_once, listen
from locks.test_http import (
    CONNECTIONS,
    IN_FLIGHT,
    PART,
    WAITS_PART,
    answer_on,
    gauge,
    see,
    send,
    waiting,
)

QUEUES_PART = 8  # of 16 queues that are shown at a time, what one address gets
ANSWER_SECONDS = 10  # that one has to take an answer


@pytest.fixture(scope="module")
def one(nodes):
    contact, replicas = nodes
    fleet = steady(contact, "test_http_hostile", replicas, 9393, proxies=1)
    listen(fleet)
    try:
        yield fleet.start().proxies[0]
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def shared(one):
    """A lock that a thousand share."""
    name = "m" * 1024

    def take(number):
        return ask(one, "PUT", name, owner="\x01" * 250 + str(number), ttl=3600, shared=True).status

    with ThreadPoolExecutor(8) as together:
        assert set(together.map(take, range(1000))) == {200}
    return name


def answered(one, status: int) -> int:
    """Number of requests that a proxy has answered with this status."""
    found = re.search(
        rf'^shunt_lock_http_requests_total{{status="{status}"}} (\d+)$',
        one.get("/metrics")[1],
        re.MULTILINE,
    )
    return int(found[1]) if found else 0


def test_waiting_clients_keep_nobody_from_renewing_or_releasing(one):
    source = f"{NETWORK}.205"
    assert ask(one, "PUT", "herd", owner="holder", ttl=3600, source=source).status == 200
    before = answered(one, 429)
    with ExitStack() as stack:
        for number in range(PART):
            stack.enter_context(send(one, waiting("herd", f"w{number}"), source))
        see(one, IN_FLIGHT, WAITS_PART)
        until(
            lambda: answered(one, 429) == before + PART - WAITS_PART,
            "all others are told to come back",
            every_seconds=0.05,
        )
        renewed = ask_once(one, "PATCH", "herd", owner="holder", ttl=3600, source=source)
        released = ask_once(one, "DELETE", "herd", owner="holder", source=source)
    assert (renewed.status, released.status) == (200, 200), (renewed, released)


def test_a_slow_body_takes_no_place_of_a_request(one):
    head = "PUT /v1/locks/body?owner=o HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    see(one, IN_FLIGHT, 0)
    before = answered(one, 413)
    with ExitStack() as stack:
        for source in (f"{NETWORK}.206", f"{NETWORK}.207"):
            for _ in range(PART):
                stack.enter_context(send(one, head, source))
        # On a slow machine the first are refused before the last are there.
        until(
            lambda: gauge(one, CONNECTIONS) >= 2 * PART or answered(one, 413) > before,
            "they are there",
            every_seconds=0.05,
        )
        assert ask_once(one, "PUT", "beside", owner="o", ttl=300).status == 200


def test_one_address_has_few_untaken_answers(one, shared):
    """Each has more than a megabyte."""
    head = f"GET /v1/locks/{shared}/queue HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def stalled() -> tuple:
        with ExitStack() as stack:
            socks, began = [], time.monotonic()
            for _ in range(24):
                sock = stack.enter_context(socket.socket())
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                sock.settimeout(DEADLINE_SECONDS)
                sock.bind((f"{NETWORK}.208", 0))
                sock.connect((one.host, PORT))
                sock.sendall(head.encode())
                socks.append(sock)
            begun = [sock.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL) for sock in socks]
            took = time.monotonic() - began
            other = ask_once(one, "GET", shared, "/queue", source=f"{NETWORK}.209").status
        # All are gone before this is tried again, or something else is asked.
        until(
            lambda: ask_once(one, "GET", shared, "/queue", source=f"{NETWORK}.208").status == 200,
            "it comes back",
        )
        if took > ANSWER_SECONDS - 3:
            raise Late("places of the first that had not taken their answers were free again")
        return begun, other

    begun, other = unpaused(stalled, ANSWER_SECONDS / 3)
    assert (
        begun.count(b"HTTP/1.1 200") <= QUEUES_PART
        and begun.count(b"HTTP/1.1 429") >= 24 - QUEUES_PART
    ), begun
    assert other == 200, "others have theirs"


def test_a_client_that_sends_much_behind_a_request_is_closed(one):
    assert ask(one, "PUT", "tail", owner="holder", ttl=300).status == 200
    with send(one, waiting("tail", "t"), f"{NETWORK}.210") as sock:

        def is_gone() -> bool:
            try:
                sock.send(b"x" * 65536)
            except TimeoutError:
                raise
            except OSError:
                return True
            return False

        until(is_gone, "it is gone", every_seconds=0)
    see(one, IN_FLIGHT, 0)


def test_two_logins_in_one_request_are_none(one):
    head = "GET /v1/locks/a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\nAuthorization: Basic YzpkCg==\r\n\r\n"
    with send(one, head) as sock:
        assert answer_on(sock).startswith(b"HTTP/1.1 400")

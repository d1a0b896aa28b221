"""Locks over HTTP, at three proxies of a fleet: what each request is answered with, and what a client that is slow, gone or hostile
cannot do to others."""

import base64
import json
import os
import re
import select
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.waits import DEADLINE_SECONDS, Late, until
from locks.conftest import MEMORY_TTL_MS, steady
from locks.fleet import NETWORK, insistent
from locks.over_http import PORT, ask, ask_once, listen

PART = 256  # of 512 requests at a time, what one address gets
WAITS_PART = 192  # of 384 that wait for a lock
WAIT_SECONDS = 60  # the most that there is
CONNECTIONS_PART = 512  # of 1024 connections
CONNECTIONS, IN_FLIGHT = "shunt_lock_http_connections", "shunt_lock_http_in_flight"


@pytest.fixture(scope="module")
def fleet(nodes):
    contact, replicas = nodes
    # Shorter than these tests let requests wait, so that those wait in several rounds.
    fleet = steady(
        contact, "test_http", replicas, 9393, query_timeout_ms=4_000, lock_wait_max_ms=2_000
    )
    listen(fleet)
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def session(fleet):
    session = insistent(fleet.connect())
    yield session
    session.cluster.shutdown()


def send(one, head: str, source=None) -> socket.socket:
    """A connection on which this was sent, and nothing was taken yet."""
    sock = socket.create_connection(
        (one.host, PORT), timeout=DEADLINE_SECONDS, source_address=(source, 0) if source else None
    )
    sock.sendall(head.encode())
    return sock


def waiting(name: str, owner: str, wait: int = WAIT_SECONDS) -> str:
    return f"PUT /v1/locks/{name}?owner={owner}&ttl=300&wait={wait} HTTP/1.1\r\nHost: localhost\r\n\r\n"


def received(sock, timeout=DEADLINE_SECONDS) -> bytes:
    """The bytes that come until the other side closes."""
    sock.settimeout(timeout)
    parts = []
    try:
        while part := sock.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def answer_on(sock) -> bytes:
    """The whole answer on a connection. A paused server closes a connection whose head it did not read
    in time, without an answer."""
    answered = received(sock)
    if not answered:
        raise Late("the connection was closed without an answer")
    return answered


def waiters(session, name) -> int:
    row = session.execute("SELECT waiters FROM shunt.locks WHERE name = %s", (name,)).one()
    return row["waiters"] if row else 0


def waits(session, name, sock) -> bool:
    """Whether the request of this connection waits for a lock. A server gives one up whose head it
    did not read in time, because it stood still."""
    if select.select([sock], [], [], 0)[0]:
        raise Late("the request was answered, or given up, before it was seen to wait")
    return waiters(session, name) == 1


def gauge(one, name) -> int:
    found = until(
        lambda: re.search(rf"^{name}(?:{{.*}})? (\d+)$", one.get("/metrics")[1], re.MULTILINE),
        f"{one.listen} tells {name}",
    )
    return int(found.group(1))


def see(one, gauge_name, wanted: int, within_seconds=DEADLINE_SECONDS) -> None:
    """Waits until a gauge of a proxy has this value."""
    until(
        lambda: gauge(one, gauge_name) == wanted,
        f"{one.listen} has {wanted} of {gauge_name}",
        within_seconds,
        0.05,
        told=lambda: gauge(one, gauge_name),
    )


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", ["plain", "a/b c+d?e&f=%", "é"], ids=["plain", "marks", "utf-8"])
def test_the_life_of_a_lock(fleet, session, name, fast):
    name, table = f"life-{name}", "fast_locks" if fast else "locks"
    first, second, third = fleet.proxies
    assert ask(first, "GET", name, fast=fast).status == 404
    taken = ask(first, "PUT", name, owner="a+b", ttl=300, fast=fast)
    assert taken.status == 200 and taken.json["applied"] is True, taken
    assert (taken.json["name"], taken.json["owner"], taken.json["waiters"]) == (name, "a+b", 0)
    assert 0 < taken.json["ttl_ms"] <= 300_000
    row = session.execute(f"SELECT owner, fence FROM shunt.{table} WHERE name = %s", (name,)).one()
    assert (row["owner"], row["fence"]) == ("a+b", taken.json["fence"]), "it is the lock that drivers see"
    looked = ask(second, "GET", name, fast=fast)
    assert looked.status == 200 and (looked.json["owner"], looked.json["fence"]) == ("a+b", row["fence"])
    queue = ask(third, "GET", name, "/queue", fast=fast)
    assert [(one["state"], one["owner"], one["mode"]) for one in queue.json["queue"]] == [("held", "a+b", "X")], queue
    other = ask(third, "PUT", name, owner="other", ttl=300, fast=fast)
    assert other.status == 409 and other.json["owner"] == "a+b" and other.json["fence"] == row["fence"], other
    renewed = ask(
        second, "PATCH", name, owner="a+b", ttl=MEMORY_TTL_MS // 1000, fence=row["fence"], fast=fast
    )
    assert renewed.status == 200 and renewed.json["ttl_ms"] > 300_000, renewed
    again = ask(third, "PUT", name, owner="a+b", ttl=300, fast=fast)
    assert (again.status, again.json["applied"], again.json["fence"]) == (200, False, row["fence"]), "a lost answer is found again"
    for method, parameters in (("PATCH", {"owner": "other"}), ("PATCH", {"owner": "a+b", "fence": row["fence"] - 1}),
                               ("DELETE", {"owner": "other"}), ("DELETE", {"owner": "a+b", "fence": row["fence"] + 1})):
        refused = ask(first, method, name, fast=fast, **parameters)
        assert refused.status == 409 and refused.json["owner"] == "a+b", (method, parameters, refused)
    assert ask(second, "DELETE", name, owner="a+b", fence=row["fence"], fast=fast).status == 200
    for method in ("DELETE", "PATCH"):
        assert ask(first, method, name, owner="a+b", fast=fast).status == 404
    assert ask(third, "GET", name, "/queue", fast=fast).status == 404
    next_one = ask(first, "PUT", name, owner="other", ttl=300, fast=fast)
    assert next_one.status == 200 and next_one.json["fence"] > row["fence"]
    assert ask(first, "DELETE", name, owner="other", fast=fast).status == 200


@pytest.mark.parametrize("fast", [False, True])
def test_owners_share_a_lock(fleet, fast):
    name, (first, second, _) = f"shared-{fast}", fleet.proxies
    for owner, one in (("r1", first), ("r2", second)):
        assert ask(one, "PUT", name, owner=owner, ttl=300, shared=True, fast=fast).status == 200
    assert ask(first, "PUT", name, owner="w", ttl=300, fast=fast).status == 409
    queue = ask(first, "GET", name, "/queue", fast=fast).json["queue"]
    assert [(one["owner"], one["mode"]) for one in queue] == [("r1", "S"), ("r2", "S")]
    assert ask(first, "GET", name, shared=True, fast=fast).json["mode"] == "S"
    assert ask(second, "PATCH", name, owner="r1", ttl=350, shared=True, fast=fast).status == 200
    assert ask(first, "PUT", name, owner="r1", ttl=300, fast=fast).status == 400, (
        "it holds it in the other mode"
    )
    for owner in ("r1", "r2"):
        assert ask(second, "DELETE", name, owner=owner, shared=True, fast=fast).status == 200
    assert ask(first, "PUT", name, owner="w", ttl=300, fast=fast).status == 200
    assert ask(first, "DELETE", name, owner="w", fast=fast).status == 200


@pytest.mark.parametrize("to", [0, 1, 2])
def test_a_waiting_client_gets_the_released_lock(fleet, session, to):
    name = f"wait-{to}"
    held = ask(fleet.proxies[0], "PUT", name, owner="holder", ttl=300)
    with ThreadPoolExecutor(1) as waits:
        answer = waits.submit(
            ask, fleet.proxies[to], "PUT", name, owner="next", ttl=300, wait=WAIT_SECONDS
        )
        until(lambda: waiters(session, name) == 1, "it waits")
        assert ask(fleet.proxies[1], "DELETE", name, owner="holder").status == 200
        granted = answer.result()
    assert granted.status == 200 and granted.json["applied"] is True, granted
    assert granted.json["fence"] > held.json["fence"] and 0 < granted.json["ttl_ms"] <= 300_000
    late = ask(fleet.proxies[to], "PUT", name, owner="late", ttl=300, wait=1)
    assert late.status == 409 and late.json["owner"] == "next", "to the end of its wait"
    assert ask(fleet.proxies[to], "DELETE", name, owner="next").status == 200


def test_a_waiting_client_that_disconnects_leaves_the_queue(fleet, session):
    """At each proxy, so at the lock's owner too. There it leaves at once, elsewhere when its round of waiting is over."""
    for number, (one, behind) in enumerate((one, behind) for one in fleet.proxies for behind in ("", "X")):
        name = f"gone-{number}"
        assert ask(one, "PUT", name, owner="holder", ttl=300).status == 200
        see(one, IN_FLIGHT, 0)
        sent = time.monotonic()
        leaves = send(one, waiting(name, "leaves") + behind)
        until(lambda: waits(session, name, leaves), "it waits", every_seconds=0.05)
        leaves.close()
        see(one, IN_FLIGHT, 0)
        until(lambda: waiters(session, name) == 0, "it has left the queue", every_seconds=0.05)
        if time.monotonic() - sent > WAIT_SECONDS - 5:
            raise Late("its wait may have ended by itself")
        assert ask(one, "DELETE", name, owner="holder").status == 200
        next_one = ask(one, "PUT", name, owner="next", ttl=300)
        assert next_one.status == 200 and next_one.json["owner"] == "next", "and holds nothing"


def test_errors_are_refused_and_named(fleet):
    one, longest = fleet.proxies[0], MEMORY_TTL_MS // 1000
    for method, parameters, says in (
            ("PUT", {}, "owner"), ("PUT", {"owner": "o", "ttl": "x"}, "ttl=x"), ("PUT", {"owner": "o", "ttl": 100_000}, "TTL"),
            ("PUT", {"owner": "o", "ttl": longest + 1, "fast": True}, f"{longest} s"), ("PUT", {"owner": "o" * 257}, "owner"),
            ("PUT", {"owner": "o", "wait": 61}, "wait=61"), ("PUT", {"owner": "o", "colour": "red"}, "colour"),
            ("GET", {"owner": "o"}, "owner")):
        refused = ask(one, method, "wrong", **parameters)
        assert refused.status == 400 and says in refused.json["error"], (parameters, refused)
    assert ask(one, "GET", "n" * 1025).status == 400 and ask(one, "GET", "n" * 1024).status == 404
    posted = ask(one, "POST", "wrong", owner="o")
    assert posted.status == 405 and posted.headers["Allow"] == "GET, PUT, PATCH, DELETE"
    assert ask(one, "PUT", "wrong", "/queue", owner="o").status == 405
    assert ask(one, "GET", "wrong", "/other").status == 404
    assert ask(one, "PUT", "wrong", owner="o", headers={"Origin": "http://evil.example"}).status == 403
    assert ask(one, "PUT", "wrong", owner="o", headers={"Host": "evil.example"}).status == 421
    bearer = ask(one, "GET", "wrong", headers={"Authorization": "Bearer x"})
    assert bearer.status == 401 and bearer.headers["WWW-Authenticate"].startswith("Basic ")
    assert ask(one, "GET", "wrong").status == 404, "and nothing of it was carried out"


def test_credentials_are_ignored_where_nobody_logs_in(fleet):
    basic = base64.b64encode("rôle:päss".encode()).decode()
    assert ask(fleet.proxies[0], "GET", "nothing", headers={"Authorization": f"Basic {basic}"}).status == 404


def test_heads_and_bodies_have_bounds(fleet):
    one = fleet.proxies[0]
    assert ask(one, "PUT", "body", owner="o", body="owner=o").status == 413
    big = send(one, "PUT /v1/locks/body?owner=o HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000000\r\n\r\n")
    endless = send(one, "PUT /v1/locks/body?owner=o HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
    for sock in (big, endless):
        assert answer_on(sock).startswith(b"HTTP/1.1 413 "), "it does not wait for the rest"
    long_head = send(one, "GET /v1/locks/head HTTP/1.1\r\nHost: localhost\r\nX: " + "x" * (16 << 10) + "\r\n\r\n")
    assert answer_on(long_head).startswith(b"HTTP/1.1 431 ")
    for garbage in ("\x16\x03\x01", "GET\r\n\r\n", "GET / HTTP/9\r\n\r\n"):
        assert not received(send(one, garbage + "\r\n\r\n")).startswith(b"HTTP/1.1 2")
    assert ask(one, "GET", "body").status == 404


def test_one_request_to_a_connection(fleet):
    two = "GET /v1/locks/first HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
    answered = answer_on(send(fleet.proxies[0], two))
    assert answered.count(b"HTTP/1.1 404 ") == 1 and b"connection: close" in answered.lower()


def test_slow_clients_are_cut_and_keep_nobody_out(fleet):
    one, slow_ones = fleet.proxies[0], f"{NETWORK}.201"
    with ExitStack() as stack:
        slow = [stack.enter_context(send(one, "GET /v1/locks/slow HTTP/1.1\r\nHos", slow_ones)) for _ in range(CONNECTIONS_PART)]
        # On a slow machine the first are cut before the last are there.
        until(
            lambda: gauge(one, CONNECTIONS) >= CONNECTIONS_PART or received(slow[0]) == b"",
            "they are there",
        )
        for number in range(20):
            assert ask(one, "PUT", f"beside-{number}", owner="o", ttl=300).status == 200
        for sock in slow:
            assert received(sock) == b"", "no answer to half a head"
    see(one, CONNECTIONS, 0)
    assert ask(one, "GET", "slow", source=slow_ones).status == 404


def test_one_address_does_not_get_the_room_of_all(fleet):
    one, first, second = fleet.proxies[0], f"{NETWORK}.202", f"{NETWORK}.203"
    assert ask(one, "PUT", "crowd", owner="holder", ttl=300).status == 200
    refused = 'shunt_lock_http_requests_total{status="429"} '
    with ExitStack() as stack:
        sent = time.monotonic()
        crowd = [
            stack.enter_context(send(one, waiting("crowd", f"a{number}"), first))
            for number in range(WAITS_PART)
        ]
        see(one, IN_FLIGHT, WAITS_PART)
        too_many = ask_once(one, "PUT", "crowd", owner="one-more", ttl=20, wait=5, source=first)
        renewed = ask_once(one, "PATCH", "crowd", owner="holder", ttl=300, source=first)
        crowd += [
            stack.enter_context(send(one, waiting("crowd", f"b{number}"), second))
            for number in range(WAITS_PART)
        ]
        see(one, IN_FLIGHT, 2 * WAITS_PART)
        full = ask_once(one, "PUT", "crowd", owner="one-more", ttl=20, wait=5)
        other = ask_once(one, "GET", "other")
        elsewhere = ask_once(fleet.proxies[1], "PUT", "free", owner="o", ttl=300, wait=5)
        json_status = json.loads(one.get("/status")[1])["locks_http"]
        if time.monotonic() - sent > WAIT_SECONDS - 5:
            raise Late("the first of the crowd may have gone")
        if 504 in {one.status for one in (too_many, renewed, full, other, elsewhere)}:
            raise Late("a proxy that was asked for another's lock had no answer from it")
        assert too_many.status == 429 and int(too_many.headers["Retry-After"]) > 0, too_many
        assert renewed.status == 200, "who holds it can renew it"
        assert full.status == 503 and int(full.headers["Retry-After"]) > 0, full
        assert other.status == 404, "others are served that do not wait"
        assert elsewhere.status == 200, "other proxies have room"
        assert refused + "1\n" in one.get("/metrics")[1]
        assert json_status["in_flight"] == 2 * WAITS_PART and json_status["connections"] >= 2 * WAITS_PART
    see(one, IN_FLIGHT, 0)
    assert ask(one, "DELETE", "crowd", owner="holder").status == 200


def documented() -> str:
    """The session that docs/locks-http.md shows."""
    text = (Path(__file__).parents[2] / "docs" / "locks-http.md").read_text()
    return text.split("```sh\n")[1].split("```")[0]


def test_the_session_of_the_documentation(fleet):
    script = documented().replace("10.0.0.5:9190", fleet.proxies[2].http)
    assert "curl" in script and fleet.proxies[2].http in script
    done = subprocess.run(
        ["bash", "-euc", script],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [("error" in answer, answer.get("owner")) for answer in answers] == [
        (False, "host-7"), (False, "host-7"), (True, "host-7"), (False, None), (True, None)], done.stdout
    assert {answer["name"] for answer in answers} == {"nightly-report"}
    assert ask(fleet.proxies[0], "GET", "nightly-report").status == 404


def test_a_proxy_that_stops_answers_who_waits_and_takes_nobody_new(fleet):
    one = fleet.proxies[2]
    assert ask(fleet.proxies[0], "PUT", "stops", owner="holder", ttl=3600).status == 200
    waits = send(one, waiting("stops", "waits"))
    idle = send(one, "GET /v1/")
    see(one, IN_FLIGHT, 1)
    try:
        one.terminate()
        answered = answer_on(waits)
        status = int(answered.split()[1])
        assert status in (409, 503, 504), answered
        assert one.wait(DEADLINE_SECONDS) == 0
        idle.close()
        with pytest.raises(OSError):
            ask(one, "GET", "stops")
        # What was asked for may have been granted only if the answer says that nobody knows.
        held = ask(fleet.proxies[0], "GET", "stops")
        assert (held.status, held.json["owner"]) == (200, "holder")
    finally:
        # Other tests need it, whatever was seen here.
        one.kill()
        one.start()
    fleet.wait_until_settled(3)
    assert ask(one, "GET", "stops").json["owner"] == "holder"


def test_a_proxy_that_cannot_grant_says_so(fleet, nodes):
    """One of a fleet that was never made: certainly not carried out, and to be asked again."""
    contact, replicas = nodes
    none = steady(contact, "test_http_none", replicas, 9393, hosts=[(f"{NETWORK}.9", ())])
    one = none.proxies[0]
    listen(none)
    try:
        one.start()
        for method in ("PUT", "PATCH", "DELETE"):
            refused = ask_once(one, method, "nowhere", owner="o")
            assert refused.status == 503 and int(refused.headers["Retry-After"]) > 0, refused
            assert "nothing was carried out" in refused.json["error"]
    finally:
        none.stop()


def test_answers_around_a_pause_of_a_proxy_are_true(fleet):
    """The locks belong to another proxy. An answer that promises "not carried out" is true, and a second request settles an answer in doubt."""
    names, paused = [f"still-{os.getpid()}-{number}" for number in range(24)], fleet.proxies[1]
    paused.pause()
    try:
        with ThreadPoolExecutor(len(names)) as together:
            answers = together.map(
                lambda name: ask_once(fleet.proxies[0], "PUT", name, owner="o", ttl=3600), names
            )
            statuses = dict(zip(names, (answer.status for answer in answers)))
    finally:
        paused.resume()
    assert set(statuses.values()) <= {200, 503, 504} and set(statuses.values()) != {200}, statuses
    fleet.wait_until_settled(3)
    for name, status in statuses.items():
        seen = ask(fleet.proxies[0], "GET", name)
        if status == 503:
            assert seen.status == 404, (name, status, seen)
        if status == 200:
            assert seen.status == 200 and seen.json["owner"] == "o", (name, status, seen)
        again = ask(fleet.proxies[0], "PUT", name, owner="o", ttl=20, wait=20)
        assert again.status == 200 and again.json["owner"] == "o", (name, status, again)
        # What is in doubt may come as long as the proxy that was asked for it holds its lease, so
        # between these two questions too.
        assert (
            again.json["applied"] is (seen.status == 404) or status == 504 and seen.status == 404
        ), (name, status, seen, again)

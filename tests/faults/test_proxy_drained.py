"""SIGTERM while queries run: what was asked is answered, then the connections close, and the exit code is 0."""

import asyncio
import contextlib
import re

import pytest

from harness import cql, waits
from harness.load import Load
from harness.proxy import PATIENT_PROXY, Proxy

LISTEN, ADMIN = "127.0.0.1:9045", "127.0.0.1:9183"
QUERIES = 40
TRIES = 5
ANSWER_SECONDS = 180
# A machine that stands still may take as long as it likes.
OPTIONS = [*PATIENT_PROXY, "--drain-timeout-ms", "180000"]


@pytest.fixture
def leaving(ring, whole):
    with Proxy(ring.contacts, LISTEN, ADMIN, OPTIONS) as proxy:
        yield proxy


class NodesGaveUp(Exception):
    """The machine stood still for longer than nodes give a write: it is not in flight any more."""


async def nothing_answered(tasks) -> None:
    """No write was acknowledged without the paused node; NodesGaveUp if nodes, or the proxy, waited
    for it in vain."""
    await asyncio.sleep(0.1)  # what came before now is read
    answers = [task.exception() or task.result() for task in tasks if task.done()]
    acknowledged = [answer for answer in answers if not isinstance(answer, Exception)]
    assert not acknowledged, f"{len(acknowledged)} of {QUERIES} did not wait for the paused node"
    if answers:
        raise NodesGaveUp(answers[0])


async def refuses(proxy) -> bool:
    """True if a new client is turned away."""
    try:
        connection = await cql.Connection.open(proxy.host, proxy.port, timeout_seconds=2)
    except (OSError, cql.ConnectionLost, cql.CqlError, TimeoutError):
        return True
    connection.close()
    return False


async def all_in_flight(proxy, tasks) -> None:
    """Waits until the proxy has read all queries. On a busy machine, it may be told to end before it has read them."""
    found = 0

    async def arrived() -> bool:
        nonlocal found
        _, text = await asyncio.to_thread(proxy.get, "/metrics")
        found = sum(int(count) for count in re.findall(r"^shunt_in_flight(?:{.*})? (\d+)$", text, re.MULTILINE))
        if found == QUERIES:
            return True
        await nothing_answered(tasks)
        return False

    await waits.until_async(arrived, f"{QUERIES} queries in flight", told=lambda: f"{found} are")


def test_queries_in_flight_are_answered(ring, whole):
    for _ in range(TRIES):
        proxy = Proxy(ring.contacts, LISTEN, ADMIN, OPTIONS)
        with proxy, contextlib.suppress(NodesGaveUp):
            return queries_in_flight_are_answered(proxy, whole)
    raise waits.Late(f"in none of {TRIES} tries writes were in flight when the proxy left")


def queries_in_flight_are_answered(leaving, whole):
    """A paused replica holds writes at ALL in flight until nodes give up on them."""
    victim = whole.nodes[2]

    async def scenario():
        connections = [await cql.Connection.open(leaving.host, leaving.port) for _ in range(4)]
        statements = [await connection.prepare("INSERT INTO faults.writes (key, value) VALUES (?, 'drained')")
                      for connection in connections]
        victim.pause()
        try:
            waiting = [asyncio.create_task(connection.execute(
                           statement, [b"drain-%d-%d" % (number, turn)], cql.ALL, ANSWER_SECONDS))
                       for number, (connection, statement) in enumerate(zip(connections, statements))
                       for turn in range(QUERIES // len(connections))]
            await all_in_flight(leaving, waiting)
            leaving.terminate()
            await waits.until_async(lambda: refuses(leaving), "the proxy takes no more clients")
            alive, lost = leaving.alive(), any(connection.lost.done() for connection in connections)
            # It may have left because all was answered before this was looked at.
            await nothing_answered(waiting)
            assert alive and not lost
        finally:
            victim.resume()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        reasons = [await asyncio.wait_for(connection.lost, ANSWER_SECONDS)
                   for connection in connections]
        return results, reasons

    results, reasons = asyncio.run(scenario())
    assert not [result for result in results if isinstance(result, cql.ConnectionLost)]
    if any(isinstance(result, TimeoutError) for result in results):
        raise waits.Late(f"queries without an answer: {results}")
    assert all("closed by the server" in str(reason) for reason in reasons), reasons
    assert leaving.wait(ANSWER_SECONDS) == 0, leaving.log_tail()
    written = [number for number, result in enumerate(results) if not isinstance(result, Exception)]
    if not written:
        raise NodesGaveUp(results[0])
    with cql.Session(whole.nodes[0].address, whole.nodes[0].settings.cql_port) as session:
        for number in written:
            key = f"drain-{number // (QUERIES // 4)}-{number % (QUERIES // 4)}"
            assert session.query(f"SELECT value FROM faults.writes WHERE key = '{key}'", cql.QUORUM)


def test_drained_under_load(leaving, whole):
    """Clients that go on asking lose their connection at some point, but no write that they saw acknowledged."""

    async def scenario():
        load = Load(leaving.host, leaving.port, "drained", clients=40)
        async with load:
            await load.more_acknowledged(500)
            leaving.terminate()
            status = await asyncio.to_thread(leaving.wait, ANSWER_SECONDS)
        assert status == 0, leaving.log_tail()
        assert not load.wrong, load.wrong[:3]
        if load.silent:
            raise waits.Late(f"queries without an answer: {load.silent[:5]}")
        node = whole.nodes[0]
        load.host, load.port = node.address, node.settings.cql_port
        await load.assert_nothing_lost()

    asyncio.run(scenario())

"""SIGTERM while queries run: what was asked is answered, then the connections close, and the exit code is 0."""

import asyncio
import contextlib
import re

import pytest

from harness.load import WRITE_TIMEOUT, Load
from harness import cql
from harness.proxy import Proxy

LISTEN, ADMIN = "127.0.0.1:9045", "127.0.0.1:9183"
QUERIES = 40
TRIES = 3
ARRIVED_SECONDS = 4  # within which all are with the proxy; nodes give a write five


@pytest.fixture
def leaving(ring, whole):
    with Proxy(ring.contacts, LISTEN, ADMIN) as proxy:
        yield proxy


class NodesGaveUp(Exception):
    """A machine that stands still for longer than nodes give a write: nothing is in flight any more."""


def given_up(tasks) -> list:
    """Answers that are there already; NodesGaveUp if those are that nodes waited for their time in vain."""
    answers = [task.exception() or task.result() for task in tasks if task.done()]
    if any(isinstance(answer, cql.CqlError) and answer.code == WRITE_TIMEOUT for answer in answers):
        raise NodesGaveUp
    return answers


async def all_in_flight(proxy, tasks):
    """What a busy machine has not let the proxy read when it is told to end was never its to answer."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ARRIVED_SECONDS
    while True:
        _, text = await asyncio.to_thread(proxy.get, "/metrics")
        found = sum(int(count) for count in re.findall(r"^shunt_in_flight(?:{.*})? (\d+)$", text, re.MULTILINE))
        if found == QUERIES:
            return
        answers = given_up(tasks)
        assert not answers, f"{len(answers)} of {QUERIES} did not wait for the paused node, the first with {answers[0]!r}"
        assert loop.time() < deadline, f"{found} of {QUERIES} are in flight after {ARRIVED_SECONDS} s"
        await asyncio.sleep(0.05)


def test_queries_in_flight_are_answered(ring, whole):
    for _ in range(TRIES):
        with Proxy(ring.contacts, LISTEN, ADMIN) as proxy, contextlib.suppress(NodesGaveUp):
            return queries_in_flight_are_answered(proxy, whole)
    pytest.fail(f"in none of {TRIES} tries writes were in flight until the proxy was told to end")


def queries_in_flight_are_answered(leaving, whole):
    """A paused replica holds writes at ALL in flight until nodes give up on them."""
    victim = whole.nodes[2]

    async def scenario():
        connections = [await cql.Connection.open(leaving.host, leaving.port) for _ in range(4)]
        statements = [await connection.prepare("INSERT INTO faults.writes (key, value) VALUES (?, 'drained')")
                      for connection in connections]
        victim.pause()
        try:
            waiting = [asyncio.create_task(connection.execute(statement, [b"drain-%d-%d" % (number, turn)], cql.ALL, 60))
                       for number, (connection, statement) in enumerate(zip(connections, statements))
                       for turn in range(QUERIES // len(connections))]
            await all_in_flight(leaving, waiting)
            leaving.terminate()
            await asyncio.sleep(0.5)
            answers = given_up(waiting)
            assert leaving.alive()
            assert not answers, f"{len(answers)} of {QUERIES} did not wait for the paused node, the first with {answers[0]!r}"
            assert not any(connection.lost.done() for connection in connections)
            with pytest.raises((OSError, cql.ConnectionLost, cql.CqlError, TimeoutError)):
                await cql.Connection.open(leaving.host, leaving.port, timeout_seconds=2)
        finally:
            victim.resume()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        reasons = [await asyncio.wait_for(connection.lost, 60) for connection in connections]
        return results, reasons

    results, reasons = asyncio.run(scenario())
    assert not [result for result in results if isinstance(result, (cql.ConnectionLost, TimeoutError))]
    assert all("closed by the server" in str(reason) for reason in reasons), reasons
    assert leaving.wait(60) == 0, leaving.log_tail()
    written = [number for number, result in enumerate(results) if not isinstance(result, Exception)]
    assert written, results[:3]
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
            status = await asyncio.to_thread(leaving.wait, 60)
        assert status == 0, leaving.log_tail()
        assert not load.silent and not load.wrong
        node = whole.nodes[0]
        load.host, load.port = node.address, node.settings.cql_port
        await load.assert_nothing_lost()

    asyncio.run(scenario())

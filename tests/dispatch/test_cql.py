"""Large answers of a CQL node on the clients' own connections, between hosts that are network namespaces, with the Python driver."""

import asyncio
import signal
import struct
import uuid

import pytest

from harness import hosts, jars
from harness.cql import Connection, ConnectionLost, CqlError
from harness.hosts import VIP
from harness.moved_ring import PORT, Ring
from harness.relay import IS_WHOLE, Undone, expect, steady
from harness.waits import DEADLINE_SECONDS, until_async

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

MIB = 1 << 20
SENT_BYTES = "shunt_handover_sent_bytes_total"
SIZES = [MIB, 2 * MIB, 4 * MIB, 300_000, 8 * MIB, 100_000, 15 * MIB]
ROUNDS = 3 if IS_WHOLE else 1


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    with Ring(tmp_path_factory.mktemp("cql")) as ring:
        yield ring


@pytest.mark.parametrize("version, compression", [(4, "off"), (4, "on"), (3, "off"), (5, "off"), (5, "on")])
@steady
def test_large_answers_pass_the_proxy_by_while_small_queries_go_on(ring, version, compression):
    before, sent, past = ring.sent_directly(), ring.hosts.sent("dispatcher"), ring.counted(SENT_BYTES)
    assert ring.asked(version, compression, SIZES, ROUNDS) == ROUNDS * len(SIZES) * 22
    expect(ring.sent_directly() - before > ROUNDS * len(SIZES) / 3, ring.log("proxy"))
    # Inserts go by the proxy, and answers that come while the client is in the middle of one; those that were handed over do not.
    written, answers = sum(SIZES) + ROUNDS * len(SIZES) * MIB, ROUNDS * (sum(SIZES) + len(SIZES) * MIB)
    expect(ring.hosts.sent("dispatcher") - sent < written + answers - (ring.counted(SENT_BYTES) - past) + ROUNDS * sum(SIZES) / 12,
           ring.log("proxy"))


@steady
def test_an_answer_is_sent_to_its_end_by_the_host_that_has_it(ring):
    """Links that take their time: what was given back with its end not sent, or not acknowledged, would be sent by the proxy's host."""
    ring.hosts.limit("backend0", 200)
    sizes, reads = [300_000] * 4, 10
    try:
        before, sent, past = ring.sent_directly(), ring.hosts.sent("dispatcher"), ring.counted(SENT_BYTES)
        assert ring.asked(4, "off", sizes, 0, reads) == reads * len(sizes)
    finally:
        ring.hosts.limit("backend0", 0)
    moves, past = ring.sent_directly() - before, ring.counted(SENT_BYTES) - past
    expect(moves > reads * len(sizes) // 2, moves)
    # What is written and relayed goes by, each packet with its head, and what the client acknowledges, a fortieth. The ends were up to 64 KiB of each
    # answer, a fifth.
    relayed = sum(sizes) + reads * sum(sizes) - past
    expect(ring.hosts.sent("dispatcher") - sent < 1.1 * relayed + 0.1 * past, (moves, past))


@steady
def test_packets_that_are_lost_and_doubled_change_no_byte(ring):
    before = ring.sent_directly()
    ring.hosts.impair(2, 5)
    try:
        ring.asked(4, "off", [MIB, 300_000, 2 * MIB], ROUNDS)
    finally:
        ring.hosts.impair(0, 0)
    expect(ring.sent_directly() > before, ring.logs())


@steady
def test_without_the_agent_queries_go_to_the_node_and_with_it_they_are_handed_over_again(ring):
    if "agent" in ring.processes:
        ring.processes.pop("agent").send_signal(signal.SIGKILL)
    ring.asked(4, "off", [MIB], 1)
    ring.start_agent()
    ring.wait("the agent is back", lambda: ring.counted("shunt_handover_agents", 'core="0"') == 1)

    def is_handed_over() -> bool:
        before = ring.sent_directly()
        ring.asked(4, "off", [MIB], 0, 1)
        return ring.sent_directly() > before

    ring.wait("links go by the agent again", is_handed_over)


def talk(ring, work) -> list:
    """The results of a client's work, with an answer to each of its queries."""
    try:
        return ring.hosts.inside("client", lambda: asyncio.run(work()))
    except (CqlError, ConnectionLost) as error:
        raise Undone(f"{error}\n{ring.logs()}") from error


@steady
def test_events_come_whole_to_a_connection_that_moves(ring):
    moves, value = 25 if IS_WHOLE else 10, bytes(range(256)) * (MIB // 256)
    keyspace = f"events_{uuid.uuid4().hex[:8]}"

    async def work() -> list:
        moved, other = [await Connection.open(VIP, PORT, timeout_seconds=DEADLINE_SECONDS) for _ in range(2)]
        await other.query(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}", timeout_seconds=DEADLINE_SECONDS)
        await other.query(f"CREATE TABLE {keyspace}.blobs (k int PRIMARY KEY, v blob)", timeout_seconds=DEADLINE_SECONDS)
        await other.query(f"INSERT INTO {keyspace}.blobs (k, v) VALUES (0, 0x{value.hex()})", timeout_seconds=DEADLINE_SECONDS)
        await moved.register("SCHEMA_CHANGE")
        for number in range(moves):
            under_way = [asyncio.create_task(moved.query(f"SELECT v FROM {keyspace}.blobs WHERE k = 0", timeout_seconds=DEADLINE_SECONDS)) for _ in range(4)]
            await other.query(f"CREATE TABLE {keyspace}.made{number} (k int PRIMARY KEY)", timeout_seconds=DEADLINE_SECONDS)
            assert [await answer for answer in under_way] == [[{"v": value}]] * 4
        await until_async(lambda: len(moved.events) >= moves, "all events have come")
        moved.close(), other.close()
        return moved.events

    before = ring.sent_directly()
    expected = [["SCHEMA_CHANGE", "CREATED", "TABLE", keyspace, f"made{number}"] for number in range(moves)]
    told = talk(ring, work)
    assert told == [b"".join(struct.pack(">H", len(word)) + word.encode() for word in event) for event in expected]
    # How many of the four move with a connection is chance; that it moves again and again is not.
    times = ring.sent_directly() - before
    expect(times >= moves // 2, f"{times} answers were handed over\n{ring.log('proxy')}")


@steady
def test_a_client_that_sends_many_small_queries_while_its_connection_is_away_has_its_answer(ring):
    """The queries wait meanwhile, and each takes the kernel of the agent's host many times its bytes."""
    value, rounds, small = bytes(range(256)) * (4 * MIB // 256), 5 if IS_WHOLE else 2, 400
    keyspace = f"many_{uuid.uuid4().hex[:8]}"

    async def work() -> None:
        client = await Connection.open(VIP, PORT, timeout_seconds=DEADLINE_SECONDS)
        await client.query(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}", timeout_seconds=DEADLINE_SECONDS)
        await client.query(f"CREATE TABLE {keyspace}.blobs (k int PRIMARY KEY, v blob)", timeout_seconds=DEADLINE_SECONDS)
        await client.query(f"INSERT INTO {keyspace}.blobs (k, v) VALUES (0, 0x{value.hex()})", timeout_seconds=DEADLINE_SECONDS)
        for _ in range(rounds):
            large = asyncio.create_task(client.query(f"SELECT v FROM {keyspace}.blobs WHERE k = 0", timeout_seconds=DEADLINE_SECONDS))
            under_way = []
            for number in range(small):
                # Each in a segment of its own.
                await asyncio.sleep(0)
                under_way.append(asyncio.create_task(client.query(f"SELECT k FROM {keyspace}.blobs WHERE k = 0 /* {number:060} */", timeout_seconds=DEADLINE_SECONDS)))
            assert await large == [{"v": value}]
            assert [await answer for answer in under_way] == [[{"k": 0}]] * small
        client.close()

    ring.hosts.limit("backend0", 40)
    try:
        before = ring.sent_directly()
        talk(ring, work)
    finally:
        ring.hosts.limit("backend0", 0)
    # A busy machine may hold up a hand-over for so long that the proxy relays the answer.
    expect(ring.sent_directly() > before, ring.log("proxy"))


# Most of its time passes until Cassandra has started.
@pytest.mark.skipif(not IS_WHOLE, reason="takes a node of Cassandra of its own: SHUNT_DISPATCH_WHOLE is not set")
@pytest.mark.skipif(not jars.home().is_dir(), reason="Cassandra's jars are missing: scripts/prerequisites cassandra")
def test_answers_of_cassandra_are_handed_over(tmp_path):
    with Ring(tmp_path, is_cassandra=True) as ring:
        for compression in ("off", "on"):
            before = ring.sent_directly()
            # No mutation of more than half a segment of the log.
            ring.asked(4, compression, [MIB, 300_000, 5 * MIB, 100_000, 7 * MIB], 2)
            expect(ring.sent_directly() > before, ring.logs())

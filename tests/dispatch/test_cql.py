"""Large answers of a CQL node on the clients' own connections, between hosts that are network namespaces, with the Python driver."""

import asyncio
import json
import signal
import struct

import pytest

from harness import hosts, jars
from harness.cql import Connection, CqlError
from harness.hosts import VIP
from harness.moved_ring import PORT, Ring

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

MIB = 1 << 20
SENT_BYTES = "shunt_handover_sent_bytes_total"
SIZES = [MIB, 2 * MIB, 4 * MIB, 300_000, 8 * MIB, 100_000, 15 * MIB]


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    with Ring(tmp_path_factory.mktemp("cql")) as ring:
        yield ring


@pytest.mark.parametrize("version, compression", [(4, "off"), (4, "on"), (3, "off"), (5, "off"), (5, "on")])
def test_large_answers_pass_the_proxy_by_while_small_queries_go_on(ring, version, compression):
    before, sent, past = ring.sent_directly(), ring.hosts.sent("dispatcher"), ring.counted(SENT_BYTES)
    client = ring.client(version, compression, SIZES, 3)
    out, told = client.communicate(timeout=300)
    assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
    assert json.loads(out)["checked"] == 3 * len(SIZES) * 22
    assert ring.sent_directly() - before > len(SIZES), ring.log("proxy")
    # Inserts go by the proxy, and answers that come while the client is in the middle of one; those that were handed over do not.
    written, answers = sum(SIZES) + 3 * len(SIZES) * MIB, 3 * (sum(SIZES) + len(SIZES) * MIB)
    assert ring.hosts.sent("dispatcher") - sent < written + answers - (ring.counted(SENT_BYTES) - past) + sum(SIZES) / 4


def test_an_answer_is_sent_to_its_end_by_the_host_that_has_it(ring):
    """Links that take their time: what was given back with its end not sent, or not acknowledged, would be sent by the proxy's host."""
    ring.hosts.limit("backend0", 200)
    sizes, reads = [300_000] * 4, 10
    try:
        before, sent, past = ring.sent_directly(), ring.hosts.sent("dispatcher"), ring.counted(SENT_BYTES)
        client = ring.client(4, "off", sizes, 0, reads)
        out, told = client.communicate(timeout=300)
    finally:
        ring.hosts.limit("backend0", 0)
    assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
    moves, past = ring.sent_directly() - before, ring.counted(SENT_BYTES) - past
    assert moves > reads * len(sizes) // 2, out
    # What is written and relayed goes by, each packet with its head, and what the client acknowledges, a fortieth. The ends were up to 64 KiB of each
    # answer, a fifth.
    relayed = sum(sizes) + 300 * 500 + reads * sum(sizes) - past
    assert ring.hosts.sent("dispatcher") - sent < 1.1 * relayed + 0.1 * past, (moves, past)


def test_packets_that_are_lost_and_doubled_change_no_byte(ring):
    before = ring.sent_directly()
    ring.hosts.impair(2, 5)
    try:
        client = ring.client(4, "off", [MIB, 300_000, 2 * MIB], 3)
        out, told = client.communicate(timeout=300)
    finally:
        ring.hosts.impair(0, 0)
    assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
    assert ring.sent_directly() > before


def test_without_the_agent_queries_go_to_the_node_and_with_it_they_are_handed_over_again(ring):
    ring.processes.pop("agent").send_signal(signal.SIGKILL)
    client = ring.client(4, "off", [MIB], 1)
    out, told = client.communicate(timeout=120)
    assert client.returncode == 0, told
    ring.start_agent()
    ring.wait("the agent is back", lambda: ring.counted("shunt_handover_agents", 'core="0"') == 1)

    def is_handed_over() -> bool:
        before = ring.sent_directly()
        client = ring.client(4, "off", [MIB], 1)
        assert client.wait(120) == 0
        return ring.sent_directly() > before

    ring.wait("links go by the agent again", is_handed_over)


def test_events_come_whole_to_a_connection_that_moves(ring):
    moves, value = 25, bytes(range(256)) * (MIB // 256)

    async def work() -> list:
        moved, other = [await Connection.open(VIP, PORT, timeout_seconds=60) for _ in range(2)]
        await other.query("CREATE KEYSPACE events WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", timeout_seconds=60)
        await other.query("CREATE TABLE events.blobs (k int PRIMARY KEY, v blob)", timeout_seconds=60)
        await other.query(f"INSERT INTO events.blobs (k, v) VALUES (0, 0x{value.hex()})", timeout_seconds=60)
        await moved.register("SCHEMA_CHANGE")
        for number in range(moves):
            under_way = [asyncio.create_task(moved.query("SELECT v FROM events.blobs WHERE k = 0", timeout_seconds=90)) for _ in range(4)]
            await other.query(f"CREATE TABLE events.made{number} (k int PRIMARY KEY)", timeout_seconds=60)
            assert [await answer for answer in under_way] == [[{"v": value}]] * 4
        while len(moved.events) < moves:
            await asyncio.sleep(0.05)
        moved.close(), other.close()
        return moved.events

    before = ring.sent_directly()
    expected = [["SCHEMA_CHANGE", "CREATED", "TABLE", "events", f"made{number}"] for number in range(moves)]
    told = ring.hosts.inside("client", lambda: asyncio.run(asyncio.wait_for(work(), 300)))
    assert told == [b"".join(struct.pack(">H", len(word)) + word.encode() for word in event) for event in expected]
    assert ring.sent_directly() - before > moves, ring.log("proxy")


def test_a_client_that_sends_many_small_queries_while_its_connection_is_away_has_its_answer(ring):
    """Nobody reads them meanwhile, and each takes the kernel of the agent's host many times its bytes."""
    value, rounds, small = bytes(range(256)) * (4 * MIB // 256), 5, 400

    async def work() -> None:
        client = await Connection.open(VIP, PORT, timeout_seconds=60)
        await client.query("CREATE KEYSPACE many WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", timeout_seconds=60)
        await client.query("CREATE TABLE many.blobs (k int PRIMARY KEY, v blob)", timeout_seconds=60)
        await client.query(f"INSERT INTO many.blobs (k, v) VALUES (0, 0x{value.hex()})", timeout_seconds=60)
        for _ in range(rounds):
            large = asyncio.create_task(client.query("SELECT v FROM many.blobs WHERE k = 0", timeout_seconds=60))
            under_way = []
            for number in range(small):
                # Each in a segment of its own.
                await asyncio.sleep(0)
                under_way.append(asyncio.create_task(client.query(f"SELECT k FROM many.blobs WHERE k = 0 /* {number:060} */", timeout_seconds=60)))
            assert await large == [{"v": value}]
            assert [await answer for answer in under_way] == [[{"k": 0}]] * small
        client.close()

    ring.hosts.limit("backend0", 40)
    try:
        before = ring.sent_directly()
        ring.hosts.inside("client", lambda: asyncio.run(asyncio.wait_for(work(), 300)))
    except CqlError as error:
        pytest.fail(f"{error}\n{ring.log('proxy')}\n{ring.log('agent')}")
    finally:
        ring.hosts.limit("backend0", 0)
    assert ring.sent_directly() - before == rounds, ring.log("proxy")


@pytest.mark.skipif(not jars.home().is_dir(), reason="Cassandra's jars are missing: scripts/prerequisites cassandra")
def test_answers_of_cassandra_are_handed_over(tmp_path):
    with Ring(tmp_path, is_cassandra=True) as ring:
        for compression in ("off", "on"):
            before = ring.sent_directly()
            # No mutation of more than half a segment of the log.
            client = ring.client(4, compression, [MIB, 300_000, 5 * MIB, 100_000, 7 * MIB], 2)
            out, told = client.communicate(timeout=200)
            assert client.returncode == 0, f"{told}\n{ring.log('proxy')}\n{ring.log('agent')}"
            assert ring.sent_directly() > before, out

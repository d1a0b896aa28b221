"""A fourth node joins under load: it gets its share of the queries, and everything is still there."""

import asyncio
import json
import time

from harness import cql, waits
from harness.load import OF_A_LOST_REPLICA, STARTING_PAUSE_SECONDS, Load

ASK_EVERY_SECONDS = 0.05
JOINS = "Finish joining ring"  # says the newcomer, and only then tells the others that it has rows


def test_join(front, whole):
    """Writes at ONE and ALL go on beside those at QUORUM: while a node joins a write waits for one replica more, at ONE too."""
    async def scenario():
        load, at_one, at_all = (
            Load(front.host, front.port, *which, pause_seconds=STARTING_PAUSE_SECONDS)
            for which in (("joins",), ("joins-one", 6, cql.ONE), ("joins-all", 6, cql.ALL)))
        async with load, at_one, at_all:
            await load.more_acknowledged(500)
            others = list(whole.nodes)
            newcomer = await asyncio.to_thread(whole.join)
            learnt = asyncio.gather(joins(newcomer), *(learns(node, newcomer) for node in others))
            await asyncio.to_thread(newcomer.wait_ready)
            await asyncio.to_thread(whole.wait_up)
            await used(front, newcomer)
            since, *known = await learnt
            await load.more_acknowledged(1000)
        # Cassandra has no moment at which a node takes over its rows: each of the others does when it hears of it by gossip.
        # Until the last one has, what one of them writes and the newcomer acknowledges is missed by a read through another.
        disagreed = since, max(known)
        print(f"the nodes learnt of it within {max(known) - since:.2f} s; missed reads: {load.wrong}")
        load.assert_clients_unharmed(OF_A_LOST_REPLICA, disagreed)
        await load.assert_nothing_lost()
        for other in (at_one, at_all):
            other.assert_clients_unharmed(OF_A_LOST_REPLICA)
            await other.assert_nothing_lost(cql.ALL)

    asyncio.run(scenario())


async def joins(newcomer) -> float:
    """The last time at which nobody can have counted the newcomer among those that have rows: it had
    not yet said so itself."""
    not_before = asked = time.monotonic()

    def said() -> bool:
        nonlocal not_before, asked
        not_before, asked = asked, time.monotonic()
        return newcomer.wrote(JOINS)

    await waits.until_async(said, f"{newcomer.contact} joins", 400, ASK_EVERY_SECONDS,
                            told=newcomer.log_tail)
    return not_before


async def learns(node, newcomer) -> float:
    """A time at which a node counts the newcomer among those that have rows: its table says so later."""
    query = f"SELECT tokens FROM system.peers_v2 WHERE peer = '{newcomer.address}'"
    connection = await cql.Connection.open(node.address, node.settings.cql_port)

    async def known() -> bool:
        try:
            return any(row["tokens"] for row in await connection.query(query))
        except (cql.CqlError, TimeoutError):
            return False  # that says nothing

    try:
        await waits.until_async(known, f"{node.contact} knows {newcomer.contact}", 400,
                                ASK_EVERY_SECONDS)
        return time.monotonic()
    finally:
        connection.close()


async def used(front, node):
    """Waits until the proxy has the node in its ring and sends it queries."""
    known = set()

    def is_used() -> bool:
        ring = json.loads(front.get("/status")[1] or '{"ring": {"nodes": []}}')["ring"]
        known.clear()
        known.update(each["address"] for each in ring["nodes"] if each["up"])
        return node.contact in known and queries_of(front, node) > 100

    await waits.until_async(is_used, f"{node.contact} gets its share of the queries",
                            told=lambda: known)


def queries_of(front, node) -> float:
    """The proxy's own count of queries sent to a node."""
    for line in front.get("/metrics")[1].splitlines():
        if line.startswith("shunt_node_queries_total") and node.contact in line:
            return float(line.rsplit(" ", 1)[1])
    return 0

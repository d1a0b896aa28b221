"""A fourth node joins under load: it gets its share of the queries, and everything is still there."""

import asyncio
import json
import time

from harness import cql
from harness.load import OF_A_LOST_REPLICA, Load

ASK_EVERY_SECONDS = 0.05
MARGIN_SECONDS = 1  # between what a node does and what its table says, on a busy machine


def test_join(front, whole):
    """Writes at ONE and ALL go on beside those at QUORUM: while a node joins a write waits for one replica more, at ONE too."""
    async def scenario():
        async with (Load(front.host, front.port, "joins") as load, Load(front.host, front.port, "joins-one", 6, cql.ONE) as at_one,
                    Load(front.host, front.port, "joins-all", 6, cql.ALL) as at_all):
            await load.more_acknowledged(2000)
            others = list(whole.nodes)
            newcomer = await asyncio.to_thread(whole.join)
            learnt = asyncio.gather(*(learns(node, newcomer) for node in others))
            await asyncio.to_thread(newcomer.wait_ready)
            await asyncio.to_thread(whole.wait_up)
            await used(front, newcomer)
            not_before, not_after = zip(*await learnt)
            await load.more_acknowledged(2000)
        # Cassandra has no moment at which a node takes over its rows: each of the others does when it hears of it by gossip.
        # Until the last one has, what one of them writes and the newcomer acknowledges is missed by a read through another.
        disagreed = min(not_before) - MARGIN_SECONDS, max(not_after) + MARGIN_SECONDS
        print(f"the nodes learnt of the newcomer within {max(not_after) - min(not_before):.2f} s; missed reads: {load.wrong}")
        load.assert_clients_unharmed(OF_A_LOST_REPLICA, disagreed)
        await load.assert_nothing_lost()
        for other in (at_one, at_all):
            other.assert_clients_unharmed(OF_A_LOST_REPLICA)
            await other.assert_nothing_lost(cql.ALL)
        return newcomer

    newcomer = asyncio.run(scenario())
    assert queries_of(front, newcomer) > 100


async def learns(node, newcomer, within_seconds: float = 240) -> "tuple[float, float]":
    """When a node begins to count the newcomer among those that have rows: not before the one time, not after the other."""
    query = f"SELECT tokens FROM system.peers_v2 WHERE peer = '{newcomer.address}'"
    connection = await cql.Connection.open(node.address, node.settings.cql_port)
    try:
        not_before = time.monotonic()
        deadline = not_before + within_seconds
        while time.monotonic() < deadline:
            asked = time.monotonic()
            try:
                if any(row["tokens"] for row in await connection.query(query)):
                    return not_before, time.monotonic()
                not_before = asked
            except (cql.CqlError, TimeoutError):
                pass  # that says nothing
            await asyncio.sleep(ASK_EVERY_SECONDS)
        raise AssertionError(f"{node.contact} does not know {newcomer.contact} after {within_seconds} s")
    finally:
        connection.close()


async def used(front, node, within_seconds: int = 180):
    """Waits until the proxy has the node in its ring and sends it queries."""
    for _ in range(within_seconds * 5):
        ring = json.loads(front.get("/status")[1])["ring"]
        known = {known["address"] for known in ring["nodes"] if known["up"]}
        if node.contact in known and queries_of(front, node) > 0:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{node.contact} got no query within {within_seconds} s; the proxy knows {known}")


def queries_of(front, node) -> float:
    """The proxy's own count of queries sent to a node."""
    for line in front.get("/metrics")[1].splitlines():
        if line.startswith("shunt_node_queries_total") and node.contact in line:
            return float(line.rsplit(" ", 1)[1])
    return 0

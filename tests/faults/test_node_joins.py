"""A fourth node joins under load: it gets its share of the queries, and everything is still there."""

import asyncio
import json

from ring.load import OF_A_LOST_REPLICA, Load


def test_join(front, whole):
    async def scenario():
        async with Load(front.host, front.port, "joins") as load:
            await load.more_acknowledged(2000)
            newcomer = await asyncio.to_thread(whole.join)
            await asyncio.to_thread(newcomer.wait_ready)
            await asyncio.to_thread(whole.wait_up)
            await used(front, newcomer)
            await load.more_acknowledged(2000)
        load.assert_clients_unharmed(OF_A_LOST_REPLICA)
        await load.assert_nothing_lost()
        return newcomer

    newcomer = asyncio.run(scenario())
    assert queries_of(front, newcomer) > 100


async def used(front, node, within_seconds: int = 60):
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

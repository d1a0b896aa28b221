"""kill -9 of the node which the proxy's control connection goes to."""

import asyncio

from harness.load import OF_A_LOST_REPLICA, Load
from harness import cql


def control_node(ring):
    """The node that has a client which tells the proxy's version: links between proxy and nodes do not."""
    found = []
    for node in ring.nodes:
        with cql.Session(node.address, node.settings.cql_port) as session:
            clients = session.query("SELECT driver_name, driver_version FROM system_views.clients")
        if any(client["driver_name"] == "shunt" and client["driver_version"] for client in clients):
            found.append(node)
    assert len(found) == 1, f"control connections on {[node.address for node in found]}"
    return found[0]


def test_control_node_killed(front, whole):
    victim = control_node(whole)
    other = next(node for node in whole.nodes if node is not victim)

    async def scenario():
        async with Load(front.host, front.port, "control") as load:
            watcher = await cql.Connection.open(front.host, front.port)
            await watcher.register("SCHEMA_CHANGE")
            await load.more_acknowledged(1000)
            # Nobody tells the proxy of this table: while it stands still, the node goes that would have.
            front.pause()
            try:
                victim.kill()
                await asyncio.to_thread(at_node, other, "CREATE TABLE faults.unheard (id int PRIMARY KEY)")
            finally:
                front.resume()
            await load.more_acknowledged(2000)
            await event_of(watcher, b"unheard")
            watcher.close()
            await asyncio.to_thread(at_node, other, "DROP TABLE faults.unheard")
            await asyncio.to_thread(schema_change_is_seen, front)
            assert '"control_connected":true' in front.get("/status")[1].replace(" ", "")
            victim.start()
            await asyncio.to_thread(victim.wait_ready)
            await load.more_acknowledged(1000)
        load.assert_clients_unharmed(OF_A_LOST_REPLICA)
        await asyncio.to_thread(whole.wait_up)
        await load.assert_nothing_lost()

    asyncio.run(scenario())
    assert control_node(whole) is not None


def at_node(node, statement):
    with cql.Session(node.address, node.settings.cql_port, timeout_seconds=30) as session:
        session.query(statement)


async def event_of(watcher, name):
    for _ in range(900):
        if any(name in event for event in watcher.events):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"no event of {name}")


def schema_change_is_seen(front):
    """The new control connection follows the ring: an event still reaches a client that registered for it."""

    async def change():
        watcher = await cql.Connection.open(front.host, front.port)
        await watcher.register("SCHEMA_CHANGE")
        maker = await cql.Connection.open(front.host, front.port)
        await maker.query("CREATE TABLE faults.control (id int PRIMARY KEY)", timeout_seconds=60)
        await event_of(watcher, b"control")
        await maker.query("DROP TABLE faults.control", timeout_seconds=60)
        watcher.close(), maker.close()

    asyncio.run(change())

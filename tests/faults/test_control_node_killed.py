"""kill -9 of the node which the proxy's control connection goes to."""

import asyncio

from harness import cql, waits
from harness.load import OF_A_LOST_REPLICA, STARTING_PAUSE_SECONDS, Load


def with_control_connection(ring) -> list:
    """The nodes with a client that tells the proxy's version: links between proxy and nodes do not."""
    found = []
    for node in ring.nodes:
        with cql.Session(node.address, node.settings.cql_port) as session:
            clients = session.query("SELECT driver_name, driver_version FROM system_views.clients")
        if any(client["driver_name"] == "shunt" and client["driver_version"] for client in clients):
            found.append(node)
    return found


def control_node(ring):
    """A node that has lost its connection lists it for a moment, and a proxy of another test may just
    have ended."""
    found = []

    def one() -> bool:
        found[:] = with_control_connection(ring)
        return len(found) == 1

    waits.until(one, "one node has a control connection",
                told=lambda: [node.address for node in found])
    return found[0]


def test_control_node_killed(front, whole):
    victim = control_node(whole)
    other = next(node for node in whole.nodes if node is not victim)

    async def scenario():
        load = Load(front.host, front.port, "control", pause_seconds=STARTING_PAUSE_SECONDS)
        async with load:
            watcher = await cql.Connection.open(front.host, front.port)
            await watcher.register("SCHEMA_CHANGE")
            await load.more_acknowledged(500)
            # Nobody tells the proxy of this table: while it stands still, the node goes that would have.
            front.pause()
            try:
                victim.kill()
                await asyncio.to_thread(at_node, other, "CREATE TABLE faults.unheard (id int PRIMARY KEY)")
            finally:
                front.resume()
            await load.more_acknowledged(1000)
            await event_of(watcher, b"unheard")
            watcher.close()
            await asyncio.to_thread(at_node, other, "DROP TABLE faults.unheard")
            await asyncio.to_thread(schema_change_is_seen, front)
            await waits.until_async(lambda: '"control_connected":true' in status(front),
                                    "the proxy says that it has a control connection")
            victim.start()
            await asyncio.to_thread(victim.wait_ready)
            await load.more_acknowledged(500)
        load.assert_clients_unharmed(OF_A_LOST_REPLICA)
        await asyncio.to_thread(whole.wait_up)
        await load.assert_nothing_lost()

    asyncio.run(scenario())
    control_node(whole)


def status(front) -> str:
    return front.get("/status")[1].replace(" ", "")


def at_node(node, statement):
    with cql.Session(node.address, node.settings.cql_port, timeout_seconds=120) as session:
        session.query(statement)


async def event_of(watcher, name):
    await waits.until_async(lambda: any(name in event for event in watcher.events),
                            f"an event of {name}")


def schema_change_is_seen(front):
    """The new control connection follows the ring: an event still reaches a client that registered for it."""

    async def change():
        watcher = await cql.Connection.open(front.host, front.port)
        await watcher.register("SCHEMA_CHANGE")
        maker = await cql.Connection.open(front.host, front.port)
        await maker.query("CREATE TABLE faults.control (id int PRIMARY KEY)", timeout_seconds=120)
        await event_of(watcher, b"control")
        await maker.query("DROP TABLE faults.control", timeout_seconds=120)
        watcher.close(), maker.close()

    asyncio.run(change())

"""A node is stopped in good order and comes back, once without its memory of prepared statements."""

import asyncio

import pytest

from harness.load import OF_A_LOST_REPLICA, STARTING_PAUSE_SECONDS, Load
from harness import cql


@pytest.mark.parametrize("forgets", [False, True], ids=["remembers", "forgets-prepared-statements"])
def test_restart(front, whole, forgets):
    """UNPREPARED from the node that forgot never reaches a client that prepared through the proxy."""
    victim = whole.nodes[0]

    async def scenario():
        name = f"restart-{forgets}"
        async with Load(front.host, front.port, name, pause_seconds=STARTING_PAUSE_SECONDS) as load:
            await load.more_acknowledged(500)
            if forgets:
                with_memory = await cql.Connection.open(victim.address, victim.settings.cql_port)
                await with_memory.query("TRUNCATE system.prepared_statements")
                with_memory.close()
            await asyncio.to_thread(victim.stop)
            await load.more_acknowledged(500)
            victim.start()
            await asyncio.to_thread(victim.wait_ready)
            await asyncio.to_thread(whole.wait_up)
            await load.more_acknowledged(1000)
        load.assert_clients_unharmed(OF_A_LOST_REPLICA)
        await load.assert_nothing_lost()

    asyncio.run(scenario())

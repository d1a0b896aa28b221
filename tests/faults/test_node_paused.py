"""SIGSTOP: the node keeps its connections and answers nothing, the hardest way of being down."""

import asyncio

from harness.load import OF_A_LOST_REPLICA, OVERLOADED, Load


def test_paused_and_resumed(front, whole):
    victim = whole.nodes[1]

    async def scenario():
        async with Load(front.host, front.port, "paused") as load:
            await load.more_acknowledged(500)
            victim.pause()
            try:
                await asyncio.to_thread(whole.wait_down, victim)
                await load.more_acknowledged(500)
            finally:
                victim.resume()
            await load.more_acknowledged(500)
        load.assert_clients_unharmed(OF_A_LOST_REPLICA | {OVERLOADED})
        await asyncio.to_thread(whole.wait_up)
        await load.assert_nothing_lost()

    asyncio.run(scenario())

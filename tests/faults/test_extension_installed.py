"""The Cassandra extension is installed on node after node under load, exchanged for another file and back, and taken out."""

import asyncio
import os
import shutil

import pytest

from harness import extension, waits
from harness.load import OF_A_LOST_REPLICA, Load


def aggregated_links(front, node) -> int:
    """Links to a node that carry aggregated frames, by the proxy's metrics."""
    status, text = front.get("/metrics")
    assert status == 200, status
    lines = [line for line in text.splitlines() if line.startswith("shunt_node_links_aggregated{") and node.contact in line]
    assert len(lines) == 1, lines
    return int(float(lines[0].rsplit(" ", 1)[1]))


async def restart_with(front, whole, node, agent: str) -> None:
    """A restart with or without the extension, until the proxy's links are as they should be."""
    await asyncio.to_thread(node.stop)
    node.settings.agent = agent
    node.start()
    await asyncio.to_thread(node.wait_ready)
    await asyncio.to_thread(whole.wait_up)
    await waits.until_async(
        lambda: bool(aggregated_links(front, node)) == bool(agent),
        f"links to {node.contact} as with agent '{agent}'",
        told=lambda: f"{aggregated_links(front, node)} are\n{node.log_tail()}\n{front.log_tail()}")


def test_rolling_install_exchange_and_removal(front, whole, tmp_path):
    """A ring that is partly extended serves like any other, and nothing acknowledged is lost on the way. The last node is
    extended too only where SHUNT_ROLLING is `all`.

    The other file stands for another version with other settings: smaller frames, one thread. While the first node has it,
    frames of different limits go to the nodes; then it gets the former one back.
    """
    if whole.extended:
        pytest.skip("begins on a ring without the extension")
    former, other = extension.agent(), extension.agent("frame_queries_max=4,threads=1", file=tmp_path / "other.jar")
    shutil.copyfile(extension.jar(), tmp_path / "other.jar")
    rolling = whole.nodes if os.environ.get("SHUNT_ROLLING") == "all" else whole.nodes[:-1]
    first = rolling[0]
    steps = [(node, former) for node in rolling] + [(first, other), (first, former)] + [(node, "") for node in rolling]

    async def scenario():
        try:
            async with Load(front.host, front.port, "extension") as load:
                await load.more_acknowledged(500)
                for node, agent in steps:
                    await restart_with(front, whole, node, agent)
                    await load.more_acknowledged(500)
            load.assert_clients_unharmed(OF_A_LOST_REPLICA)
            await load.assert_nothing_lost()
        finally:
            for node in whole.nodes:
                node.settings.agent = ""

    asyncio.run(scenario())

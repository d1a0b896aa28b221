"""kill -9 of embedded nodes under clients that use the same keys again and again: what all of them saw, before and after,
is what one copy of the data would have answered.

`SHUNT_HISTORY_SEED` sets what the clients choose, `SHUNT_HISTORY_ROUNDS` the number of kills. A seed does not set how
threads interleave.
"""

import os
import random
import time

import pytest

from history.clients import SCHEMA, Clients
from history.record import History
from history.verdict import assert_linearizable
from harness import cql
from harness.embedded import Embedded

KEYSPACE = "CREATE KEYSPACE {0} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
PORT, NODE_PORT = 9152, 9153
# Memtables so small that flushes and compactions are always under way.
SMALL = ["--memtable-bytes", "262144", "--reserve-bytes", "0"]


def node() -> Embedded:
    contact = f"127.0.0.1:{PORT}"
    return Embedded("killed-node", contact, ["node", "--listen", contact, "--admin", "off", "--cores", "2", *SMALL], [contact])


def nodes_and_proxy() -> Embedded:
    contact = f"127.0.0.1:{PORT}"
    arguments = ["up", "--nodes", "3", "--listen", contact, "--node-port", str(NODE_PORT), "--admin", "off", *SMALL]
    return Embedded("killed-up", contact, arguments, [contact])


@pytest.mark.parametrize("server, rounds", [(node, 3), (nodes_and_proxy, 2)], ids=["node", "up"])
def test_killed(server, rounds):
    seed = int(os.environ.get("SHUNT_HISTORY_SEED", time.time()))
    rounds = int(os.environ.get("SHUNT_HISTORY_ROUNDS", rounds))
    print(f"SHUNT_HISTORY_SEED={seed} SHUNT_HISTORY_ROUNDS={rounds}")
    draw = random.Random(seed)
    process = server()
    history = History(process.name, seed=seed, rounds=rounds)
    with process.start():
        with cql.Session("127.0.0.1", PORT) as session:
            for statement in (KEYSPACE, *SCHEMA):
                session.query(statement.format("histories"))
        with Clients(history, "127.0.0.1", PORT, "histories", seed) as clients:
            clients.locks("lock", locks=3, clients=8, pause_seconds=0.0005)
            clients.registers("timed", writers=4, client_timestamps=True, pause_seconds=0.01)
            clients.registers("shared", writers=8, client_timestamps=False, pause_seconds=0.01, writers_of_a_key=4)
            clients.readers("register", 2, pause_seconds=0.005)
            clients.pairs("pair", writers=2, pause_seconds=0.001)
            clients.readers("pair", 4, pause_seconds=0.0005)
            clients.lists("list", writers=2, pause_seconds=0.02)
            for round in range(rounds):
                # The driver is slow: what is rare is only met by one kind of clients that has the processors to itself.
                clients.slow_down(40, but=("lock", "pair")[round % 2])
                clients.run_for(draw.uniform(1.5, 2.5))
                clients.up.clear()
                history.crash(process.kill)
                process.start(wipe=False)
                history.note("started again")
                clients.up.set()
                clients.slow_down(1)
                for model in ("register", "list", "lock"):
                    clients.more(model, 20)
            clients.stop()
            clients.read_everything()
    for model in ("register", "list", "lock"):
        assert history.count(model) > 20 * rounds, f"too little was done to {model}s to show anything"
    assert_linearizable(history)

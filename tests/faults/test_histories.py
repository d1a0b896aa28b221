"""The same keys, read and written by many clients through the proxy while a node is paused, killed and restarted: what all
of them saw is what one copy of the data would have answered. `SHUNT_HISTORY_SEED` sets what the clients choose.

The load of the other tests writes each key once, so it cannot see that an old write takes the place of a newer one, nor
that a write took effect twice.
"""

import os
import time

from history.clients import SCHEMA, Clients
from history.record import History
from history.verdict import assert_linearizable
from harness import cql, waits

# What the driver calls that which a coordinator may answer while a replica it counted on does not.
OF_A_LOST_REPLICA = {"Unavailable", "WriteTimeout", "ReadTimeout", "WriteFailure", "ReadFailure", "OverloadedErrorMessage"}
# So many operations, and more, have to be done for a history to show something.
LEAST = {"register": 200, "list": 50, "lock": 30}
# Longer than the proxy believes a silent node, and shorter than the others need to take it for down.
# No verdict hangs on it.
SECONDS_PAUSED = 8
SLOWER = 5  # while a node is down, or starts
# For a node that goes on to do what it had received before. Of one that needs longer less is seen.
SECONDS_AFTER = 3


def clients_of(history: History, front, ring, seed: int) -> Clients:
    print(f"SHUNT_HISTORY_SEED={seed}")
    first = ring.nodes[0]
    with cql.Session(first.address, first.settings.cql_port, timeout_seconds=180) as session:
        for statement in SCHEMA:
            session.query(statement.format("faults"))
    ring.wait_up()
    return Clients(history, front.host, front.port, "faults", seed)


def start(clients: Clients, name: str) -> None:
    """Many writers: of those that have a query at a node when it stops, each is one chance to see what becomes of it.
    Each comes to have one there as long as it stands still, so they need not be fast."""
    clients.registers(f"{name}-timed", writers=12, client_timestamps=True, pause_seconds=0.15)
    clients.registers(f"{name}-untimed", writers=16, client_timestamps=False, pause_seconds=0.15)
    clients.lists(f"{name}-list", writers=14, pause_seconds=0.4)
    clients.lists(f"{name}-untimed-list", writers=4, pause_seconds=0.4, client_timestamps=False)
    clients.pairs(f"{name}-pair", writers=4, pause_seconds=0.2)
    clients.locks(f"{name}-lock", locks=4, clients=8, pause_seconds=0.3)
    clients.readers("register", 4, pause_seconds=0.15)
    clients.readers("pair", 2, pause_seconds=0.15)


def begin(clients: Clients) -> None:
    """Until enough was done, however slow the machine is."""
    clients.run_for(2)
    for model, least in LEAST.items():
        clients.more(model, least)


def seed_of_this_run() -> int:
    return int(os.environ.get("SHUNT_HISTORY_SEED", time.time()))


def harmless(history: History) -> None:
    """Enough was done to show something, and only errors came that the fault explains: no client lost its connection."""
    for model, least in LEAST.items():
        assert history.count(model) > least, f"{history.count(model)} operations on {model}s: {dict(history.errors)}"
    surprising = {error: count for error, count in history.errors.items() if error.split(": ")[1] not in OF_A_LOST_REPLICA}
    late = {error for error in surprising if error.split(": ")[1] == "OperationTimedOut"}
    assert not surprising.keys() - late, surprising
    if late:
        raise waits.Late(str(surprising))


def test_paused_and_resumed_after_the_writers_ended(front, whole):
    """The node carries out what it had received when it resumes: after everything else was written."""
    seed, victim = seed_of_this_run(), whole.nodes[1]
    history = History("paused-after", seed=seed, paused=victim.address)
    with clients_of(history, front, whole, seed) as clients:
        start(clients, "after")
        begin(clients)
        history.note("paused")
        victim.pause()
        try:
            clients.run_for(SECONDS_PAUSED)
            history.note("writers end")
            clients.stop()
        finally:
            history.note("resumed")
            victim.resume()
        time.sleep(SECONDS_AFTER)
        whole.wait_up()
        clients.read_everything()
    assert_linearizable(history)
    harmless(history)


def test_paused_killed_and_restarted_under_the_writers(front, whole):
    seed, paused, killed = seed_of_this_run(), whole.nodes[0], whole.nodes[2]
    history = History("paused-killed", seed=seed, paused=paused.address, killed=killed.address)
    with clients_of(history, front, whole, seed) as clients:
        start(clients, "under")
        begin(clients)
        history.note("paused")
        paused.pause()
        try:
            clients.run_for(SECONDS_PAUSED)
            # Long enough for the others to take it for down, and to tell the proxy; and for hints.
            clients.slow_down(SLOWER)
            whole.wait_down(paused)
            history.note("down")
        finally:
            history.note("resumed")
            paused.resume()
        clients.slow_down(1)
        clients.run_for(SECONDS_AFTER)
        whole.wait_up()
        history.note("killed")
        killed.kill()
        clients.run_for(2)
        history.note("started")
        clients.slow_down(SLOWER)
        killed.start()
        killed.wait_ready()
        whole.wait_up()
        history.note("all are up")
        clients.slow_down(1)
        clients.run_for(1)
        for model in ("register", "list", "lock"):
            clients.more(model, 20)
        clients.stop()
        clients.read_everything()
    assert_linearizable(history)
    harmless(history)

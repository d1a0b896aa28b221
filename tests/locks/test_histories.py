"""Answers about durable locks while proxies are killed, stopped and started, as a history: for each
lock, one order of all operations explains all answers, and fences rise in it. tests/history has the
checker, with tests of its own that it must fail.

Locks in memory have no such test. After the death of their proxy they become free at a time that no
order of operations gives.
"""

import os
import random
import threading
import time

from cassandra.cluster import NoHostAvailable
from cassandra.policies import FallthroughRetryPolicy

from history.record import FAILED, OK, History
from history.verdict import assert_linearizable
from harness.waits import Clock, Late, until
from locks.fleet import LEASE_MS, Threads

KEYS = [f"history-{number}" for number in range(6)]
CLIENTS = 8
STATEMENTS = {
    "acquire": "INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (?, ?, ?) IF NOT EXISTS USING TTL 7200",
    "renew": "UPDATE shunt.locks USING TTL 7200 SET owner = ? WHERE name = ? IF owner = ?",
    "release": "DELETE FROM shunt.locks WHERE name = ? IF owner = ?",
    "read": "SELECT owner, fence FROM shunt.locks WHERE name = ?",
}


class Lockers(Threads):
    """Clients that take, renew and release the same locks, each a thread. The owner has a new name for each acquisition, and no
    request is repeated: whoever is not told what became of it asks for something else."""

    def __init__(self, history: History, fleet, seed: int):
        self.history, self.seed = history, seed
        # They are to learn soon of a proxy that stands still. The outcome of a request without an
        # answer is open.
        self.session = fleet.connect(timeout_seconds=20, heartbeat_seconds=2)
        self.statements = {name: self.session.prepare(text) for name, text in STATEMENTS.items()}
        for statement in self.statements.values():
            statement.retry_policy = FallthroughRetryPolicy()
        self.abandoned = set()  # owners who do not know whether they have their lock: whoever meets one releases it
        self.failures = []
        self.threads = [threading.Thread(target=self.loop, args=(f"c{number}",), daemon=True) for number in range(CLIENTS)]

    def __exit__(self, *error):
        super().__exit__(*error)
        if not self.failures:
            for key in KEYS:
                self.look("last", key)
        self.session.cluster.shutdown()

    def loop(self, client: str) -> None:
        draw, turn = random.Random(f"{self.seed} {client}"), 0
        try:
            while self.going:
                turn += 1
                if not self.turn(client, draw, draw.choice(KEYS), f"{client}.{turn}"):
                    time.sleep(0.05)  # an error: another one would follow at once
        except Exception as error:  # noqa: BLE001 (of the client itself, not of a server)
            self.failures.append(f"{client}: {error!r}")

    def turn(self, client: str, draw, key: str, owner: str) -> bool:
        outcome, result = self.ask(client, "acquire", key, owner, (key, owner, draw.choice((0, 0, 300))))
        if outcome == FAILED:
            return False
        if outcome == OK and not result[0]:
            if result[1] in self.abandoned:
                return self.ask(client, "release", key, result[1], (key, result[1]))[0] == OK
            return self.look(client, key)
        if outcome != OK or draw.randrange(3) == 0:
            outcome, result = self.ask(client, "renew", key, owner, (owner, key, owner))
        if draw.randrange(4) == 0:
            self.look(client, key)
        for _ in range(2):
            if self.ask(client, "release", key, owner, (key, owner))[0] == OK:
                return outcome == OK
        self.abandoned.add(owner)
        return False

    def ask(self, client: str, op: str, key: str, owner: str, values: tuple) -> tuple:
        def execute() -> tuple:
            row = self.row(op, values)
            return row["[applied]"], row["owner"], row["fence"]

        begun = self.history.now()
        outcome, result = self.history.conditional(client, key, op, owner, execute)
        if op == "acquire" and outcome not in (OK, FAILED):
            # Of the proxy that granted it the client may be gone, whose request it was; or another proxy, which forwarded it.
            self.history.may_be_given_back(client, key, owner, begun)
        return outcome, result

    def row(self, statement: str, values: tuple):
        """One request; while the driver has no host to send it to, none."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return self.session.execute(self.statements[statement], values).one()
            except NoHostAvailable as error:
                if error.errors or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def look(self, client: str, key: str) -> bool:
        def execute() -> tuple:
            row = self.row("read", (key,))
            return (row["owner"], row["fence"]) if row else (None, None)

        return self.history.look(client, key, execute)[0] == OK

    def more(self, count: int) -> None:
        """Waits until so many more operations had an answer: whatever was done to the proxies, locks are served."""
        goal = self.history.count("lock") + count

        def reached() -> bool:
            assert not self.failures, self.failures[:3]
            return self.history.count("lock") >= goal

        until(reached, f"{count} more have an answer", told=lambda: dict(self.history.errors))


def killed(fleet, draw) -> None:
    victim = draw.choice(fleet.proxies)
    victim.kill()
    fleet.wait_until_settled(2)
    victim.start()


def killed_and_started_at_once(fleet, draw) -> None:
    victim = draw.choice(fleet.proxies)
    victim.kill()
    victim.start()


def killed_while_another_is_taken_over(fleet, draw) -> None:
    first, second = draw.sample(fleet.proxies, 2)
    first.kill()
    # It is about when the others take over; any other moment is as good for the history.
    time.sleep(LEASE_MS / 1000 * draw.uniform(0.9, 1.3))
    second.kill()
    fleet.wait_until_settled(1)
    first.start()
    second.start()


def all_killed(fleet, draw) -> None:
    for one in fleet.proxies:
        one.kill()
    for one in fleet.proxies:
        one.start()


def stopped_past_its_lease(fleet, draw) -> None:
    with fleet.without(draw.choice(fleet.proxies)):
        pass


def stopped_in_order(fleet, draw) -> None:
    victim = draw.choice(fleet.proxies)
    victim.stop()
    victim.start()


FAULTS = [killed, killed_and_started_at_once, killed_while_another_is_taken_over, all_killed, stopped_past_its_lease, stopped_in_order]


def note_ends(one, history: History) -> list:
    """From when to when a proxy is being killed, or stopped past its lease, from now on."""
    ends = []

    def noted(end):
        def end_and_note() -> None:
            begun = history.now()
            end()
            ends.append((begun, history.now()))

        return end_and_note

    one.kill, one.pause = noted(one.kill), noted(one.pause)
    return ends


def test_one_order_explains_all_answers(fleet):
    seed = int(os.environ.get("SHUNT_HISTORY_SEED", time.time()))
    rounds = int(os.environ.get("SHUNT_HISTORY_ROUNDS", len(FAULTS)))
    print(f"SHUNT_HISTORY_SEED={seed} SHUNT_HISTORY_ROUNDS={rounds}")
    draw = random.Random(seed)
    history = History("locks", seed=seed, rounds=rounds)
    ends = [note_ends(one, history) for one in fleet.proxies]
    with Clock() as clock, Lockers(history, fleet, seed) as lockers:
        lockers.more(200)
        for round in range(rounds):
            fault = FAULTS[round] if round < len(FAULTS) else draw.choice(FAULTS)
            history.note(fault.__name__)
            fault(fleet, draw)
            fleet.wait_until_settled(len(fleet.proxies))
            history.note("settled")
            lockers.more(100)
    # A release is answered before its row is on its way (docs/locks.md): a proxy that is killed, or
    # stopped past its lease, in between takes it along. That is a moment, and longer if the machine
    # stands still in it.
    within_ms = 100 + int(clock.longest_seconds * 1000)
    history.doubt("release", [span for of_one in ends for span in of_one], within_ms)
    if not history.count("lock", "indeterminate"):
        raise Late("nothing was in doubt: the faults have met nobody")
    assert_linearizable(history)

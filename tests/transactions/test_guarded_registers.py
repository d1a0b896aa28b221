"""Registers that are read and written under a lock, by clients some of which stand still past their lock, as histories: for each register one
order of all operations explains all answers, and in it nobody has written between what a client has read and what it has written on that.

A register's value is a list of numbers, as text; a client reads it and writes it with a number more. So there are two histories of each: of a
register, with each read and write an operation; and of a list, with both together as one, which appends. Without guards
the former is still one (whoever has lost the lock writes like anybody else), and the latter is not: the checker must see that.
"""

import os
import random
import threading
import time
import uuid

import pytest
from cassandra import InvalidRequest

from harness.waits import Late, until
from history import verdict
from history.record import FAILED, OK, History, NotDone
from locks.fleet import Threads

from .bank import carry_out_once
from .conftest import insistent, prepare
from .test_guards import with_fence

CLIENTS, REGISTERS, TTL_SECONDS = 6, 2, 1
STANDING_MAX = 2  # of the clients: the others write meanwhile
ACQUIRE = f"INSERT INTO shunt.locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL {TTL_SECONDS}"
RELEASE = "DELETE FROM shunt.locks WHERE name = %s IF owner = %s"


class Writers(Threads):
    """Clients that read a register and write it under its lock, each through a proxy of its own,
    and stand still in between now and then, until somebody else has written under the lock that
    has passed on."""

    def __init__(self, fleet, history, registers, guard, seed):
        self.history, self.registers, self.guard = history, registers, guard
        self.sessions = [fleet.connect(to=number, timeout_seconds=10, heartbeat_seconds=2) for number in range(len(fleet.proxies))]
        self.mutex = threading.Lock()
        self.number, self.overtaken, self.refused, self.failures = 0, 0, 0, []
        self.standing = threading.Semaphore(STANDING_MAX)
        self.last = dict.fromkeys(registers, 0)  # the fence of the last write that was answered
        self.threads = [threading.Thread(target=self.go_on, args=(f"c{client}", self.sessions[client % len(self.sessions)],
                                                                  random.Random(f"{seed} {client}")), daemon=True) for client in range(CLIENTS)]

    def __exit__(self, *_):
        super().__exit__()
        for session in self.sessions:
            session.cluster.shutdown()

    def go_on(self, client, session, draw):
        turn = 0
        try:
            while self.going:
                turn += 1
                self.once(client, session, draw, draw.choice(self.registers), f"{client}.{turn}")
        except Exception as error:  # noqa: BLE001 (of the client itself, not of a server)
            self.failures.append(f"{client}: {error!r}")

    def once(self, client, session, draw, register, owner):
        name = f"register {register}"
        try:
            row = session.execute(ACQUIRE, (name, owner)).one()
        except Exception:  # noqa: BLE001 (a lock that it may have ends by itself)
            return time.sleep(0.1)
        if not row["[applied]"]:
            return time.sleep(0.02)
        self.append(client, session, draw, register, name, row["fence"])
        try:
            session.execute(RELEASE, (name, owner))
        except Exception:  # noqa: BLE001 (the same)
            time.sleep(0.1)

    def append(self, client, session, draw, register, name, fence):
        payload = with_fence(name, fence) if self.guard else None
        key = str(register)

        def execute(text):
            try:
                return session.execute(text, custom_payload=payload)
            except InvalidRequest as error:
                if not self.guard or "does not count any more" not in str(error):
                    raise
                with self.mutex:
                    self.refused += 1
                raise NotDone(str(error)) from error

        def read():
            return execute(f"SELECT owner FROM transactions.accounts WHERE id = {register}").one()["owner"]

        begun = self.history.now()
        outcome, found = self.history.read(client, "register", key, read)
        if outcome != OK:
            return
        self.history.lines.append({"model": "list", "key": key, "client": client, "op": "read", "value": numbers(found), "call": begun,
                                   "return": self.history.now(), "outcome": OK})
        is_overtaken = draw.randrange(4) == 0 and self.is_overtaken(register, fence)
        with self.mutex:
            self.number += 1
            number = self.number
        value = f"{found} {number}".strip()
        outcome = self.history.write(client, "register", key, "write", value, lambda: execute(
            f"UPDATE transactions.accounts SET owner = '{value}' WHERE id = {register}"))
        self.history.lines.append({"model": "list", "key": key, "client": client, "op": "append", "value": [number], "call": begun,
                                   "return": self.history.now(), "outcome": outcome})
        with self.mutex:
            if outcome == OK:
                self.last[register] = max(self.last[register], fence)
            self.overtaken += is_overtaken

    def is_overtaken(self, register, fence):
        """Stands still until another has written under the lock, which had passed to it. False if
        that was not to be."""
        if not self.standing.acquire(blocking=False):
            return False
        try:
            later = max(fence, self.last[register])
            until(lambda: self.last[register] > later or not self.going,
                  f"another writes register {register}", every_seconds=0.02)
            return self.last[register] > later
        except Late:
            return False  # the test is late itself, and tells what it waits for
        finally:
            self.standing.release()

    def wait_for(self, operations, overtaken, refused=0):
        """Until so many more operations were carried out, so often somebody stood still past its
        lock, and so much was refused for that."""
        goal = self.history.count("register") + operations

        def counts():
            return self.history.count("register"), self.overtaken, self.refused

        def is_there():
            assert not self.failures and not self.history.problems, (self.failures[:3], self.history.problems[:3])
            return all(map(int.__ge__, counts(), (goal, overtaken, refused)))

        until(is_there, f"{goal} operations, {overtaken} overtaken, {refused} refused",
              every_seconds=0.05, told=counts)


def numbers(text):
    return [int(number) for number in text.split()]


@pytest.fixture
def registers(fleet, nodes):
    fleet.wait_until_settled(len(fleet.proxies))
    session = insistent(fleet.connect())
    prepare(session, nodes[1])
    # Nobody else's.
    registers = [uuid.uuid4().int % 2_000_000_000 for _ in range(REGISTERS)]
    opened = "\n".join(f"INSERT INTO transactions.accounts (id, owner) VALUES ({number}, '');" for number in registers)
    carry_out_once(session, f"BEGIN TRANSACTION\n{opened}\nCOMMIT TRANSACTION")
    session.cluster.shutdown()
    return registers


def begun(name, registers):
    seed = int(os.environ.get("SHUNT_HISTORY_SEED", time.time()))
    print(f"SHUNT_HISTORY_SEED={seed}")
    history = History(name, seed=seed)
    for register in registers:
        history.write("first", "register", str(register), "write", "", lambda: [])
        history.write("first", "list", str(register), "overwrite", [], lambda: [])
    return history, seed


def read_at_the_end(fleet, history, registers):
    session = insistent(fleet.connect())
    for register in registers:
        def read():
            select = f"SELECT owner FROM transactions.accounts WHERE id = {register}"  # noqa: B023
            return session.execute(select).one()["owner"]

        def found_at_last():
            outcome, found = history.read("last", "register", str(register), read)  # noqa: B023
            return outcome == OK and [found]

        found, = until(found_at_last, f"register {register} is read")
        history.read("last", "list", str(register), lambda: numbers(found))  # noqa: B023
    session.cluster.shutdown()


def stand_still(fleet, history, victim):
    """A proxy that decides, or keeps locks, stands still past its own lease."""
    history.note("paused")
    with fleet.without(victim):
        pass
    history.note("resumed")
    fleet.wait_until_settled(len(fleet.proxies))


def test_registers_that_are_written_under_guard_have_one_order(fleet, registers):
    history, seed = begun("guarded-registers", registers)
    draw = random.Random(seed)
    with Writers(fleet, history, registers, guard=True, seed=seed) as writers:
        writers.wait_for(60, overtaken=2, refused=2)
        for _ in range(int(os.environ.get("SHUNT_HISTORY_ROUNDS", 1))):
            stand_still(fleet, history, draw.choice(fleet.proxies))
            writers.wait_for(40, overtaken=writers.overtaken + 1, refused=writers.refused + 1)
    read_at_the_end(fleet, history, registers)
    assert history.count("list", FAILED) > 0, "nothing was refused: nobody has stood still for long enough"
    verdict.assert_linearizable(history)


def test_without_guards_they_have_none_and_that_is_seen(fleet, registers, monkeypatch, tmp_path):
    monkeypatch.setattr(verdict, "LOGS", tmp_path)
    history, seed = begun("unguarded-registers", registers)
    with Writers(fleet, history, registers, guard=False, seed=seed) as writers:
        writers.wait_for(60, overtaken=2)
    read_at_the_end(fleet, history, registers)
    with pytest.raises(AssertionError, match="exit code 1"):
        verdict.assert_linearizable(history)

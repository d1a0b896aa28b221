"""Proxies die, stand still and stop in order while money is moved: none is lost, none is made, and
no transaction is there in part.

SHUNT_FAULTS_VICTIMS is how many proxies each fault comes to. test_transfers_under_faults.py does all
this to the proxy that carries the transactions out."""

import os
import random
import threading
import time

import pytest
from cassandra import InvalidRequest
from cassandra.policies import ConstantReconnectionPolicy, RetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, SyntaxException

from harness.waits import until
from locks.fleet import Threads

from .bank import carry_out_once, wait_until_all_is_made
from .conftest import insistent, insistently, prepare, prepared

VICTIMS = int(os.environ.get("SHUNT_FAULTS_VICTIMS", "1"))
ACCOUNTS, BALANCE, CLIENTS = 16, 100, 6

MOVE = """BEGIN TRANSACTION
  LET payer = (SELECT balance FROM transactions.accounts WHERE id = ?);
  IF payer.balance >= ? THEN
    UPDATE transactions.accounts SET balance -= ? WHERE id = ?;
    UPDATE transactions.accounts SET balance += ? WHERE id = ?;
    INSERT INTO transactions.moves (account, number, amount) VALUES (?, ?, ?);
  END IF
COMMIT TRANSACTION"""


def audit(accounts):
    """Reads all accounts at once."""
    lets = "\n".join(f"LET a{number} = (SELECT balance FROM transactions.accounts WHERE id = {number});" for number in accounts)
    columns = ", ".join(f"a{number}.balance" for number in accounts)
    return f"BEGIN TRANSACTION\n{lets}\nSELECT {columns};\nCOMMIT TRANSACTION"


class Once(RetryPolicy):
    """Asks again what was certainly not executed, and nothing else. The driver's own policy goes to the next host too when a connection
    is lost, whatever was on it."""

    def on_request_error(self, query, consistency, error, retry_num):
        if isinstance(error, (IsBootstrappingErrorMessage, OverloadedErrorMessage)) and retry_num < 10:
            return self.RETRY_NEXT_HOST, consistency
        return self.RETHROW, None


class Transfers(Threads):
    """Clients that move money between accounts, and one that counts it."""

    def __init__(self, fleet, accounts):
        self.fleet, self.accounts = fleet, accounts
        # All proxies that the driver knows may be away for a moment; it is not to wait for minutes then.
        self.session = fleet.connect(timeout_seconds=8, heartbeat_seconds=2, reconnection_policy=ConstantReconnectionPolicy(1))
        self.move, self.audit = prepared(self.session, MOVE), prepared(self.session, audit(accounts))
        self.move.retry_policy = Once()
        self.guard = threading.Lock()
        self.count, self.audits, self.number = 0, 0, 0
        self.outcomes, self.faults, self.errors = {}, [], {}
        self.threads = [threading.Thread(target=self.go_on, args=(one,), daemon=True) for one in [self.transfer] * CLIENTS + [self.look]]

    def __exit__(self, *_):
        super().__exit__()
        self.session.cluster.shutdown()

    def go_on(self, one):
        while self.going:
            try:
                one()
            except (InvalidRequest, SyntaxException, AssertionError) as error:
                self.faults.append(repr(error))
            except Exception as error:  # noqa: BLE001 (every error that a fault causes is one that clients get)
                kind = f"{type(error).__name__}: {getattr(error, 'errors', error)}"[:300]
                self.errors[kind] = self.errors.get(kind, 0) + 1
                time.sleep(0.05)

    def transfer(self):
        payer, payee = random.sample(self.accounts, 2)
        with self.guard:
            self.number += 1
            number = self.number
        amount = random.randint(1, 20)
        # Nobody knows until it is answered.
        self.outcomes[(payer, number)] = (amount, payee, None)
        result = self.session.execute(self.move, (payer, amount, amount, payer, amount, payee, payer, number, amount))
        payload = result.response_future.custom_payload or {}
        self.outcomes[(payer, number)] = (amount, payee, payload["shunt-applied"] == b"\x01")
        with self.guard:
            self.count += 1
        time.sleep(0.02)

    def look(self):
        balances = list(self.session.execute(self.audit).one().values())
        assert sum(balances) == ACCOUNTS * BALANCE and min(balances) >= 0, balances
        self.audits += 1
        time.sleep(0.02)

    def wait_for(self, more):
        wanted = self.count + more
        self.wait_until(f"{wanted} transfers were answered", lambda: self.count >= wanted)

    def wait_until(self, what, is_so):
        def is_so_without_fault():
            assert not self.faults, self.faults[:3]
            return is_so()

        until(is_so_without_fault, what, every_seconds=0.05,
              told=lambda: f"{self.count}; {self.errors}\n{self.fleet.status()}")

    def wait_until_all_are_known(self):
        """A driver that knows one proxy, and loses that, knows none."""
        self.fleet.wait_until_settled(3)
        hosts = self.session.cluster.metadata.all_hosts
        self.wait_until("the driver has all proxies",
                        lambda: sum(bool(host.is_up) for host in hosts()) == 3)


@pytest.fixture
def transfers(fleet, nodes):
    fleet.wait_until_settled(len(fleet.proxies))
    session = insistent(fleet.connect())
    prepare(session, nodes[1])
    # Nobody else's.
    first = random.randrange(1_000_000_000)
    accounts = range(first, first + ACCOUNTS)
    opened = "\n".join(f"INSERT INTO transactions.accounts (id, balance) VALUES ({number}, {BALANCE});" for number in accounts)
    carry_out_once(session, f"BEGIN TRANSACTION\n{opened}\nCOMMIT TRANSACTION")
    session.cluster.shutdown()
    with Transfers(fleet, accounts) as transfers:
        transfers.wait_for(100)
        yield transfers
        fleet.wait_until_settled(len(fleet.proxies))
        transfers.wait_for(100)
        transfers.wait_until("the accounts were counted", lambda: transfers.audits > 5)
    assert transfers.faults == []
    # The other session may have lost all hosts that it knew.
    reader = insistent(fleet.connect())
    # What a client was not told in time may be on its way yet. `check` reads twice, and nothing may
    # change in between.
    nothing = f"UPDATE transactions.accounts SET balance += 0 WHERE id = {first}"
    wait_until_all_is_made(fleet.proxies, lambda: insistently(reader, f"BEGIN TRANSACTION {nothing}; COMMIT TRANSACTION"))
    check(reader, transfers)
    reader.cluster.shutdown()


def check(session, transfers):
    """Each transfer is there as a whole, or not at all; those that were acknowledged are, those that were refused are not."""
    among = ", ".join(str(number) for number in transfers.accounts)
    there = {(row["account"], row["number"]): row["amount"] for row in session.execute(f"SELECT * FROM transactions.moves WHERE account IN ({among})")}
    balances = {row["id"]: row["balance"] for row in session.execute(f"SELECT id, balance FROM transactions.accounts WHERE id IN ({among})")}
    expected = dict.fromkeys(transfers.accounts, BALANCE)
    for key, (amount, payee, applied) in transfers.outcomes.items():
        if applied is not None:
            assert (key in there) == applied, (key, applied)
        if key in there:
            assert there[key] == amount
            expected[key[0]] -= amount
            expected[payee] += amount
    assert there.keys() <= transfers.outcomes.keys()
    assert balances == expected


def test_every_proxy_is_killed_once_and_comes_back(fleet, transfers):
    for victim in fleet.proxies[:VICTIMS]:
        victim.kill()
        fleet.wait_until_settled(2)
        transfers.wait_for(60)
        victim.start()
        transfers.wait_until_all_are_known()


def test_two_are_killed_one_while_it_takes_over(fleet, transfers):
    for first, second in ((0, 1), (2, 0))[:VICTIMS]:
        fleet.proxies[first].kill()
        # From then on others take its shards over.
        until(lambda: len(fleet.shards()) < 3, "the lease of the first has ended")
        fleet.proxies[second].kill()
        fleet.wait_until_settled(1)
        transfers.wait_for(40)
        fleet.proxies[first].start()
        fleet.proxies[second].start()
        transfers.wait_until_all_are_known()


def test_every_proxy_stands_still_past_its_lease(fleet, transfers):
    for victim in fleet.proxies[:VICTIMS]:
        with fleet.without(victim):
            transfers.wait_for(60)
        transfers.wait_until_all_are_known()


def test_a_rolling_restart_loses_nothing(fleet, transfers):
    for one in fleet.proxies:
        one.stop()
        one.start()
        transfers.wait_until_all_are_known()
        transfers.wait_for(30)

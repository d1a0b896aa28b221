"""A thousand accounts, clients that move money between them through several proxies, and auditors that count it in transactions.

Each account counts its transfers, and each transfer leaves a row of its own, which says what it has read. So the rows of an account make a
chain, without a gap and without two at one place; the chain tells what everybody must have read, and each transfer, of which its client knows what
it was told, is in the chains of both accounts or of none. A transaction reads a hundred rows at most: accounts are in groups, between which
no money goes, and an auditor reads a group at once. The tables have the mode `full`, so that clients are told when a transfer is committed: what they
are told has to hold although its writes may be on their way yet.
"""

import random
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate

from cassandra import OperationTimedOut, ReadTimeout, WriteTimeout, WriteType
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage

from harness.waits import until
from locks.fleet import Threads

from .conftest import answered, insistent, insistently, prepared

ACCOUNTS, GROUP, BALANCE = 1_000, 50, 100
CLIENTS, AUDITORS = 6, 2
PAUSE_SECONDS = 0.02  # of a client between two requests: faults take seconds, and processors have other work
TABLES = (
    "CREATE TABLE IF NOT EXISTS bank.accounts (id int PRIMARY KEY, balance int, moves int)",
    "CREATE TABLE IF NOT EXISTS bank.transfers (id uuid PRIMARY KEY, payer int, payee int, amount int, "
    "payer_moves int, payee_moves int, payer_balance int, payee_balance int, made_at timestamp)",
)
MOVE = """BEGIN TRANSACTION
  LET payer = (SELECT balance, moves FROM bank.accounts WHERE id = ?);
  LET payee = (SELECT balance, moves FROM bank.accounts WHERE id = ?);
  SELECT payer.balance, payer.moves, payee.balance, payee.moves;
  IF payer.balance >= ? THEN
    UPDATE bank.accounts SET balance -= ?, moves += 1 WHERE id = ?;
    UPDATE bank.accounts SET balance += ?, moves += 1 WHERE id = ?;
    INSERT INTO bank.transfers (id, payer, payee, amount, payer_moves, payee_moves, payer_balance, payee_balance, made_at)
      VALUES (?, ?, ?, ?, payer.moves, payee.moves, payer.balance, payee.balance, toTimestamp(now()));
  END IF
COMMIT TRANSACTION"""
LETS = "\n".join(f"LET a{number} = (SELECT balance, moves FROM bank.accounts WHERE id = ?);" for number in range(GROUP))
AUDIT = f"""BEGIN TRANSACTION
{LETS}
SELECT {", ".join(f"a{number}.balance, a{number}.moves" for number in range(GROUP))};
COMMIT TRANSACTION"""
# It writes what is there, to two partitions: of what is written to one nobody is told early.
NOTHING = """BEGIN TRANSACTION
  UPDATE bank.accounts SET balance += 0 WHERE id = 0;
  UPDATE bank.accounts SET balance += 0 WHERE id = 1;
COMMIT TRANSACTION"""
TOLD_EARLY = 'shunt_transaction_events_total{event="told_early"}'
COMMITTED = 'shunt_transaction_events_total{event="committed"}'
ALONE = 'shunt_transaction_events_total{event="alone"}'  # committed by a write of one partition
# What a request was answered with, if not by rows. The first promises that it has written nothing; of the last the driver has sent nothing.
REFUSED, IN_DOUBT, NOT_SENT = "refused", "in doubt", "not sent"


@dataclass
class Transfer:
    """A transfer, as its client knows it."""

    payer: int
    payee: int
    amount: int
    begun: float
    ended: float = float("inf")  # when it was answered by rows
    may_be_there: bool = False  # a request of it was, or is, on its way
    applied: bool | None = None
    read: tuple | None = None  # balance and moves of the payer, and of the payee
    key: bytes | None = None
    id: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def values(self) -> tuple:
        of_row = (self.id, self.payer, self.payee, self.amount)
        return (self.payer, self.payee, self.amount, self.amount, self.payer, self.amount, self.payee, *of_row)


class Bank:
    """The accounts, and all that was ever asked of them."""

    def __init__(self, fleet, replicas: int):
        self.fleet = fleet
        session = insistent(fleet.connect())
        insistently(session, f"CREATE KEYSPACE IF NOT EXISTS bank WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
        for text in TABLES:
            insistently(session, text)
        for table in ("accounts", "transfers"):
            insistently(session, f"ALTER TABLE bank.{table} WITH transactional_mode = 'full'")
        for first in range(0, ACCOUNTS, GROUP):
            rows = "\n".join(f"INSERT INTO bank.accounts (id, balance, moves) VALUES ({number}, {BALANCE}, 0);"
                             for number in range(first, first + GROUP))
            carry_out_once(session, f"BEGIN TRANSACTION\n{rows}\nCOMMIT TRANSACTION")
        # Whoever tells early knows that each core of each proxy goes by the mode.
        until(lambda: self.is_told_early(session), "a client is told early", every_seconds=0.2)
        session.cluster.shutdown()
        self.guard = threading.Lock()
        self.transfers, self.audits = [], []
        self.answered = Counter()  # transfers, by the proxy that has answered
        self.troubles = Counter()  # requests without rows, by the proxy that was asked and what was said
        self.resolved = 0  # transfers in doubt that were asked for again, and answered
        self.faults = []
        self.told_early = 0

    def is_told_early(self, session) -> bool:
        insistently(session, NOTHING)
        return self.count_early() > 0

    @property
    def count(self) -> int:
        return sum(self.answered.values())

    def troubles_of(self, proxy: int, *kinds: str) -> int:
        return sum(count for (at, kind), count in list(self.troubles.items()) if at == proxy and (not kinds or kind in kinds))

    def wait_for(self, more: int, proxy: int | None = None) -> None:
        """Until so many transfers more were answered, by one of the proxies if that is named."""
        now = (lambda: self.count) if proxy is None else (lambda: self.answered[proxy])
        wanted = now() + more
        self.wait_until(f"{wanted} transfers were answered", lambda: now() >= wanted)

    def wait_until(self, what: str, is_so) -> None:
        def is_so_without_fault() -> bool:
            assert not self.faults, self.faults[:3]
            return is_so()

        until(is_so_without_fault, what, every_seconds=0.02,
              told=lambda: f"{self.answered} {self.troubles}\n{self.fleet.status()}")

    def owner(self) -> int:
        """The proxy that carries the transactions out: while clients go on, the one whose count rises,
        and rises again. A former owner may report late, but only once."""
        found = []

        def the_same_rises_twice() -> bool:
            found[:] = [self.who_commits(), self.who_commits()]
            return found[0] == found[1] and len(found[0]) == 1

        self.wait_until("one proxy commits transactions", the_same_rises_twice)
        return found[0][0]

    def who_commits(self) -> list:
        counts = list(map(self.committed, range(len(self.fleet.proxies))))
        found = []

        def has_risen() -> bool:
            found[:] = [number for number, count in enumerate(counts) if self.committed(number) > count]
            return bool(found)

        self.wait_until("a proxy commits transactions", has_risen)
        return found

    def committed(self, proxy: int) -> int:
        return metric(page(self.fleet.proxies[proxy]), COMMITTED)

    def count_early(self) -> int:
        return sum(metric(page(proxy), TOLD_EARLY) for proxy in self.fleet.proxies)

    def check(self, session) -> None:
        """Checks the bank after the clients have ended and every committed write is made. The session is
        one of the nodes: a proxy refuses a SELECT of a whole table, as it is no transaction."""
        client = insistent(self.fleet.connect())
        wait_until_all_is_made(self.fleet.proxies, lambda: insistently(client, NOTHING))
        client.cluster.shutdown()
        # Of proxies that were killed nobody knows what they have counted, and one that has just started tells nobody early.
        self.told_early += self.count_early()
        books = [{row["id"]: row for row in session.execute(f"SELECT * FROM bank.{table}")} for table in ("accounts", "transfers")]
        check(*books, self.transfers, self.audits)


def carry_out_once(session, text: str) -> None:
    """A transaction of which nobody may know for a while if it is committed. By its key it can be
    asked for again, and is never made later."""
    key = {"shunt-idempotency": uuid.uuid4().bytes}
    lost = NoHostAvailable, OperationTimedOut, WriteTimeout, ReadTimeout
    answered(lambda: session.execute(text, custom_payload=key, timeout=60), lost, text)


def wait_until_all_is_made(proxies: list, commit) -> None:
    """Until nothing is under way, when clients have ended. `commit` carries out one transaction
    more. Proxies tell of themselves now and then: who tells that it has committed this has told
    what is under way at that time, before it."""
    def count() -> list:
        return [metric(text, COMMITTED) + metric(text, ALONE) for text in map(page, proxies)]

    counts = count()
    commit()
    until(lambda: any(now > before for now, before in zip(count(), counts)),
          "a proxy tells of the last transaction")
    until(lambda: not any(map(is_at_work, proxies)), "nothing is under way")


def page(proxy) -> str:
    """The metrics of a proxy; none if it does not run."""
    return until(lambda: proxy.get("/metrics")[1] or not proxy.alive() and "\n",
                 f"the metrics of {proxy.listen}")


def is_at_work(proxy) -> bool:
    text = page(proxy)
    return any(metric(text, f"shunt_transactions_{what}") for what in ("open", "records"))  # the first is of `opening` too


def check(accounts: dict, rows: dict, transfers: list, audits: list) -> None:
    """Asserts that the sum is right, and that the transfers of each account explain every answer."""
    assert accounts.keys() == set(range(ACCOUNTS))
    assert sum(row["balance"] for row in accounts.values()) == ACCOUNTS * BALANCE
    known = {one.id: one for one in transfers}
    assert rows.keys() <= known.keys()
    chains = chains_of(rows.values())
    for number, row in accounts.items():
        assert row["moves"] == len(chains[number].steps), f"account {number}: {row}"
        assert row["balance"] == chains[number].balances[-1], f"account {number}: {row}"
        chains[number].know(known)
    for one in transfers:
        check_told(one, rows.get(one.id), chains)
    for begun, ended, seen in audits:
        for number, (balance, moves) in seen.items():
            chains[number].explains(moves, balance, begun, ended)


def metric(text: str, name: str) -> int:
    """The sum of all lines of a metric; 0 if there is none."""
    return sum(int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith(name))


class Chain:
    """The transfers of one account in their order, and its balance before the first and after each."""

    def __init__(self, account: int, steps: list):
        self.account, self.steps, self.balances = account, sorted(steps, key=lambda step: step[:2]), [BALANCE]
        for place, (moves, balance, change, transfer) in enumerate(self.steps):
            assert (moves, balance) == (place, self.balances[-1]), f"account {account}: {transfer} is not what comes behind {self.steps[:place][-1:]}"
            self.balances.append(balance + change)
        assert min(self.balances) >= 0, f"account {account} was overdrawn"

    def know(self, known: dict) -> None:
        """Notes for each place the latest start of the transfers before it, and the earliest answer of those from there on."""
        transfers = [known[transfer] for *_, transfer in self.steps]
        self.begun = [0, *accumulate((one.begun for one in transfers), max)]
        self.ended = [*reversed([*accumulate((one.ended for one in reversed(transfers)), min)]), float("inf")]

    def explains(self, moves: int, balance: int, begun: float, ended: float) -> None:
        """Somebody has read this between these times: nothing that was asked for later, and all that was answered before."""
        seen = f"account {self.account} was seen with {balance} after {moves} of {len(self.steps)}"
        assert moves <= len(self.steps) and self.balances[moves] == balance, seen
        assert self.begun[moves] <= ended, f"{seen}, before the last of these was asked for"
        assert self.ended[moves] >= begun, f"{seen}, when the next was answered already"


def chains_of(rows) -> dict:
    steps = {number: [] for number in range(ACCOUNTS)}
    for row in rows:
        steps[row["payer"]].append((row["payer_moves"], row["payer_balance"], -row["amount"], row["id"]))
        steps[row["payee"]].append((row["payee_moves"], row["payee_balance"], row["amount"], row["id"]))
    return {number: Chain(number, of_account) for number, of_account in steps.items()}


def check_told(one: Transfer, row: dict | None, chains: dict) -> None:
    if one.applied is None:
        assert row is None or one.may_be_there, f"{one} was refused, and is there"
    else:
        assert (row is not None) == one.applied, f"{one}: its row is {row}"
        balance, moves, payee_balance, payee_moves = one.read
        assert one.applied == (balance >= one.amount), one
        chains[one.payer].explains(moves, balance, one.begun, one.ended)
        chains[one.payee].explains(payee_moves, payee_balance, one.begun, one.ended)
    if row is not None:
        assert (row["payer"], row["payee"], row["amount"]) == (one.payer, one.payee, one.amount)
        told = (row["payer_balance"], row["payer_moves"], row["payee_balance"], row["payee_moves"])
        assert one.read in (None, told), f"{one}: its row is {row}"


class Clients(Threads):
    """Clients that go on whatever happens. Without an answer, a client repeats its request with the same
    key, sometimes through another proxy. With an answer, it repeats it now and then. Some clients have
    no key, and never repeat a request."""

    def __init__(self, bank: Bank):
        self.bank = bank
        self.sessions = [bank.fleet.connect(to=number, timeout_seconds=6, heartbeat_seconds=1, reconnection_policy=ConstantReconnectionPolicy(0.5))
                         for number in range(len(bank.fleet.proxies))]
        self.moves = [asked_once(session, MOVE) for session in self.sessions]
        self.audits = [asked_once(session, AUDIT) for session in self.sessions]
        works = [self.transfer] * CLIENTS + [self.audit] * AUDITORS
        self.threads = [threading.Thread(target=self.go_on, args=(one, random.Random(number)), daemon=True) for number, one in enumerate(works)]

    def __exit__(self, *_):
        super().__exit__()
        for session in self.sessions:
            session.cluster.shutdown()

    def go_on(self, work, draw) -> None:
        while self.going:
            try:
                work(draw)
            except Exception as error:  # noqa: BLE001 (all that a fault may cause is handled below)
                self.bank.faults.append(repr(error))
            time.sleep(PAUSE_SECONDS)

    def transfer(self, draw) -> None:
        first = draw.randrange(0, ACCOUNTS, GROUP)
        payer, payee = draw.sample(range(first, first + GROUP), 2)
        one = Transfer(payer, payee, draw.randint(1, 2 * BALANCE if draw.random() < 0.1 else 20), time.monotonic())
        one.key = one.id.bytes if draw.random() < 0.8 else None
        with self.bank.guard:
            self.bank.transfers.append(one)
        while not self.ask(draw, one) and self.going and one.key and draw.random() < 0.95:
            time.sleep(0.05)
        if one.applied is not None and one.key and draw.random() < 0.1:
            self.ask(draw, one)

    def ask(self, draw, one: Transfer) -> bool:
        """One request. True if it was answered by rows."""
        at = draw.randrange(len(self.sessions))
        # Nobody knows until it is answered.
        before, one.may_be_there = one.may_be_there, True
        payload = {"shunt-idempotency": one.key} if one.key else None
        said, future = self.said(at, self.moves[at], one.values, payload)
        if isinstance(said, str):
            one.may_be_there = before or said == IN_DOUBT
            return False
        told = bool(future.custom_payload["shunt-applied"] == b"\x01"), tuple(said.values())
        is_first = one.applied is None
        if is_first:
            one.ended, one.applied, one.read = time.monotonic(), *told
        else:
            assert told == (one.applied, one.read), f"{one} was told {told} when it was asked for again"
        with self.bank.guard:
            self.bank.answered[at] += 1
            self.bank.resolved += before and is_first
        return True

    def audit(self, draw) -> None:
        at, first = draw.randrange(len(self.sessions)), draw.randrange(0, ACCOUNTS, GROUP)
        numbers, begun = range(first, first + GROUP), time.monotonic()
        said, _ = self.said(at, self.audits[at], numbers)
        if isinstance(said, str):
            return
        values = list(said.values())
        balances = values[::2]
        assert sum(balances) == GROUP * BALANCE and min(balances) >= 0, f"group {first}: {balances}"
        with self.bank.guard:
            self.bank.audits.append((begun, time.monotonic(), dict(zip(numbers, zip(balances, values[1::2], strict=True), strict=True))))
        time.sleep(0.02)

    def said(self, at: int, statement, values, payload=None) -> tuple:
        """The row, or what was said instead; and the future. Whatever else is said is raised: a driver would not know what it means."""
        future = self.sessions[at].execute_async(statement, values, custom_payload=payload)
        try:
            return future.result().one(), future
        except NoHostAvailable:
            said = NOT_SENT
        except (IsBootstrappingErrorMessage, OverloadedErrorMessage):
            said = REFUSED
        except WriteTimeout as error:
            assert error.write_type == WriteType.CAS, error
            said = IN_DOUBT
        except (OperationTimedOut, ConnectionException):
            said = IN_DOUBT
        with self.bank.guard:
            self.bank.troubles[at, said] += 1
        time.sleep(0.05)
        return said, future


def asked_once(session, text: str):
    """A prepared statement, of which one request is one request."""
    statement = prepared(session, text)
    statement.retry_policy = FallthroughRetryPolicy()
    return statement

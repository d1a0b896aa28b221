"""Statements that are carried out only while a lock is held, and once for each key: what an unmodified driver asks in custom payloads."""

import os
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from cassandra import InvalidRequest
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType

from harness.waits import DEADLINE_SECONDS, Late, until
from locks.fleet import VERSIONS

from .conftest import once_served

TTL_SECONDS = 3600
RUNS = int(os.environ.get("SHUNT_GUARDED_RUNS", 1))
WITH_PAYLOADS = [version for version in VERSIONS if version >= 4]


@pytest.fixture
def guarded(session):
    if session.version < 4:
        pytest.skip("custom payloads came with version 4")
    return session


@pytest.fixture
def number(session):
    """A key that no other test has, with a row."""
    number = uuid.uuid4().int % 2_000_000_000
    session.execute(f"BEGIN TRANSACTION INSERT INTO accounts (id, balance, owner) VALUES ({number}, 10, ''); COMMIT TRANSACTION")
    return number


def acquire(session, name, owner="me", table="locks", ttl=TTL_SECONDS):
    """The fence that the lock was granted with; none if it was not. A proxy that has just taken locks in memory over grants none for as long as one lasts."""
    ttl = min(ttl, 15) if "fast" in table else ttl
    row = once_served(session, f"INSERT INTO shunt.{table} (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL {ttl}", (name, owner)).one()
    return row["fence"] if row["[applied]"] else None


def granted(session, name, owner="me", table="locks"):
    """The fence, once the lock is granted. A lock in memory may be only when the longest of them
    would have run out."""
    return until(lambda: acquire(session, name, owner, table), f"{name} is granted",
                 every_seconds=0.2)


def release(session, name, owner="me", table="locks"):
    delete = f"DELETE FROM shunt.{table} WHERE name = %s IF owner = %s"
    if not session.execute(delete, (name, owner)).one()["[applied]"]:
        assert "fast" in table, f"{name} is not there any more"
        raise Late(f"{name}, a lock in memory, has ended")


@contextmanager
def counting_on(session, name, fence, table="locks"):
    """The requests in the block name this fence, and may not be refused for it. A lock in memory
    ends before its time if its proxy stands still past its lease: who named it then is refused
    with good reason, and the test says nothing."""
    try:
        yield
    except InvalidRequest as error:
        row = session.execute(f"SELECT fence FROM shunt.{table} WHERE name = %s", (name,)).one()
        if "fast" not in table or row and row["fence"] == fence:
            raise
        raise Late(f"{name}, a lock in memory, has ended") from error


def with_fence(name, fence, key="shunt-lock", **more):
    return {key: f"{name}={fence}".encode(), **more}


def balance(session, number):
    return session.execute(f"SELECT balance FROM accounts WHERE id = {number}").one()["balance"]


def test_prepared_statements_batches_and_transactions_are_guarded_too(guarded, number):
    name = f"batch {number}"
    fence = acquire(guarded, name)
    update = guarded.prepare("UPDATE accounts SET balance = ? WHERE id = ?")
    move = guarded.prepare("INSERT INTO moves (account, number, amount) VALUES (?, ?, ?)")
    select = guarded.prepare("SELECT balance FROM accounts WHERE id = ?")
    guarded.execute(update, (20, number), custom_payload=with_fence(name, fence))
    assert guarded.execute(select, (number,), custom_payload=with_fence(name, fence)).one() == {"balance": 20}
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(kind)
        batch.add(update, (30, number))
        batch.add(move, (number, 1, 7))
        batch.add("INSERT INTO moves (account, number, amount) VALUES (%s, 2, 8)", (number,))
        guarded.execute(batch, custom_payload=with_fence(name, fence))
        with pytest.raises(InvalidRequest, match="fence 1 of lock"):
            guarded.execute(batch, custom_payload=with_fence(name, 1))
    assert balance(guarded, number) == 30
    assert [row["amount"] for row in guarded.execute(f"SELECT amount FROM moves WHERE account = {number}")] == [7, 8]
    text = f"BEGIN BATCH UPDATE accounts SET balance = 40 WHERE id = {number}; DELETE FROM moves WHERE account = {number} AND number = 1 APPLY BATCH"
    guarded.execute(text, custom_payload=with_fence(name, fence))
    transfer = (f"BEGIN TRANSACTION LET a = (SELECT balance FROM accounts WHERE id = {number}); SELECT a.balance; "
                f"IF a.balance = 40 THEN UPDATE accounts SET balance += 1 WHERE id = {number}; END IF COMMIT TRANSACTION")
    assert list(guarded.execute(transfer, custom_payload=with_fence(name, fence)).one().values()) == [40]
    with pytest.raises(InvalidRequest, match="fence 1 of lock"):
        guarded.execute(transfer, custom_payload=with_fence(name, 1))
    with pytest.raises(InvalidRequest, match="not supported under a guard"):
        guarded.execute(f"UPDATE accounts SET balance = 42, owner = to_json(now()) WHERE id = {number}", custom_payload=with_fence(name, fence))
    assert balance(guarded, number) == 41
    release(guarded, name)


@pytest.mark.parametrize("payload, shown", [
    ({"shunt-lock": b"x"}, "name=fence"),
    ({"shunt-lock": b"x=1", "shunt-fast-lock": b"x=1"}, "one lock"),
    ({"shunt-idempotency": b""}, "shunt-idempotency"),
    ({"shunt-idempotency": b"k" * 65}, "65 bytes"),
    ({"Shunt-Lock": b"x=1"}, "no payload Shunt-Lock"),
    ({"shunt-locks": b"x=1"}, "no payload shunt-locks"),
])
def test_a_payload_that_is_none_is_refused_by_name(guarded, number, payload, shown):
    with pytest.raises(InvalidRequest, match=shown):
        guarded.execute(f"UPDATE accounts SET balance = 1 WHERE id = {number}", custom_payload=payload)
    assert balance(guarded, number) == 10


@pytest.mark.parametrize("statement, shown", [
    ("UPDATE accounts USING TIMESTAMP 1 SET balance = 1 WHERE id = {}", "custom timestamps"),
    ("UPDATE accounts USING TTL 10 SET balance = 1 WHERE id = {}", "custom ttls"),
    ("UPDATE accounts SET balance = 1 WHERE id = {} IF balance = 10", "their own conditions"),
    ("INSERT INTO accounts (id, owner) VALUES ({}, b.c)", "Cannot resolve reference"),
    ("DELETE FROM accounts WHERE id IN ({}, 2)", "writes one row"),
    ("SELECT * FROM accounts", "this only reads"),
    ("TRUNCATE accounts", "TRUNCATE"),
    ("UPDATE modeless SET v = 1 WHERE k = {}", "takes part in no transactions"),
])
def test_unsuitable_statements_are_refused_and_not_done(guarded, number, statement, shown):
    guarded.execute("CREATE TABLE IF NOT EXISTS modeless (k int PRIMARY KEY, v int)")
    with pytest.raises((InvalidRequest, SyntaxException), match=shown):
        guarded.execute(statement.format(number), custom_payload={"shunt-idempotency": uuid.uuid4().bytes})
    assert balance(guarded, number) == 10


@pytest.mark.parametrize("session", WITH_PAYLOADS, indirect=True)
def test_a_request_repeated_under_one_key_is_done_once(guarded, number):
    key = {"shunt-idempotency": uuid.uuid4().bytes}
    add = (f"BEGIN TRANSACTION LET a = (SELECT balance FROM accounts WHERE id = {number}); SELECT a.balance; "
           f"IF a.balance < 12 THEN UPDATE accounts SET balance += 1 WHERE id = {number}; END IF COMMIT TRANSACTION")
    for _ in range(3):
        result = guarded.execute(add, custom_payload=key)
        assert list(result.one().values()) == [10]
        assert result.response_future.custom_payload["shunt-applied"] == b"\1"
    assert balance(guarded, number) == 11
    with pytest.raises(InvalidRequest, match="this shunt-idempotency key belongs to another transaction"):
        guarded.execute(add + " ", custom_payload=key)
    guarded.execute(add)
    # Not carried out is an outcome as well.
    key = {"shunt-idempotency": uuid.uuid4().bytes}
    for _ in range(2):
        result = guarded.execute(add, custom_payload=key)
        assert list(result.one().values()) == [12]
        assert result.response_future.custom_payload["shunt-applied"] == b"\0"
        guarded.execute(f"BEGIN TRANSACTION UPDATE accounts SET balance = 11 WHERE id = {number}; COMMIT TRANSACTION")
    assert balance(guarded, number) == 11


def test_an_outcome_counts_whatever_is_wrong_when_it_is_told_again(guarded, number):
    """A SELECT that found few enough rows the first time, another keyspace of the session, and a read that needs no key."""
    key = {"shunt-idempotency": uuid.uuid4().bytes}
    for row in range(99):
        guarded.execute(f"BEGIN TRANSACTION INSERT INTO moves (account, number) VALUES ({number}, {row}); COMMIT TRANSACTION")
    text = (f"BEGIN TRANSACTION SELECT number FROM transactions.moves WHERE account = {number}; "
            f"INSERT INTO transactions.moves (account, number) VALUES ({number}, 1000); "
            f"INSERT INTO transactions.moves (account, number) VALUES ({number}, 1001); COMMIT TRANSACTION")
    assert len(guarded.execute(text, custom_payload=key).all()) == 99
    assert len(guarded.execute(text, custom_payload=key).all()) == 99
    with pytest.raises(InvalidRequest, match="more than 100 rows"):
        guarded.execute(text)
    guarded.execute("USE shunt")
    assert len(guarded.execute(text, custom_payload=key).all()) == 99
    guarded.execute("USE transactions")
    with pytest.raises(InvalidRequest, match="this only reads"):
        guarded.execute(f"SELECT * FROM accounts WHERE id = {number}", custom_payload=key)


def test_a_guard_where_none_can_be_is_refused(guarded, number):
    for text in (f"INSERT INTO shunt.locks (name, owner) VALUES ('g {number}', 'x') IF NOT EXISTS USING TTL 5", "USE transactions",
                 "ALTER TABLE accounts WITH transactional_mode = 'unsafe'", "SELECT * FROM system.local"):
        with pytest.raises((InvalidRequest, SyntaxException)):
            guarded.execute(text, custom_payload=with_fence("nobody holds this", 1))
    assert guarded.execute(f"SELECT * FROM shunt.locks WHERE name = 'g {number}'").one() is None


def test_many_at_once_under_one_key_are_one(guarded, number):
    key = {"shunt-idempotency": uuid.uuid4().bytes}
    text = f"UPDATE accounts SET balance = balance + 1 WHERE id = {number}"
    futures = [guarded.execute_async(text, custom_payload=key) for _ in range(20)]
    for future in futures:
        future.result()
    assert balance(guarded, number) == 11


def test_an_outcome_is_found_again_when_the_lock_is_lost(guarded, number):
    name = f"lost {number}"
    fence = acquire(guarded, name)
    payload = with_fence(name, fence, **{"shunt-idempotency": uuid.uuid4().bytes})
    text = f"UPDATE accounts SET balance = balance + 1 WHERE id = {number}"
    guarded.execute(text, custom_payload=payload)
    release(guarded, name)
    guarded.execute(text, custom_payload=payload)
    with pytest.raises(InvalidRequest, match="does not count any more"):
        guarded.execute(text, custom_payload={**payload, "shunt-idempotency": uuid.uuid4().bytes})
    assert balance(guarded, number) == 11


def lost_updates(session, number, guard, execute=None):
    """Five clients add to a row under a lock. Two of them stop when they have read, until another
    has written under the lock that has passed to it. What is said to be written and is not there.
    `execute`: carries a statement out under a guard of the lock with a name and fence."""
    name, said = f"append {number}", []

    def by_payload(text, name, fence):
        return session.execute(text, custom_payload=with_fence(name, fence) if guard else None)

    execute = execute or by_payload
    stops = threading.Semaphore(2)

    def append(client):
        for round in range(3):
            owner, is_overtaken = f"{client}.{round}", False
            fence = until(lambda: acquire(session, name, owner, ttl=1),  # noqa: B023
                          "the lock is granted", every_seconds=0.02)
            try:
                read = execute(f"SELECT owner FROM accounts WHERE id = {number}", name, fence).one()["owner"]
                if round == 0 and stops.acquire(blocking=False):
                    count = len(said)
                    is_overtaken = until(
                        lambda: any(later > fence for later, _ in said[count:]),  # noqa: B023
                        "another writes")
                execute(f"UPDATE accounts SET owner = '{read} {owner}' WHERE id = {number}", name, fence)
                assert not (guard and is_overtaken), f"{owner} with fence {fence} behind {said}"
                said.append((fence, owner))
            except InvalidRequest as error:
                assert guard and "does not count any more" in str(error), error
            session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = %s", (name, owner))

    with ThreadPoolExecutor(5) as clients:
        for done in [clients.submit(append, client) for client in range(5)]:
            done.result(2 * DEADLINE_SECONDS)
    there = session.execute(f"SELECT owner FROM accounts WHERE id = {number}").one()["owner"].split()
    return [owner for _, owner in said if owner not in there]


def test_no_update_of_a_client_that_was_stopped_past_its_lock_is_lost(guarded, number):
    # Who stands still past its lock before it has read may read what the next has written: that
    # takes a pause in each run.
    assert any(lost_updates(guarded, number, guard=False) for _ in range(5)), "the test would see them: without a guard updates are lost"
    guarded.execute(f"BEGIN TRANSACTION UPDATE accounts SET owner = '' WHERE id = {number}; COMMIT TRANSACTION")
    for run in range(RUNS):
        assert lost_updates(guarded, number, guard=True) == [], f"in run {run} of {RUNS}"


# Last: locks in memory may be granted only some seconds after the fleet has begun.
@pytest.mark.parametrize("table, key", [("locks", "shunt-lock"), ("fast_locks", "shunt-fast-lock")])
def test_a_write_is_made_only_while_its_lock_is_held(guarded, number, table, key):
    name = f"order={number}"
    update = f"UPDATE accounts SET balance = balance + 1 WHERE id = {number}"
    first = granted(guarded, name, "a", table)
    with counting_on(guarded, name, first, table):
        guarded.execute(update, custom_payload=with_fence(name, first, key))
    assert balance(guarded, number) == 11
    for wrong in (first - 1, first + 1, 0):
        with pytest.raises(InvalidRequest, match=f"fence {wrong} of lock '{name}'"):
            guarded.execute(update, custom_payload=with_fence(name, wrong, key))
    release(guarded, name, "a", table)
    with pytest.raises(InvalidRequest, match=f"fence {first} of lock"):
        guarded.execute(update, custom_payload=with_fence(name, first, key))
    second = granted(guarded, name, "b", table)
    assert second > first
    with pytest.raises(InvalidRequest, match=f"fence {first} of lock"):
        guarded.execute(update, custom_payload=with_fence(name, first, key))
    with counting_on(guarded, name, second, table):
        select = f"SELECT balance FROM accounts WHERE id = {number}"
        found = guarded.execute(select, custom_payload=with_fence(name, second, key)).one()
        assert found == {"balance": 11}
        guarded.execute(update, custom_payload=with_fence(name, second, key))
    assert balance(guarded, number) == 12
    release(guarded, name, "b", table)

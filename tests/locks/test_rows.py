"""Rows of durable locks that nobody holds any more are deleted, and what they kept is kept nevertheless: fences, and who holds."""

import time

import pytest

from locks.fleet import Fleet
from locks.test_semantics import acquire, release

LOCKS = 20
MANY = 300
SHARERS = 40  # more than the 32 rows of sharers that are worth a deletion while somebody holds the lock


@pytest.fixture(scope="module")
def fleet(nodes):
    contact, replicas = nodes
    fleet = Fleet(contact, "test_rows", replicas, 9370, lease_ms=3_000, memory_ttl_ms=5_000, more=["--lock-rows-kept-ms", "1000"])
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture(scope="module", params=[4])
def session(fleet, request):
    session = fleet.connect(version=request.param)
    session.version = request.param
    yield session
    session.cluster.shutdown()


def share(session, name, owner, mode="S"):
    text = "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL 600"
    return session.execute(text, (name, owner, mode)).one()


def rows(session, name):
    """(slot, owner) of each row of the locks whose names begin so."""
    found = session.execute("SELECT name, slot, owner FROM shunt_meta.lock")
    return sorted((row["slot"], row["owner"]) for row in found if row["name"].startswith(name))


def until(session, name, wanted, within_seconds=90):
    deadline = time.monotonic() + within_seconds
    while True:
        found = rows(session, name)
        if wanted(found):
            return
        assert time.monotonic() < deadline, f"{len(found)} rows: {found[:5]}"
        time.sleep(0.5)


def test_of_locks_that_nobody_holds_no_row_stays_and_their_fences_rise(fleet, session, name):
    fences = {}
    for number in range(LOCKS):
        lock = f"{name}-{number}"
        fences[lock] = acquire(session, lock, "one")["fence"]
        assert release(session, lock, "one")["[applied]"]
    held = acquire(session, f"{name}-held", "one", ttl=300)
    assert held["[applied]"]
    until(session, name, lambda found: found == [("", "one")])
    for lock, fence in fences.items():
        assert acquire(session, lock, "two")["fence"] > fence
    # The next owner of its shard knows who holds it.
    fleet.proxies[0].kill()
    fleet.proxies[0].start()
    fleet.proxies[1].kill()
    fleet.proxies[1].start()
    fleet.wait_until_settled(3)
    for lock in (*fences, f"{name}-held"):
        deadline = time.monotonic() + 90
        while True:
            try:
                answer = acquire(session, lock, "three")
                break
            except Exception:  # a proxy that was killed, or a shard that changes hands
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert not answer["[applied]"] and answer["owner"] == ("one" if lock == f"{name}-held" else "two")


def test_of_those_who_shared_a_lock_that_others_share_no_rows_stay(session, name):
    assert share(session, name, "first")["[applied]"]
    for number in range(SHARERS):
        assert share(session, name, f"{number}")["[applied]"]
    assert share(session, name, "last")["[applied]"]
    for owner in ("first", *map(str, range(SHARERS))):
        answer = session.execute("DELETE FROM shunt.rwlocks WHERE name = %s AND owner = %s IF EXISTS", (name, owner)).one()
        assert answer["[applied]"]
    # Rows of those who left after the last one had come are later than its own, and stay until it has left.
    assert len(rows(session, name)) >= SHARERS
    assert share(session, name, "again")["[applied]"]
    session.execute("DELETE FROM shunt.rwlocks WHERE name = %s AND owner = 'last' IF EXISTS", (name,))
    until(session, name, lambda found: len(found) <= 2)
    assert ("again", "again") in rows(session, name)
    answer = share(session, name, "writer", "X")
    assert not answer["[applied]"] and answer["owner"] == "again"


def test_rows_of_names_for_which_nobody_asks_any_more_are_found_by_the_next_owner(fleet, session, name):
    # At once, for those that were released first are deleted after a second.
    for text in ("INSERT INTO shunt.locks (name, owner) VALUES (%s, 'one') IF NOT EXISTS USING TTL 20",
                 "DELETE FROM shunt.locks WHERE name = %s IF owner = 'one'"):
        asked = [session.execute_async(text, (f"{name}-{number}",)) for number in range(MANY)]
        assert all(one.result().one()["[applied]"] for one in asked)
    for one in fleet.proxies:
        one.kill()
        one.start()
    fleet.wait_until_settled(3)
    # Nobody asks for a lock from here on. A round through all partitions would take minutes.
    again = fleet.connect()
    found = len(rows(again, name))
    assert found > MANY // 2, "most were not reached before"
    until(again, name, lambda left: len(left) <= found - 10)
    again.cluster.shutdown()

"""Rows of durable locks that nobody holds any more are deleted, and what they kept is kept nevertheless: fences, and who holds."""

import pytest
from cassandra import OperationTimedOut, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException

from harness.waits import Late, until
from locks.fleet import LEASE_MS, Fleet, insistent, is_refused_by_all, lost_tries
from locks.test_semantics import acquire, release

LOCKS = 20
MANY = 300
SHARERS = 40  # more than the 32 rows of sharers that are worth a deletion while somebody holds the lock
FOREVER_MS, A_MOMENT_MS = 24 * 60 * 60 * 1000, 1000
KEPT = "--lock-rows-kept-ms"


@pytest.fixture(scope="module")
def fleet(nodes, tmp_path_factory):
    contact, replicas = nodes
    fleet = Fleet(contact, "test_rows", replicas, 9370, LEASE_MS, memory_ttl_ms=5_000,
                  query_timeout_ms=30_000, more=[KEPT, str(FOREVER_MS)])
    for number, one in enumerate(fleet.proxies):
        # Others need not wait for the lease of one that was killed when it starts again.
        one.options += ["--fleet-state", str(tmp_path_factory.mktemp("state") / f"{number}")]
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture
def session(fleet):
    session = insistent(fleet.connect())
    session.version = 4
    yield session
    session.cluster.shutdown()


def start_again(*proxies, kept_ms=None):
    """With kill -9. What they keep rows for is another time from then on, if one is given."""
    for one in proxies:
        one.kill()
    for one in proxies:
        if kept_ms is not None:
            one.options[one.options.index(KEPT) + 1] = str(kept_ms)
        one.start()


def which_keeps_rows(fleet, kept_ms):
    if any(str(kept_ms) not in one.options for one in fleet.proxies):
        start_again(*fleet.proxies, kept_ms=kept_ms)
    fleet.wait_until_settled(len(fleet.proxies))
    return fleet


@pytest.fixture
def keeping(fleet):
    """The fleet, which deletes no rows."""
    return which_keeps_rows(fleet, FOREVER_MS)


@pytest.fixture
def deleting(fleet):
    """The fleet, which deletes rows a moment after nobody needs them any more."""
    return which_keeps_rows(fleet, A_MOMENT_MS)


def share(session, name, owner, mode="S"):
    text = "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL 600"
    return session.execute(text, (name, owner, mode)).one()


def rows(session, name):
    """(slot, owner) of each row of the locks whose names begin so."""
    found = session.execute("SELECT name, slot, owner FROM shunt_meta.lock")
    return sorted((row["slot"], row["owner"]) for row in found if row["name"].startswith(name))


def see_rows(session, name, what, wanted):
    until(
        lambda: wanted(rows(session, name)),
        what,
        every_seconds=0.5,
        told=lambda: rows(session, name)[:5],
    )


def answered(ask):
    """The final answer, even if a proxy was killed or a shard changes hands."""
    def answer():
        try:
            return ask()
        except (NoHostAvailable, OperationTimedOut, WriteTimeout, ConnectionException, Late):
            return None

    return until(answer, "an answer")


def test_former_sharers_of_a_shared_lock_leave_no_rows(deleting, session, name):
    assert share(session, name, "first")["[applied]"]
    for number in range(SHARERS):
        assert share(session, name, f"{number}")["[applied]"]
    assert share(session, name, "last")["[applied]"]
    for owner in ("first", *map(str, range(SHARERS))):
        answer = session.execute("DELETE FROM shunt.rwlocks WHERE name = %s AND owner = %s IF EXISTS", (name, owner)).one()
        assert answer["[applied]"], (owner, answer, rows(session, name))
    # Rows of those who left after the last one had come are later than its own, and stay until it has left.
    assert len(rows(session, name)) >= SHARERS
    assert share(session, name, "again")["[applied]"]
    session.execute("DELETE FROM shunt.rwlocks WHERE name = %s AND owner = 'last' IF EXISTS", (name,))
    see_rows(session, name, "two rows at most are left", lambda found: len(found) <= 2)
    assert ("again", "again") in rows(session, name)
    answer = share(session, name, "writer", "X")
    assert not answer["[applied]"] and answer["owner"] == "again"


# It kills proxies: the rounds of new owners through their partitions come before deletions for two minutes.
def test_free_locks_leave_no_row_and_their_fences_rise(deleting, session, name):
    fleet, fences = deleting, {}
    for number in range(LOCKS):
        lock = f"{name}-{number}"
        fences[lock] = answered(lambda lock=lock: acquire(session, lock, "one"))["fence"]
        assert release(session, lock, "one")["[applied]"]
    held = answered(lambda: acquire(session, f"{name}-held", "one"))
    assert held["[applied]"]
    see_rows(
        session,
        name,
        "that of the lock that is held is the last",
        lambda found: found == [("", "one")],
    )
    for lock, fence in fences.items():
        assert answered(lambda lock=lock: acquire(session, lock, "two"))["fence"] > fence
    # The next owner of its shard knows who holds it.
    start_again(*fleet.proxies[:2])
    fleet.wait_until_settled(3)
    for lock in (*fences, f"{name}-held"):
        answer = answered(lambda: acquire(session, lock, "three"))
        assert not answer["[applied]"] and answer["owner"] == ("one" if lock == f"{name}-held" else "two")


# The last: for minutes after it the rounds through all partitions keep the proxies busy.
def test_rows_of_names_for_which_nobody_asks_any_more_are_found_by_the_next_owner(
    keeping, session, name
):
    fleet = keeping

    def all_are(text):
        """Carries out the statement for all locks at once. A refused request, which was not carried out, is sent again."""
        left = [f"{name}-{number}" for number in range(MANY)]

        def has_been_done():
            asked = [(lock, session.execute_async(text, (lock,))) for lock in left]
            left.clear()
            for lock, future in asked:
                try:
                    assert future.result().one()["[applied]"] or lost_tries(future), lock
                except NoHostAvailable as error:
                    if not is_refused_by_all(error):
                        raise
                    left.append(lock)
            return not left

        until(has_been_done, text)

    all_are("INSERT INTO shunt.locks (name, owner) VALUES (%s, 'one') IF NOT EXISTS USING TTL 600")
    all_are("DELETE FROM shunt.locks WHERE name = %s IF owner = 'one'")
    assert len(rows(session, name)) == MANY
    start_again(*fleet.proxies, kept_ms=A_MOMENT_MS)
    fleet.wait_until_settled(len(fleet.proxies))
    # Nobody asks for a lock from here on. A round through all partitions would take minutes.
    again = fleet.connect()
    try:
        see_rows(again, name, "some are deleted", lambda left: len(left) <= MANY - 10)
    finally:
        again.cluster.shutdown()

"""Values and batches that no lock can have, bound to prepared statements: refused in words that name what is wrong, and nothing
is locked by them. Texts are in test_semantics.py."""

import pytest
from cassandra import InvalidRequest
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType

from locks.conftest import MEMORY_TTL_MS, WAIT_MAX_MS
from locks.fleet import VERSIONS

DAY = 24 * 60 * 60
TTL = 300  # of what a test has to find held
TABLES = ("locks", "fast_locks")
EXCLUSIVE = "INSERT INTO shunt.{} (name, owner, wait_ms) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?"
SHARED = "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES (?, ?, ?) IF NOT EXISTS USING TTL 5"
RENEW = "UPDATE shunt.{} USING TTL ? SET owner = ? WHERE name = ? IF owner = ? AND fence = ?"
RELEASE = "DELETE FROM shunt.{} WHERE name = ? IF owner = ? AND fence = ?"
LOOK = "SELECT owner FROM shunt.{} WHERE name = ? LIMIT ?"


def refused(session, text, values, says) -> None:
    """In words that say this, whatever else is in them."""
    if session.version == 3 and UNSET_VALUE in values:
        pytest.skip("v3 has no unset values")
    with pytest.raises(InvalidRequest) as caught:
        session.execute(session.prepare(text), values)
    assert says in str(caught.value), caught.value


def is_free(session, table, name) -> bool:
    return session.execute(session.prepare(LOOK.format(table)), (name, 1)).one() is None


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("ttl, wait, says", [
    (0, 0, "TTL"), (-1, 0, "TTL"), (2**31 - 1, 0, "TTL"), (-(2**31), 0, "TTL"), (None, 0, "TTL"), (UNSET_VALUE, 0, "TTL"),
    (DAY + 1, 0, "TTL"), (5, 5_000, "wait_ms"), (5, 4_000, "wait_ms"), (5, -1, "wait_ms"),
    (MEMORY_TTL_MS // 1000, WAIT_MAX_MS + 1, "wait_ms"),
], ids=str)
def test_times(session, name, table, ttl, wait, says):
    refused(session, EXCLUSIVE.format(table), (name, "o", wait, ttl), says)
    assert is_free(session, table, name)


def test_the_longest_times_that_may_be(session, name):
    fast_max = MEMORY_TTL_MS // 1000
    for table, ttl, wait in (
        ("locks", DAY, 0),
        ("fast_locks", fast_max, 0),
        ("locks", 100, 98_999),
        ("locks", 600, WAIT_MAX_MS),
    ):
        row = session.execute(session.prepare(EXCLUSIVE.format(table)), (f"{name}-{ttl}", "o", wait, ttl)).one()
        assert row["[applied]"] and row["ttl_ms"] <= ttl * 1000
        assert session.execute(session.prepare(RELEASE.format(table)), (f"{name}-{ttl}", "o", row["fence"])).one()["[applied]"]
    refused(
        session,
        EXCLUSIVE.format("fast_locks"),
        (name, "o", 0, fast_max + 1),
        f"{fast_max} s is the most",
    )
    refused(session, EXCLUSIVE.format("locks"), (name, "o", 0, DAY + 1), f"{DAY} s is the most")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("bad", ["", None, "x" * 1025], ids=["empty", "null", "long"])
def test_names(session, table, bad):
    """One that is not set the driver does not send."""
    for text, values in (
        (EXCLUSIVE, (bad, "o", 0, 5)), (RENEW, (5, "o", bad, "o", 1)), (RELEASE, (bad, "o", 1)), (LOOK, (bad, 1)),
    ):
        refused(session, text.format(table), values, "name")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("bad", ["", None, UNSET_VALUE, "x" * 257], ids=["empty", "null", "unset", "long"])
def test_owners(session, name, table, bad):
    for text, values in ((EXCLUSIVE, (name, bad, 0, 5)), (RENEW, (5, bad, name, bad, 1)), (RELEASE, (name, bad, 1))):
        refused(session, text.format(table), values, "owner")
    assert is_free(session, table, name)


def test_the_longest_names_and_owners(session):
    name, owner = f"{session.version}" + "é" * 511 + "x", "o" * 256
    row = session.execute(session.prepare(EXCLUSIVE.format("locks")), (name, owner, 0, 5)).one()
    assert (len(name.encode()), row["[applied]"], row["name"], row["owner"]) == (1024, True, name, owner)


@pytest.mark.parametrize("session", VERSIONS, indirect=True)
def test_modes_fences_and_limits(session, name):
    for mode in ("", None, "s", "SX", "R", UNSET_VALUE):
        if session.version > 3 or mode is not UNSET_VALUE:
            refused(session, SHARED, (name, "o", mode), "mode")
    assert is_free(session, "rwlocks", name)
    row = session.execute(session.prepare(EXCLUSIVE.format("locks")), (name, "o", 0, TTL)).one()
    refused(session, RELEASE.format("locks"), (name, "o", None), "fence")
    refused(session, RENEW.format("locks"), (5, "o", name, "p", row["fence"]), "owner")
    refused(session, LOOK.format("locks"), (name, 0), "LIMIT")
    assert session.execute(session.prepare(LOOK.format("locks")), (name, 1)).one()["owner"] == "o", "nobody has released it"
    assert session.execute(session.prepare(RELEASE.format("locks")), (name, "o", row["fence"])).one()["[applied]"]


def test_batches(session, name):
    insert = session.prepare(EXCLUSIVE.format("locks"))
    fast, release = session.prepare(EXCLUSIVE.format("fast_locks")), session.prepare(RELEASE.format("locks"))
    elsewhere = "INSERT INTO system_distributed.view_build_status (keyspace_name, view_name, host_id) VALUES ('k', 'v', uuid())"

    def acquire(number):
        return insert, (f"{name}-{number}", "o", 0, 5)

    bad = {
        "another table behind": [acquire(0), (elsewhere, ())],
        "another table first": [(elsewhere, ()), acquire(0)],
        "kinds of locks": [acquire(0), (fast, (f"{name}-1", "o", 0, 5))],
        "what is asked": [acquire(0), (release, (f"{name}-1", "o", 1))],
        "twice the same": [acquire(0), acquire(0)],
        "too many": [acquire(number) for number in range(17)],
        "a value of the last": [acquire(0), (insert, (f"{name}-1", "", 0, 5))],
    }
    for what, statements in bad.items():
        for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
            batch = BatchStatement(kind)
            for statement, values in statements:
                batch.add(statement, values)
            with pytest.raises(InvalidRequest):
                session.execute(batch)
            assert all(is_free(session, "locks", f"{name}-{number}") for number in range(17)), what
    batch = BatchStatement(BatchType.COUNTER)
    batch.add(*acquire(0))
    with pytest.raises(InvalidRequest):
        session.execute(batch)
    assert is_free(session, "locks", f"{name}-0")
    most = BatchStatement()
    for number in range(16):
        most.add(*acquire(number))
    assert len([row for row in session.execute(most) if row["[applied]"]]) == 16


@pytest.mark.parametrize("text", [
    "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 5 AND TIMESTAMP 5",
    "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TIMESTAMP 5",
    "DELETE FROM shunt.locks USING TIMESTAMP 5 WHERE name = ? IF owner = ?",
    "DELETE FROM shunt.locks WHERE name = ?",
    "DELETE FROM shunt.rwlocks WHERE name = ? AND owner = ?",
    "UPDATE shunt.locks USING TTL 5 SET owner = 'o' WHERE name = ?",
    "UPDATE shunt.locks SET owner = 'o' WHERE name = ? IF owner = ?",
    "TRUNCATE shunt.lock_queue",
])
def test_forms_that_are_none_cannot_be_prepared(session, text):
    with pytest.raises(InvalidRequest) as caught:
        session.prepare(text)
    assert "Shunt" in str(caught.value), "the proxy itself says so"

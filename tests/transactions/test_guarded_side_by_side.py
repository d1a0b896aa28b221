"""Many requests with one fence are under way at once when the lock passes on."""

import os
import uuid

import pytest
from cassandra import InvalidRequest, OperationTimedOut, WriteTimeout
from cassandra.cluster import NoHostAvailable

from .bank import wait_until_all_is_made
from .test_guards import acquire, release, with_fence

FLOOD, ROUNDS = 150, int(os.environ.get("SHUNT_FLOOD_ROUNDS", 3))


def outcome(future):
    """Applied, refused for its fence, or nothing that says either."""
    try:
        future.result()
        return "applied"
    except InvalidRequest as error:
        assert "does not count any more" in str(error), error
        return "refused"
    except (NoHostAvailable, OperationTimedOut, WriteTimeout):
        return "unknown"


def test_writes_under_way_with_a_fence_are_made_before_the_next_or_never(fleet, session):
    """From the first answer to a request with a later fence on, nothing changes that has an earlier one."""
    if session.version < 4:
        pytest.skip("custom payloads came with version 4")
    name, table = f"flood-{uuid.uuid4().hex[:8]}", "accounts"
    base = uuid.uuid4().int % 1_000_000_000
    insert = session.prepare(f"INSERT INTO {table} (id, balance, owner) VALUES (?, ?, ?)")
    seen = {"applied": 0, "refused": 0, "unknown": 0}
    for number in range(4 * ROUNDS):
        # On a busy machine nearly all of a flood may be sent behind the later fence.
        if number >= ROUNDS and min(seen["applied"], seen["refused"]) > FLOOD / 4:
            break
        fence = acquire(session, name, "a")
        rows = range(base + number * FLOOD, base + (number + 1) * FLOOD)
        flood = []
        for at, row in enumerate(rows):
            if at == FLOOD * (number % ROUNDS + 1) // (ROUNDS + 1):
                release(session, name, "a")
                later = acquire(session, name, "b")
                # Not from this thread's answer on alone: the rest of the flood is sent behind it.
                first = session.execute_async(insert.bind((base - 1, number, "b")), custom_payload=with_fence(name, later))
            flood.append(session.execute_async(insert.bind((row, number, "a")), custom_payload=with_fence(name, fence)))
        first.result()
        there = {row for row in rows if session.execute(f"SELECT owner FROM {table} WHERE id = {row}").one()}
        outcomes = {row: outcome(future) for row, future in zip(rows, flood)}
        update = f"UPDATE {table} SET balance = {number} WHERE id = {base - 1}"
        mark = f"BEGIN TRANSACTION {update}; COMMIT TRANSACTION"
        wait_until_all_is_made(fleet.proxies, lambda: session.execute(mark))  # noqa: B023
        then = {row for row in rows if session.execute(f"SELECT owner FROM {table} WHERE id = {row}").one()}
        assert there == then, f"round {number}: {sorted(then - there)} came behind fence {later}"
        applied = {row for row, what in outcomes.items() if what == "applied"}
        refused = {row for row, what in outcomes.items() if what == "refused"}
        assert applied <= then and not refused & then, (sorted(applied - then), sorted(refused & then))
        for what in outcomes.values():
            seen[what] += 1
        release(session, name, "b")
    print(seen)
    assert seen["applied"] > FLOOD / 4 and seen["refused"] > FLOOD / 4, seen

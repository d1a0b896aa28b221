"""cqlsh from PyPI, unmodified, on a fleet: what a person sees who takes locks by hand."""

import os
import re

import pytest

from harness.cqlsh import run as run_cqlsh
from locks.fleet import VERSIONS


@pytest.fixture
def cqlsh(fleet, request, tmp_path):
    """Runs statements in one session with one proxy; gives what was printed."""
    version = getattr(request, "param", VERSIONS[-1])

    def run(script: str, to: int = 0, fails: bool = False) -> str:
        proxy = fleet.proxies[to]
        return run_cqlsh(
            script, proxy.host, proxy.port, tmp_path, ["--protocol-version", str(version)], fails
        )

    run.name = f"{request.node.name}-{os.getpid()}"
    return run


def tables(text: str) -> list:
    """The rows of all tables that were printed, each by column."""
    found, header = [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if set(line) <= set("-+") or len(cells) < 2:
            continue
        if "owner" in cells:
            header = cells
        elif len(cells) == len(header):
            found.append(dict(zip(header, cells)))
    return found


def test_locks_are_taken_shown_renewed_and_released(cqlsh):
    name = cqlsh.name
    rows = tables(cqlsh(f"""
        INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'ann') IF NOT EXISTS USING TTL 500;
        INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'bob') IF NOT EXISTS USING TTL 500;
        UPDATE shunt.locks USING TTL 1000 SET owner = 'ann' WHERE name = '{name}' IF owner = 'ann';
        DELETE FROM shunt.locks WHERE name = '{name}' IF owner = 'bob';
        SELECT owner, fence, ttl_ms, waiters FROM shunt.locks WHERE name = '{name}';
    """))
    assert [row.get("[applied]") for row in rows] == ["True", "False", "True", "False", None]
    assert {row["owner"] for row in rows} == {"ann"}
    fence = rows[0]["fence"]
    assert {row["fence"] for row in rows} == {fence} and re.fullmatch(r"\d{10,}", fence)
    assert int(rows[4]["ttl_ms"]) > 500_000
    # The session is gone and the lock is not; any proxy says so, and releases it.
    rows = tables(cqlsh(f"""
        INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'bob') IF NOT EXISTS USING TTL 500;
        DELETE FROM shunt.locks WHERE name = '{name}' IF owner = 'ann' AND fence = {fence};
        INSERT INTO shunt.locks (name, owner) VALUES ('{name}', 'bob') IF NOT EXISTS USING TTL 500;
        DELETE FROM shunt.locks WHERE name = '{name}' IF owner = 'bob';
        SELECT * FROM shunt.locks WHERE name = '{name}';
    """, to=1))
    assert [(row["[applied]"], row["owner"]) for row in rows[:3]] == [("False", "ann"), ("True", "null"), ("True", "bob")]
    assert int(rows[2]["fence"]) > int(fence) and len(rows) == 4


@pytest.mark.parametrize("cqlsh", VERSIONS, indirect=True)
def test_locks_in_memory_shared_ones_and_several_at_once(cqlsh):
    name = cqlsh.name
    rows = tables(
        cqlsh(f"""
        USE shunt;
        INSERT INTO fast_locks (name, owner) VALUES ('{name}', 'ann') IF NOT EXISTS USING TTL 500;
        DELETE FROM fast_locks WHERE name = '{name}' IF owner = 'ann';
        INSERT INTO rwlocks (name, owner, mode) VALUES ('{name}', 'r1', 'S') IF NOT EXISTS USING TTL 500;
        INSERT INTO rwlocks (name, owner, mode) VALUES ('{name}', 'r2', 'S') IF NOT EXISTS USING TTL 500;
        INSERT INTO rwlocks (name, owner, mode) VALUES ('{name}', 'w', 'X') IF NOT EXISTS USING TTL 500;
        SELECT owner, mode, state FROM lock_queue WHERE name = '{name}' AND fast = false;
        DELETE FROM rwlocks WHERE name = '{name}' AND owner = 'r1' IF EXISTS;
        DELETE FROM rwlocks WHERE name = '{name}' AND owner = 'r2' IF EXISTS;
        BEGIN BATCH
        INSERT INTO locks (name, owner) VALUES ('{name}-a', 'ann') IF NOT EXISTS USING TTL 500;
        INSERT INTO locks (name, owner) VALUES ('{name}-b', 'ann') IF NOT EXISTS USING TTL 500;
        APPLY BATCH;
        DELETE FROM locks WHERE name = '{name}-a' IF owner = 'ann';
        BEGIN BATCH
        INSERT INTO locks (name, owner) VALUES ('{name}-a', 'bob') IF NOT EXISTS USING TTL 500;
        INSERT INTO locks (name, owner) VALUES ('{name}-b', 'bob') IF NOT EXISTS USING TTL 500;
        APPLY BATCH;
        DELETE FROM locks WHERE name = '{name}-b' IF owner = 'ann';
    """)
    )
    applied = [(row["[applied]"], row["owner"]) for row in rows if "[applied]" in row]
    assert applied == [("True", "ann"), ("True", "null"), ("True", "r1"), ("True", "r2"), ("False", "r1"), ("True", "null"),
                       ("True", "null"), ("True", "ann"), ("True", "ann"), ("True", "null"), ("False", "ann"), ("True", "null")]
    assert [(row["owner"], row["mode"], row["state"]) for row in rows if "state" in row] == [("r1", "S", "held"), ("r2", "S", "held")]


def test_refusals_name_the_right_form(cqlsh):
    text = cqlsh("DELETE FROM shunt.locks WHERE name = 'n';", fails=True)
    assert "InvalidRequest" in text and "IF owner = ?" in text


def test_the_tables_are_described(cqlsh):
    text = cqlsh("DESCRIBE KEYSPACE shunt;")
    for table in ("locks", "fast_locks", "rwlocks", "fast_rwlocks", "lock_queue"):
        assert f"CREATE TABLE shunt.{table} (" in text

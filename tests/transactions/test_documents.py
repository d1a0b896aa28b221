"""The examples of docs/transactions.md and docs/guards.md work."""

import re
import uuid
from pathlib import Path

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.query import named_tuple_factory

from .conftest import insistent
from .ruled import wait_until_ruled, wait_until_unruled

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
NOBODY = {"bank.accounts": "id = 0"}


def blocks(document: str, language: str) -> list[str]:
    """The examples in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCUMENTS / document).read_text(), re.DOTALL)


def run_python(fleet, session, in_text, rule):
    """The examples in Python, in order: a guarded write, and one that is asked twice; between them those that name the lock in their text, and the rule."""
    session.execute("BEGIN TRANSACTION INSERT INTO bank.accounts (id, balance) VALUES (5, 1); COMMIT TRANSACTION")
    (guarded,) = blocks("guards.md", "python")
    (once,) = blocks("transactions.md", "python")
    session.get_execution_profile(EXEC_PROFILE_DEFAULT).row_factory = named_tuple_factory
    names = {"session": session, "uuid": uuid}

    def leaves(balance):
        return session.execute("SELECT balance FROM bank.accounts WHERE id = 5").one().balance == balance

    exec(guarded, names)
    assert leaves(7)
    update, batch = in_text.replace("1795495675940276", str(names["lock"].fence)).split(";\n", 1)
    session.execute(update)
    assert leaves(8)
    session.execute(batch)
    assert leaves(9)
    session.execute(rule)
    wait_until_ruled(fleet, NOBODY)
    with pytest.raises(InvalidRequest, match="the rule of shunt.guards for bank.accounts wants .* 'order 5'"):
        exec(once, {"session": session, "uuid": uuid})
    session.execute(update)
    session.execute("UPDATE bank.accounts SET balance = 7 WHERE id = 5", custom_payload=names["held"])
    session.execute("DELETE FROM shunt.guards WHERE enabled = true AND table_name = 'bank.accounts'")
    wait_until_unruled(fleet, NOBODY)
    exec(once, names)
    assert leaves(-3)
    session.execute("DELETE FROM shunt.locks WHERE name = 'order 5' IF owner = 'worker 7'")


def test_the_documents_examples_run(fleet, nodes):
    tables, transfer, as_a_batch = blocks("transactions.md", "sql")
    in_text, rule = blocks("guards.md", "sql")
    tables = tables.replace("'datacenter1': 3", f"'datacenter1': {nodes[1]}")
    session = insistent(fleet.connect())
    # Of a test that was broken off.
    session.execute("DROP KEYSPACE IF EXISTS bank")
    for statement in filter(str.strip, tables.split(";\n")):
        session.execute(statement)
    session.execute("BEGIN TRANSACTION INSERT INTO bank.accounts (id, balance) VALUES (1, 15); "
                    "INSERT INTO bank.accounts (id, balance) VALUES (2, 0); COMMIT TRANSACTION")
    applied = []
    for _ in range(2):  # the second finds what the first has done
        result = session.execute(transfer)
        assert list(result.one().values()) == [15 if not applied else 5]
        applied.append(result.response_future.custom_payload["shunt-applied"])
    assert applied == [b"\x01", b"\x00"]
    found = {row["id"]: row["balance"] for row in session.execute("SELECT id, balance FROM bank.accounts")}
    assert found == {1: 5, 2: 10}
    session.execute(as_a_batch)
    assert session.execute("SELECT balance FROM bank.accounts WHERE id = 1").one() == {"balance": 10}
    run_python(fleet, session, in_text, rule)
    session.execute("DROP KEYSPACE bank")
    session.cluster.shutdown()

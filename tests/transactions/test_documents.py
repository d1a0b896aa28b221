"""What docs/transactions.md shows is so."""

import re
import uuid
from pathlib import Path

from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.query import named_tuple_factory

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transactions.md"


def run_python(session):
    """The examples in Python, in order: a guarded write, and one that is asked twice."""
    session.execute("BEGIN TRANSACTION INSERT INTO bank.accounts (id, balance) VALUES (5, 1); COMMIT TRANSACTION")
    guarded, once = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    session.get_execution_profile(EXEC_PROFILE_DEFAULT).row_factory = named_tuple_factory
    for example, balance in ((guarded, 7), (once, -3)):
        exec(example, {"session": session, "uuid": uuid})
        assert session.execute("SELECT balance FROM bank.accounts WHERE id = 5").one().balance == balance
    session.execute("DELETE FROM shunt.locks WHERE name = 'order 5' IF owner = 'worker 7'")


def test_its_examples_run(fleet, nodes):
    tables, transfer = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    tables = tables.replace("'datacenter1': 3", f"'datacenter1': {nodes[1]}")
    session = fleet.connect()
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
    run_python(session)
    session.execute("DROP KEYSPACE bank")
    session.cluster.shutdown()

"""What docs/transactions.md shows is so."""

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transactions.md"


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
    session.execute("DROP KEYSPACE bank")
    session.cluster.shutdown()

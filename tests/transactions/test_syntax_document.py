"""Statements from Cassandra's documents of the syntax: valid ones run, and others are refused by name."""

import re
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.protocol import SyntaxException
from cassandra.query import tuple_factory

from .conftest import insistent
from .known import wait_until_taken
from .syntax_document import LESS, OF_LIMITATIONS, OF_MIGRATION, OF_PATTERNS, OF_THE_SYNTAX, TABLES, Example, whole

VALID = [pytest.param(example, id=f"{name}-{number}")
         for name, examples in (("syntax", OF_THE_SYNTAX), ("patterns", OF_PATTERNS), ("migration", OF_MIGRATION), ("limitations", OF_LIMITATIONS))
         for number, example in enumerate(examples)]


@pytest.fixture(scope="module")
def sessions(fleet, nodes):
    """By keyspace. All tables have the mode that the documents give them."""
    session = insistent(fleet.connect())
    session.get_execution_profile(EXEC_PROFILE_DEFAULT).row_factory = tuple_factory
    for keyspace, tables in TABLES.items():
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {nodes[1]}}}")
        for table, columns in tables.items():
            session.execute(f"CREATE TABLE {keyspace}.{table} ({columns})")
            session.execute(f"ALTER TABLE {keyspace}.{table} WITH transactional_mode = 'full'")
    session.execute("CREATE TABLE syntax.untouched (id uuid PRIMARY KEY, views bigint)")
    session.execute("CREATE TABLE syntax.counted (page_id uuid PRIMARY KEY, views counter)")
    for keyspace, tables in TABLES.items():
        # A keyspace's modes are read in one answer: who knows the last one knows all.
        table, columns = list(tables.items())[-1]
        wait_until_taken(fleet, f"{keyspace}.{table}", where=nobody(columns))

    def of(keyspace):
        session.execute(f"USE {keyspace}")
        return session

    yield of
    session.cluster.shutdown()


def nobody(columns):
    """The key of a row that is not there."""
    types = {"uuid": uuid.UUID(int=0), "text": "'nobody'", "int": 0}
    names = re.search(r"PRIMARY KEY \((.*)\)", columns)
    keys = names[1].split(", ") if names else [columns.split()[0]]
    type_of = dict(column.split()[:2] for column in columns.split(", PRIMARY KEY")[0].split(", "))
    return " AND ".join(f"{key} = {types[type_of[key]]}" for key in keys)


def shown(value, expected):
    """A time of just now is `now`."""
    if expected == "now" and isinstance(value, datetime):
        return "now" if abs(datetime.now(UTC).replace(tzinfo=None) - value) < timedelta(minutes=5) else value
    return value


def execute(session, text, values):
    """The rows, and whether the answer says that something was written."""
    result = session.execute(session.prepare(text), values) if values else session.execute(text)
    return result.all(), result.response_future.custom_payload["shunt-applied"] == b"\x01"


@pytest.mark.parametrize("example", VALID)
def test_valid_examples_run(sessions, example: Example):
    session = sessions(example.keyspace)
    for statement in example.before:
        session.execute(statement)
    rows, applied = execute(session, example.text, example.values)
    assert (rows, applied) == (example.answers, example.applied)
    for select, expected in example.after.items():
        in_parts = select.split(" IN (")
        # A table whose mode is full is read by partition.
        selects = [select] if len(in_parts) == 1 else [f"{in_parts[0]} = {one}" for one in in_parts[1].rstrip(")").split(", ")]
        found = [row for one in selects for row in session.execute(one)] if " WHERE " in select else all_of(session, select)
        assert [tuple(shown(value, one) for value, one in zip(row, wanted)) for row, wanted in zip(found, expected)] == expected
        assert len(found) == len(expected), select


def all_of(session, select):
    """The rows of the two cyclists, less first."""
    return sorted(row for name in ("Alice MAYS", "Bob PICKLE") for row in session.execute(f"{select} WHERE account_holder = '{name}'"))


def test_plain_statements_are_transactions(sessions):
    session, user = sessions("syntax"), "123e4567-e89b-12d3-a456-426614174000"
    select = f"SELECT id, email, balance FROM users WHERE id = {user}"
    writes = (f"INSERT INTO users (id, email, balance) VALUES ({user}, 'user@example.com', 100.00)",
              f"UPDATE users SET balance = 50.00, last_login = toTimestamp(now()) WHERE id = {user}", f"DELETE FROM users WHERE id = {user}")
    for write, balance in zip(writes, (100, 50, None)):
        assert execute(session, write, ())[1]
        rows, applied = execute(session, select, ())
        assert [row[2] for row in rows] == [balance] * (balance is not None) and not applied


USERS = "LET user_data = (SELECT balance FROM users WHERE id = ?);"
STATUS = "LET an_order = (SELECT status FROM orders WHERE order_id = ?); IF {} THEN UPDATE orders SET status = 'CANCELLED' WHERE order_id = ?; END IF"
FROM = "SELECT account_balance FROM cycling.cyclist_accounts WHERE account_holder = 'Alice MAYS' AND account_type = 'checking'"
FILTERED = ("LET fromBalance = ({0}{1}); IF fromBalance.account_balance >= 20 THEN UPDATE cycling.cyclist_accounts SET account_balance -= 20 "
            "WHERE account_holder = 'Alice MAYS' AND account_type = 'checking'{1}; END IF")


@pytest.mark.parametrize("keyspace, body, error, part", [
    ("syntax", "LET users = (SELECT * FROM users WHERE status = 'active'); SELECT users.email;", SyntaxException, "'users' is a keyword"),
    ("syntax", "LET active = (SELECT * FROM users WHERE status = 'active'); SELECT active.email;", InvalidRequest, "LET active at .* Range queries"),
    ("syntax", "LET recent = (SELECT * FROM events WHERE id > ? AND id < ?); SELECT recent.v;", InvalidRequest, "LET recent at .* Range queries"),
    ("syntax", "LET total = (SELECT COUNT(*) FROM orders WHERE id = ?); SELECT total.count;", (InvalidRequest, SyntaxException), r"LET total at \[1:"),
    ("syntax", "LET a = (SELECT * FROM history WHERE user_id = ? ORDER BY at LIMIT 1); SELECT a.body;", (InvalidRequest, SyntaxException), "ORDER BY"),
    ("syntax", "LET a = (SELECT * FROM history WHERE user_id = ? GROUP BY at LIMIT 1); SELECT a.body;", (InvalidRequest, SyntaxException), "GROUP BY"),
    ("syntax", "LET a = (SELECT * FROM history WHERE user_id = ?); SELECT a.body;", InvalidRequest, r"LET a at \[1:"),
    ("syntax", "LET a = (SELECT * FROM users WHERE id IN (?, ?)); SELECT a.email;", InvalidRequest, r"LET a at \[1:"),
    ("syntax", USERS + USERS + "SELECT user_data.balance;", InvalidRequest, "'user_data' has already been used by a LET"),
    ("syntax", "SELECT COUNT(*) FROM history WHERE user_id = ?;", InvalidRequest, r"SELECT at \[1:19\]: No aggregation functions"),
    ("syntax", "SELECT * FROM history WHERE user_id = ? ORDER BY at DESC;", InvalidRequest, "ORDER BY"),
    ("syntax", "SELECT at FROM history WHERE user_id = ? GROUP BY at;", InvalidRequest, "GROUP BY"),
    ("syntax", "SELECT * FROM users WHERE id > ?;", (InvalidRequest, SyntaxException), r"SELECT at \[1:19\]"),
    ("syntax", "UPDATE users USING TTL 5 SET status = 'x' WHERE id = ?;", InvalidRequest, "custom ttls"),
    ("syntax", "UPDATE users USING TIMESTAMP 5 SET status = 'x' WHERE id = ?;", InvalidRequest, "custom timestamps"),
    ("syntax", "DELETE FROM user_sessions WHERE user_id = ?;", InvalidRequest, r"DELETE at \[1:19\].*clustering keys are missing: session_id"),
    ("syntax", "DELETE FROM user_sessions WHERE user_id = ? AND session_id > ?;", InvalidRequest, r"DELETE at \[1:19\].*session_id"),
    ("syntax", "UPDATE users SET status = 'x' WHERE id = ? IF EXISTS;", InvalidRequest, r"UPDATE at \[1:19\].*their own conditions"),
    ("syntax", "INSERT INTO users (id) VALUES (?) IF NOT EXISTS;", InvalidRequest, "their own conditions"),
    ("syntax", "UPDATE untouched SET views = views + 1 WHERE id = ?;", InvalidRequest, "untouched takes part in no transactions"),
    ("syntax", "UPDATE counted SET views = views + 1 WHERE page_id = ?;", InvalidRequest, "counted takes part in no transactions"),
    ("syntax", USERS + f"IF user_data.balance > 1 THEN {LESS} END IF {LESS}", SyntaxException, "UPDATE"),
    # transactions-limitations
    ("syntax", USERS + "UPDATE users SET balance = user_data.balance - 50 WHERE id = ?;", SyntaxException, "no viable alternative at input '-'"),
    ("syntax", USERS + "SELECT user_data.balance - 50;", SyntaxException, r"SELECT at .*no viable alternative at input '-'"),
    ("common", "LET account = (SELECT balance FROM accounts WHERE id = ?); LET max = (SELECT max_balance FROM limits WHERE type = 'standard');"
               "IF account.balance < max.max_balance THEN UPDATE accounts SET balance = balance + 10 WHERE id = ?; END IF", SyntaxException, "IF at"),
    ("syntax", "UPDATE user_sessions SET status = 'invalidated' WHERE user_id = ?;", InvalidRequest, "clustering keys are missing: session_id"),
    ("common", STATUS.format("an_order.status IN ('PENDING', 'PAID')"), SyntaxException, "no viable alternative at input 'IN'"),
    ("common", STATUS.format("an_order.status = 'PENDING' OR an_order.status = 'PAID'"), SyntaxException, "no viable alternative at input 'OR'"),
    ("common", STATUS.format("an_order.status = 'PAID'").replace("an_order", "order"), SyntaxException, "LET at .*order"),
    ("syntax", USERS + LESS + "SELECT user_data.balance;", SyntaxException, "no viable alternative at input 'SELECT'"),
    ("syntax", USERS + "LET new_balance = user_data.balance - 50; UPDATE users SET balance = new_balance WHERE id = ?;", SyntaxException,
     r"LET new_balance at \[1:"),
    ("syntax", USERS + "LET discount = CASE user_data.tier WHEN 'gold' THEN 0.10 ELSE 0.0 END;", SyntaxException, r"LET discount at \[1:"),
    # acid-transaction
    ("cycling", FILTERED.format(FROM, ""), InvalidRequest, "LET frombalance at .*ALLOW FILTERING|UPDATE at .*account_type"),
    ("cycling", FILTERED.format(FROM, " ALLOW FILTERING"), SyntaxException, "ALLOW FILTERING"),
])
def test_invalid_examples_are_refused_by_name(sessions, keyspace, body, error, part):
    session = sessions(keyspace)
    with pytest.raises(error) as refused:
        session.prepare(whole(body))
    assert re.search(part, str(refused.value)), refused.value
    in_text = whole(body).replace("?", "1" if "events" in body else "00000000-0000-0000-0000-000000000001")
    with pytest.raises(error) as refused:
        session.execute(in_text)
    assert re.search(part, str(refused.value)), refused.value


def test_counters_and_modes_of_new_tables(sessions):
    session = sessions("syntax")
    session.execute("ALTER TABLE counted WITH transactional_mode = 'full'")
    with pytest.raises(InvalidRequest, match="Counter columns"):
        session.execute(f"BEGIN TRANSACTION UPDATE counted SET views = views + 1 WHERE page_id = {uuid.uuid4()}; COMMIT TRANSACTION")
    session.execute("ALTER TABLE counted WITH transactional_mode = 'off'")
    with pytest.raises((InvalidRequest, SyntaxException), match="transactional_mode"):
        session.execute("CREATE TABLE tbl (k int PRIMARY KEY) WITH transactional_mode = 'full'")

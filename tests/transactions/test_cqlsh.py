"""cqlsh from PyPI, unmodified, on a fleet: what a person sees who types transactions. It takes BEGIN for the beginning of a batch, and sends
nothing before it has seen APPLY BATCH."""

import subprocess
import sys
import uuid

import pytest

from harness.cqlsh import CQLSH, run

from .conftest import KEYSPACE, VERSIONS, prepare


@pytest.fixture(scope="module")
def tables(fleet, nodes):
    session = fleet.connect()
    prepare(session, nodes[1])
    session.cluster.shutdown()


@pytest.fixture
def cqlsh(fleet, tables, tmp_path):
    """Runs statements in one session; gives what was printed."""
    proxy = fleet.proxies[0]

    def in_version(script, version=VERSIONS[-1], **more):
        options = ["--protocol-version", str(version), "--keyspace", KEYSPACE]
        return run(script, proxy.host, proxy.port, tmp_path, options, **more)

    return in_version


@pytest.fixture
def account():
    """A key that no other test has."""
    return uuid.uuid4().int % 2_000_000_000


def rows(text):
    """The cells of tables that were printed, prompts before them left out."""
    lines = (line.rsplit("> ", 1)[-1] for line in text.splitlines() if "[cqlsh" not in line)
    return [[cell.strip() for cell in line.split("|")] for line in lines if "|" in line]


@pytest.mark.parametrize(
    "version, typed", [*((version, False) for version in VERSIONS), (VERSIONS[-1], True)],
    ids=[*(f"{version}-file" for version in VERSIONS), "typed"])
def test_transactions_on_several_lines_end_with_apply_batch(cqlsh, account, version, typed):
    text = cqlsh(f"""BEGIN TRANSACTION
  INSERT INTO accounts (id, balance, owner) VALUES ({account}, 10, 'a; b');
COMMIT TRANSACTION;
APPLY BATCH;
BEGIN TRANSACTION
  LET payer = (SELECT balance, owner FROM accounts WHERE id = {account});
  SELECT payer.balance, payer.owner;
  IF payer.balance >= 3 THEN -- ; no end
    UPDATE accounts SET balance -= 3 WHERE id = {account};
    INSERT INTO moves (account, number, amount) VALUES ({account}, 1, 3);
  END IF
COMMIT TRANSACTION APPLY BATCH;
SELECT id, balance FROM accounts WHERE id = {account};
BEGIN TRANSACTION SELECT number, amount FROM moves WHERE account = {account}; COMMIT TRANSACTION; APPLY BATCH;
BEGIN BATCH UPDATE accounts SET balance = 1, owner = 'c' WHERE id = {account}; APPLY BATCH;
SELECT balance, owner FROM accounts WHERE id = {account};
""", version, typed=typed)
    assert rows(text) == [["payer.balance", "payer.owner"], ["10", "a; b"], ["id", "balance"], [str(account), "7"], ["number", "amount"],
                          ["1", "3"], ["balance", "owner"], ["1", "c"]]


def test_a_refusal_is_shown_and_the_next_transaction_runs(cqlsh, account):
    text = cqlsh(f"""BEGIN TRANSACTION
  LET a = (SELECT balance FROM accounts WHERE id = {account});
  SELECT a.balance - 1;
COMMIT TRANSACTION APPLY BATCH;
BEGIN TRANSACTION
  INSERT INTO accounts (id, nothing) VALUES ({account}, 2);
COMMIT TRANSACTION APPLY BATCH;
BEGIN TRANSACTION
  INSERT INTO accounts (id, balance) VALUES ({account}, 2);
COMMIT TRANSACTION APPLY BATCH;
SELECT id, balance FROM accounts WHERE id = {account};
""", fails=True)
    assert "SyntaxException: SELECT at [3:3]: line 3:19 no viable alternative at input '-'" in text
    assert "InvalidRequest" in text and "INSERT at [2:3]: Undefined column name nothing" in text
    assert rows(text)[-2:] == [["id", "balance"], [str(account), "2"]]


def test_without_apply_batch_nothing_is_sent(fleet, cqlsh, account, tmp_path):
    """With -e, cqlsh does not even say so."""
    insert = f"INSERT INTO {KEYSPACE}.accounts (id, balance) VALUES ({account}, 1);"
    text = cqlsh(f"BEGIN TRANSACTION\n{insert}\nCOMMIT TRANSACTION;\nSELECT balance FROM accounts WHERE id = {account};\n", fails=True)
    assert "Incomplete statement at end of file" in text
    for end, found in ("", "0 rows"), (" APPLY BATCH", "1 rows"):
        # By default a server that is late for 5 s is taken for one that is away.
        patient = ["--request-timeout", "180", "--connect-timeout", "60"]
        command = [sys.executable, CQLSH, fleet.proxies[1].host, str(fleet.proxies[1].port), *patient,
                   "-e", f"BEGIN TRANSACTION {insert} COMMIT TRANSACTION{end}"]
        subprocess.run(command, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True, timeout=600, stdin=subprocess.DEVNULL)
        assert found in cqlsh(f"SELECT balance FROM accounts WHERE id = {account};")

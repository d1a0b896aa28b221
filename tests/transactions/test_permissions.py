"""Rights of roles in a transaction, as the nodes decide: SELECT on what it reads, SELECT and MODIFY on what it writes, ALTER for a table's mode."""

import os
import time

import pytest
from cassandra import InvalidRequest, Unauthorized
from cassandra.cluster import NoHostAvailable

from harness import cql
from harness.cluster import SUPERUSER
from harness.waits import until
from locks.fleet import with_logins

from .conftest import answered
from .known import Clients, clients_by_core
from .ruled import wait_until_ruled, wait_until_unruled

NETWORK = "127.0.63"
CACHE_MS = 1_000
READ = "BEGIN TRANSACTION LET a = (SELECT v FROM guarded.a WHERE k = 1); SELECT a.v; COMMIT TRANSACTION"
WRITE = "BEGIN TRANSACTION INSERT INTO guarded.a (k, v) VALUES (1, 2); COMMIT TRANSACTION"
BOTH = "BEGIN TRANSACTION LET a = (SELECT v FROM guarded.a WHERE k = 1); IF a IS NULL THEN INSERT INTO guarded.b (k, v) VALUES (1, 2); END IF COMMIT TRANSACTION"
MODE = "ALTER TABLE guarded.a WITH transactional_mode = 'unsafe'"

pytestmark = pytest.mark.skipif(not os.environ.get("SHUNT_RING"), reason="embedded nodes have no roles")


@pytest.fixture(scope="module")
def fleet():
    with with_logins("auth-transactions", NETWORK, CACHE_MS) as fleet:
        yield fleet.start()


@pytest.fixture(scope="module")
def admin(fleet):
    session = fleet.connect(login=SUPERUSER)
    session.execute("CREATE KEYSPACE guarded WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    for table in "ab":
        session.execute(f"CREATE TABLE guarded.{table} (k int PRIMARY KEY, v int)")
        session.execute(f"ALTER TABLE guarded.{table} WITH transactional_mode = 'unsafe'")
    yield session
    session.cluster.shutdown()


@pytest.fixture(params=[0, 1])
def session(fleet, admin, request):
    """A role's without rights, to one of the proxies: that which decides, or the other."""
    name = f"role_{abs(hash(request.node.name)) % 10_000_000}"
    admin.execute(f"CREATE ROLE IF NOT EXISTS {name} WITH PASSWORD = 'secret' AND LOGIN = true")
    session = fleet.connect(to=request.param, login=(name, "secret"))
    session.role = name
    yield session
    session.cluster.shutdown()


def ask(session, text):
    """Again where a node that has just started, and is busy, did not say in time if the role may: nothing was carried out then."""
    return answered(lambda: session.execute(text), NoHostAvailable, text)


class SuperUsers(Clients):
    """Clients with every right, which write to see if there is a rule."""

    def connect(self, one):
        before = clients_by_core(one)

        def reaches_all():
            client = cql.Session(one.host, one.port, SUPERUSER, timeout_seconds=60)
            self.all.append(self.open.enter_context(client))
            now = clients_by_core(one)
            return all(now[core] > count for core, count in before.items())

        until(reaches_all, f"a client of each core of {one.listen}", every_seconds=0.01)


def refused(session, text, right) -> None:
    with pytest.raises(Unauthorized) as refused:
        ask(session, text)
    assert f"User {session.role} has no {right} permission" in str(refused.value), refused.value


def test_each_right_is_needed_and_heeded(admin, session):
    admin.execute("TRUNCATE guarded.a")
    refused(session, READ, "SELECT")
    refused(session, WRITE, "SELECT")
    refused(session, MODE, "ALTER")
    admin.execute(f"GRANT SELECT ON guarded.a TO {session.role}")
    assert ask(session, READ).one() is not None
    refused(session, WRITE, "MODIFY")
    refused(session, BOTH, "SELECT")
    admin.execute(f"GRANT MODIFY ON guarded.a TO {session.role}")
    ask(session, WRITE)
    refused(session, BOTH, "SELECT")
    assert [(row["k"], row["v"]) for row in admin.execute("SELECT * FROM guarded.a")] == [(1, 2)]
    assert list(admin.execute("SELECT * FROM guarded.b")) == [], "a question about rights has written"
    admin.execute(f"REVOKE MODIFY ON guarded.a FROM {session.role}")
    # What was said before counts for so long at most: a machine that pauses makes it longer.
    time.sleep(CACHE_MS / 1000 + 0.3)
    refused(session, WRITE, "MODIFY")
    admin.execute(f"GRANT ALTER ON guarded.a TO {session.role}")
    ask(session, MODE)
    refused(session, MODE.replace("guarded.a", "guarded.b"), "ALTER")


def test_a_role_that_may_modify_the_table_of_rules_may_change_a_rule(fleet, admin, session):
    """No other role may change it, whatever its rights on the table of the rule. To follow a rule needs no right on it."""
    name = f"guarded.{session.role}"
    admin.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v int)")
    admin.execute(f"ALTER TABLE {name} WITH transactional_mode = 'unsafe'")
    admin.execute(f"GRANT ALL PERMISSIONS ON {name} TO {session.role}")
    admin.execute(f"GRANT SELECT ON shunt.locks TO {session.role}")
    insert = f"INSERT INTO shunt.guards (enabled, table_name, lock, mode) VALUES (true, '{name}', 'l', 'require')"
    delete = f"DELETE FROM shunt.guards WHERE enabled = true AND table_name = '{name}'"
    for text in (insert, delete, "TRUNCATE shunt.guards"):
        refused(session, text, "MODIFY")
    write = f"INSERT INTO {name} (k, v) VALUES (1, 2)"
    ask(session, write)
    admin.execute(insert)
    wait_until_ruled(fleet, {name: "k = 0"}, SuperUsers)
    with pytest.raises(InvalidRequest, match="the rule of shunt.guards for"):
        ask(session, write)
    refused(session, delete, "MODIFY")
    fence = ask(session, "INSERT INTO shunt.locks (name, owner) VALUES ('l', 'me') IF NOT EXISTS USING TTL 60").one()["fence"]
    ask(session, f"UPDATE {name} SET v = 3 WHERE k = 1 IF \"shunt:lock\" = 'l' AND \"shunt:fence\" = {fence}")
    ask(session, "DELETE FROM shunt.locks WHERE name = 'l' IF owner = 'me'")
    admin.execute(f"GRANT MODIFY ON shunt.guards TO {session.role}")
    ask(session, delete)
    wait_until_unruled(fleet, {name: "k = 0"}, SuperUsers)
    ask(session, write)
    assert admin.execute(f"SELECT * FROM {name}").one() == {"k": 1, "v": 2}

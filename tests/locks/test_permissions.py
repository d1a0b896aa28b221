"""The right to use locks: SELECT on a table of the keyspace `shunt`, at every proxy of a fleet. A GRANT
or REVOKE takes effect within the time for which proxies keep verdicts."""

import base64
import os
import time

import pytest
from cassandra import InvalidRequest, Unauthorized
from cassandra.cluster import NoHostAvailable
from cassandra.query import BatchStatement

from harness import cql
from harness.cluster import SUPERUSER
from harness.waits import DEADLINE_SECONDS, until
from locks.fleet import with_logins
from locks.over_http import ask, listen

NETWORK = "127.0.62"
CACHE_MS = 1_000
ACQUIRE = {
    "locks": "INSERT INTO shunt.locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 300",
    "fast_locks": "INSERT INTO shunt.fast_locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 300",
    "rwlocks": "INSERT INTO shunt.rwlocks (name, owner, mode) VALUES (%s, %s, 'S') IF NOT EXISTS USING TTL 300",
    "fast_rwlocks": "INSERT INTO shunt.fast_rwlocks (name, owner, mode) VALUES (%s, %s, 'X') IF NOT EXISTS USING TTL 300",
}
QUEUE = "SELECT * FROM shunt.lock_queue WHERE name = %s"

pytestmark = pytest.mark.skipif(not os.environ.get("SHUNT_RING"), reason="embedded nodes have no roles")


@pytest.fixture(scope="module")
def fleet():
    with with_logins("auth-locks", NETWORK, CACHE_MS) as fleet:
        listen(fleet)
        yield fleet.start()


@pytest.fixture(scope="module")
def admin(fleet):
    session = fleet.connect(login=SUPERUSER)
    yield session
    session.cluster.shutdown()


@pytest.fixture
def role(fleet, admin, request):
    """Makes roles, and sessions of theirs. What they are called says which test they are of."""
    sessions = []

    def make(name: str, version: int = 4, grants=(), to=None, **more):
        name = f"{name}_{abs(hash(request.node.name)) % 10_000_000}"
        admin.execute(f"CREATE ROLE IF NOT EXISTS {name} WITH PASSWORD = '{name} secret' AND LOGIN = true")
        for resource in grants:
            admin.execute(f"GRANT SELECT ON {resource} TO {name}")
        session = fleet.connect(to=to, version=version, login=(name, f"{name} secret"), **more)
        session.role = name
        sessions.append(session)
        return session

    yield make
    for session in sessions:
        session.cluster.shutdown()


def execute(session, text, values):
    """Again where a node that has just started, and is busy, did not say in time if the role may: nothing was carried out then."""
    late = []

    def answer():
        try:
            return [session.execute(text, values)]
        except NoHostAvailable as error:
            late[:] = [repr(error)]

    return until(answer, f"an answer to {text}", told=lambda: late)[0]


def allowed(session, text, values) -> bool:
    try:
        execute(session, text, values)
    except Unauthorized as error:
        table = text.split("shunt.")[1].split()[0]
        words = f"User {session.role} has no SELECT permission on <table shunt.{table}> or any of its parents"
        # The proxy that was asked may know yet of a right of which the lock's owner knows already that it was revoked.
        elsewhere = "the proxy that owns this lock was told that the role has no SELECT permission on the table"
        assert words in str(error) or elsewhere in str(error), error
        return False
    return True


def names(request, count: int = 40) -> list:
    """Names of locks: enough that each proxy and each core has some."""
    return [f"{request.node.name}-{number}" for number in range(count)]


def cached() -> None:
    """Longer than a verdict is remembered. If it takes longer yet, that changes nothing."""
    time.sleep(CACHE_MS / 1000 + 0.2)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_select_on_a_table_is_the_right_to_its_locks_and_to_no_others(role, request, version):
    may_not = role("may_not", version)
    for table in ACQUIRE:
        may = role(f"may_{table}", version, [f"shunt.{table}"])
        for name in names(request, 8):
            assert allowed(may, ACQUIRE[table], (name, table))
            assert not allowed(may_not, ACQUIRE[table], (name, "p"))
        for other in set(ACQUIRE) - {table}:
            assert not allowed(may, ACQUIRE[other], (name, "o"))
        assert not allowed(may, QUEUE, (name,))


def test_every_form_of_statement_works_at_every_proxy_with_the_right_to_one_table(fleet, role, request):
    """A proxy that forwards a request names the client's own table: its role may have the right to no other."""
    for table in ("locks", "fast_locks"):
        session = role(f"may_{table}", grants=[f"shunt.{table}"])
        for name in names(request, 8):
            row = session.execute(ACQUIRE[table], (name, "o")).one()
            assert row["[applied]"] and row["owner"] == "o"
            seen = session.execute(f"SELECT owner, fence, waiters FROM shunt.{table} WHERE name = %s", (name,)).one()
            assert (seen["owner"], seen["fence"], seen["waiters"]) == ("o", row["fence"], 0)
            renew = (
                f"UPDATE shunt.{table} USING TTL 300 SET owner = %s WHERE name = %s IF owner = %s"
            )
            assert session.execute(renew, ("o", name, "o")).one()["fence"] == row["fence"]
            assert session.execute(renew + " AND fence = %s", ("o", name, "o", row["fence"])).one()["[applied]"]
            release = f"DELETE FROM shunt.{table} WHERE name = %s IF owner = %s"
            assert not session.execute(release + " AND fence = %s", (name, "o", 1)).one()["[applied]"]
            assert session.execute(release, (name, "o")).one()["[applied]"]
    for table in ("rwlocks", "fast_rwlocks"):
        session = role(f"may_{table}", grants=[f"shunt.{table}"])
        acquire = f"INSERT INTO shunt.{table} (name, owner, mode) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL 300"
        for name in names(request, 8):
            fences = [session.execute(acquire, (name, owner, "S")).one()["fence"] for owner in ("a", "b")]
            rows = session.execute(f"SELECT * FROM shunt.{table} WHERE name = %s", (name,))
            assert sorted((row["owner"], row["mode"], row["fence"]) for row in rows) == [("a", "S", fences[0]), ("b", "S", fences[1])]
            refused = session.execute(acquire, (name, "c", "X")).one()
            assert (refused["[applied]"], refused["mode"]) == (False, "S")
            renew = f"UPDATE shunt.{table} USING TTL 300 SET mode = 'S' WHERE name = %s AND owner = %s IF EXISTS"
            assert session.execute(renew, (name, "a")).one()["[applied]"]
            release = f"DELETE FROM shunt.{table} WHERE name = %s AND owner = %s IF fence = %s"
            assert session.execute(release, (name, "a", fences[0])).one()["[applied]"]
            assert session.execute(f"DELETE FROM shunt.{table} WHERE name = %s AND owner = %s IF EXISTS", (name, "b")).one()["[applied]"]
            assert session.execute(acquire, (name, "c", "X")).one()["[applied]"]
    watcher = role("watcher", grants=["shunt.lock_queue"])
    assert [row["owner"] for name in names(request, 8) for row in watcher.execute(QUEUE, (name,))] == ["c", "c"] * len(names(request, 8))


@pytest.mark.parametrize("resource", ["KEYSPACE shunt", "ALL KEYSPACES"])
def test_rights_come_from_what_contains_the_table_and_from_roles_that_were_granted(admin, role, request, resource):
    session = role("direct", grants=[resource])
    member = role("member")
    admin.execute(f"GRANT {session.role} TO {member.role}")
    for table, acquire in ACQUIRE.items():
        assert allowed(session, acquire, (f"{request.node.name}-{table}", "o"))
        assert allowed(member, acquire, (f"{request.node.name}-{table}-2", "o"))
    assert allowed(session, QUEUE, ("n",)) and allowed(admin, QUEUE, ("n",)), "a superuser may"


def test_modify_is_no_right_and_no_way_to_a_row(admin, role, request):
    session = role("writer")
    admin.execute(f"GRANT MODIFY ON shunt.locks TO {session.role}")
    assert not allowed(session, ACQUIRE["locks"], (request.node.name, "o"))
    session = role("reader", grants=["KEYSPACE shunt"])
    assert allowed(session, ACQUIRE["locks"], (request.node.name, "o"))


@pytest.mark.parametrize("compression", ["lz4", "snappy"])
def test_a_client_that_compresses_is_judged_too(role, request, compression):
    session = role("may", 4, ["shunt.locks"], compression=compression)
    assert allowed(session, ACQUIRE["locks"], (request.node.name, "o"))
    assert not allowed(session, ACQUIRE["rwlocks"], (request.node.name, "o"))


def test_every_proxy_heeds_grants_and_revocations_within_the_caches_time(fleet, admin, role, request):
    sessions = [role("one", to=to) for to in range(len(fleet.proxies))]
    for _ in range(2):
        assert not any(allowed(session, ACQUIRE["locks"], (name, "o")) for session in sessions for name in names(request, 10))
        admin.execute(f"GRANT SELECT ON shunt.locks TO {sessions[0].role}")
        cached()
        assert all(allowed(session, ACQUIRE["locks"], (name, "o")) for session in sessions for name in names(request, 10))
        admin.execute(f"REVOKE SELECT ON shunt.locks FROM {sessions[0].role}")
        # It is used all the time, which must not make it last.
        end = time.monotonic() + CACHE_MS / 1000 + 0.2
        while time.monotonic() < end:
            for session in sessions:
                allowed(session, ACQUIRE["locks"], (names(request)[0], "o"))


def test_prepared_statements_and_batches_need_the_right_too(admin, role, request):
    session = role("reader", grants=["shunt.locks"])
    insert = session.prepare(ACQUIRE["locks"].replace("%s", "?"))
    share = session.prepare(ACQUIRE["rwlocks"].replace("%s", "?"))
    assert session.execute(insert, (f"{request.node.name}-0", "o")).one()["[applied]"]
    with pytest.raises(Unauthorized):
        session.execute(share, (f"{request.node.name}-0", "o"))
    batch = BatchStatement()
    for number in range(1, 4):
        batch.add(insert, (f"{request.node.name}-{number}", "o"))
    assert all(row["[applied]"] for row in session.execute(batch))
    batch.add(share, (f"{request.node.name}-4", "o"))
    with pytest.raises(Unauthorized):
        session.execute(batch)
    admin.execute(f"REVOKE SELECT ON shunt.locks FROM {session.role}")
    cached()
    with pytest.raises(Unauthorized):
        session.execute(insert, (f"{request.node.name}-5", "o"))


def test_a_request_that_says_it_was_forwarded_needs_the_same_right(fleet, role, request):
    may, may_not = role("may", 4, ["shunt.locks"]), role("may_not", 4)
    for name in names(request, 10):
        for to in fleet.proxies:
            with pytest.raises(Unauthorized):
                may_not.execute(ACQUIRE["locks"], (name, "o"), custom_payload={"shunt-hop": b"\x01"})
        assert allowed(may, ACQUIRE["locks"], (name, "o"))


def basic(role: str, password: str) -> dict:
    return {"Authorization": f"Basic {base64.b64encode(f'{role}:{password}'.encode()).decode()}"}


def test_over_http_each_role_has_its_own_rights_and_holds(fleet, admin, role, request):
    """Requests of all of them come over the same connections' pool, one right behind the other."""
    ann, bob, nobody = (role(name, grants=grants).role for name, grants in (("ann", ["shunt.locks"]), ("bob", ["shunt.locks"]), ("no", [])))
    logins = {name: basic(name, f"{name} secret") for name in (ann, bob, nobody)}
    for one in fleet.proxies:
        for name in names(request, 8):
            for method in ("PUT", "PATCH", "DELETE"):
                refused = ask(one, method, name, owner="same", headers=logins[nobody])
                assert refused.status == 403 and "SELECT permission" in refused.json["error"], refused
            taken = ask(one, "PUT", name, owner="same", ttl=300, wait=5, headers=logins[ann])
            assert taken.status == 200, taken
            for method in ("PUT", "PATCH", "DELETE"):
                refused = ask(one, method, name, owner="same", headers=logins[bob])
                assert refused.status == 403 and "role" in refused.json["error"], "another role's hold, under the same owner's text"
            assert ask(one, "PUT", name, owner="other", headers=logins[bob]).status == 409
            assert ask(one, "GET", name, "/queue", headers=logins[ann]).status == 403, "which is another table"
            assert ask(one, "PUT", name, owner="same", shared=True, headers=logins[ann]).status == 403, "and so is this"
            assert ask(one, "DELETE", name, owner="same", headers=logins[ann]).status == 200


def test_over_http_no_login_and_a_wrong_one_are_challenged(fleet, role, request):
    session = role("may", grants=["shunt.locks"])
    one, right = fleet.proxies[0], basic(session.role, f"{session.role} secret")
    assert ask(one, "PUT", request.node.name, owner="o", ttl=300, headers=right).status == 200
    for wrong in ({}, basic(session.role, "other"), basic(session.role, ""), basic("stranger", f"{session.role} secret"),
                  basic(f"{session.role}", f"{session.role} secre"), basic("", "")):
        for method in ("PUT", "DELETE"):
            refused = ask(one, method, request.node.name, owner="o", headers=wrong)
            assert refused.status == 401, (wrong, refused)
            assert refused.headers["WWW-Authenticate"] == 'Basic realm="shunt", charset="UTF-8"'
    assert ask(one, "GET", request.node.name, headers=right).json["owner"] == "o"


def test_over_http_an_old_password_is_believed_no_longer_than_by_the_cache_of_logins(fleet, admin, role, request):
    session = role("may", grants=["shunt.locks"])
    one, old, new = fleet.proxies[0], basic(session.role, f"{session.role} secret"), basic(session.role, "changed")
    assert ask(one, "GET", request.node.name, headers=old).status == 404
    admin.execute(f"ALTER ROLE {session.role} WITH PASSWORD = 'changed'")
    # It is used all the time, which must not make it last. The node remembers credentials for two seconds itself, by default.
    until(
        lambda: ask(one, "GET", request.node.name, headers=old).status == 401,
        "the old password is believed no longer",
        every_seconds=0.05,
    )
    assert ask(one, "GET", request.node.name, headers=new).status == 404


def test_statements_that_are_refused_for_what_they_say_are_refused_with_a_right_too(role):
    session = role("reader", grants=["KEYSPACE shunt"])
    with pytest.raises(InvalidRequest):
        session.execute("INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o')")
    with pytest.raises(InvalidRequest):
        session.execute("TRUNCATE shunt.locks")
    for text in ("DROP TABLE shunt.locks", "ALTER TABLE shunt.locks ADD more int", "DROP KEYSPACE shunt"):
        with pytest.raises(InvalidRequest):
            session.execute(text)
    for text in ("DROP TABLE shunt.others", "DROP KEYSPACE shunt_meta"):
        with pytest.raises(Unauthorized):
            session.execute(text)


def test_a_row_that_somebody_has_put_into_a_table_of_locks_is_told(fleet):
    node = fleet.contact_points.rsplit(":", 1)
    with cql.Session(node[0], int(node[1]), SUPERUSER) as direct:
        direct.query("INSERT INTO shunt.rwlocks (name, owner) VALUES ('n', 'o')")
        one = fleet.proxies[0]
        assert "shunt_lock_foreign_tables 0" in one.get("/metrics")[1]
        one.terminate()
        one.wait(DEADLINE_SECONDS)
        one.start()
        until(
            lambda: "shunt_lock_foreign_tables 1" in one.get("/metrics")[1],
            "the proxy tells of it",
            told=one.log_tail,
        )
        log = [line for line in one.log.read_text().splitlines() if "a row lies in a table" in line]
        assert len(log) == 1 and "rwlocks" in log[0], log
        direct.query("TRUNCATE shunt.rwlocks")

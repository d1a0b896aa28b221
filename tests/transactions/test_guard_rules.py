"""Rules of tables: which lock whoever writes to a row has to name. What a rule may never do:

- let a write through any proxy that names no lock, or another than that of each row which it writes;
- refuse a write that names the right one;
- be changed by a role without MODIFY on shunt.guards (tests/transactions/test_permissions.py).
"""

import struct
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, SimpleStatement

from harness.waits import DEADLINE_SECONDS, until
from locks.fleet import VERSIONS

from .conftest import KEYSPACE, insistent, insistently
from .known import UNSERVED
from .ruled import wait_until_ruled, wait_until_unruled
from .test_conditional_bytes import ERROR, QUERY, Side, code_of
from .test_guard_columns import GUARD
from .test_guards import acquire, counting_on, granted, release, with_fence

ROWS = (  # of the table, with the lock of each
    ("p int, q text, c bigint, u uuid, PRIMARY KEY ((p, q), c, u)", "{p}/{q}:{c}:{u}",
     "p = 7 AND q = 'it''s' AND c = -9000000000 AND u = 6e26b45e-8d61-11ee-b9d1-0242ac120002",
     "7/it's:-9000000000:6e26b45e-8d61-11ee-b9d1-0242ac120002"),
    ('"Key" varint PRIMARY KEY', "{{{Key}}}", '"Key" = 123456789012345678901234567890', "{123456789012345678901234567890}"),
    ("k timeuuid PRIMARY KEY", "t {k}", "k = 6E26B45E-8D61-11EE-B9D1-0242AC120002", "t 6e26b45e-8d61-11ee-b9d1-0242ac120002"),
    ("k boolean, a ascii, t tinyint, s smallint, PRIMARY KEY (k, a, t, s)", "{s}{t}{a}{k}", "k = true AND a = 'x' AND t = -1 AND s = 300",
     "300-1xtrue"),
    ("k int PRIMARY KEY", "all of it", "k = 1", "all of it"),
)


BROKEN = (  # what a rule says, and why it cannot be followed
    ("{id", "require", "brace"), ("{none}", "require", "{none} is no column"), ("{at}", "require", "{at} has the type timestamp"),
    (None, "require", "names no lock"), ("l", None, "neither 'require' nor 'off'"), ("l", "Require", "neither 'require' nor 'off'"))
MODES = ("unsafe", "mixed_reads", "full")


class Tables:
    """Tables with rules, of which all proxies know."""

    def __init__(self, fleet, session):
        self.fleet, self.session, self.made, self.rules = fleet, session, [], []
        ruled = "id int, c int, v int, s int static, PRIMARY KEY (id, c)"
        self.of_mode = [self.make(ruled, mode, "{table}:{{id}}") for mode in MODES]
        self.batch, self.unruled = self.make(ruled, "unsafe", "{table}:{{id}}"), self.make("id int PRIMARY KEY, v int")
        self.rows = [self.make(f"v int, {columns}") for columns, *_ in ROWS]
        for table, (_, template, *_) in zip(self.rows, ROWS):
            self.rule(f'"{KEYSPACE}".{table.upper()}', f"{table} {template}")
        self.broken = [self.make("id int, at timestamp, v int, PRIMARY KEY (id, at)") for _ in BROKEN]
        for table, (lock, mode, _) in zip(self.broken, BROKEN):
            self.rule(f"{KEYSPACE}.{table}", lock, mode)
        self.modeless, self.fast = self.make("id int PRIMARY KEY, v int", "off", "l"), self.make("id int PRIMARY KEY, v int")
        self.rule(f"{KEYSPACE}.{self.fast}", f"fast {self.fast}", fast=True)
        self.rule("no table", "l")
        self.open = self.make("id int PRIMARY KEY, text text, v int")
        rows = {**dict.fromkeys((*self.of_mode, self.batch), "id = 0 AND c = 0"),
                **dict.fromkeys(self.broken, "id = 0 AND at = 0"),
                **dict.fromkeys((self.modeless, self.fast), "id = 0"),
                **{table: where for table, (_, _, where, _) in zip(self.rows, ROWS)}}
        wait_until_ruled(fleet, whole(rows))

    def make(self, columns, mode="unsafe", lock=None):
        table = f"ruled_{uuid.uuid4().hex[:12]}"
        self.session.execute(f"CREATE TABLE {table} ({columns})")
        self.made.append(table)
        if mode != "off":
            self.session.execute(f"ALTER TABLE {table} WITH transactional_mode = '{mode}'")
        if lock:
            self.rule(f"{KEYSPACE}.{table}", lock.format(table=table))
        return table

    def rule(self, table, lock, mode="require", fast=None):
        """Sets a rule, of which cores come to know one after the other."""
        insert = SimpleStatement("INSERT INTO shunt.guards (enabled, table_name, lock, mode, fast) VALUES (true, %s, %s, %s, %s)",
                                 consistency_level=ConsistencyLevel.QUORUM)
        self.session.execute(insert, (table, lock, mode, fast))
        self.rules.append(table)

    def drop(self):
        for table in self.rules:
            self.session.execute("DELETE FROM shunt.guards WHERE enabled = true AND table_name = %s", (table,))
        for table in self.made:
            self.session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'off'")
            self.session.execute(f"DROP TABLE {table}")


def whole(rows):
    return {f"{KEYSPACE}.{table}": row for table, row in rows.items()}


@pytest.fixture(scope="module")
def tables(fleet, session):
    tables = Tables(fleet, session)
    yield tables
    tables.drop()


def connect(fleet, session, to):
    """A session of one proxy, in the keyspace of these tables."""
    other = insistent(fleet.connect(to=to, version=session.version))
    other.set_keyspace(KEYSPACE)
    return other


def refused(session, statement, values=None, shown="it names none", **more):
    with pytest.raises((InvalidRequest, SyntaxException), match=shown):
        session.execute(statement, values, **more)


@pytest.mark.parametrize("mode", MODES)
def test_every_write_names_the_lock_of_its_row(fleet, session, tables, mode):
    table = tables.of_mode[MODES.index(mode)]
    name = f"{KEYSPACE}.{table}"
    says = f"the rule of shunt.guards for {name} wants .* lock '{table}:1' .* names none"
    insert = session.prepare(f"INSERT INTO {table} (id, c, v) VALUES (?, ?, ?)")
    batch = BatchStatement()
    batch.add(insert, (1, 1, 1))
    plain = (f"INSERT INTO {name} (id, c, v) VALUES (1, 1, 1)", f"UPDATE {table} SET v = 1 WHERE id = 1 AND c = 1", f"DELETE FROM {table} WHERE id = 1 AND c = 1",
             f"UPDATE {table} SET s = 1 WHERE id = 1", f"BEGIN BATCH UPDATE {table} SET v = 1 WHERE id = 1 AND c = 1 APPLY BATCH", batch,
             f"BEGIN TRANSACTION INSERT INTO {table} (id, c, v) VALUES (1, 1, 1); COMMIT TRANSACTION")
    for to in range(3):
        other = connect(fleet, session, to)
        for statement in plain:
            refused(other, statement, shown=says)
        refused(other, other.prepare(insert.query_string), (1, 1, 1), shown=says)
        for text, why in ((f"INSERT INTO {table} (id, c, v) VALUES (1, 1, 1) IF NOT EXISTS", "their own conditions"),
                          (f"UPDATE {table} USING TTL 5 SET v = 1 WHERE id = 1 AND c = 1", "custom ttls"),
                          (f"DELETE FROM {table} WHERE id = 1", "writes one row"), (f"TRUNCATE {table}", "takes no guards"),
                          (f"INSERT INTO {table} JSON '{{\"id\": 1, \"c\": 1}}'", "INSERT JSON")):
            refused(other, text, shown=why)
        other.cluster.shutdown()
    assert session.execute(f"SELECT * FROM {table} WHERE id = 1 LIMIT 100").one() is None
    # The lock of another row, and another lock; then the right one.
    fences = {lock: acquire(session, lock) for lock in (f"{table}:1", f"{table}:2", table)}
    update = f"UPDATE {table} SET v = 5 WHERE id = 1 AND c = 1 "
    for lock in (f"{table}:2", table):
        refused(session, update + GUARD.format(f"'{lock}'", fences[lock]), shown=f"it names lock '{lock}'")
    right = f"{table}:1"
    refused(session, update + GUARD.format(f"'{right}'", fences[right] - 1), shown="does not count any more")
    session.execute(update + GUARD.format(f"'{right}'", fences[right]))
    if session.version >= 4:
        payload = with_fence(right, fences[right])
        session.execute(insert, (1, 2, 6), custom_payload=payload)
        session.execute(plain[3], custom_payload=payload)
        refused(session, insert, (2, 2, 6), shown=f"lock '{table}:2'", custom_payload=payload)
        session.execute(f"BEGIN TRANSACTION LET r = (SELECT v FROM {table} WHERE id = 1 AND c = 1); IF r.v = 5 THEN "
                        f"DELETE FROM {table} WHERE id = 1 AND c = 2; END IF COMMIT TRANSACTION", custom_payload=payload)
    assert [(row["c"], row["v"]) for row in session.execute(f"SELECT c, v FROM {table} WHERE id = 1 LIMIT 100")] == [(1, 5)]
    for lock in fences:
        release(session, lock)


def test_all_rows_of_a_batch_have_the_lock(session, tables):
    table, other = tables.batch, tables.unruled
    lock = f"{table}:1"
    fence = acquire(session, lock)
    insert = session.prepare(f"INSERT INTO {table} (id, c, v) VALUES (?, ?, ?)")
    guarded = session.prepare(f"UPDATE {table} SET v = ? WHERE id = ? AND c = ? " + GUARD.format("?", "?"))

    def batch(rows):
        batch = BatchStatement()
        batch.add(guarded, (0, 1, 0, lock, fence))
        for id, c in rows:
            batch.add(insert, (id, c, 1))
        batch.add(SimpleStatement(f"INSERT INTO {other} (id, v) VALUES (9, 9)"))
        return batch

    refused(session, batch([(1, 1), (2, 1), (1, 2)]), shown=f"lock '{table}:2'")
    text = (f"BEGIN BATCH INSERT INTO {other} (id, v) VALUES (9, 9) UPDATE {table} SET v = 1 WHERE id = 1 AND c = 1 {GUARD.format(repr(lock), fence)} "
            f"UPDATE {table} SET v = 1 WHERE id = 2 AND c = 1 APPLY BATCH")
    refused(session, text, shown=f"lock '{table}:2'")
    assert not list(session.execute(f"SELECT * FROM {table}")) and not list(session.execute(f"SELECT * FROM {other}"))
    session.execute(batch([(1, 1), (1, 2)]))
    assert sorted((row["id"], row["c"]) for row in session.execute(f"SELECT * FROM {table}")) == [(1, 0), (1, 1), (1, 2)]
    assert session.execute(f"SELECT * FROM {other}").one() == {"id": 9, "v": 9}
    release(session, lock)


def test_the_name_of_a_lock_has_the_key_in_it(session, tables):
    for table, (_, _, where, lock) in zip(tables.rows, ROWS):
        name = f"{table} {lock}"
        fence, wrong = acquire(session, name), acquire(session, f"{table} ")
        update = f"UPDATE {table} SET v = 1 WHERE {where} IF \"shunt:fence\" = %s AND \"shunt:lock\" = %s"
        refused(session, update, (wrong, f"{table} "), shown="wants a write to this row to name lock")
        refused(session, f"UPDATE {table} SET v = 1 WHERE {where}")
        session.execute(update, (fence, name))
        assert session.execute(f"SELECT v FROM {table} WHERE {where}").one() == {"v": 1}
        release(session, name)
        release(session, f"{table} ")


def test_a_rule_that_cannot_be_followed_lets_nothing_through(session, tables):
    fence = acquire(session, "l")
    for table, (_, _, why) in zip(tables.broken, BROKEN):
        update = f"UPDATE {table} SET v = 1 WHERE id = 1 AND at = 0 "
        for text in (update, update + GUARD.format("'l'", fence)):
            refused(session, text, shown=f"{KEYSPACE}.{table} cannot be followed: .*{why}")
        assert session.execute(f"SELECT * FROM {table}").one() is None
    modeless = tables.modeless
    for text in (f"UPDATE {modeless} SET v = 1 WHERE id = 1 {GUARD.format(repr('l'), fence)}", f"INSERT INTO {modeless} (id, v) VALUES (1, 1)"):
        refused(session, text, shown=f"{modeless} takes part in no transactions")
    assert session.execute(f"SELECT * FROM {modeless}").one() is None
    release(session, "l")


def test_nobody_gets_past_those_who_hold_the_lock(fleet, session, tables):
    """Five clients add to one row under its lock, and a sixth of which nobody has said that there is a lock. Only by the rule is nothing lost."""
    table = tables.open
    seen = SimpleStatement(f"SELECT text FROM {table} WHERE id = 1", consistency_level=ConsistencyLevel.QUORUM)
    lock = f"{table}:1"

    def run():
        """True if something was lost, or written by who has named no lock; and the refusals."""
        said, refusals, written, stop = [], [], [], threading.Event()

        def add(client):
            for number in range(4):
                owner = f"{client}.{number}"
                fence = until(lambda: acquire(session, lock, owner),  # noqa: B023
                              "the lock is granted", every_seconds=0.01)
                guard = GUARD.format(f"'{lock}'", fence)
                # Nothing of who had it before comes behind this.
                session.execute(f"UPDATE {table} SET v = {number} WHERE id = 1 {guard}")
                text = session.execute(seen).one()["text"] or ""
                session.execute(f"UPDATE {table} SET text = '{text} {owner}' WHERE id = 1 {guard}")
                said.append(owner)
                release(session, lock, owner)

        def unguarded():
            other = connect(fleet, session, 1)
            while not stop.is_set():
                text = other.execute(seen).one()["text"] or ""
                try:
                    other.execute(f"UPDATE {table} SET text = '{text} none' WHERE id = 1")
                    written.append(text)
                except InvalidRequest as error:
                    assert "the rule of shunt.guards" in str(error), error
                    refusals.append(error)
            other.cluster.shutdown()

        session.execute(f"UPDATE {table} SET text = '', v = 0 WHERE id = 1 " + GUARD.format(f"'{lock}'", acquire(session, lock)))
        release(session, lock)
        with ThreadPoolExecutor(6) as clients:
            last = clients.submit(unguarded)
            try:
                # The others begin when it is at work: they read what it may have written.
                until(lambda: written or refusals or last.done(), "who names no lock has asked")
                for done in [clients.submit(add, client) for client in range(5)]:
                    done.result(2 * DEADLINE_SECONDS)
            finally:
                stop.set()
            last.result(DEADLINE_SECONDS)
        assert len(said) == 20
        there = session.execute(seen).one()["text"].split()
        return "none" in there or [owner for owner in said if owner not in there], refusals

    harm, refusals = run()
    assert harm, "the test would see it: without a rule who names no lock writes"
    assert not refusals
    tables.rule(f"{KEYSPACE}.{table}", f"{table}:{{id}}")
    wait_until_ruled(fleet, whole({table: "id = 0"}))
    harm, refusals = run()
    assert not harm and refusals


class InKeyspace:
    """A QUERY that names a keyspace by the flag of version 5, in whatever version: Cassandra goes by it in each."""

    custom_payload, tracing, opcode = None, False, QUERY

    def __init__(self, text, keyspace):
        self.text, self.keyspace = text.encode(), keyspace.encode()

    def send_body(self, f, version):
        f.write(struct.pack(">i", len(self.text)) + self.text + struct.pack(">H", ConsistencyLevel.QUORUM))
        f.write(struct.pack(">i" if version >= 5 else ">B", 0x80) + struct.pack(">H", len(self.keyspace)) + self.keyspace)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_keyspace_that_a_message_names_is_that_of_the_rule(fleet, session, tables, version):
    side = Side(f"{fleet.proxies[0].host}:{fleet.proxies[0].port}", "system", version)
    table = tables.of_mode[0]
    try:
        def answered():
            reply = side.send(InKeyspace(f"INSERT INTO {table} (id, c, v) VALUES (1, 9, 1)", KEYSPACE))
            return None if code_of(side.neutral(reply)) in UNSERVED else reply

        flags, opcode, body = until(answered, "an answer of a proxy that serves")
        assert opcode == ERROR and b"the rule of shunt.guards" in body, (opcode, body)
    finally:
        side.endpoint.close()
    assert session.execute(f"SELECT * FROM {table} WHERE id = 1 AND c = 9").one() is None


# Behind the others: locks in memory are granted some seconds after the fleet has begun.
def test_a_lock_in_memory_is_another_than_the_durable_one_of_its_name(session, tables):
    name = f"fast {tables.fast}"
    durable, held = acquire(session, name), granted(session, name, table="fast_locks")
    update = f"UPDATE {tables.fast} SET v = 1 WHERE id = 1 IF \"{{}}\" = '{name}' AND \"shunt:fence\" = {{}}"
    refused(session, update.format("shunt:lock", durable), shown=f"name fast lock '{name}' .* names lock")
    with counting_on(session, name, held, "fast_locks"):
        session.execute(update.format("shunt:fast_lock", held))
    release(session, name, table="fast_locks")
    release(session, name)


def test_a_rule_that_is_switched_off_lets_all_through(fleet, session, tables):
    for table in tables.of_mode:
        tables.rule(f"{KEYSPACE}.{table}", f"{table}:{{id}}", "off")
    batch = f"{KEYSPACE}.{tables.batch}"
    session.execute("DELETE FROM shunt.guards WHERE enabled = true AND table_name = %s", (batch,))
    rows = dict.fromkeys((*tables.of_mode, tables.batch), "id = 0 AND c = 0")
    wait_until_unruled(fleet, whole(rows))
    for table in rows:
        session.execute(f"INSERT INTO {table} (id, c, v) VALUES (3, 1, 1)")
        assert session.execute(f"SELECT v FROM {table} WHERE id = 3 AND c = 1").one() == {"v": 1}


# Last: the fleet has two members until the lease of the one that is killed has ended.
def test_a_proxy_that_starts_knows_the_rules_before_it_serves(fleet, session, tables):
    table = tables.unruled
    tables.rule(f"{KEYSPACE}.{table}", "l")
    wait_until_ruled(fleet, whole({table: "id = 0"}))
    fleet.proxies[2].kill()
    fleet.proxies[2].start()
    other = connect(fleet, session, 2)
    refused(other, f"INSERT INTO {table} (id, v) VALUES (1, 1)", shown="the rule of shunt.guards")
    insistently(other, f"ALTER TABLE {table} WITH transactional_mode = 'full'")
    refused(other, f"INSERT INTO {table} (id, v) VALUES (1, 1)", shown="the rule of shunt.guards")
    other.cluster.shutdown()
    assert session.execute(f"SELECT * FROM {table} WHERE id = 1").one() is None

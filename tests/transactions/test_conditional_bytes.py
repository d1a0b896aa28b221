"""Statements of lock code, made from a seed. Each reply of a proxy that decides is, byte for byte, the
reply of a node to the same statement on a table of its own, past the proxies. That includes flags and
metadata, whether the request leaves those out or not. For errors, the codes are the same."""

import os
import random
import struct
import threading

import pytest
from cassandra import ConsistencyLevel
from cassandra.protocol import PrepareMessage

from differential.endpoint import Endpoint
from differential.outcome import BUSY_CODES
from harness.waits import DEADLINE_SECONDS, Late, until

from .conftest import connected, insistently
from .known import wait_until_taken
from .test_conditional import change_mode
from .test_conditional_answers import REFUSED

STATEMENTS = int(os.environ.get("SHUNT_CONDITIONAL_STATEMENTS", "900"))
SEED = int(os.environ.get("SHUNT_CONDITIONAL_SEED", "1"))
# Names of one length, so that replies have one form: what the proxies decide, and what nodes do.
DECIDED, PLAIN = "conditional_p", "conditional_n"
UNPREPARED = 0x2500
ERROR, QUERY, RESULT, EXECUTE, KIND_ROWS, KIND_PREPARED = 0, 7, 8, 10, 2, 4
VALUES, SKIP_METADATA, PAGE_SIZE, SERIAL = 1, 2, 4, 16
TABLES = {
    # As ShedLock, Jaeger and cqlmigrate have them; then one with clustering keys.
    "lock": ("name text PRIMARY KEY, lockUntil timestamp, lockedAt timestamp, lockedBy text", ("name",)),
    "leases": ("name text PRIMARY KEY, owner text", ("name",)),
    "locks": ("name text PRIMARY KEY, client text", ("name",)),
    "seats": ("room text, line int, owner text, price bigint, PRIMARY KEY (room, line)", ("room", "line")),
    # Of types that not all versions have.
    "typed": ("name text PRIMARY KEY, t tinyint, s smallint, d date, e time, u duration, v frozen<map<date, duration>>, owner text", ("name",)),
}
COLUMNS = {"lock": ("lockUntil", "lockedAt", "lockedBy"), "leases": ("owner",), "locks": ("client",), "seats": ("owner", "price"),
           "typed": ("owner",)}
LONG, INT, TEXT = "long", "int", "text"
KINDS = {"lockUntil": LONG, "lockedAt": LONG, "price": LONG, "line": INT}


class Asked:
    """A QUERY or EXECUTE as the driver sends it, which never asks to leave metadata out."""

    custom_payload, tracing = None, False

    def __init__(self, opcode, head, values, skip_metadata, serial):
        self.opcode, self.head, self.values, self.skip_metadata, self.serial = opcode, head, values, skip_metadata, serial

    def send_body(self, f, version):
        flags = PAGE_SIZE | (VALUES if self.values else 0) | (SKIP_METADATA if self.skip_metadata else 0) | (SERIAL if self.serial else 0)
        f.write(self.head + struct.pack(">H", ConsistencyLevel.QUORUM) + struct.pack(">i" if version >= 5 else ">B", flags))
        if self.values:
            f.write(struct.pack(">H", len(self.values)))
        for value in self.values or ():
            f.write(struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value)
        f.write(struct.pack(">i", 5_000))
        if self.serial:
            f.write(struct.pack(">H", self.serial))


class Statement:
    """A text with @ks@ for the keyspace, and its values; None of them if they are in the text."""

    def __init__(self, text, values, is_prepared):
        self.text, self.values, self.is_prepared = text, values, is_prepared

    def __str__(self):
        shown = "" if self.values is None else f"  -- {'prepared' if self.is_prepared else 'bound'} {self.values}"
        return self.text + shown


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, column):
        """(literal, bytes)"""
        if column not in ("name", "room", "line") and self.random.random() < 0.1:
            return "null", None
        number, kind = self.random.randint(0, 2), KINDS.get(column, TEXT)
        if kind == TEXT:
            return f"'{'abc'[number]}'", b"abc"[number:number + 1]
        return str(number), struct.pack(">q" if kind == LONG else ">i", number)

    def statement(self):
        table = self.random.choice(list(TABLES))
        form = self.random.choice(["text", "bound", "prepared", "prepared"])
        values = []

        def put(value):
            if form == "text":
                return value[0]
            values.append(value[1])
            return "?"

        def given(column):
            return put(self.value(column))

        def life():
            if self.random.random() < 0.6:
                return ""
            seconds = self.random.choice([0, 1_000, 5_000])
            return f" USING TTL {put((str(seconds), struct.pack('>i', seconds)))}"

        def where():
            return " WHERE " + " AND ".join(f"{column} = {given(column)}" for column in TABLES[table][1])

        def one_condition():
            column = self.random.choice(COLUMNS[table])
            if self.random.random() < 0.15:
                return f"{column} IN ({given(column)}, {given(column)})"
            sign = self.random.choice(["=", "=", "=", "!=", "<", ">=", ">", "<="])
            value = self.value(column)
            while value[1] is None and sign not in ("=", "!="):
                value = self.value(column)  # an error, or not, by which condition a node looks at first
            return f"{column} {sign} {put(value)}"

        def conditions():
            choice = self.random.random()
            if choice < 0.05:
                return ""
            if choice < 0.3:
                return " IF EXISTS"
            return " IF " + " AND ".join(one_condition() for _ in range(self.random.choice([1, 1, 1, 2])))

        some = self.random.sample(COLUMNS[table], self.random.randint(1, len(COLUMNS[table])))
        kind = self.random.choice(["insert", "insert", "update", "update", "delete", "wrong"])
        if kind == "wrong":
            text = self.wrong(table)
            form = self.random.choice(["text", "prepared"])
        elif kind == "insert":
            columns = [*TABLES[table][1], *some]
            text = f"INSERT INTO @ks@.{table} ({', '.join(columns)}) VALUES ({', '.join(map(given, columns))}) IF NOT EXISTS{life()}"
        elif kind == "update":
            head = f"UPDATE @ks@.{table}{life()} SET "
            text = head + ", ".join(f"{column} = {given(column)}" for column in some) + where() + conditions()
        else:
            of = " " + ", ".join(some) if self.random.random() < 0.3 else ""
            text = f"DELETE{of} FROM @ks@.{table}{where()}{conditions()}"
        return Statement(text, None if form == "text" else values, form == "prepared")

    def wrong(self, table):
        """A statement that a node refuses at one point or another."""
        key = TABLES[table][1]
        column = COLUMNS[table][0]
        where = " AND ".join(f"{of} = {1 if KINDS.get(of) == INT else chr(39) + 'a' + chr(39)}" for of in key)
        return self.random.choice([
            f"UPDATE @ks@.{table} SET {column} = null WHERE {where} IF nosuch = 1",
            f"UPDATE @ks@.{table} SET nosuch = 1 WHERE {where} IF EXISTS",
            f"UPDATE @ks@.{table} SET {column} = [1] WHERE {where} IF EXISTS",
            f"UPDATE @ks@.{table} SET {column} = null WHERE {where} IF {column} = [1]",
            f"UPDATE @ks@.{table} SET {column} = null IF EXISTS",
            f"UPDATE @ks@.{table} SET {column} = null WHERE {where} IF {key[0]} = 'a'",
            f"UPDATE @ks@.{table} SET {column} = null WHERE {where} IF {column} < null",
            f"UPDATE @ks@.{table} SET {key[0]} = 'a' WHERE {where} IF EXISTS",
            f"INSERT INTO @ks@.{table} ({column}) VALUES (null) IF NOT EXISTS",
            f"INSERT INTO @ks@.{table} ({key[0]}, {column}) VALUES ('a') IF NOT EXISTS",
            f"INSERT INTO @ks@.{table} ({key[0]}, {column}) VALUES (null, null) IF NOT EXISTS",
            f"DELETE FROM @ks@.{table} WHERE {column} = null IF EXISTS",
            f"DELETE {key[0]} FROM @ks@.{table} WHERE {where} IF EXISTS",
            f"DELETE FROM @ks@.{table} WHERE {where} IF",
            f"DELETE FROM @ks@.nosuch WHERE {where} IF EXISTS",
        ])


class Side:
    """A server and the keyspace that is used there."""

    def __init__(self, contact, keyspace, version):
        self.endpoint = Endpoint(contact, keyspace, version, connections=1)
        self.keyspace, self.version, self.prepared = keyspace.encode(), version, {}

    def send(self, message):
        """(flags, opcode, body)"""
        connection, done, found = self.endpoint.connection(0), threading.Event(), []
        with connection.lock:
            stream = connection.get_request_id()
            connection.in_flight += 1

        def answered(reply):
            with connection.lock:
                connection.in_flight -= 1
            found.append(reply)
            done.set()

        connection.send_msg(message, stream, answered, decoder=lambda version, types, stream, flags, opcode, body, *_: (flags, opcode, bytes(body)))
        if not done.wait(DEADLINE_SECONDS):
            raise Late("no reply")
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def ask(self, statement, skip_metadata, serial):
        """The replies to a statement, all of them if it had to be prepared first."""
        text = statement.text.replace("@ks@", self.keyspace.decode())
        if not statement.is_prepared:
            head = struct.pack(">i", len(text)) + text.encode()
            return [self.neutral(self.send(Asked(QUERY, head, statement.values, skip_metadata, serial)))]
        replies = []
        if text not in self.prepared:
            flags, opcode, body = self.send(PrepareMessage(text))
            if opcode == ERROR:
                return [self.neutral((flags, opcode, body))]
            assert struct.unpack(">i", body[:4])[0] == KIND_PREPARED
            length = struct.unpack(">H", body[4:6])[0]
            id, rest = body[6:6 + length], body[6 + length:]
            metadata_id = None
            if self.version >= 5:
                length = struct.unpack(">H", rest[:2])[0]
                metadata_id = rest[2:2 + length]
            self.prepared[text] = id, metadata_id
            # The id is a digest of the text, keyspace included.
            replies.append(self.neutral((flags, opcode, rest)))
        head = b"".join(struct.pack(">H", len(part)) + part for part in self.prepared[text] if part is not None)
        reply = self.neutral(self.send(Asked(EXECUTE, head, statement.values, skip_metadata, serial)))
        if reply[1] == ERROR and struct.unpack(">i", reply[2])[0] == UNPREPARED:
            # The node had to make room for others' statements: drivers prepare it once more.
            del self.prepared[text]
            return self.ask(statement, skip_metadata, serial)
        return [*replies, reply]

    def neutral(self, reply):
        flags, opcode, body = reply
        # The proxies say where in a text something is wrong, and in words of their own: of an error its code is compared.
        return flags, opcode, body[:4] if opcode == ERROR else body.replace(self.keyspace, b"@ks@")


def has_applied(reply):
    """True, False, or None where a reply does not say it: a row's first value is of one byte."""
    flags, opcode, body = reply
    if opcode != RESULT or flags or struct.unpack(">i", body[:4])[0] != KIND_ROWS:
        return None
    return body.find(b"\x00\x00\x00\x01\x01", 8) > 0 if b"[applied]" in body else None


def answered(side, statement, skip_metadata, serial):
    """The replies, once it is not refused for the moment, with nothing written."""
    def replies():
        found = side.ask(statement, skip_metadata, serial)
        return None if code_of(found[-1]) in REFUSED else found

    found = until(replies, str(statement))
    if code_of(found[-1]) in BUSY_CODES:
        # Nobody knows whether it was carried out, and so what the next replies should be.
        raise Late(f"{statement}: {found}")
    return found


def code_of(reply):
    """The code of an error."""
    return struct.unpack(">i", reply[2])[0] if reply[1] == ERROR else None


@pytest.fixture(scope="module")
def keyspaces(fleet, nodes):
    with connected(fleet) as session:
        for keyspace in (DECIDED, PLAIN):
            insistently(session, f"DROP KEYSPACE IF EXISTS {keyspace}")
            replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {nodes[1]}}}"
            make = f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}"
            insistently(session, make)
            for table, (columns, _) in TABLES.items():
                insistently(session, f"CREATE TABLE IF NOT EXISTS {keyspace}.{table} ({columns})")
        change_mode(session, "conditional", [f"{DECIDED}.{table}" for table in TABLES], DECIDED)
    for table, (_, key) in TABLES.items():
        where = " AND ".join(f"{column} = {1 if KINDS.get(column) == INT else chr(39) + 'nobody' + chr(39)}" for column in key)
        wait_until_taken(fleet, f"{DECIDED}.{table}", where=where)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_replies_are_those_of_nodes_to_the_byte(fleet, nodes, keyspaces, version):
    maker = Maker(SEED * 10 + version)
    # Two proxies in turn, of which one forwards at least.
    proxies = [Side(f"{one.host}:{one.port}", DECIDED, version) for one in fleet.proxies[:2]]
    node = Side(nodes[0].split(",")[0], PLAIN, version)
    differences, counts = [], {"applied": 0, "refused": 0, "wrong": 0}
    try:
        for number in range(STATEMENTS // 3):
            statement = maker.statement()
            # Drivers do not ask for it with QUERY. Of that Cassandra leaves metadata out, and the proxies do not, nor does an embedded node.
            skip_metadata = statement.is_prepared and maker.random.random() < 0.3
            serial = maker.random.choice([None, ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL])
            expected = answered(node, statement, skip_metadata, serial)
            found = answered(proxies[number % 2], statement, skip_metadata, serial)
            # One proxy may have prepared what the others have not.
            if found[-1] != expected[-1] or (len(found) == len(expected) and found != expected):
                differences.append(f"statement {number} of seed {SEED}, v{version}, skip metadata {skip_metadata}: {statement}\n"
                                   f"  proxies: {found}\n  node:    {expected}")
            applied = has_applied(expected[-1])
            counts["applied"] += applied is True
            counts["refused"] += applied is False
            counts["wrong"] += expected[-1][1] == ERROR
    finally:
        for side in (*proxies, node):
            side.endpoint.close()
    print(f"v{version}: {counts}")
    assert not differences, f"{len(differences)} differ:\n" + "\n".join(differences[:40])
    assert min(counts["applied"], counts["refused"]) > STATEMENTS / 30 and counts["wrong"] > 0, counts

"""Harm that a client must not do through guards, keys and modes. The cases were found by reading as an
attacker: each test failed when it was written."""

import socket
import struct
import threading
import time

import pytest
from cassandra import InvalidRequest, OperationTimedOut, ReadTimeout, WriteTimeout
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, SimpleStatement

from harness.waits import DEADLINE_SECONDS, until

from .conftest import KEYSPACE, connected, once_served, prepare
from .known import UNSERVED, wait_until_taken


def short(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(text)) + text


def long(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack(">i", len(text)) + text


class Raw:
    """A client of version 4 that sends what it likes."""

    def __init__(self, one):
        self.socket = socket.create_connection((one.host, one.port), timeout=DEADLINE_SECONDS)
        self.ask(1, struct.pack(">H", 1) + short("CQL_VERSION") + short("3.0.0"))

    def send(self, opcode, body, payload=None, stream=1):
        if payload is not None:
            body = struct.pack(">H", len(payload)) + b"".join(short(key) + long(value) for key, value in payload.items()) + body
        self.socket.sendall(struct.pack(">BBhBi", 4, 4 if payload is not None else 0, stream, opcode, len(body)) + body)

    def exactly(self, count):
        read = b""
        while len(read) < count:
            more = self.socket.recv(count - len(read))
            if not more:
                raise ConnectionError("closed")
            read += more
        return read

    def receive(self):
        _, _, stream, opcode, length = struct.unpack(">BBhBi", self.exactly(9))
        return stream, opcode, self.exactly(length)

    def ask(self, opcode, body, payload=None):
        self.send(opcode, body, payload)
        return self.receive()[1:]

    def prepared(self, text):
        """The id. A proxy that has just stood still refuses a PREPARE for a moment."""
        def answered():
            opcode, body = self.ask(9, long(text))
            return None if opcode == 0 and struct.unpack(">i", body[:4])[0] in UNSERVED else (opcode, body)

        opcode, body = until(answered, f"PREPARE {text[:100]}")
        assert opcode == 8, body
        return body[6:6 + struct.unpack(">H", body[4:6])[0]]


def batch(*children):
    """A batch of prepared statements with ints."""
    one = lambda id, values: b"\1" + short(id) + struct.pack(">H", len(values)) + b"".join(struct.pack(">ii", 4, value) for value in values)  # noqa: E731
    return b"\0" + struct.pack(">H", len(children)) + b"".join(one(id, values) for id, values in children) + struct.pack(">HB", 4, 0)


@pytest.fixture(scope="module")
def session(fleet, nodes):
    with connected(fleet) as session:
        prepare(session, nodes[1])
        session.execute(f"USE {KEYSPACE}")
        session.execute("CREATE TABLE IF NOT EXISTS hostile (k int PRIMARY KEY, v int, t text)")
        session.execute("ALTER TABLE hostile WITH transactional_mode = 'mixed_reads'")
        wait_until_taken(fleet, f"{KEYSPACE}.hostile", where="k = -1")
        yield session


def rows(session):
    return sorted((row["k"], row["v"]) for row in session.execute("SELECT k, v FROM hostile"))


def test_values_of_one_statement_of_a_batch_are_not_the_next_ones(fleet, session):
    raw = Raw(fleet.proxies[0])
    first, second = raw.prepared(f"UPDATE {KEYSPACE}.hostile SET v = ? WHERE k = 1"), raw.prepared(f"UPDATE {KEYSPACE}.hostile SET v = ? WHERE k = ?")
    before = rows(session)
    opcode, body = raw.ask(13, batch((first, (10, 20)), (second, (2,))))
    assert opcode == 0, "a node answers: there were 1 markers(?) in CQL but 2 bound variables"
    assert rows(session) == before


def test_a_statement_of_a_batch_does_not_swallow_the_next(session):
    many = BatchStatement()
    for text in ("INSERT INTO hostile (k, v) VALUES (501, 1) /* ", "INSERT INTO hostile (k, v) VALUES (502, 1)", " */ INSERT INTO hostile (k, v) VALUES (503, 1)"):
        many.add(SimpleStatement(text))
    with pytest.raises((SyntaxException, InvalidRequest)):
        session.execute(many)


def test_a_batch_that_cannot_be_read_does_not_go_past(session):
    # A real node takes what nests deeper, or has more operators, than the proxy's own parser reads.
    text = f"BEGIN BATCH UPDATE {KEYSPACE}.hostile SET v = 1{' + 1' * 60} WHERE k = 7 APPLY BATCH"
    with pytest.raises((SyntaxException, InvalidRequest)) as refused:
        session.execute(text)
    assert "UPDATE at [" in str(refused.value) or "Shunt" in str(refused.value), f"a node has read it: {refused.value}"


def test_a_small_batch_takes_little_memory(fleet, session):
    one = fleet.proxies[0]
    raw = Raw(one)
    id = raw.prepared(f"INSERT INTO {KEYSPACE}.hostile (k, t) VALUES (1, '{'x' * 65_000}')")
    opcode, body = raw.ask(13, batch(*[(id, ())] * 4_000), {"shunt-idempotency": b"k"})
    assert opcode == 0, body
    high = next(int(line.split()[1]) for line in open(f"/proc/{one.process.pid}/status") if line.startswith("VmHWM"))
    assert high < 150 << 10, f"{high >> 10} MiB after a request of 84 kB"


def test_many_texts_of_one_client_leave_prepared_statements_of_others(fleet, session):
    update = session.prepare("UPDATE hostile SET v = ? WHERE k = ?")
    # The driver goes round robin, and each proxy makes a plan of its own: without one, a proxy has no
    # room for it beside the flood.
    for _ in range(4 * len(fleet.proxies)):
        once_served(session, update, (1, 1))
    going = [True]

    def flood(one):
        raw, number = Raw(one), 0
        for stream in range(100):  # all of one role have fewer transactions under way than it may have
            raw.send(7, long(f"INSERT INTO {KEYSPACE}.hostile (k, v) VALUES (9, {stream})") + struct.pack(">HB", 4, 0), stream=stream)
        while going[0]:
            number += 1
            raw.send(7, long(f"INSERT INTO {KEYSPACE}.hostile (k, v) VALUES (9, {id(raw) % 1000 * 100000 + number})") + struct.pack(">HB", 4, 0),
                     stream=raw.receive()[0])

    floods = [threading.Thread(target=flood, args=(one,), daemon=True) for one in fleet.proxies for _ in range(2)]
    for one in floods:
        one.start()
    time.sleep(6)  # a plan lives for 5 s
    refused, asked = [], [0]

    def is_answered():
        """True after ten answers or refusals. A request that is only late is sent again."""
        try:
            once_served(session, update, (1, 1))
        except (OperationTimedOut, ReadTimeout, WriteTimeout):
            return False
        except Exception as error:  # noqa: BLE001
            refused.append([str(one) for one in getattr(error, "errors", {None: error}).values()])
        asked[0] += 1
        return asked[0] == 10

    until(is_answered, "10 answers", every_seconds=0)
    going[0] = False
    for one in floods:
        one.join(10)
    assert len(refused) <= 2, refused

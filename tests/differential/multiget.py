"""IN queries through a proxy that asks in parts and through one that does not, in front of the same nodes: every answer is
compared as bytes, with its header's flags and with all its pages.

    python -m differential.multiget --nodes 127.0.0.1:19042 --replication 1 --requests 20000 --seed 3
"""

from __future__ import annotations

import argparse
import struct
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from io import BytesIO
from random import Random
from typing import Callable, Iterator, NamedTuple

from cassandra.connection import DefaultEndPoint
from cassandra.io.libevreactor import LibevConnection
from cassandra.protocol import ErrorMessage, ExecuteMessage, PrepareMessage, QueryMessage, ResultMessage

from harness import waits
from harness.embedded import Embedded
from harness.proxy import Proxy

from .outcome import BUSY_CODES
from .raw import RawError, decode
from .types import KEY_SCALARS
from .values import DRAW

NETWORK = "127.0.43"
KEYSPACE = "multiget"
VERSIONS = (3, 4, 5)
PAGE_SIZES = (None, None, 1, 2, 3, 5, 8, 13, 100, 5000, 0, -1)
KEYS_MAX = 24
PAGES_MAX = 400
ANSWER_SECONDS = 180
ONE, QUORUM, ALL, SERIAL, LOCAL_QUORUM, LOCAL_ONE = 1, 4, 5, 8, 6, 10

# Beside `k IN ?` and `k IN (?, ..)`: {} stands for that. True: some of them must have been split.
FORMS = (
    ("SELECT * FROM {table} WHERE {}", True),
    ("SELECT v FROM {table} WHERE {}", True),
    ("SELECT v, k, k, v AS k FROM {table} WHERE {}", True),
    ("SELECT k, s, c FROM {table} WHERE {} LIMIT 3", True),
    ("SELECT * FROM {table} WHERE {} LIMIT ?", True),
    ("SELECT * FROM {table} WHERE {} PER PARTITION LIMIT 2", True),
    ("SELECT * FROM {table} WHERE {} PER PARTITION LIMIT ? LIMIT ?", True),
    ("SELECT s FROM {table} WHERE {}", True),
    ("SELECT DISTINCT k, s FROM {table} WHERE {}", False),
    ("SELECT count(*) FROM {table} WHERE {}", False),
    ("SELECT k, max(c) FROM {table} WHERE {} GROUP BY k", False),
    ("SELECT k, writetime(v) FROM {table} WHERE {}", False),
    ("SELECT JSON * FROM {table} WHERE {}", False),
    ("SELECT k, c FROM {table} WHERE {} ORDER BY c DESC", False),
    ("SELECT * FROM {table} WHERE {} AND c > 1", False),
    ("SELECT * FROM {table} WHERE {} AND c IN (0, 2)", False),
    ("SELECT * FROM {table} WHERE {} AND v = 'v1' ALLOW FILTERING", False),
)


class Raw(NamedTuple):
    """An answer as it came."""

    opcode: int
    flags: int
    body: bytes

    @property
    def is_busy(self) -> bool:
        """An error that says so: a proxy gives a node up that says nothing for some seconds."""
        return self.opcode == ErrorMessage.opcode and struct.unpack(">i", self.body[:4])[0] in BUSY_CODES

    @property
    def paging_state(self) -> bytes | None:
        """The paging state of rows, behind kind, flags and number of columns. None for an answer with warnings."""
        if self.opcode != ResultMessage.opcode or self.flags or self.body[:4] != b"\0\0\0\2":
            return None
        flags, _, length = struct.unpack_from(">iii", self.body.ljust(16, b"\0"), 4)
        return self.body[16:16 + length] if flags & 2 else None


def as_bytes(_version, _types, _stream, flags, opcode, body, decompressor, _metadata) -> Raw:
    plain = decompressor(body) if flags & 1 and decompressor else body
    return Raw(opcode, flags & ~1, plain)


class Execute(ExecuteMessage):
    """An EXECUTE that may say that metadata are not wanted: the driver has a name for that, and does not send it."""

    def __init__(self, statement, request: Draw, state: bytes | None):
        super().__init__(statement.query_id, request.values, request.level, fetch_size=request.page_size, paging_state=state,
                         result_metadata_id=statement.result_metadata_id)
        self.tracing = request.traced
        self._skips_metadata = request.skips_metadata

    def send_body(self, f, protocol_version):
        body = BytesIO()
        super().send_body(body, protocol_version)
        message = bytearray(body.getvalue())
        if self._skips_metadata:
            # Behind the ids and the level, in the last byte of the flags.
            at = 2 + len(self.query_id) + (2 + len(self.result_metadata_id) if protocol_version >= 5 else 0) + 2
            message[at + (3 if protocol_version >= 5 else 0)] |= 2
        f.write(message)


class Client:
    """One connection of one version."""

    def __init__(self, address: str, version: int):
        host, port = address.rsplit(":", 1)
        LibevConnection.initialize_reactor()
        compression = version == 4
        self._connection = LibevConnection.factory(
            DefaultEndPoint(host, int(port)), 60, protocol_version=version, compression=compression)

    def ask(self, message, decoder=as_bytes):
        """Sends a message and waits for its answer."""
        done, answers = threading.Event(), []
        with self._connection.lock:
            stream = self._connection.get_request_id()
            self._connection.in_flight += 1

        def answered(answer) -> None:
            with self._connection.lock:
                self._connection.in_flight -= 1
            answers.append(answer)
            done.set()

        self._connection.send_msg(message, stream, answered, decoder=decoder)
        if not done.wait(ANSWER_SECONDS):
            raise waits.Late(f"no answer within {ANSWER_SECONDS} s")
        if isinstance(answers[0], Exception) and not isinstance(answers[0], RawError):
            raise answers[0]  # the connection is lost
        return answers[0]

    def query(self, text: str, level: int = ONE):
        return check(self.ask(QueryMessage(text, level), decode), text)

    def prepare(self, text: str):
        """The prepared statement, or the error."""
        return waits.until(lambda: unless_busy(self.ask(PrepareMessage(text), decode)), f"PREPARE {text}")

    def close(self) -> None:
        self._connection.close()


def unless_busy(answer):
    """An answer, unless it says that a node or proxy was too busy."""
    return None if isinstance(answer, RawError) and answer.code in BUSY_CODES else answer


def check(answer, what: str):
    """Raises an error for an answer that is one. Otherwise it returns the answer."""
    if isinstance(answer, RawError):
        raise (waits.Late if unless_busy(answer) is None else RuntimeError)(f"{what}: {answer}")
    return answer


class Table(NamedTuple):
    """A table, its column of `IN` and the others of its partition key."""

    name: str
    kind: str
    others: tuple[str, ...]  # names of columns of type int, in the order in which statements have them
    make: Callable[[Random], bytes]
    keys: list[bytes]

    def condition(self, markers: int) -> str:
        keys = "k IN ?" if markers == 0 else f"k IN ({', '.join('?' * markers)})"
        return " AND ".join([*(f"{name} = ?" for name in self.others), keys])


def draw_keys(rng: Random, kind: str) -> list[bytes]:
    found = {DRAW[kind](rng).data for _ in range(120)}
    return sorted(found - {b""}, key=lambda key: rng.random())[:24]


def create(client: Client, rng: Random, replication: int) -> list[Table]:
    """Tables of every type of key, half of whose keys have rows: several, static cells alone, nulls."""
    client.query(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = "
                 f"{{'class': 'SimpleStrategy', 'replication_factor': {replication}}}")
    tables = []
    shapes = [(kind, (), "k") for kind in KEY_SCALARS]
    shapes += [("int", ("a",), "(a, k)"), ("text", ("b",), "(k, b)"), ("bigint", ("a", "b"), "(a, k, b)")]
    shapes += [("frozen<list<int>>", (), "k"), ("frozen<tuple<int, text>>", (), "k")]
    for number, (kind, others, key) in enumerate(shapes):
        name = f"{KEYSPACE}.t{number}"
        client.query(f"DROP TABLE IF EXISTS {name}")
        more = "".join(f"{other} int, " for other in others)
        client.query(f"CREATE TABLE {name} (k {kind}, {more}c int, s text static, v text, w int, PRIMARY KEY ({key}, c))"
                     if others else
                     f"CREATE TABLE {name} (k {kind}, c int, s text static, v text, w int, PRIMARY KEY (k, c))")
        if kind in DRAW:
            keys = draw_keys(rng, kind)
        elif "list" in kind:
            keys = [struct.pack(">iii", 1, 4, number) for number in range(-3, 5)]
        else:
            keys = [struct.pack(">ii", 4, number) + struct.pack(">i", 1) + b"x" for number in range(-3, 5)]
        table = Table(name, kind, others, lambda rng, keys=keys: rng.choice(keys), keys)
        fill(client, rng, table)
        tables.append(table)
    return tables


def fill(client: Client, rng: Random, table: Table) -> None:
    columns = [*table.others, "k"]
    row = client.prepare(f"INSERT INTO {table.name} ({', '.join(columns)}, c, v, w) VALUES ({'?, ' * len(columns)}?, ?, ?)")
    static = client.prepare(f"INSERT INTO {table.name} ({', '.join(columns)}, s) VALUES ({'?, ' * len(columns)}?)")
    for answer in (row, static):
        check(answer, table.name)
    for key in table.keys:
        kind = rng.randrange(4)
        values = [*(struct.pack(">i", 1) for _ in table.others), key]
        if kind in (1, 3):
            run(client, static, [*values, f"s{rng.randrange(3)}".encode()])
        for cluster in range(rng.choice((1, 1, 2, 5)) if kind >= 2 else 0):
            value = None if rng.random() < 0.3 else f"v{rng.randrange(3)}".encode()
            run(client, row, [*values, struct.pack(">i", cluster), value, struct.pack(">i", cluster)])


def run(client: Client, statement, values: list, level: int = ALL) -> None:
    message = ExecuteMessage(statement.query_id, values, level, result_metadata_id=statement.result_metadata_id)
    check(client.ask(message, decode), "INSERT")


class Draw(NamedTuple):
    """One request."""

    text: str
    values: list
    page_size: int | None
    skips_metadata: bool
    level: int
    traced: bool
    may_be_split: bool


def draw(rng: Random, table: Table) -> Draw:
    markers = rng.choice((0, 0, 2, 3, 6, 12))
    form, may_be_split = rng.choice(FORMS[:8]) if rng.random() < 0.8 else rng.choice(FORMS)
    count = markers or rng.choice((0, 1, 2, 3, 8, 8, 20, KEYS_MAX, KEYS_MAX + 1))
    keys = [table.make(rng) for _ in range(count)]
    if rng.random() < 0.05 and keys:
        keys[rng.randrange(len(keys))] = rng.choice((b"", b"\0", None, b"\xff" * 3))
    values = [struct.pack(">i", rng.choice((1, 1, 1, 2))) for _ in table.others]
    if markers:
        values += keys
    else:
        parts = [struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key for key in keys]
        values.append(struct.pack(">i", len(parts)) + b"".join(parts))
    for _ in range(form.count("?")):
        values.append(struct.pack(">i", rng.choice((1, 2, 3, 5, 9, 30, 1000))) if rng.random() < 0.95 else rng.choice((None, b"\0" * 4)))
    return Draw(form.format(table.condition(markers), table=table.name), values, rng.choice(PAGE_SIZES), rng.random() < 0.5,
                rng.choice((ONE, ONE, ONE, QUORUM, LOCAL_QUORUM, LOCAL_ONE, ALL, SERIAL)), rng.random() < 0.02, may_be_split)


def pages(client: Client, statement, request: Draw) -> list[Raw]:
    """Every answer to a request, page by page."""
    found, state = [], None
    while len(found) < PAGES_MAX:
        answer = client.ask(Execute(statement, request, state))
        if request.traced and answer.flags & 2:
            answer = Raw(answer.opcode, answer.flags, answer.body[16:])  # the id of the trace
        found.append(answer)
        state = None if request.traced else answer.paging_state
        if not state:
            break
    return found


def both(split: Client, whole: Client, statements: tuple, request: Draw) -> tuple[list[Raw], list[Raw]]:
    """The pages of both. A request only reads: where one of them was too busy it is made again."""
    last: list = []

    def found():
        last[:] = pages(split, statements[0], request), pages(whole, statements[1], request)
        is_answer = last[0] == last[1] or not any(answer.is_busy for side in last for answer in side)
        return tuple(last) if is_answer else None

    return waits.until(found, f"answers to {request}", told=lambda: last)


class Found(NamedTuple):
    """The requests that were answered otherwise, and what the proxy has counted."""

    differing: list[str]
    asked: int
    rows: int
    counted: Counter


def compare(split: Proxy, whole: Proxy, tables: list[Table], rng: Random, requests: int) -> Found:
    differing, rows = [], 0
    for version in VERSIONS:
        one, other = Client(split.listen, version), Client(whole.listen, version)
        prepared: dict = {}
        for number in range(requests // len(VERSIONS)):
            table = rng.choice(tables)
            request = draw(rng, table)
            if request.text not in prepared:
                prepared[request.text] = one.prepare(request.text), other.prepare(request.text)
            first, second = prepared[request.text]
            if isinstance(first, RawError) or isinstance(second, RawError):
                if str(first) != str(second):
                    differing.append(f"v{version} {request}: {first} and {second}")
                continue
            if version < 4 and None in request.values:
                continue
            mine, theirs = both(one, other, (first, second), request)
            rows += len(theirs)
            if mine != theirs:
                differing.append(f"v{version} request {number} {table.kind} {request}:\n  split {mine}\n  whole {theirs}")
        one.close()
        other.close()
    return Found(differing, requests, rows, counted(split))


def counted(proxy: Proxy) -> Counter:
    """The proxy's counts of IN queries."""
    lines = (line.rsplit(" ", 1) for line in proxy.get("/metrics")[1].splitlines() if line.startswith("shunt_multiget"))
    found: Counter = Counter()
    for name, value in lines:
        found[name.removeprefix("shunt_")] += int(float(value))
    return found


@contextmanager
def proxies(nodes: str, network: str = NETWORK) -> Iterator[tuple[Proxy, Proxy]]:
    """One that splits, and one that does not."""
    with ExitStack() as stack:
        options = ["--query-timeout-ms", "120000", "--cores", "1"]
        start = lambda number, more: stack.enter_context(  # noqa: E731
            Proxy(nodes, f"{network}.{number}:9042", f"{network}.{number}:9180", [*options, *more]))
        yield start(1, ["--multiget", "split", "--multiget-keys-max", str(KEYS_MAX)]), start(2, [])


@contextmanager
def embedded_nodes(network: str = NETWORK) -> Iterator[str]:
    """Three embedded nodes, each with a third of the rows."""
    nodes = Embedded("multiget", f"{network}.9:9042",
                     ["up", "--nodes", "3", "--listen", f"{network}.9:9042", "--node-port", "9543", "--admin", "off"], [])
    with nodes:
        yield f"{network}.9:9543"


def run_all(nodes: str, replication: int, requests: int, seed: int, network: str = NETWORK) -> Found:
    rng = Random(seed)
    with proxies(nodes, network) as (split, whole):
        client = Client(whole.listen, 4)
        tables = create(client, rng, replication)
        client.close()
        return compare(split, whole, tables, rng, requests)


def main(given=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m differential.multiget", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", help="contact points of a ring; without them embedded nodes are started")
    parser.add_argument("--replication", type=int, default=1)
    parser.add_argument("--requests", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(given)
    with ExitStack() as stack:
        nodes = options.nodes or stack.enter_context(embedded_nodes())
        found = run_all(nodes, options.replication, options.requests, options.seed)
    for difference in found.differing[:20]:
        print(difference)
    print(f"{found.asked} requests, {found.rows} answers, {len(found.differing)} differences")
    for name, value in sorted(found.counted.items()):
        if value:
            print(f"  {name} {value}")
    return 1 if found.differing else 0


if __name__ == "__main__":
    sys.exit(main())

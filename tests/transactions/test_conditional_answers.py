"""The same statements, made up from a seed, on a table whose conditional statements the proxies decide, and on one where nodes do: every answer
is the same to the byte, columns and types included, and so are the rows in the end."""

import os
import random
import struct
import threading

import pytest

from differential.endpoint import Endpoint, Names
from differential.step import BOUND, LITERAL, PREPARED, Step
from harness.waits import DEADLINE_SECONDS, Late, until

from .conftest import KEYSPACE, connected, prepare
from .known import wait_until_taken
from .test_conditional import change_mode, name

STATEMENTS = int(os.environ.get("SHUNT_CONDITIONAL_STATEMENTS", "450"))
REFUSED = (0x1001, 0x1002)  # overloaded, bootstrapping
SEED = int(os.environ.get("SHUNT_CONDITIONAL_SEED", "1"))
TABLE = "CREATE TABLE {} (name text, part int, owner text, \"Count\" bigint, at timestamp, parts frozen<list<int>>, seen frozen<map<text, int>>, " \
        "PRIMARY KEY (name, part))"
COLUMNS = ("owner", "Count", "at", "parts", "seen")


def int32(number):
    return struct.pack(">i", number)


class Maker:
    """Makes statements up. Few rows and few values, so that conditions hold about as often as not."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, column):
        """(literal, bytes)"""
        number = self.random.randint(0, 2)
        if self.random.random() < 0.15:
            return "null", None
        if column == "owner":
            return f"'{'abc'[number]}'", b"abc"[number:number + 1]
        if column in ("Count", "at"):
            return str(number), struct.pack(">q", number)
        if column == "parts":
            numbers = list(range(number))
            return str(numbers), int32(number) + b"".join(int32(4) + int32(one) for one in numbers)
        entries = [("abc"[one], one) for one in range(number)]
        literal = ", ".join(f"'{key}': {value}" for key, value in entries)
        return f"{{{literal}}}", int32(number) + b"".join(int32(1) + key.encode() + int32(4) + int32(value) for key, value in entries)

    def step(self):
        form = self.random.choice([LITERAL, LITERAL, BOUND, PREPARED, PREPARED])
        values = []

        def put(value):
            if form == LITERAL:
                return value[0]
            values.append(value[1])
            return "?"

        def number(number, length=4):
            return str(number), number.to_bytes(length, "big", signed=True)

        def column():
            return self.random.choice(COLUMNS)

        def shown(column):
            return f'"{column}"' if column == "Count" else column

        def key():
            part = self.random.randint(0, 1)
            row = self.random.choice("xyz")
            return ((f"'{row}'", row.encode()), number(part))

        def life():
            return f"USING TTL {put(number(self.random.choice([0, 1_000, 5_000])))} " if self.random.random() < 0.2 else ""

        def condition(among_others):
            of = column()
            choice = self.random.random()
            if of == "parts" and choice < 0.3:
                return f"parts[{put(number(self.random.randint(0, 2)))}] = {put(number(self.random.randint(0, 1)))}"
            if of == "seen" and choice < 0.3:
                of_element = self.value("owner")
                while of_element[1] is None and among_others:
                    of_element = self.value("owner")
                return f"seen[{put(of_element)}] = {put(number(self.random.randint(0, 2)))}"
            if choice < 0.2:
                return f"{shown(of)} IN ({put(self.value(of))}, {put(self.value(of))})"
            sign, value = self.random.choice(["=", "=", "=", "!=", "<", ">="]), self.value(of)
            while sign in ("<", ">=") and value[1] is None and among_others:
                # An error, unless another condition is looked at first and does not hold; nodes go by hashes of the columns' names.
                value = self.value(of)
            return f"{shown(of)} {sign} {put(value)}"

        def conditions():
            choice = self.random.random()
            if choice < 0.2:
                return ""
            if choice < 0.35:
                return " IF EXISTS"
            count = self.random.choice([1, 1, 2, 3])
            return " IF " + " AND ".join(condition(count > 1) for _ in range(count))

        def where():
            row, part = key()
            return f"WHERE name = {put(row)} AND part = {put(part)}"

        columns = self.random.sample(COLUMNS, self.random.randint(1, 4))
        kind = self.random.choice(["insert", "insert", "update", "update", "update", "delete"])
        if kind == "insert":
            row, part = key()
            columns = columns if self.random.random() < 0.9 else []
            given = [put(row), put(part)] + [put(self.value(column)) for column in columns]
            condition_of = " IF NOT EXISTS" if self.random.random() < 0.7 else ""
            text = f"INSERT INTO @ks@.@n@ ({', '.join(['name', 'part', *map(shown, columns)])}) VALUES ({', '.join(given)}){condition_of} {life()}"
        elif kind == "update":
            head = f"UPDATE @ks@.@n@ {life()}"
            assigned = ", ".join(f"{shown(column)} = {put(self.value(column))}" for column in columns)
            text = f"{head}SET {assigned} {where()}{conditions()}"
        else:
            of = ", ".join(map(shown, columns)) if self.random.random() < 0.3 else ""
            text = f"DELETE {of} FROM @ks@.@n@ {where()}{conditions()}"
        return Step(kind, text, form, values if form != LITERAL else None)


def ask(endpoint, names, step):
    """Once it is not refused for the moment, with nothing written."""
    def answer():
        done, outcomes = threading.Event(), []
        endpoint.submit(step, names, lambda outcome: (outcomes.append(outcome), done.set()))
        if not done.wait(DEADLINE_SECONDS):
            raise Late(step.shown())
        return None if outcomes[0].kind == "error" and outcomes[0].code in REFUSED else outcomes[0]

    outcome = until(answer, step.shown())
    if outcome.busy:
        # Nobody knows whether it was carried out, and so what the next answers should be.
        raise Late(f"{step.shown()}: {outcome}")
    return outcome


@pytest.fixture(scope="module")
def pair(fleet, nodes):
    with connected(fleet) as session:
        prepare(session, nodes[1])
        decided, plain = name(), name()
        for table in (decided, plain):
            session.execute(TABLE.format(table))
        change_mode(session, "conditional", [decided])
        wait_until_taken(fleet, decided, where="name = 'nobody' AND part = 0")
        yield [table.split(".")[1] for table in (decided, plain)]


@pytest.mark.parametrize("version", [4, 5])
def test_answers_are_those_of_nodes_whatever_is_asked(fleet, pair, version):
    maker = Maker(SEED * 10 + version)
    endpoints = [Endpoint(f"{one.host}:{one.port}", KEYSPACE, version, connections=1) for one in fleet.proxies[:2]]
    # Each of two proxies is asked in turn: one of them forwards.
    names = [[Names(KEYSPACE, table) for table in pair] for _ in endpoints]
    applied = refused = wrong = 0
    try:
        for number in range(STATEMENTS):
            step, at = maker.step(), number % 2
            decided, plain = (ask(endpoints[at], of, step) for of in names[at])
            shown = f"statement {number} of seed {SEED}: {step.shown()}\nthe proxies: {decided}\nnodes: {plain}"
            assert (decided.kind, decided.columns, decided.rows, decided.code) == (plain.kind, plain.columns, plain.rows, plain.code), shown
            applied += decided.kind == "rows" and decided.rows[0][0] == b"\x01"
            refused += decided.kind == "rows" and decided.rows[0][0] == b"\x00"
            wrong += decided.kind == "error"
            if number % 50 == 49:
                rows = [ask(endpoints[0], of, Step("select", "SELECT * FROM @ks@.@n@", reads=True)) for of in names[0]]
                assert sorted(map(str, rows[0].rows)) == sorted(map(str, rows[1].rows)), shown
    finally:
        for endpoint in endpoints:
            endpoint.close()
    print(f"{applied} applied, {refused} refused, {wrong} wrong of {STATEMENTS}")
    assert min(applied, refused) > STATEMENTS / 10 and wrong < STATEMENTS / 4

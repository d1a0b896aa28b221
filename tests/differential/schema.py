"""Random tables and user-defined types, and what the generator knows of them while a sequence goes on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from .types import KEY_SCALARS, SCALARS, Definition, Type, frozen

RESERVED = {"select", "order", "table", "from"}
NAMES = ("key", "Value", "select", "with space", "ttl", "type", "timestamp", "Ünïcode", "quo\"te", "json", "order", "count")


@dataclass(eq=False)
class Column:
    name: str
    type: Type
    role: str = "regular"  # partition, clustering, static, regular
    descending: bool = False

    @property
    def cql(self) -> str:
        return identifier(self.name)


def identifier(name: str) -> str:
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and name not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


@dataclass
class Table:
    """`columns` are those that exist now; `dropped` those that did."""

    columns: list[Column]
    counter: bool = False
    default_ttl: int = 0
    name: str = "@ks@.t@n@"
    dropped: list[Column] = field(default_factory=list)

    def of(self, role: str) -> list[Column]:
        return [column for column in self.columns if column.role == role]

    @property
    def partition(self) -> list[Column]:
        return self.of("partition")

    @property
    def clustering(self) -> list[Column]:
        return self.of("clustering")

    @property
    def values(self) -> list[Column]:
        """Columns that are no part of the primary key."""
        return [column for column in self.columns if column.role in ("regular", "static")]

    def create(self) -> str:
        parts = [f"{column.cql} {column.type.cql}{' static' if column.role == 'static' else ''}" for column in self.columns]
        partition = ", ".join(column.cql for column in self.partition)
        if len(self.partition) > 1:
            partition = f"({partition})"
        parts.append(f"PRIMARY KEY ({', '.join([partition] + [column.cql for column in self.clustering])})")
        options = []
        if any(column.descending for column in self.clustering):
            order = ", ".join(f"{column.cql} {'DESC' if column.descending else 'ASC'}" for column in self.clustering)
            options.append(f"CLUSTERING ORDER BY ({order})")
        if self.default_ttl:
            options.append(f"default_time_to_live = {self.default_ttl}")
        return f"CREATE TABLE {self.name} ({', '.join(parts)})" + (f" WITH {' AND '.join(options)}" if options else "")


class Shapes:
    """Draws types and tables for one sequence."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.definitions: list[Definition] = []

    def scalar(self) -> Type:
        return Type(self.rng.choice(SCALARS))

    def definition(self) -> Definition:
        made = Definition(f"u{len(self.definitions)}_@n@")
        for number in range(self.rng.randint(1, 3)):
            made.fields.append((f"f{number}", self.nested(1) if self.rng.random() < 0.25 else self.scalar()))
        self.definitions.append(made)
        return made

    def nested(self, depth: int = 2) -> Type:
        """A type that stands inside another one or in a key: frozen."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.6:
            return self.scalar()
        kind = rng.choice(("list", "set", "map", "tuple", "udt"))
        if kind == "list":
            return Type("list", (self.nested(depth - 1),))
        if kind == "set":
            return Type("set", (self.element(depth - 1),))
        if kind == "map":
            return Type("map", (self.element(depth - 1), self.nested(depth - 1)))
        if kind == "udt" and self.definitions:
            return Type("udt", definition=rng.choice(self.definitions))
        return Type("tuple", tuple(self.nested(depth - 1) for _ in range(rng.randint(1, 3))))

    def element(self, depth: int = 1) -> Type:
        """Type of an element of a set or of a key of a map, which has an order. Decimals with equal values and other bytes are left out on purpose."""
        while True:
            chosen = self.nested(depth)
            if not chosen.holds("duration", "decimal"):
                return chosen

    def key(self) -> Type:
        if self.rng.random() < 0.85:
            return Type(self.rng.choice(KEY_SCALARS if self.rng.random() < 0.6 else ("int", "text", "bigint", "blob")))
        while True:
            chosen = self.nested()
            if chosen.scalar or not chosen.holds("duration", "decimal"):
                return chosen if chosen.kind != "duration" else Type("int")

    def value(self) -> Type:
        rng = self.rng
        if rng.random() < 0.5:
            return self.scalar() if rng.random() < 0.7 else Type(rng.choice(("int", "text", "bigint")))
        kind = rng.choice(("list", "set", "map", "list", "set", "map", "tuple", "udt", "udt", "vector"))
        if kind == "list":
            chosen = Type("list", (self.nested(1),), frozen=False)
        elif kind == "set":
            chosen = Type("set", (self.element(),), frozen=False)
        elif kind == "map":
            chosen = Type("map", (self.element(), self.nested(1)), frozen=False)
        elif kind == "vector":
            return Type("vector", (Type("float"),), dimension=rng.randint(1, 3))
        elif kind == "udt" and self.definitions:
            chosen = Type("udt", frozen=False, definition=rng.choice(self.definitions))
        else:
            return Type("tuple", tuple(self.nested(1) for _ in range(rng.randint(1, 3))))
        return frozen(chosen) if rng.random() < 0.25 else chosen

    def table(self, counter: bool) -> Table:
        rng = self.rng
        columns = [Column(f"p{number}", self.key(), "partition") for number in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        clustering = rng.choice((0, 1, 1, 1, 2, 2, 3))
        columns += [Column(f"c{number}", self.key(), "clustering", rng.random() < 0.4) for number in range(clustering)]
        if clustering and rng.random() < 0.5:
            columns += [Column(f"s{number}", self._cell(counter), "static") for number in range(rng.randint(1, 2))]
        regular = rng.randint(1, 3) if counter else rng.choice((0, 1, 2, 3, 4, 5, 7))
        columns += [Column(f"v{number}", self._cell(counter)) for number in range(regular)]
        if counter and not any(column.role in ("static", "regular") for column in columns):
            columns.append(Column("v0", self._cell(True)))
        if rng.random() < 0.15:
            for column, name in zip(rng.sample(columns, min(2, len(columns))), rng.sample(NAMES, 2)):
                column.name = name
        return Table(columns, counter, default_ttl=0)

    def _cell(self, counter: bool) -> Type:
        return Type("counter") if counter else self.value()

"""The statements of one sequence, a function of the seed and the sequence's number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Callable

from . import alterations, invalid, reads, writes
from .context import Context
from .draft import Draft
from .step import LITERAL, PREPARED, Step

LENGTH = 600  # statements of a sequence; a schema change takes a node as long as a hundred of them
STRETCH = 80  # statements until new keys are drawn
AGAIN = (0, 0, 1, 2)  # how often a prepared statement runs with other values


@dataclass(frozen=True)
class Kind:
    """A kind of statement and how often it is drawn."""

    name: str
    weight: float
    make: Callable[[Context, Draft], str]
    reads: bool = False
    literal: bool = False  # has no use for bind markers
    counter: bool | None = None  # only on tables with counters, or only on others


def _conditional(make):
    return lambda context, draft: make(context, draft, True)


KINDS = (
    Kind("insert", 12, writes.insert, counter=False),
    Kind("insert.json", 2, writes.insert_json, counter=False),
    Kind("update", 12, writes.update, counter=False),
    Kind("update.counter", 30, writes.update, counter=True),
    Kind("delete", 6, writes.delete),
    Kind("lwt.insert", 1.5, _conditional(writes.insert), counter=False),
    Kind("lwt.update", 3, _conditional(writes.update), counter=False),
    Kind("lwt.delete", 1, _conditional(writes.delete), counter=False),
    Kind("batch", 3, writes.batch),
    Kind("lwt.batch", 1.5, _conditional(writes.batch), counter=False),
    Kind("truncate", 0.15, alterations.truncate, literal=True),
    Kind("ddl.alter_table", 0.4, alterations.alter_table, literal=True),
    Kind("ddl.alter_type", 0.2, alterations.alter_type, literal=True),
    Kind("ddl.create", 0.2, alterations.create_again, literal=True),
    Kind("select.all", 5, reads.everything, reads=True),
    Kind("select.times", 3, reads.times, reads=True, counter=False),
    Kind("select.key", 8, reads.by_key, reads=True),
    Kind("select.slice", 8, reads.slices, reads=True),
    Kind("select.in", 5, reads.several, reads=True),
    Kind("select.token", 4, reads.token_range, reads=True),
    Kind("select.distinct", 2, reads.distinct, reads=True),
    Kind("select.aggregate", 4, reads.aggregate, reads=True),
    Kind("select.group_by", 3, reads.group_by, reads=True),
    Kind("select.json", 2, reads.json, reads=True),
    Kind("select.filtering", 4, reads.filtering, reads=True),
    Kind("schema.columns", 0.3, reads.schema_columns, reads=True, literal=True),
    Kind("schema.types", 0.2, reads.schema_types, reads=True, literal=True),
    Kind("schema.describe", 0.2, reads.describe, reads=True, literal=True),
    Kind("invalid.type", 2, invalid.wrong_type, literal=True),
    Kind("invalid.name", 0.7, invalid.wrong_name, literal=True),
    Kind("invalid.shape", 1.5, invalid.wrong_shape, literal=True),
    Kind("invalid.mangled", 3, invalid.mangled, literal=True),
)
GROUNDWORK = ("insert", "update.counter")  # drawn also when --only asks for something else


class Sequence:
    """Makes the steps of one sequence, CREATE statements first, DROP last."""

    def __init__(self, seed: int, number: int, only: str | None = None, length: int = LENGTH):
        self.rng = Random(f"{seed}/{number}")
        self.context = Context(self.rng)
        self.length = length
        kinds = [kind for kind in KINDS if kind.counter in (None, self.context.table.counter)
                 and (self.context.conditional or not kind.name.startswith("lwt"))]
        self._only = only
        self._kinds = [kind for kind in kinds if only is None or kind.name.startswith(only) or kind.name in GROUNDWORK]
        self._weights = [kind.weight for kind in self._kinds]

    def steps(self) -> list[Step]:
        steps = self._created()
        while len(steps) < self.length - 2:
            if len(steps) // STRETCH != (len(steps) - 1) // STRETCH:
                self.context.rows_of_another_time()
            steps += self._drawn()
        steps = steps[:self.length - 2]
        steps.append(self._made(next(kind for kind in KINDS if kind.name == "select.all"), LITERAL))
        return [*steps, Step("ddl.drop", f"DROP TABLE {self.context.table.name}")]

    def _created(self) -> list[Step]:
        steps = [Step("ddl.create", f"CREATE TYPE @ks@.{definition.name} "
                      f"({', '.join(f'{name} {kind.cql}' for name, kind in definition.fields)})")
                 for definition in self.context.shapes.definitions]
        return [*steps, Step("ddl.create", self.context.table.create())]

    def _drawn(self) -> list[Step]:
        kind = self.rng.choices(self._kinds, self._weights)[0]
        draft = Draft(self.rng, LITERAL) if kind.literal else Draft.random(self.rng)
        step = self._of(kind, draft)
        if step is None:
            return []
        steps = [step]
        if step.form == PREPARED:
            steps += [replace(step, values=draft.values_again(), page_size=self._page(kind), timestamp=self._stamp(kind))
                      for _ in range(self.rng.choice(AGAIN))]
        elif kind.reads and self.rng.random() < 0.1:  # the same text, prepared
            steps.append(replace(step, form=PREPARED, values=step.values or [], page_size=self._page(kind)))
        return steps

    def _made(self, kind: Kind, form: str) -> Step:
        return self._of(kind, Draft(self.rng, form))

    def _of(self, kind: Kind, draft: Draft) -> Step | None:
        text = kind.make(self.context, draft)
        if draft.failed:
            return None
        return draft.step(kind.name, text, page_size=self._page(kind), timestamp=self._stamp(kind), reads=kind.reads,
                          names_keyspace=kind.name.startswith("schema."))

    def _page(self, kind: Kind) -> int | None:
        # Pages of DESCRIBE fail on Cassandra when another sequence changes the schema in between.
        if not kind.reads or kind.name == "schema.describe" or self.rng.random() < 0.5:
            return None
        return self.rng.choice((1, 1, 2, 3, 4, 5, 7, 10, 50))

    def _stamp(self, kind: Kind) -> int | None:
        if kind.reads or kind.name.startswith("lwt") or self.context.table.counter:
            return None
        return self.context.default_stamp()

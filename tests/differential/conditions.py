"""IF clauses of conditional writes."""

from __future__ import annotations

from .context import Context
from .draft import Draft
from .schema import Column
from .types import Type
from .values import Value, integer_value
from .wheres import COMPARISONS, element


def conditions(context: Context, draft: Draft, exists: bool = True, columns: list[Column] | None = None) -> str:
    """IF EXISTS, or one to three conditions on columns."""
    columns = context.table.values if columns is None else columns
    if not columns or exists and context.chance(0.3):
        return " IF EXISTS"
    chosen = [context.rng.choice(columns) for _ in range(context.rng.choice((1, 1, 2, 3)))]
    return " IF " + " AND ".join(_condition(context, draft, column, len(chosen) == 1) for column in chosen)


def _condition(context: Context, draft: Draft, column: Column, alone: bool) -> str:
    """`alone` is whether it is the only one: Cassandra evaluates several in no order and stops at the first that fails, so
    that one of them is seen to be invalid (a null or an empty set compared by <) only by chance.
    """
    rng, kind = context.rng, column.type
    if kind.kind == "map" and rng.random() < 0.35:
        key = draft.term(lambda: element(context, kind, 0))
        return _compare(context, draft, f"{column.cql}[{key}]", kind.parts[1], alone)
    if kind.kind == "list" and rng.random() < 0.35:
        index = draft.number(lambda: rng.choice((0, 0, 1, 2, 7)))
        return _compare(context, draft, f"{column.cql}[{index}]", kind.parts[0], alone)
    if kind.kind == "udt" and rng.random() < 0.4:
        name, part = rng.choice(kind.definition.fields)
        return _compare(context, draft, f"{column.cql}.{name}", part, alone)
    return _compare(context, draft, column.cql, kind, alone)


def _compare(context: Context, draft: Draft, left: str, kind: Type, alone: bool) -> str:
    rng = context.rng
    operator = rng.choice(("=", "=", "=", "!=", "IN") + (COMPARISONS if alone or kind.scalar else ()))
    nulls = 0.2 if alone or operator not in COMPARISONS else 0.0

    def pick() -> Value:
        return integer_value(rng.randint(0, 3), ">q") if kind.kind == "counter" else context.value(kind, nulls)

    if operator == "IN":
        return f"{left} IN ({', '.join(draft.term(pick) for _ in range(rng.choice((0, 1, 2, 3))))})"
    return f"{left} {operator} {draft.term(pick)}"

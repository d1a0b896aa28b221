"""WHERE clauses: keys, slices, IN, tokens, and what needs filtering."""

from __future__ import annotations

from .context import Context
from .draft import Draft
from .schema import Column
from .types import Type
from .values import Value, collection_value, integer_value, tuple_value

COMPARISONS = ("<", "<=", ">", ">=")


def equal(context: Context, draft: Draft, column: Column) -> str:
    return f"{column.cql} = {draft.term(lambda: context.key(column))}"


def within(context: Context, draft: Draft, column: Column) -> str:
    """IN with a list of terms, or with one marker for the whole list."""
    rng = context.rng
    count = rng.choice((0, 1, 2, 2, 3, 4)) if rng.random() < 0.3 else rng.choice((1, 2, 3))
    if draft.form != "literal" and rng.random() < 0.4:
        return f"{column.cql} IN {_whole(draft, lambda: [context.key(column) for _ in range(count)])}"
    terms = ", ".join(draft.term(lambda: context.key(column)) for _ in range(count))
    return f"{column.cql} IN ({terms})"


def _whole(draft: Draft, values) -> str:
    return draft.marker(lambda: collection_value("list", values()).data, collection_value("list", values()).data)


def partition(context: Context, draft: Draft, several: float = 0.0) -> list[str]:
    """The whole partition key; with `several`, by that chance, IN on some of its columns."""
    return [within(context, draft, column) if context.chance(several) else equal(context, draft, column)
            for column in context.table.partition]


def row(context: Context, draft: Draft, several: float = 0.0) -> list[str]:
    """The whole primary key."""
    parts = partition(context, draft, several)
    for column in context.table.clustering:
        parts.append(within(context, draft, column) if context.chance(several) else equal(context, draft, column))
    return parts


def tokens(context: Context, draft: Draft) -> list[str]:
    """A range of tokens, or one token."""
    rng = context.rng
    names = ", ".join(column.cql for column in context.table.partition)

    def bound() -> str:
        if rng.random() < 0.5:
            chosen = (-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1)
            return draft.term(lambda: integer_value(rng.choice(chosen), ">q"))
        return f"token({', '.join(draft.term(lambda column=column: context.key(column)) for column in context.table.partition)})"

    shape = rng.random()
    if shape < 0.15:
        return [f"token({names}) = {bound()}"]
    parts = []
    if shape < 0.85:
        parts.append(f"token({names}) {rng.choice(('>', '>='))} {bound()}")
    if shape > 0.4:
        parts.append(f"token({names}) {rng.choice(('<', '<='))} {bound()}")
    return parts


def clustering(context: Context, draft: Draft, slices: bool = True, several: float = 0.2, full: bool = False) -> list[str]:
    """A prefix of the clustering columns by value, the last of it perhaps by IN, a slice, or several columns at once."""
    rng, columns = context.rng, context.table.clustering
    if not columns:
        return []
    depth = len(columns) if full else rng.randint(0, len(columns))
    parts = [within(context, draft, column) if rng.random() < several * 0.3 else equal(context, draft, column)
             for column in columns[:depth]]
    rest = columns[depth:]
    if not rest or not slices:
        return parts
    way = rng.random()
    if way < 0.4:
        parts += slice_of(context, draft, rest[0])
    elif way < 0.55:
        parts.append(within(context, draft, rest[0]))
    elif way < 0.75:
        parts += columns_slice(context, draft, rest[:rng.randint(1, len(rest))])
    elif way < 0.9:
        parts.append(columns_within(context, draft, rest[:rng.randint(1, len(rest))]))
    return parts


def slice_of(context: Context, draft: Draft, column: Column) -> list[str]:
    """One bound or two, perhaps of an empty range."""
    pick = lambda: context.key(column)  # noqa: E731 (two uses below)
    shape = context.rng.random()
    parts = []
    if shape < 0.7:
        parts.append(f"{column.cql} {context.rng.choice(('>', '>='))} {draft.term(pick)}")
    if shape > 0.4:
        parts.append(f"{column.cql} {context.rng.choice(('<', '<='))} {draft.term(pick)}")
    return parts


def columns_slice(context: Context, draft: Draft, columns: list[Column]) -> list[str]:
    """(a, b) > (1, 2), perhaps AND (a) < (3)."""
    rng = context.rng
    parts = [f"{_names(columns)} {rng.choice(COMPARISONS + ('=',))} {_tuple(context, draft, columns)}"]
    if rng.random() < 0.3:
        fewer = columns[:rng.randint(1, len(columns))]
        parts.append(f"{_names(fewer)} {rng.choice(COMPARISONS)} {_tuple(context, draft, fewer)}")
    return parts


def columns_within(context: Context, draft: Draft, columns: list[Column]) -> str:
    """(a, b) IN ((1, 2), (3, 4))."""
    terms = ", ".join(_tuple(context, draft, columns) for _ in range(context.rng.randint(1, 3)))
    return f"{_names(columns)} IN ({terms})"


def _names(columns: list[Column]) -> str:
    return f"({', '.join(column.cql for column in columns)})"


def _tuple(context: Context, draft: Draft, columns: list[Column]) -> str:
    def whole() -> Value:
        return tuple_value([context.key(column) for column in columns])

    if draft.form != "literal" and context.rng.random() < 0.3:
        return draft.marker(lambda: whole().data, whole().data)
    return f"({', '.join(draft.term(lambda column=column: context.key(column)) for column in columns)})"


def filters(context: Context, draft: Draft) -> list[str]:
    """One or two conditions that only ALLOW FILTERING allows."""
    table = context.table
    candidates = table.values + table.clustering + (table.partition if context.chance(0.3) else [])
    if not candidates:
        return []
    count = min(len(candidates), context.rng.choice((1, 1, 2)))
    return [_filter(context, draft, column) for column in context.rng.sample(candidates, count)]


def _filter(context: Context, draft: Draft, column: Column) -> str:
    rng, kind = context.rng, column.type
    if kind.collection and rng.random() < 0.8:
        if kind.kind == "map":
            way = rng.random()
            if way < 0.4:
                return f"{column.cql} CONTAINS KEY {draft.term(lambda: element(context, kind, 0))}"
            if way < 0.7:
                return (f"{column.cql}[{draft.term(lambda: element(context, kind, 0))}] = "
                        f"{draft.term(lambda: element(context, kind, 1))}")
            return f"{column.cql} CONTAINS {draft.term(lambda: element(context, kind, 1))}"
        return f"{column.cql} CONTAINS {draft.term(lambda: element(context, kind, 0))}"
    pick = (lambda: context.key(column)) if column.role in ("partition", "clustering") else (lambda: context.value(kind))
    if rng.random() < 0.15:
        return f"{column.cql} IN ({draft.term(pick)}, {draft.term(pick)})"
    operator = "=" if rng.random() < 0.5 else rng.choice(COMPARISONS)
    return f"{column.cql} {operator} {draft.term(pick)}"


def element(context: Context, kind: Type, part: int) -> Value:
    """An element, a key or a value of a collection."""
    return context.value(kind.parts[part])

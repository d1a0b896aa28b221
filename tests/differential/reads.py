"""SELECT in all its forms."""

from __future__ import annotations

from . import wheres
from .context import Context
from .draft import Draft
from .selectors import aggregates, selection
from .step import LITERAL


def everything(context: Context, draft: Draft) -> str:
    """The whole table: what every write before has come to."""
    return f"SELECT {context.rng.choice(('*', '*', 'JSON *'))} FROM {context.table.name}"


def times(context: Context, draft: Draft) -> str:
    """Timestamps and times to live of all cells."""
    table = context.table
    parts = [column.cql for column in table.partition + table.clustering]
    parts += [f"{function}({column.cql})" for column in table.values for function in ("writetime", "ttl")]
    return f"SELECT {', '.join(parts)} FROM {table.name}"


def by_key(context: Context, draft: Draft) -> str:
    """One row, or one partition and some of its clustering columns."""
    what = selection(context, draft)
    where = wheres.partition(context, draft) + wheres.clustering(context, draft, slices=False)
    return _select(context, what, where) + _limit(context, draft, 0.15)


def slices(context: Context, draft: Draft) -> str:
    """Ranges within a partition, forwards and backwards."""
    where = wheres.partition(context, draft) + wheres.clustering(context, draft)
    return _select(context, _plain_selection(context), where) + _order(context, 0.4) + _limit(context, draft, 0.3)


def several(context: Context, draft: Draft) -> str:
    """IN on key columns."""
    where = wheres.partition(context, draft, several=0.7) + wheres.clustering(context, draft, several=0.8)
    text = _select(context, _plain_selection(context), where)
    return text + _order(context, 0.25) + _per_partition(context, draft, 0.2) + _limit(context, draft, 0.3)


def token_range(context: Context, draft: Draft) -> str:
    """A range of tokens or the whole table."""
    where = wheres.tokens(context, draft) if context.chance(0.8) else []
    text = _select(context, _plain_selection(context), where)
    return text + _per_partition(context, draft, 0.3) + _limit(context, draft, 0.4)


def distinct(context: Context, draft: Draft) -> str:
    table = context.table
    columns = list(table.partition) + [column for column in table.of("static") if context.chance(0.5)]
    where = wheres.tokens(context, draft) if context.chance(0.4) else []
    if context.chance(0.2):
        where = wheres.partition(context, draft, several=0.5)
    text = f"SELECT DISTINCT {', '.join(column.cql for column in columns)} FROM {table.name}{_where(where)}"
    return text + _limit(context, draft, 0.3)


def aggregate(context: Context, draft: Draft) -> str:
    text = _select(context, aggregates(context, draft), _any_where(context, draft))
    return text + _limit(context, draft, 0.2)


def group_by(context: Context, draft: Draft) -> str:
    """By a prefix of the primary key."""
    table, rng = context.table, context.rng
    key = table.partition + table.clustering
    depth = rng.randint(min(len(table.partition), len(key)), len(key)) if rng.random() < 0.9 else rng.randint(1, len(key))
    names = [column.cql for column in key[:depth]]
    what = ", ".join(rng.sample(names, rng.randint(0, len(names))) + [aggregates(context, draft)])
    text = _select(context, what, _any_where(context, draft)) + f" GROUP BY {', '.join(names)}"
    return text + _order(context, 0.1) + _per_partition(context, draft, 0.15) + _limit(context, draft, 0.25)


def json(context: Context, draft: Draft) -> str:
    what = "JSON " + _plain_selection(context)
    while "time(" in what or "ttl(" in what:  # within text they could not be told from a real difference
        what = "JSON " + _plain_selection(context)
    return _select(context, what, _any_where(context, draft)) + _limit(context, draft, 0.2)


def filtering(context: Context, draft: Draft) -> str:
    where = []
    if context.chance(0.4):
        where = wheres.partition(context, draft)
    where += wheres.filters(context, draft)
    text = _select(context, _plain_selection(context), where) + _per_partition(context, draft, 0.1)
    return text + _limit(context, draft, 0.2) + (" ALLOW FILTERING" if context.chance(0.95) else "")


def schema_columns(context: Context, draft: Draft) -> str:
    return ("SELECT column_name, clustering_order, kind, position, type FROM system_schema.columns "
            "WHERE keyspace_name = '@ks@' AND table_name = 't@n@'")


def schema_types(context: Context, draft: Draft) -> str:
    names = [definition.name for definition in context.shapes.definitions] or ["none"]
    return ("SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = '@ks@' "
            f"AND type_name = '{context.rng.choice(names)}'")


def describe(context: Context, draft: Draft) -> str:
    definitions = context.shapes.definitions
    if definitions and context.chance(0.3):
        return f"DESCRIBE TYPE @ks@.{context.rng.choice(definitions).name}"
    return f"DESCRIBE TABLE {context.table.name}"


def _plain_selection(context: Context) -> str:
    """A selection without bind markers."""
    return selection(context, Draft(context.rng, LITERAL))


def _select(context: Context, what: str, where: list[str]) -> str:
    return f"SELECT {what} FROM {context.table.name}{_where(where)}"


def _where(parts: list[str]) -> str:
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _any_where(context: Context, draft: Draft) -> list[str]:
    shape = context.rng.random()
    if shape < 0.3:
        return []
    if shape < 0.45:
        return wheres.tokens(context, draft)
    if shape < 0.85:
        return wheres.partition(context, draft) + wheres.clustering(context, draft)
    return wheres.partition(context, draft, several=0.7)


def _order(context: Context, share: float) -> str:
    columns = context.table.clustering
    if not columns or not context.chance(share):
        return ""
    turned = context.chance(0.6)
    columns = columns[:context.rng.randint(1, len(columns))]
    return " ORDER BY " + ", ".join(
        f"{column.cql}{' DESC' if column.descending != turned else context.rng.choice((' ASC', ''))}" for column in columns)


def _limit(context: Context, draft: Draft, share: float) -> str:
    if not context.chance(share):
        return ""
    return f" LIMIT {draft.number(lambda: context.rng.choice((1, 1, 2, 3, 5, 10, 100, 2**31 - 1)))}"


def _per_partition(context: Context, draft: Draft, share: float) -> str:
    if not context.chance(share):
        return ""
    return f" PER PARTITION LIMIT {draft.number(lambda: context.rng.choice((1, 1, 2, 3)))}"

"""INSERT, UPDATE and DELETE in all their forms, TRUNCATE, and writes to counters."""

from __future__ import annotations

import json

from . import wheres
from .conditions import conditions
from .context import SERVER, TTL_LARGEST, Context
from .draft import Draft
from .schema import Column
from .values import Value, collection_value, integer_value, quote


def using(context: Context, draft: Draft, ttl: bool = True, timestamp: bool = True) -> str:
    """USING TIMESTAMP, TTL or both; nothing most of the time, as the protocol brings a timestamp of its own."""
    rng, parts = context.rng, []
    if timestamp and context.clock != SERVER and context.chance(0.5):
        parts.append(("TIMESTAMP", context.stamp, ">q"))
    if ttl and context.chance(0.2):
        parts.append(("TTL", context.ttl, ">i"))
    elif ttl and context.chance(0.01):
        parts.append(("TTL", lambda: rng.choice((0, -1, TTL_LARGEST + 1)), ">i"))
    rng.shuffle(parts)
    return " USING " + " AND ".join(f"{word} {draft.number(pick, pack)}" for word, pick, pack in parts) if parts else ""


def some(context: Context, columns: list[Column]) -> list[Column]:
    """A random choice, in random order; often all, seldom none."""
    rng = context.rng
    if rng.random() < 0.3:
        return rng.sample(columns, len(columns))
    return rng.sample(columns, rng.randint(0 if rng.random() < 0.1 else min(1, len(columns)), len(columns)))


def insert(context: Context, draft: Draft, conditional: bool = False) -> str:
    table = context.table
    columns = list(table.partition)
    statics_only = bool(table.clustering) and context.chance(0.1)
    if not statics_only:
        columns += table.clustering
    columns += some(context, table.of("static") if statics_only else table.values)
    if context.chance(0.2):
        context.rng.shuffle(columns)
    terms = [draft.term(lambda column=column: context.key(column)) if column.role in ("partition", "clustering")
             else draft.term(lambda column=column: context.value(column.type), nulls=True) for column in columns]
    text = f"INSERT INTO {table.name} ({', '.join(column.cql for column in columns)}) VALUES ({', '.join(terms)})"
    return text + (" IF NOT EXISTS" + using(context, draft, timestamp=False) if conditional else using(context, draft))


def insert_json(context: Context, draft: Draft) -> str:
    table = context.table

    def document() -> Value:
        columns = table.partition + table.clustering + some(context, table.values)
        members = []
        for column in columns:
            key = column.role in ("partition", "clustering")
            value = context.key(column) if key else context.value(column.type, 0.1)
            name = f'"{column.name}"' if column.cql != column.name else column.name
            members.append(f"{json.dumps(name)}: {value.json}")
        text = "{" + ", ".join(members) + "}"
        return Value(quote(text), text.encode(), text)

    text = f"INSERT INTO {table.name} JSON {draft.term(document)}{context.rng.choice(('', '', ' DEFAULT NULL', ' DEFAULT UNSET'))}"
    if context.chance(0.1) and context.conditional:
        return text + " IF NOT EXISTS"
    return text + using(context, draft)


def update(context: Context, draft: Draft, conditional: bool = False) -> str:
    table = context.table
    statics = table.of("static")
    statics_only = bool(statics) and context.chance(0.15)
    candidates = statics if statics_only else table.values
    if not candidates:
        draft.failed = True
        return ""
    head = f"UPDATE {table.name}{using(context, draft, ttl=not table.counter or context.chance(0.02), timestamp=not conditional)}"
    chosen = some(context, candidates)[:context.rng.choice((1, 1, 2, 3, 9))] or candidates[:1]
    statics_only = all(column.role == "static" for column in chosen) and context.chance(0.95)
    assignments = [assignment(context, draft, column) for column in chosen]
    several = 0.0 if conditional else 0.1
    where = wheres.partition(context, draft, several) if statics_only else wheres.row(context, draft, several)
    text = f"{head} SET {', '.join(assignments)} WHERE {' AND '.join(where)}"
    return text + (conditions(context, draft, columns=statics if statics_only else None) if conditional else "")


def assignment(context: Context, draft: Draft, column: Column) -> str:
    """A whole value, an element or field, or what adds to and takes from a collection."""
    rng, kind, name = context.rng, column.type, column.cql
    if kind.kind == "counter":
        return f"{name} = {name} {rng.choice('+-')} {draft.term(lambda: integer_value(rng.choice((0, 1, 2, 5, -3, 2**62)), '>q'))}"
    if kind.many_cells and rng.random() < 0.65:
        if kind.kind == "list":
            return _list(context, draft, column)
        if kind.kind == "map":
            return _map(context, draft, column)
        if kind.kind == "udt":
            field, part = rng.choice(kind.definition.fields)
            return f"{name}.{field} = {draft.term(lambda: context.value(part), nulls=True)}"
        elements = draft.term(lambda: context.value(kind), nulls=True)
        operator = rng.choice("+-")
        return rng.choice((f"{name} = {name} {operator} {elements}", f"{name} {operator}= {elements}"))
    return f"{name} = {draft.term(lambda: context.value(kind), nulls=True)}"


def _list(context: Context, draft: Draft, column: Column) -> str:
    rng, kind, name = context.rng, column.type, column.cql
    way = rng.random()
    if way < 0.3:
        index = draft.number(lambda: rng.choice((0, 0, 1, 2, 5, -1)))
        return f"{name}[{index}] = {draft.term(lambda: context.value(kind.parts[0]), nulls=True)}"
    items = draft.term(lambda: context.value(kind), nulls=True)
    if way < 0.5:
        return f"{name} = {items} + {name}"
    if way < 0.7:
        return f"{name} = {name} - {items}"
    return rng.choice((f"{name} = {name} + {items}", f"{name} += {items}", f"{name} -= {items}"))


def _map(context: Context, draft: Draft, column: Column) -> str:
    rng, kind, name = context.rng, column.type, column.cql
    way = rng.random()
    if way < 0.4:
        key = draft.term(lambda: context.value(kind.parts[0]))
        return f"{name}[{key}] = {draft.term(lambda: context.value(kind.parts[1]), nulls=True)}"
    if way < 0.7:
        return f"{name} = {name} + {draft.term(lambda: context.value(kind))}"

    def keys() -> Value:
        return collection_value("set", [context.value(kind.parts[0]) for _ in range(rng.choice((1, 2)))])

    return f"{name} {rng.choice((f'= {name} -', '-='))} {draft.term(keys)}"


def delete(context: Context, draft: Draft, conditional: bool = False) -> str:
    """A DELETE of columns, elements and fields, of rows, ranges of rows or a whole partition."""
    table, rng = context.table, context.rng
    targets, statics_only = "", False
    # A counter column that was deleted stays so in Cassandra, whatever is added to it.
    if table.values and not table.counter and context.chance(0.4):
        statics = table.of("static")
        statics_only = bool(statics) and context.chance(0.2)
        chosen = some(context, statics if statics_only else table.values)
        statics_only = bool(chosen) and all(column.role == "static" for column in chosen) and context.chance(0.8)
        targets = " " + ", ".join(_target(context, draft, column) for column in chosen) if chosen else ""
    head = f"DELETE{targets} FROM {table.name}{using(context, draft, ttl=False, timestamp=not conditional)}"
    several = 0.0 if conditional else 0.1
    if statics_only:
        where = wheres.partition(context, draft, several)
    elif targets or conditional or context.chance(0.4):
        where = wheres.row(context, draft, several)
    elif context.chance(0.25):
        where = wheres.partition(context, draft, several)
    else:
        where = wheres.partition(context, draft, several) + wheres.clustering(context, draft)
    text = f"{head} WHERE {' AND '.join(where)}"
    if conditional:
        statics = table.of("static")
        text += conditions(context, draft, columns=statics if statics_only or rng.random() < 0.05 else None)
    return text


def _target(context: Context, draft: Draft, column: Column) -> str:
    kind = column.type
    if not kind.many_cells or context.chance(0.3):
        return column.cql
    if kind.kind == "udt":
        return f"{column.cql}.{context.rng.choice(kind.definition.fields)[0]}"
    if kind.kind == "list":
        return f"{column.cql}[{draft.number(lambda: context.rng.choice((0, 0, 1, 2, 9)))}]"
    return f"{column.cql}[{draft.term(lambda: context.value(kind.parts[0]))}]"


def batch(context: Context, draft: Draft, conditional: bool = False) -> str:
    """Statements on one partition most of the time; a conditional batch has to be."""
    rng, table = context.rng, context.table
    kind = "COUNTER " if table.counter else rng.choice(("", "", "UNLOGGED ")) if not conditional else ""
    shared = not table.counter and not conditional and context.chance(0.2)
    head = f"BEGIN {kind}BATCH{using(context, draft, ttl=False) if shared else ''}"
    if conditional and context.chance(0.95):
        context.pinned = {column.name: context.key(column) for column in table.partition}
    clock = context.clock
    if conditional or shared:  # then USING TIMESTAMP of a single statement is refused
        context.clock = SERVER
    texts = [_in_batch(context, draft, conditional) for _ in range(rng.randint(1, 5))]
    context.pinned, context.clock = {}, clock
    return f"{head} {'; '.join(texts)}; APPLY BATCH"


def _in_batch(context: Context, draft: Draft, conditional: bool) -> str:
    table = context.table
    if table.counter:
        return update(context, draft)
    make = context.rng.choice((insert, insert, update, delete))
    if make is update and not table.values:
        make = insert
    return make(context, draft, conditional and context.chance(0.5))

"""ALTER TABLE and ALTER TYPE; each also changes what the generator knows."""

from __future__ import annotations

from .context import Context
from .draft import Draft
from .schema import Column, identifier
from .types import Type


def alter_table(context: Context, draft: Draft) -> str:
    """ADD, DROP, ADD again what was dropped (with its type, or with another one, which is refused), RENAME of a key."""
    table, rng = context.table, context.rng
    way = rng.random()
    if way < 0.1:
        return _rename(context)
    if way < 0.5 and context.drops_columns and len(table.values) > (1 if table.counter else 0):
        return _drop(context)
    if way < 0.75 and table.dropped:
        column = rng.choice(table.dropped)
        if rng.random() < 0.15:
            return f"ALTER TABLE {table.name} ADD {column.cql} {'int' if column.type.kind != 'int' else 'text'}"
        if column.type.kind == "counter":  # a counter's name is not given twice
            return f"ALTER TABLE {table.name} ADD {column.cql} counter"
        table.dropped.remove(column)
    else:
        static = bool(table.clustering) and rng.random() < 0.25
        kind = Type("counter") if table.counter else context.shapes.value()
        column = Column(f"a{len(table.columns) + len(table.dropped)}", kind, "static" if static else "regular")
        if any(column.name == other.name for other in table.columns + table.dropped):
            column.name += "_"
    table.columns.append(column)
    return f"ALTER TABLE {table.name} ADD {column.cql} {column.type.cql}{' static' if column.role == 'static' else ''}"


def _drop(context: Context) -> str:
    table = context.table
    column = context.rng.choice(table.values)
    table.columns.remove(column)
    table.dropped.append(column)
    stamp = context.drop_stamp()
    return f"ALTER TABLE {table.name} DROP {column.cql}{'' if stamp is None else f' USING TIMESTAMP {stamp}'}"


def _rename(context: Context) -> str:
    table = context.table
    column = context.rng.choice(table.columns)
    name = f"r{len(table.columns)}{context.rng.randint(0, 9)}"
    if table.dropped and context.chance(0.5):
        name = context.rng.choice(table.dropped).name
    text = f"ALTER TABLE {table.name} RENAME {column.cql} TO {identifier(name)}"
    if column.role in ("partition", "clustering") and all(name != other.name for other in table.columns):
        column.name = name
        # A column of this name can be added no more.
        table.dropped = [other for other in table.dropped if other.name != name]
    return text


def alter_type(context: Context, draft: Draft) -> str:
    """ADD a field or RENAME one. A type that a key uses takes no new field."""
    definitions = context.shapes.definitions
    if not definitions:
        draft.failed = True
        return ""
    definition = context.rng.choice(definitions)
    context.pool.forget_values()
    number = len(definition.fields)
    if context.chance(0.4):
        old, kind = context.rng.choice(definition.fields)
        new = f"g{number}{context.rng.randint(0, 99)}"
        if all(new != name for name, _ in definition.fields):
            definition.fields[definition.fields.index((old, kind))] = (new, kind)
        return f"ALTER TYPE @ks@.{definition.name} RENAME {old} TO {new}"
    name, kind = f"f{number}_{context.rng.randint(0, 9)}", context.shapes.scalar()
    if any(name == other for other, _ in definition.fields):
        draft.failed = True
        return ""
    in_key = any(column.type.uses(definition) for column in context.table.partition + context.table.clustering)
    if not in_key:
        definition.fields.append((name, kind))
    return f"ALTER TYPE @ks@.{definition.name} ADD {name} {kind.cql}"


def truncate(context: Context, draft: Draft) -> str:
    return f"TRUNCATE {context.rng.choice(('', 'TABLE '))}{context.table.name}"


def create_again(context: Context, draft: Draft) -> str:
    """A CREATE of the table, which exists already."""
    text = context.table.create()
    return text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1) if context.chance(0.3) else text

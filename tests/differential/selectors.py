"""Selectors of a SELECT: columns, elements, functions, casts, arithmetic, aggregates."""

from __future__ import annotations

from .context import Context
from .draft import Draft
from .schema import Column
from .types import NUMBERS, Type

CASTS = {"tinyint": ("int", "text"), "smallint": ("int", "tinyint", "ascii"), "int": ("bigint", "tinyint", "text", "double", "decimal"),
         "bigint": ("int", "smallint", "varint", "float", "text"), "varint": ("bigint", "int", "text", "double"),
         "float": ("int", "double", "text", "decimal"), "double": ("float", "bigint", "text", "varint"),
         "decimal": ("int", "double", "text", "varint", "float"), "boolean": ("text", "ascii"), "ascii": ("text",),
         "timestamp": ("date", "text"), "date": ("timestamp", "text"), "time": ("text",), "uuid": ("text",), "inet": ("text",),
         "timeuuid": ("timestamp", "date", "text")}
COLLECTION_FUNCTIONS = {"map": ("map_keys", "map_values", "collection_count"),
                        "set": ("collection_count", "collection_min", "collection_max", "collection_sum", "collection_avg"),
                        "list": ("collection_count", "collection_min", "collection_max", "collection_sum", "collection_avg")}
MATHS = ("abs", "exp", "log", "log10", "round")


def selection(context: Context, draft: Draft) -> str:
    """A list of plain columns, or of anything else."""
    rng, columns = context.rng, context.table.columns
    if rng.random() < 0.3:
        return "*"
    if rng.random() < 0.4:
        return ", ".join(column.cql for column in rng.sample(columns, rng.randint(1, len(columns))))
    parts = [selector(context, draft, rng.choice(columns)) for _ in range(rng.randint(1, 4))]
    return ", ".join(f"{part} AS x{number}" if rng.random() < 0.15 and "time(" not in part and "ttl(" not in part else part
                     for number, part in enumerate(parts))


def selector(context: Context, draft: Draft, column: Column) -> str:
    rng, kind, name = context.rng, column.type, column.cql
    ways = [_plain, _json]
    if column.role in ("regular", "static"):
        ways += [_write_time]
        if kind.kind in ("map", "set"):
            ways += [_element, _element]
        if kind.kind == "udt":
            ways += [_field, _field]
    if kind.kind in COLLECTION_FUNCTIONS:
        ways += [_collection]
    if kind.kind in CASTS:
        ways += [_cast]
    if kind.kind in NUMBERS:
        ways += [_arithmetic, _maths]
    if kind.scalar:
        ways += [_blob]
    if kind.kind in ("timestamp", "date", "timeuuid"):
        ways += [_time]
    if kind.kind == "vector":
        ways += [_similarity]
    if rng.random() < 0.06:
        return rng.choice((_token(context), f"mask_default({name})", f"mask_null({name})", "count(*)"))
    return rng.choice(ways)(context, draft, name, kind)


def _plain(context: Context, draft: Draft, name: str, kind: Type) -> str:
    return name


def _json(context: Context, draft: Draft, name: str, kind: Type) -> str:
    return f"to_json({name})"  # as toJson, its column is named after whichever of the two was first used in Cassandra's process


def _write_time(context: Context, draft: Draft, name: str, kind: Type) -> str:
    functions = ("writetime", "ttl", "maxwritetime") if kind.many_cells else ("writetime", "writetime", "ttl", "ttl", "maxwritetime")
    function = context.rng.choice(functions)
    if kind.many_cells and context.rng.random() < 0.3:
        if kind.kind == "udt":
            return f"{function}({name}.{context.rng.choice(kind.definition.fields)[0]})"
        if kind.kind in ("map", "set"):
            return f"{function}({name}[{context.value(kind.parts[0]).literal}])"
    return f"{function}({name})"


def _element(context: Context, draft: Draft, name: str, kind: Type) -> str:
    part = kind.parts[0]
    if context.rng.random() < 0.6:
        return f"{name}[{draft.term(lambda: context.value(part))}]"
    low = draft.term(lambda: context.value(part)) if context.rng.random() < 0.8 else ""
    high = draft.term(lambda: context.value(part)) if context.rng.random() < 0.8 or not low else ""
    return f"{name}[{low}..{high}]"


def _field(context: Context, draft: Draft, name: str, kind: Type) -> str:
    return f"{name}.{context.rng.choice(kind.definition.fields)[0]}"


def _collection(context: Context, draft: Draft, name: str, kind: Type) -> str:
    return f"{context.rng.choice(COLLECTION_FUNCTIONS[kind.kind])}({name})"


def _cast(context: Context, draft: Draft, name: str, kind: Type) -> str:
    return f"CAST({name} AS {context.rng.choice(CASTS[kind.kind])})"


def _arithmetic(context: Context, draft: Draft, name: str, kind: Type) -> str:
    rng = context.rng
    small = rng.choice(("2", "-1", "0", "3", "1.5", "10"))
    other = rng.choice([column.cql for column in context.table.columns if column.type.kind in NUMBERS])
    return rng.choice((f"{name} {rng.choice('+-*/%')} {small}", f"{name} {rng.choice('+-*')} {other}", f"-{name}",
                       f"({name} + {small}) * {name}"))


def _maths(context: Context, draft: Draft, name: str, kind: Type) -> str:
    # Of these two Cassandra works out any number of digits of the others, the node those of a double.
    functions = ("abs", "round") if kind.kind in ("varint", "decimal") else MATHS
    return f"{context.rng.choice(functions)}({name})"


def _blob(context: Context, draft: Draft, name: str, kind: Type) -> str:
    if kind.kind == "blob":
        return f"{context.rng.choice(('blobAsText', 'blob_as_int', 'blobasbigint'))}({name})"
    return f"{context.rng.choice((f'{kind.kind}AsBlob', f'{kind.kind}_as_blob'))}({name})"


def _time(context: Context, draft: Draft, name: str, kind: Type) -> str:
    functions = {"timestamp": ("toDate", "to_unix_timestamp", "minTimeuuid", "max_timeuuid"),
                 "date": ("toTimestamp", "to_unix_timestamp"), "timeuuid": ("toDate", "to_timestamp", "toUnixTimestamp")}
    if kind.kind != "timeuuid" and context.rng.random() < 0.3:
        return f"floor({name}, {context.rng.choice(('1h', '1d', '1mo', '2y', '3d'))})"
    return f"{context.rng.choice(functions[kind.kind])}({name})"


def _similarity(context: Context, draft: Draft, name: str, kind: Type) -> str:
    function = context.rng.choice(("similarity_cosine", "similarity_euclidean", "similarity_dot_product"))
    return f"{function}({name}, {context.value(kind).literal})"


def _token(context: Context) -> str:
    return f"token({', '.join(column.cql for column in context.table.partition)})"


def aggregates(context: Context, draft: Draft) -> str:
    """COUNT, MIN, MAX, SUM, AVG of whatever column may have them, sometimes beside a plain column."""
    rng, columns = context.rng, context.table.columns
    parts = []
    for _ in range(rng.randint(1, 3)):
        column = rng.choice(columns)
        functions = ("count", "min", "max", "sum", "avg") if column.type.kind in NUMBERS + ("counter",) else ("count", "min", "max")
        parts.append(f"{rng.choice(functions)}({column.cql})" if rng.random() < 0.5 else rng.choice(("count(*)", "count(1)")))
    if rng.random() < 0.2:
        parts.append(rng.choice(columns).cql)
    return ", ".join(parts)


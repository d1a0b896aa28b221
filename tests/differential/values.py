"""Random values: as a CQL literal, as the protocol's bytes and as JSON.

Boundaries are drawn often, and everything comes from small domains: values must meet each other to show what a tie, an
overwriting or a condition does.
"""

from __future__ import annotations

import ipaddress
import json
import math
import struct
import uuid
from decimal import Decimal
from random import Random
from typing import Callable, NamedTuple

from cassandra.marshal import varint_pack, vints_pack

from .types import Type


class Value(NamedTuple):
    literal: str
    data: bytes | None
    json: str
    parts: object = None  # of a collection or tuple, so that equal values have equal ones

    @property
    def identity(self) -> object:
        """The same for values that Cassandra takes for equal, in whatever order their parts are written."""
        return self.data if self.parts is None else self.parts


NULL = Value("null", None, "null")


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def text_value(text: str) -> Value:
    return Value(quote(text), text.encode(), json.dumps(text))


def blob_value(data: bytes) -> Value:
    return Value("0x" + data.hex(), data, f'"0x{data.hex()}"')


def _integer(bits: int) -> Callable[[Random], Value]:
    top = 2 ** (bits - 1)
    boundaries = (0, 1, -1, top - 1, -top, top - 2)
    pack = {8: ">b", 16: ">h", 32: ">i", 64: ">q"}[bits]

    def draw(rng: Random) -> Value:
        return integer_value(rng.choice(boundaries) if rng.random() < 0.4 else rng.randint(-5, 20), pack)

    return draw


def integer_value(number: int, pack: str = ">i") -> Value:
    return Value(str(number), struct.pack(pack, number), str(number))


def _varint(rng: Random) -> Value:
    number = rng.choice((0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), 2**64, -(10**40), 10**60))
    if rng.random() < 0.5:
        number = rng.randint(-300, 300)
    return Value(str(number), varint_pack(number), str(number))


DECIMALS = ("0", "0.00", "-0.5", "1", "1.00", "10", "1E+1", "-1E-10", "123456789012345678901234567890.123456789",
            "-99999999999999999999", "1E+300", "-1E-300", "3.14", "2.5", "-7", "100.001")

# As clustering values, 1 and 1.00 are the same row; the first is shown until Cassandra flushes the table, and then it depends.
CLUSTERING_DECIMALS = ("0", "1", "10", "-0.500", "-1.0E-10", "123456789012345678901234567890.1234567890", "-999999999999999999990E-1",
                       "1.00E+300", "-10E-301", "3.140", "2.50", "-7.0", "1000010E-4", "5E+1")

# In a partition key 1 and 1.00 are two partitions, of which IN finds one.
DISTINCT_DECIMALS = tuple(text for text in DECIMALS if text not in ("0.00", "1.00", "1E+1"))


def _decimal(rng: Random) -> Value:
    return decimal_value(rng.choice(DECIMALS))


def decimal_value(text: str) -> Value:
    sign, digits, exponent = Decimal(text).as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return Value(text, struct.pack(">i", -exponent) + varint_pack(unscaled), text)


FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, math.nan, math.inf, -math.inf, 1e-3, 1e7, 12345678.9)


def _floating(pack: str, extremes: tuple[float, ...]) -> Callable[[Random], Value]:
    def draw(rng: Random) -> Value:
        number = rng.choice(FLOATS + extremes)
        if rng.random() < 0.3:
            number = rng.randint(-40, 40) / 8
        special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(number))
        return Value(special or repr(number), struct.pack(pack, number), f'"{special}"' if special else repr(number))

    return draw


def _boolean(rng: Random) -> Value:
    flag = rng.random() < 0.5
    return Value(str(flag).lower(), bytes([flag]), str(flag).lower())


TEXTS = ("", "a", "b", "ab", "A", "it's", 'quo"te', "new\nline", "back\\slash", "ünïcödé", "日本", "\U0001f600", " ", "0", "z" * 300)


def _text(rng: Random) -> Value:
    return text_value(rng.choice(TEXTS) if rng.random() < 0.5 else rng.choice("abcd") + rng.choice("xyz"))


def _ascii(rng: Random) -> Value:
    return text_value(rng.choice([text for text in TEXTS if text.isascii()]))


def _blob(rng: Random) -> Value:
    return blob_value(rng.choice((b"", b"\0", b"\0\0", b"\xff", b"\x80", b"\x7f", b"ab", b"\x01" * 200, rng.randbytes(2))))


def _uuid(rng: Random) -> Value:
    chosen = rng.choice((0, 2**128 - 1, 0x12345678_1234_4234_8234_123456789ABC, 0x92345678_1234_4234_C234_123456789ABC,
                         0x00000001_0000_1000_8000_000000000000, 0xF0000001_0000_1000_8000_000000000000))
    return uuid_value(uuid.UUID(int=chosen))


def uuid_value(value: uuid.UUID) -> Value:
    return Value(str(value), value.bytes, f'"{value}"')


def _timeuuid(rng: Random) -> Value:
    return uuid_value(uuid.UUID(rng.choice((
        "00000000-0000-1000-8080-808080808080", "ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f",
        "e23f1e00-5d1c-11ee-8c99-0242ac120002", "e23f1e00-5d1c-11ee-0c99-0242ac120002",
        "e23f1e01-5d1c-11ee-8c99-0242ac120002", "00000000-5d1d-11ee-8c99-0242ac120002",
        "e23f1e00-5d1c-11ee-ffff-ffffffffffff", "ffffffff-0000-1000-8000-000000000000"))))


def _inet(rng: Random) -> Value:
    address = ipaddress.ip_address(rng.choice(("0.0.0.0", "127.0.0.1", "255.255.255.255", "10.1.2.3", "::", "::1",
                                               "2001:db8::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "1:0:0:2::3")))
    return Value(f"'{address}'", address.packed, f'"{address}"')


TIMESTAMPS = ((0, "'1970-01-01'"), (-1, "-1"), (1_700_000_000_123, "'2023-11-14 22:13:20.123+0000'"),
              (1_700_000_000_000, "'2023-11-15T00:13:20+02:00'"), (2**63 - 1, str(2**63 - 1)), (-(2**63), str(-(2**63))),
              (253_402_300_800_000, "253402300800000"), (-62_135_596_800_001, "-62135596800001"), (7, "7"), (1000, "1000"))


def _timestamp(rng: Random) -> Value:
    number, literal = rng.choice(TIMESTAMPS)
    return Value(literal, struct.pack(">q", number), f'"{literal[1:-1]}"' if literal[0] == "'" else literal)


DATES = ((0, "'-5877641-06-23'"), (2**32 - 1, str(2**32 - 1)), (2**31, "'1970-01-01'"), (2**31 - 1, "'1969-12-31'"),
         (2**31 + 19_782, "'2024-02-29'"), (2**31 + 19_783, str(2**31 + 19_783)), (1, "1"),
         (2**31 + 2_932_896, "'9999-12-31'"))


def _date(rng: Random) -> Value:
    number, literal = rng.choice(DATES)
    return Value(literal, struct.pack(">I", number), f'"{literal[1:-1]}"' if literal[0] == "'" else f'"{literal}"')


TIMES = ((0, "'00:00:00'"), (86_399_999_999_999, "'23:59:59.999999999'"), (1, "1"), (43_200_000_000_000, "'12:00:00.000'"),
         (5_000_000, "'00:00:00.005'"))


def _time(rng: Random) -> Value:
    number, literal = rng.choice(TIMES)
    return Value(literal, struct.pack(">q", number), f'"{literal[1:-1]}"' if literal[0] == "'" else f'"{literal}"')


DURATIONS = (((0, 0, 0), "0s"), ((14, 3, 5), "1y2mo3d5ns"), ((-1, -2, -3), "-1mo2d3ns"), ((2**31 - 1, 0, 0), "2147483647mo"),
             ((0, 2**31 - 1, 2**63 - 1), "2147483647d9223372036854775807ns"), ((0, 0, 90_000_000_000), "1m30s"),
             ((12, 0, 0), "P1Y"), ((0, 30, 0), "30d"), ((1, 0, 0), "P1M"), ((0, 7, 0), "1w"))


def _duration(rng: Random) -> Value:
    parts, literal = rng.choice(DURATIONS)
    return Value(literal, vints_pack(parts), f'"{literal}"')


DRAW: dict[str, Callable[[Random], Value]] = {
    "tinyint": _integer(8), "smallint": _integer(16), "int": _integer(32), "bigint": _integer(64), "varint": _varint,
    "decimal": _decimal, "boolean": _boolean, "text": _text, "ascii": _ascii, "blob": _blob, "uuid": _uuid,
    "float": _floating(">f", (3.4028234663852886e38, 1.401298464324817e-45)), "timeuuid": _timeuuid, "inet": _inet,
    "double": _floating(">d", (1.7976931348623157e308, 5e-324)), "timestamp": _timestamp, "date": _date, "time": _time,
    "duration": _duration, "counter": _integer(64),
}
EMPTY_ALLOWED = ("tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double", "boolean", "uuid",
                 "timeuuid", "inet", "timestamp")


SIZES = (0, 1, 1, 2, 3)


def draw(rng: Random, kind: Type, sizes: tuple[int, ...] = SIZES) -> Value:
    """A value of the type, never null itself; `sizes` are those that its sets and maps may have."""
    if kind.scalar or kind.kind == "counter":
        return DRAW[kind.kind](rng)
    if kind.kind == "map":
        keys, values = kind.parts
        return map_value([(draw(rng, keys, sizes), draw(rng, values, sizes)) for _ in range(rng.choice(sizes))])
    if kind.kind in ("list", "set"):
        count = rng.choice(SIZES if kind.kind == "list" else sizes)
        return collection_value(kind.kind, [draw(rng, kind.parts[0], sizes) for _ in range(count)])
    if kind.kind == "vector":
        return vector_value([draw(rng, kind.parts[0], sizes) for _ in range(kind.dimension)])
    parts = [NULL if rng.random() < 0.15 else draw(rng, part, sizes) for part in kind.children()]
    if kind.kind == "tuple":
        return tuple_value(parts)
    names = [name for name, _ in kind.definition.fields]
    if sizes is SIZES and rng.random() < 0.15:  # a value from before a field was added; the node's keys have all fields
        parts = parts[:rng.randint(1, len(parts))]
    return udt_value(names[:len(parts)], parts)


def _with_length(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def collection_value(kind: str, values: list[Value]) -> Value:
    text = ", ".join(value.literal for value in values)
    data = struct.pack(">i", len(values)) + b"".join(_with_length(value.data) for value in values)
    identities = [value.identity for value in values]
    return Value(f"[{text}]" if kind == "list" else f"{{{text}}}", data, f"[{', '.join(value.json for value in values)}]",
                 tuple(identities) if kind == "list" else frozenset(identities))


def map_value(pairs: list[tuple[Value, Value]]) -> Value:
    """No key twice: Cassandra keeps a literal's entries by the identity of objects, so that any of the two may win."""
    pairs = list({key.identity: (key, value) for key, value in pairs}.values())
    literal = "{" + ", ".join(f"{key.literal}: {value.literal}" for key, value in pairs) + "}"
    data = struct.pack(">i", len(pairs)) + b"".join(_with_length(part.data) for pair in pairs for part in pair)
    names = [key.json if key.json.startswith('"') else json.dumps(key.json) for key, _ in pairs]
    members = (f"{name}: {value.json}" for name, (_, value) in zip(names, pairs))
    return Value(literal, data, "{" + ", ".join(members) + "}", frozenset((key.identity, value.identity) for key, value in pairs))


def tuple_value(parts: list[Value]) -> Value:
    return Value(f"({', '.join(part.literal for part in parts)})", b"".join(_with_length(part.data) for part in parts),
                 f"[{', '.join(part.json for part in parts)}]", _identities(parts))


def _identities(parts: list[Value]) -> tuple:
    """The identities of the parts, without the nulls at the end: a missing part is null."""
    identities = [part.identity for part in parts]
    while identities and identities[-1] is None:
        identities.pop()
    return tuple(identities)


def udt_value(names: list[str], parts: list[Value]) -> Value:
    literal = "{" + ", ".join(f"{name}: {part.literal}" for name, part in zip(names, parts)) + "}"
    members = ", ".join(f'"{name}": {part.json}' for name, part in zip(names, parts))
    return Value(literal, b"".join(_with_length(part.data) for part in parts), "{" + members + "}", _identities(parts))


def vector_value(parts: list[Value]) -> Value:
    text = ", ".join(part.literal for part in parts)
    return Value(f"[{text}]", b"".join(part.data for part in parts), f"[{', '.join(part.json for part in parts)}]")


class Pool:
    """The values one stretch of a sequence draws from: few of each type, so that keys collide."""

    VALUES = 5

    def __init__(self, rng: Random, keys: int):
        self._rng, self._size = rng, keys
        self._keys: dict[str, list[Value]] = {}
        self._values: dict[str, list[Value]] = {}

    def key(self, kind: Type, clustering: bool = False) -> Value:
        draw = self._clustering if clustering and kind.kind == "decimal" else self._key
        return self._rng.choice(self._of(self._keys, kind, self._size, draw))

    def value(self, kind: Type) -> Value:
        return self._rng.choice(self._of(self._values, kind, self.VALUES, lambda wanted: draw(self._rng, wanted)))

    def forget_values(self) -> None:
        """After a type changed; keys stay, so that rows written before are met again."""
        self._values.clear()

    def _of(self, pools: dict, kind: Type, size: int, make: Callable[[Type], Value]) -> list[Value]:
        name = kind.cql, make == self._clustering
        pool = pools.get(name)
        if pool is None:
            pool = pools[name] = [make(kind) for _ in range(size)]
        return pool

    def _key(self, kind: Type) -> Value:
        if kind.kind == "decimal":
            return _quoted(decimal_value(self._rng.choice(DISTINCT_DECIMALS)))
        # Cassandra puts the elements of a bound set in order, but not if it is a clustering column in descending order.
        return draw(self._rng, kind, (0, 1, 1))

    def _clustering(self, kind: Type) -> Value:
        """A decimal with zeros at its end."""
        return _quoted(decimal_value(self._rng.choice(CLUSTERING_DECIMALS)))


def _quoted(value: Value) -> Value:
    """The value as a text of JSON. A bare number would become a double, and get more zeros."""
    return value._replace(json=f'"{value.literal}"')

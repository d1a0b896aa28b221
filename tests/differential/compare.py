"""Whether two answers to one statement are the same."""

from __future__ import annotations

import math
import struct
import time
from collections import Counter
from dataclasses import dataclass

from .outcome import Outcome
from .step import Step

CLOCK_SINCE = 1_600_000_000_000_000  # µs: timestamps that servers made are between this
CLOCK_AHEAD = 3_600_000_000  # and so far after now
NAN = -1  # instead of a size: a number that may be none
VARINT = -2  # a number that may have more bytes than it needs: Cassandra keeps those of the operation that made it
TTL_TOLERANCE_SECONDS = 400  # times to live of a sequence are 1,000 s apart


@dataclass
class Difference:
    """`aspect` is error, kind, columns, prepared, rows, order, page or detail; `signature` groups what is alike."""

    step: Step
    aspect: str
    ours: Outcome
    cassandra: Outcome
    signature: str = ""
    index: int = 0


def compare(step: Step, ours: Outcome, cassandra: Outcome) -> Difference | None:
    """The first difference, from the coarse to the fine."""
    aspect = _aspect(step, ours, cassandra)
    if aspect is None:
        return None
    what = f"{step.kind}: {aspect}"
    if aspect in ("error", "kind"):
        what += f" (Cassandra {_brief(cassandra)}, ours {_brief(ours)})"
    return Difference(step, aspect, ours, cassandra, what)


def _brief(outcome: Outcome) -> str:
    return outcome.error if outcome.kind == "error" else outcome.kind


def _aspect(step: Step, ours: Outcome, cassandra: Outcome) -> str | None:
    if ours.kind != cassandra.kind:
        return "error" if "error" in (ours.kind, cassandra.kind) else "kind"
    if ours.kind == "error":
        if ours.code != cassandra.code:
            return "error"
        return "detail" if ours.detail != cassandra.detail else None
    if None not in (ours.prepared, cassandra.prepared) and ours.prepared != cassandra.prepared:
        return "prepared"
    if ours.detail != cassandra.detail:
        return "detail"
    if ours.kind != "rows":
        return None
    if ours.columns != cassandra.columns:
        return "columns"
    # Cassandra itself exceeds it with GROUP BY over several partitions.
    if step.page_size and max(ours.pages, default=0) > max([step.page_size, *cassandra.pages]):
        return "page"
    if ours.rows == cassandra.rows:
        return None
    return _rows(ours, cassandra)


def _rows(ours: Outcome, cassandra: Outcome) -> str | None:
    loose = {"float": NAN, "double": NAN, "varint": VARINT}
    sizes = [loose.get(kind) or _clock_size(name) for name, kind in cassandra.columns]
    if len(ours.rows) == len(cassandra.rows) and all(
            _same(sizes, mine, other) for mine, other in zip(ours.rows, cassandra.rows)):
        return None
    return "order" if Counter(ours.rows) == Counter(cassandra.rows) else "rows"


def _clock_size(column: str) -> int | None:
    """The bytes of a number that depends on the server's clock; None for a column that is compared exactly."""
    if column.startswith(("writetime(", "maxwritetime(")):
        return 8
    return 4 if column.startswith("ttl(") else None


def _same(sizes: list, mine: tuple, other: tuple) -> bool:
    return all(a == b or (size is not None and _near(a, b, size)) for size, a, b in zip(sizes, mine, other))


def _both_nan(mine: bytes, other: bytes) -> bool:
    """True if both are NaN: the processor decides which of the many bit patterns an operation gives."""
    pack = {4: ">f", 8: ">d"}.get(len(mine))
    return pack is not None and all(math.isnan(struct.unpack(pack, value)[0]) for value in (mine, other))


def _near(mine: bytes | None, other: bytes | None, size: int) -> bool:
    """Every number made by a clock and close to the other side's. What a statement gave has to be exact."""
    if mine is None or other is None:
        return False
    if size == VARINT:
        return bool(mine and other) and int.from_bytes(mine, "big", signed=True) == int.from_bytes(other, "big", signed=True)
    if len(mine) != len(other):
        return False
    if size == NAN:
        return _both_nan(mine, other)
    close = _near_now if size == 8 else _near_ttl
    return all(a == b or None not in (a, b) and close(a, b) for a, b in zip(_numbers(mine, size), _numbers(other, size)))


def _near_now(mine: int, other: int) -> bool:
    return CLOCK_SINCE < min(mine, other) and max(mine, other) < time.time() * 1_000_000 + CLOCK_AHEAD


def _near_ttl(mine: int, other: int) -> bool:
    return abs(mine - other) <= TTL_TOLERANCE_SECONDS


def _numbers(value: bytes, size: int) -> list[int | None]:
    """The number, or those of a list: a collection has one for each of its cells."""
    pack = ">q" if size == 8 else ">i"
    if len(value) == size:
        return [struct.unpack(pack, value)[0]]
    numbers: list[int | None] = []
    at = 4
    while at + 4 <= len(value):
        length = struct.unpack_from(">i", value, at)[0]
        at += 4
        whole = length == size and at + size <= len(value)
        numbers.append(struct.unpack_from(pack, value, at)[0] if whole else None)
        at += max(length, 0)
    return numbers

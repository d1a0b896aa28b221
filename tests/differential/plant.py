"""Answers falsified on purpose: proof that the comparison sees each sort of difference."""

from __future__ import annotations

from collections import Counter
from typing import Callable

from .outcome import Outcome
from .step import Step

Change = Callable[[Step, Outcome], Outcome | None]


def changed_value(step: Step, outcome: Outcome) -> Outcome | None:
    """One byte of one value, or a null that is none."""
    for number, row in enumerate(outcome.rows):
        for column, value in enumerate(row):
            if step.kind.startswith("select.times"):
                continue  # within tolerance, a clock's value may differ
            other = b"\0" if not value else bytes([value[0] ^ 1]) + value[1:]
            rows = list(outcome.rows)
            rows[number] = row[:column] + (other,) + row[column + 1:]
            return outcome.altered(rows=rows)
    return None


def missing_row(step: Step, outcome: Outcome) -> Outcome | None:
    return outcome.altered(rows=outcome.rows[:-1]) if outcome.rows else None


def other_order(step: Step, outcome: Outcome) -> Outcome | None:
    if len(outcome.rows) < 2 or outcome.rows[0] == outcome.rows[-1]:
        return None
    return outcome.altered(rows=[outcome.rows[-1], *outcome.rows[1:-1], outcome.rows[0]])


def other_error(step: Step, outcome: Outcome) -> Outcome | None:
    return outcome.altered(code=0x2300) if outcome.kind == "error" and outcome.code == 0x2200 else None


def no_error(step: Step, outcome: Outcome) -> Outcome | None:
    return Outcome("void") if outcome.kind == "error" and not step.reads else None


def larger_page(step: Step, outcome: Outcome) -> Outcome | None:
    """Two pages as one."""
    if len(outcome.pages) < 2 or outcome.pages[1] == 0:
        return None
    return outcome.altered(pages=[outcome.pages[0] + outcome.pages[1], *outcome.pages[2:]])


def other_column_type(step: Step, outcome: Outcome) -> Outcome | None:
    if not outcome.columns:
        return None
    (name, _), *rest = outcome.columns
    return outcome.altered(columns=((name, "nothing"), *rest))


def not_applied(step: Step, outcome: Outcome) -> Outcome | None:
    """The flag of a conditional write."""
    if not step.kind.startswith("lwt") or not outcome.rows:
        return None
    (flag, *rest), *others = outcome.rows
    return outcome.altered(rows=[(bytes([flag[0] ^ 1]), *rest), *others])


def other_markers(step: Step, outcome: Outcome) -> Outcome | None:
    if not outcome.prepared or not outcome.prepared[0]:
        return None
    return outcome.altered(prepared=((), *outcome.prepared[1:]))


def other_write_time(step: Step, outcome: Outcome) -> Outcome | None:
    """A timestamp that a statement gave, one off."""
    for number, row in enumerate(outcome.rows):
        for column, (name, kind) in enumerate(outcome.columns):
            value = row[column]
            if name.startswith("writetime(") and kind == "bigint" and value and value[:2] == b"\x00\x03":
                rows = list(outcome.rows)
                rows[number] = row[:column] + (value[:-1] + bytes([value[-1] ^ 1]),) + row[column + 1:]
                return outcome.altered(rows=rows)
    return None


# What is changed, and as what the comparison has to name it.
CHANGES: dict[str, tuple[Change, str]] = {
    "value": (changed_value, "rows"), "row": (missing_row, "rows"), "order": (other_order, "order"), "error": (other_error, "error"),
    "no error": (no_error, "error"), "page": (larger_page, "page"), "type": (other_column_type, "columns"),
    "applied": (not_applied, "rows"), "markers": (other_markers, "prepared"), "write time": (other_write_time, "rows"),
}


class Planted:
    """An endpoint that changes every `every`th answer that can be changed."""

    def __init__(self, endpoint, change: Change, every: int = 5):
        self._endpoint, self._change, self._every = endpoint, change, every
        self.keyspace = endpoint.keyspace
        self.counts: Counter = Counter()

    def submit(self, step: Step, names, done: Callable[[Outcome], None]) -> None:
        self._endpoint.submit(step, names, lambda outcome: done(self._falsified(step, outcome)))

    def _falsified(self, step: Step, outcome: Outcome) -> Outcome:
        changed = self._change(step, outcome)
        if changed is None:
            return outcome
        self.counts["possible"] += 1
        if self.counts["possible"] % self._every:
            return outcome
        self.counts["planted"] += 1
        return changed

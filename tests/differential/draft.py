"""A statement while it is written: every value becomes a literal in the text or a bind marker, by the statement's form."""

from __future__ import annotations

from random import Random
from typing import Callable

from .step import BOUND, LITERAL, PREPARED, UNSET, Step
from .values import NULL, Value, integer_value

Pick = Callable[[], Value]


class Draft:
    """Collects the text's values. What picks a value is kept: a prepared statement runs again with other values."""

    def __init__(self, rng: Random, form: str):
        self.rng, self.form = rng, form
        self._picks: list[Callable[[], object]] = []
        self._first: list[object] = []
        self.failed = False  # a form of statement that this table has no use for

    @classmethod
    def random(cls, rng: Random) -> Draft:
        return cls(rng, rng.choices((LITERAL, BOUND, PREPARED), (50, 25, 25))[0])

    def term(self, pick: Pick, nulls: bool = False) -> str:
        """A value; with `nulls`, sometimes null or, where it is bound, not sent at all."""
        if nulls and self.rng.random() < 0.1:
            if self.form != LITERAL and self.rng.random() < 0.6:
                return self.marker(lambda: UNSET, UNSET)
            pick = _null
        value = pick()
        if self.form == LITERAL or self.rng.random() < 0.1:
            return value.literal
        return self.marker(lambda: pick().data, value.data)

    def number(self, pick: Callable[[], int], pack: str = ">i") -> str:
        """A limit, a time to live, a timestamp."""
        return self.term(lambda: integer_value(pick(), pack))

    def marker(self, pick: Callable[[], object], first: object) -> str:
        """A bind marker whose value now is `first`."""
        self._picks.append(pick)
        self._first.append(first)
        return "?"

    def step(self, kind: str, text: str, **more) -> Step:
        if not self._picks:
            return Step(kind, text, PREPARED if self.form == PREPARED else LITERAL, [] if self.form == PREPARED else None, **more)
        return Step(kind, text, self.form, list(self._first), **more)

    def values_again(self) -> list[object]:
        return [pick() for pick in self._picks]


def _null() -> Value:
    return NULL

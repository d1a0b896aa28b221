"""The differences that are intended, each with its reason; whatever is not here is a failure.

An entry says as narrowly as it can what it is about. A run counts how often each was used; one that a long run never
uses is to be removed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Callable

from .compare import Difference


@dataclass(frozen=True)
class Expected:
    """`ends` is whether the two sides' data may differ from here on, so that the sequence says no more."""

    name: str
    reason: str
    matches: Callable[[Difference], bool]
    ends: bool = False


EXPECTED: tuple[Expected, ...] = ()


def find(difference: Difference, uses: Counter) -> Expected | None:
    """The entry this difference falls under, counted in `uses`."""
    for entry in EXPECTED:
        if entry.matches(difference):
            uses[entry.name] += 1
            return entry
    return None

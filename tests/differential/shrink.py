"""Makes a failing sequence short: steps are left out as long as the same difference stays."""

from __future__ import annotations

import time

from .runner import Failure, Runner
from .step import Step

ATTEMPTS_MAX = 120
SECONDS_MAX = 60


class Shrinker:
    """Runs shorter and shorter sequences, each on tables of its own."""

    def __init__(self, ours, cassandra, label: str = "", seconds: float = SECONDS_MAX):
        self._sides, self._label, self._seconds = (ours, cassandra), label, seconds
        self.attempts = 0

    def shrink(self, failure: Failure) -> Failure:
        """The shortest found; `minimised` is whether it was seen to fail again at all."""
        deadline = time.monotonic() + self._seconds
        last = failure.steps[-1]
        best = self._try([step for step in failure.steps[:-1] if not step.reads] + [last], failure)
        best = best or self._try(failure.steps, failure)
        if best is None:
            return failure
        size = max(1, len(best.steps) // 2)
        while self.attempts < ATTEMPTS_MAX and time.monotonic() < deadline:
            shorter = self._without_chunk(best, size, deadline)
            if shorter is not None:
                best = shorter
                size = min(size, max(1, len(best.steps) // 2))
            elif size == 1:
                break
            else:
                size = size // 2
        best.minimised = True
        return best

    def _without_chunk(self, failure: Failure, size: int, deadline: float) -> Failure | None:
        """The first that still fails with `size` steps less; the last step always stays."""
        steps = failure.steps
        for start in range(max(len(steps) - 1 - size, 0), -1, -size):
            if self.attempts >= ATTEMPTS_MAX or time.monotonic() > deadline:
                return None
            shorter = self._try(steps[:start] + steps[min(start + size, len(steps) - 1):], failure)
            if shorter is not None:
                return shorter
        return None

    def _try(self, steps: list[Step], failure: Failure) -> Failure | None:
        self.attempts += 1
        runner = Runner(*self._sides, label=f"{self._label}s")
        tally = runner.run(iter([(failure.number, steps)]), 1)
        for found in tally.failures:
            if found.difference.signature == failure.difference.signature:
                return Failure(failure.number, found.steps, found.difference)
        return None

"""Runs sequences on both endpoints at once, many at a time, from one thread."""

from __future__ import annotations

import queue
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Iterator

from . import expected
from .compare import Difference, compare
from .endpoint import Names
from .outcome import Outcome, lost
from .step import Step

READS_TOGETHER = 8
DIFFERENCES_PER_SEQUENCE = 6
PATIENCE_SECONDS = 180
MESSAGE_CHARACTERS = 160


@dataclass
class Failure:
    """A difference and the steps that led to it."""

    number: int
    steps: list[Step]
    difference: Difference
    minimised: bool = False


@dataclass
class Tally:
    """Counts of a run."""

    statements: Counter = field(default_factory=Counter)  # by kind
    refused: Counter = field(default_factory=Counter)  # by kind, those that Cassandra answered with an error
    errors: Counter = field(default_factory=Counter)  # by Cassandra's error class
    signatures: Counter = field(default_factory=Counter)  # by what differed
    where: dict[str, list[int]] = field(default_factory=dict)  # numbers of the sequences, by what differed
    expected: Counter = field(default_factory=Counter)  # by entry of expected.py
    tolerated: Counter = field(default_factory=Counter)  # by entry, kind, and what either side said
    messages: Counter = field(default_factory=Counter)  # by kind and Cassandra's message
    abandoned: Counter = field(default_factory=Counter)  # sequences that ended without an answer, by how
    abandoned_numbers: list[int] = field(default_factory=list)
    sequences: int = 0
    failures: list[Failure] = field(default_factory=list)  # the first of each signature

    def add(self, other: Tally) -> None:
        for name in ("statements", "refused", "errors", "signatures", "expected", "tolerated", "messages", "abandoned"):
            getattr(self, name).update(getattr(other, name))
        for signature, numbers in other.where.items():
            self.where.setdefault(signature, []).extend(numbers)
        self.sequences += other.sequences
        self.abandoned_numbers += other.abandoned_numbers
        known = {failure.difference.signature for failure in self.failures}
        self.failures += [failure for failure in other.failures if failure.difference.signature not in known]


class Progress:
    """One sequence on its way: which steps are out, and what came back for them."""

    def __init__(self, number: int, steps: list[Step], names: tuple[Names, Names]):
        self.number, self.steps, self.names = number, steps, names
        self.position = 0
        self.group: list[Step] = []
        self.answers: list[list[Outcome | None]] = []
        self.missing = 0
        self.found: set[str] = set()
        self.ended = False

    def next_group(self) -> list[Step]:
        """One step that changes something, or several that read."""
        end = self.position
        while end < len(self.steps) and self.steps[end].reads and end - self.position < READS_TOGETHER:
            end += 1
        end = max(end, min(self.position + 1, len(self.steps)))
        self.group = self.steps[self.position:end]
        self.answers = [[None, None] for _ in self.group]
        self.missing = 2 * len(self.group)
        return self.group


class Runner:
    """`ours` and `cassandra` have `submit(step, names, done)` and `keyspace`, as Endpoint has."""

    _suffixes = count(1)

    def __init__(self, ours, cassandra, label: str = ""):
        self.sides = (ours, cassandra)
        self.label = label  # in the names of tables, so that several processes share a keyspace
        self.tally = Tally()
        self._events: queue.SimpleQueue = queue.SimpleQueue()

    def run(self, sequences: Iterator[tuple[int, list[Step]]], concurrency: int) -> Tally:
        """Runs them all; `concurrency` at a time."""
        active: set[Progress] = set()
        sequences = iter(sequences)
        while True:
            while len(active) < concurrency:
                following = next(sequences, None)
                if following is None:
                    break
                progress = self._begin(*following)
                active.add(progress)
                self._send(progress)
            if not active:
                return self.tally
            progress = self._receive(active)
            if progress is not None and progress.missing == 0 and not self._advance(progress):
                active.discard(progress)

    def _begin(self, number: int, steps: list[Step]) -> Progress:
        suffix = f"_{self.label}{next(self._suffixes)}"
        names = tuple(Names(side.keyspace, suffix, number) for side in self.sides)
        return Progress(number, steps, names)

    def _send(self, progress: Progress) -> None:
        position = progress.position
        for slot, step in enumerate(progress.next_group()):
            for which, side in enumerate(self.sides):
                def done(outcome, slot=slot, which=which):
                    self._events.put((progress, position, slot, which, outcome))

                side.submit(step, progress.names[which], done)

    def _receive(self, active: set[Progress]) -> Progress | None:
        try:
            progress, position, slot, which, outcome = self._events.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            self._give_up(active)
            return None
        if progress.ended or position != progress.position or progress.answers[slot][which] is not None:
            return None
        progress.answers[slot][which] = outcome
        progress.missing -= 1
        return progress

    def _give_up(self, active: set[Progress]) -> None:
        """Gives up what is missing, because nothing has come for a long time."""
        for progress in active:
            for slot, answers in enumerate(progress.answers):
                for which, answer in enumerate(answers):
                    if answer is None:
                        late = lost(f"no answer within {PATIENCE_SECONDS} s")
                        self._events.put((progress, progress.position, slot, which, late))

    def _advance(self, progress: Progress) -> bool:
        """Judges what came back and goes on; False at the sequence's end."""
        going_on = self._judge(progress)
        progress.position += len(progress.group)
        if not going_on or progress.position >= len(progress.steps):
            progress.ended = True
            self.tally.sequences += 1
            return False
        self._send(progress)
        return True

    def _judge(self, progress: Progress) -> bool:
        """Counts and compares; False if the sequence cannot go on."""
        going_on = True
        for slot, (step, (ours, cassandra)) in enumerate(zip(progress.group, progress.answers)):
            silent = cassandra if cassandra.busy else ours if ours.busy else None
            if silent is not None:
                whose = "Cassandra" if silent is cassandra else "ours"
                self.tally.abandoned[f"{step.kind}: {whose}: {silent.error} {silent.message}"] += 1
                self.tally.abandoned_numbers.append(progress.number)
                return False
            self.tally.statements[step.kind] += 1
            if cassandra.kind == "error":
                self.tally.refused[step.kind] += 1
                self.tally.errors[cassandra.error] += 1
                self.tally.messages[step.kind, cassandra.error, cassandra.message[:MESSAGE_CHARACTERS]] += 1
            difference = compare(step, ours, cassandra)
            if difference is not None:
                difference.index = progress.position + slot
                going_on &= self._differs(progress, difference)
        return going_on

    def _differs(self, progress: Progress, difference: Difference) -> bool:
        entry = expected.find(difference, self.tally.expected)
        if entry is not None:
            theirs, ours = difference.cassandra, difference.ours
            self.tally.tolerated[entry.name, difference.step.kind, theirs.error if theirs.code is not None else theirs.kind,
                                 theirs.message[:MESSAGE_CHARACTERS], ours.error if ours.code is not None else ours.kind,
                                 ours.message[:MESSAGE_CHARACTERS]] += 1
            return not entry.ends
        signature = difference.signature
        if signature not in self.tally.signatures:
            self.tally.failures.append(Failure(progress.number, progress.steps[:difference.index + 1], difference))
        if signature not in progress.found:
            self.tally.signatures[signature] += 1  # once a sequence: the rest of it follows from the first
            self.tally.where.setdefault(signature, []).append(progress.number)
            progress.found.add(signature)
        # What changed data on one side only makes everything after it differ.
        return difference.step.reads and len(progress.found) < DIFFERENCES_PER_SEQUENCE

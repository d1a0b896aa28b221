"""The run, divided among processes: Python uses one core each."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from dataclasses import dataclass, replace
from typing import Callable, Iterator

from harness.verdicts import is_unanswered
from harness.waits import Late

from .endpoint import Endpoint
from .outcome import Outcome
from .runner import Failure, Runner, Tally
from .sequence import LENGTH, Sequence
from .shrink import Shrinker
from .step import Step

# Without a log there is nothing to be flushed when a table is truncated or dropped.
OPTIONS = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = false"


@dataclass(frozen=True)
class Plan:
    """The sequences to run. Contacts are host:port."""

    ours: str
    cassandra: str
    statements: int
    seed: int
    only: str | None = None
    sequence: int | None = None  # this one alone
    concurrency: int = 12  # sequences at a time in each process
    processes: int = 2
    protocol_version: int = 5
    shrunk: int = 3  # failures of each process that are minimised
    shrink_seconds: float = 60

    @property
    def sequences(self) -> int:
        return -(-self.statements // LENGTH)


class Sides:
    """Both endpoints with a keyspace of this run on each. The names differ, so that both may be one server."""

    def __init__(self, plan: Plan, label: str):
        run = f"{os.getpid():x}{int(time.time()) & 0xFFFFF:x}{label}"
        self.ours = Endpoint(plan.ours, f"diffo_{run}", plan.protocol_version)
        self.cassandra = Endpoint(plan.cassandra, f"diffc_{run}", plan.protocol_version)

    def __enter__(self) -> Sides:
        for side in (self.ours, self.cassandra):
            check_keyspace(side.execute(f"CREATE KEYSPACE {side.keyspace} WITH {OPTIONS}"), side.contact)
        return self

    def __exit__(self, *_) -> None:
        for side in (self.ours, self.cassandra):
            side.execute(f"DROP KEYSPACE {side.keyspace}")
            side.close()


def check_keyspace(outcome: Outcome, contact: str) -> None:
    """Raises an error if no keyspace was made."""
    if outcome.kind == "error":
        error = Late if outcome.busy else RuntimeError
        raise error(f"{contact}: no keyspace could be made: {outcome.error} {outcome.message}")


def sequences(plan: Plan, worker: int) -> Iterator[tuple[int, list[Step]]]:
    """The share of one process."""
    if plan.sequence is not None:
        yield plan.sequence, Sequence(plan.seed, plan.sequence, plan.only).steps()
        return
    for number in range(worker, plan.sequences, plan.processes):
        yield number, Sequence(plan.seed, number, plan.only).steps()


def work(plan: Plan, worker: int, wrap: Callable = lambda side: side) -> Tally:
    """Runs one process's share and minimises its first failures; `wrap` may stand before our side."""
    label = f"{chr(ord('a') + worker)}"
    with Sides(plan, label) as sides:
        ours = wrap(sides.ours)
        tally = Runner(ours, sides.cassandra, label).run(sequences(plan, worker), plan.concurrency)
        for number, failure in enumerate(tally.failures[:plan.shrunk]):
            tally.failures[number] = Shrinker(ours, sides.cassandra, label, plan.shrink_seconds).shrink(failure)
    return tally


def run(plan: Plan) -> Tally:
    """Runs the plan in its processes, or in this one if that is enough."""
    if plan.processes == 1 or plan.sequence is not None or plan.sequences == 1:
        return work(replace(plan, processes=1), 0)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    children = [context.Process(target=_child, args=(plan, worker, results)) for worker in range(plan.processes)]
    for child in children:
        child.start()
    total = Tally()
    missing = set(range(plan.processes))
    while missing:
        try:
            worker, tally = results.get(timeout=1)
        except queue.Empty:
            if any(worker in missing and not children[worker].is_alive() and children[worker].exitcode for worker in missing):
                raise RuntimeError("a process of the run ended without a result") from None
            continue
        missing.discard(worker)
        if isinstance(tally, Exception):
            raise tally
        total.add(tally)
    for child in children:
        child.join()
    return total


def timed(plan: Plan) -> tuple[Tally, float]:
    """The run, and its seconds."""
    begun = time.monotonic()
    return run(plan), time.monotonic() - begun


def _child(plan: Plan, worker: int, results) -> None:
    try:
        results.put((worker, work(plan, worker)))
    except Exception as error:
        told = Late if is_unanswered(error) else RuntimeError
        results.put((worker, told(f"process {worker}: {error!r}")))


def replay(plan: Plan, failure_steps: list[Step]) -> list[Failure]:
    """Runs the steps of a file on both sides."""
    with Sides(plan, "r") as sides:
        return Runner(sides.ours, sides.cassandra, "r").run(iter([(0, failure_steps)]), 1).failures

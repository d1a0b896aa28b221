"""The command line."""

from __future__ import annotations

import argparse
import os

from . import expected, report, servers, workers
from .runner import Tally
from .sequence import KINDS

ABANDONED_SHARE_MAX = 0.05


def arguments(given=None) -> argparse.Namespace:
    kinds = ", ".join(kind.name for kind in KINDS)
    parser = argparse.ArgumentParser(prog="python -m differential", description=(
        "Runs the same random statements on Shunt's node and on Cassandra and compares the answers."), epilog=f"Kinds: {kinds}.")
    parser.add_argument("--ours", metavar="HOST:PORT", help="a node that runs; otherwise one is started (SHUNT_BINARY, or the release)")
    parser.add_argument("--cassandra", metavar="HOST:PORT", help="one that runs, also the server of --ours; otherwise one is started")
    parser.add_argument("--statements", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequence", type=int, help="run this sequence of the seed alone")
    parser.add_argument("--only", metavar="KIND", help="only kinds that begin so, beside plain inserts")
    parser.add_argument("--replay", metavar="FILE", help="run the steps of a file that a failure left")
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--concurrency", type=int, default=12, help="sequences at a time in each process")
    parser.add_argument("--protocol-version", type=int, choices=(4, 5), default=5)
    parser.add_argument("--shrink", type=int, default=3, metavar="N", help="failures of each process that are minimised")
    parser.add_argument("--messages", action="store_true", help="list Cassandra's error messages with how often each came")
    parser.add_argument("--long", action="store_true", help="fail also on entries of expected.py that were not used")
    return parser.parse_args(given)


def main(given=None) -> int:
    options = arguments(given)
    with servers.both(options.ours, options.cassandra) as (ours, cassandra):
        return run(options, ours, cassandra)


def run(options: argparse.Namespace, ours: str, cassandra: str) -> int:
    """Runs what was asked for; the exit code."""
    plan = workers.Plan(ours, cassandra, options.statements, options.seed, options.only, options.sequence,
                        options.concurrency, options.processes, options.protocol_version, options.shrink)
    if options.replay:
        return replay(plan, options.replay)
    tally, seconds = workers.timed(plan)
    for position, failure in enumerate(tally.failures):
        report.show(plan, failure, report.write(plan, failure, position))
    if options.messages:
        report.messages(tally)
    return verdict(tally, seconds, options.long)


def verdict(tally: Tally, seconds: float, long: bool) -> int:
    """Prints the summary; the exit code."""
    report.summary(tally, seconds)
    unused = [entry.name for entry in expected.EXPECTED if not tally.expected[entry.name]] if long else []
    if unused:
        print(f"not used, to be removed from expected.py: {', '.join(unused)}")
    if tally.abandoned.total() > ABANDONED_SHARE_MAX * tally.sequences:
        print("too many sequences were abandoned because one side gave no answer")
        return 1
    unanswered = any(": ours: " in reason for reason in tally.abandoned)
    return 1 if tally.signatures or unused or unanswered else 0


def replay(plan: workers.Plan, path: str) -> int:
    failures = workers.replay(plan, report.read(path))
    for failure in failures:
        failure.minimised = True
        report.show(plan, failure, None)
    print(f"{len(failures)} differences")
    return 1 if failures else 0

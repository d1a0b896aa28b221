"""Failures as text and as files that can be run again; the counts of a run."""

from __future__ import annotations

import json
from pathlib import Path

from . import expected
from .outcome import Outcome
from .runner import Failure, Tally
from .step import Step
from .workers import Plan

DIRECTORY = Path(__file__).resolve().parents[2] / "target" / "differential"
ROWS_SHOWN = 12
# Of a long text, this much around the place where the two servers' differ.
TEXT_SHOWN = 300
# Starts both servers by itself; with --ours and --cassandra it takes those that run.
COMMAND = "cd tests && ../target/python/bin/python -m differential"


def write(plan: Plan, failure: Failure, position: int) -> Path:
    """Keeps the steps of a failure in a file for --replay."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / f"seed-{plan.seed}-sequence-{failure.number}-{position}.json"
    path.write_text(json.dumps({"seed": plan.seed, "sequence": failure.number, "difference": failure.difference.signature,
                                "steps": [step.to_json() for step in failure.steps]}, indent=1))
    return path


def read(path: str) -> list[Step]:
    return [Step.from_json(step) for step in json.loads(Path(path).read_text())["steps"]]


def show(plan: Plan, failure: Failure, path: Path | None) -> None:
    """One failure: the steps, both answers, the commands that run it again."""
    difference = failure.difference
    print(f"\n--- {difference.signature}")
    shown = failure.steps if failure.minimised or len(failure.steps) <= 12 else failure.steps[-3:]
    if len(shown) < len(failure.steps):
        print(f"    ... {len(failure.steps) - len(shown)} steps before these")
    for step in shown:
        print(f"    {step.shown()}")
    theirs, ours = difference.cassandra, difference.ours
    print(f"  Cassandra: {describe(theirs, ours)}\n  ours:      {describe(ours, theirs)}")
    only = f" --only {plan.only}" if plan.only else ""
    if path is not None:
        print(f"  replay: {COMMAND} --replay {path}")
    print(f"  whole:  {COMMAND} --seed {plan.seed} --sequence {failure.number}{only}", flush=True)


def describe(outcome: Outcome, other: Outcome) -> str:
    """An answer, from where it begins to differ from the other server's."""
    if outcome.kind == "error":
        return f"{outcome.error}: {outcome.message}" + (f" {outcome.detail}" if outcome.detail else "")
    if outcome.kind != "rows":
        return f"{outcome.kind} {outcome.detail or ''}" + (f" prepared: {outcome.prepared}" if outcome.prepared else "")
    lines = [f"{len(outcome.rows)} rows in pages of {outcome.pages}; " + ", ".join(f"{name} {kind}" for name, kind in outcome.columns)]
    same = _common(outcome.rows, other.rows or [])
    first = max(0, min(same, len(outcome.rows)) - 2) if len(outcome.rows) > ROWS_SHOWN else 0
    if first:
        lines.append(f"             ... {first} rows before these")
    for number, row in enumerate(outcome.rows[first:first + ROWS_SHOWN], first):
        beside = other.rows[number] if number < len(other.rows or []) else ()
        shown = [_value(value, beside[place] if place < len(beside) else None) for place, value in enumerate(row)]
        lines.append("             " + " | ".join(shown))
    if outcome.prepared is not None:
        lines.append(f"             prepared: {outcome.prepared}")
    return "\n".join(lines)


def _common(one, other) -> int:
    """Number of equal elements at the start of both."""
    return next((place for place, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))


def _value(value: bytes | None, beside: bytes | None) -> str:
    if value is None:
        return "null"
    if len(value) > 8 and all(32 <= byte < 127 for byte in value):
        first = 0 if beside is None or beside == value else max(0, _common(value, beside) - TEXT_SHOWN // 3)
        return ("..." if first else "") + value[first:first + TEXT_SHOWN].decode()
    return "0x" + value.hex() if len(value) <= 60 else f"0x{value[:56].hex()}... ({len(value)} bytes)"


def summary(tally: Tally, seconds: float) -> None:
    """Prints the counts of expected and refused answers, and a last line with all counts."""
    for entry in expected.EXPECTED:
        print(f"expected: {entry.name}: {tally.expected[entry.name]} times. {entry.reason}")
    if tally.errors:
        print("Cassandra's errors: " + ", ".join(f"{name} {number}" for name, number in tally.errors.most_common()))
    for signature, number in tally.signatures.most_common():
        print(f"in {number} sequences: {signature}: {', '.join(str(where) for where in sorted(tally.where[signature]))}")
    for reason, number in tally.abandoned.most_common():
        print(f"abandoned: {number} sequences: {reason}")
    total = tally.statements.total()
    kinds = ", ".join(f"{name} {number}" + (f" ({tally.refused[name]} refused)" if tally.refused[name] else "")
                      for name, number in sorted(tally.statements.items()))
    print(f"{total} statements in {tally.sequences} sequences in {seconds:.0f} s; {tally.abandoned.total()} abandoned; {kinds}; "
          f"{tally.signatures.total()} differences", flush=True)


def messages(tally: Tally) -> None:
    """Prints Cassandra's refusals with their messages, and the differences under each entry of expected.py."""
    for (entry, kind, theirs, message, ours, own), number in tally.tolerated.most_common():
        print(f"{number:6} {entry}: {kind}: Cassandra {theirs} {message}; ours {ours} {own}")
    for (kind, error, message), number in tally.messages.most_common():
        print(f"{number:6} {kind}: {error}: {message}")

"""Says which failed tests may run once more: those without an answer, if they are few.

Wrong data is never tried again. A failure that is not recognised is a verdict.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from .table import words

RERUNS_MAX = 3

# Words that drivers print when no answer came. A server's error is an answer, unless it says to ask again.
GO = re.compile(r"no response received|i/o timeout|connection refused|connection reset|broken pipe|no hosts available"
                r"|unable to create session|context deadline exceeded|gocql: no connections")
JAVA = re.compile(r"(DriverTimeout|AllNodesFailed|NoNodeAvailable|ClosedConnection|Heartbeat|ConnectionInit|Connect)Exception")
RUST = re.compile(r"Err` value: .*(RequestTimeout|ConnectionPoolError|BrokenConnection|ConnectionRefused|ConnectionReset|EmptyPlan)")
JAVA_ANSWER = re.compile(r"servererrors\.(?!Overloaded|Bootstrapping|Unavailable|ReadTimeout|WriteTimeout)\w+")


@dataclass
class Failure:
    """A failed test, or all tests that failed because the set-up that they share did."""

    suite: object
    tests: list  # their names
    reason: str
    unanswered: bool
    alone: list  # the words that run them alone


def of_pytest(suite, verdicts: Path) -> list:
    """Failures from the file of the plugin harness.verdicts."""
    try:
        lines = [json.loads(line) for line in verdicts.read_text().splitlines()]
    except OSError:
        return []
    found = {}
    for line in lines:
        if line["outcome"] != "failed":
            continue
        module = line["test"].split("::")[0]
        # A failed set-up of a module fails each of its tests with the same words.
        key = (module, line["reason"]) if line["when"] == "setup" else (line["test"],)
        failure = found.setdefault(key, Failure(suite, [], line["reason"], True, []))
        failure.unanswered &= line["unanswered"]
        if line["test"] not in failure.tests:
            failure.tests.append(line["test"])
            failure.alone.append(line["alone"])
    return list(found.values())


def of_go(suite, text: str) -> list:
    """`go test -v` prints what a test logs before its `--- FAIL` line."""
    failures, block = [], []
    for line in text.splitlines():
        end = re.match(r"^--- (PASS|FAIL|SKIP): (\S+)", line)
        if end and end[1] == "FAIL":
            said = "\n".join(block)
            failures.append(Failure(suite, [end[2]], _last(block), bool(GO.search(said)), [end[2]]))
        if end:
            block = []
        else:
            block.append(line)
    return failures


def of_surefire(suite, text: str) -> list:
    failures = []
    for match in re.finditer(r"^\[ERROR\] ([\w.$]+)\.(\w+)\S* .*<<< (?:ERROR|FAILURE)!\n(.*(?:\n(?!\[|\s*at ).*)*)", text, re.MULTILINE):
        said = match[3]
        unanswered = bool(JAVA.search(said)) and not JAVA_ANSWER.search(said)
        name = f"{match[1]}#{match[2]}"
        failures.append(Failure(suite, [name], said.splitlines()[0][:300], unanswered, [name]))
    return failures


def of_cargo(suite, text: str) -> list:
    failures = []
    for match in re.finditer(r"^---- (\S+) stdout ----\n((?:.*\n)*?)(?=^---- |^failures:)", text, re.MULTILINE):
        lines = [line for line in match[2].splitlines() if line and not line.startswith(("thread ", "note:", "stack backtrace"))]
        failures.append(Failure(suite, [match[1]], _last(lines[:1]), bool(RUST.search(match[2])), [match[1]]))
    return failures


def of_drivers(suite, text: str) -> list:
    """Failures in the output of several drivers, each under a line such as `java: ...`. A driver runs again as a whole."""
    parts = re.split(r"^(go|java|rust): .*\n", text, flags=re.MULTILINE)[1:]
    failures = []
    for driver, said in zip(parts[::2], parts[1::2], strict=True):
        for failure in {"go": of_go, "java": of_surefire, "rust": of_cargo}[driver](suite, said):
            failure.alone = [driver]
            failures.append(failure)
    return failures


BY_OUTPUT = {"go": of_go, "surefire": of_surefire, "cargo": of_cargo, "totals": of_drivers}


def failures_of(suite, text: str, verdicts: Path, failed: int) -> list:
    """The failures of a failed suite. Those that its output does not name are one failure, and a verdict."""
    if suite.counts == "pytest":
        found = of_pytest(suite, verdicts)
    elif suite.counts in BY_OUTPUT and suite.again:
        found = BY_OUTPUT[suite.counts](suite, text)
    else:
        found = []
    if sum(len(failure.tests) for failure in found) < failed or not found:
        found.append(Failure(suite, [], "see its log", False, []))
    return found


def candidates(failures: list) -> list:
    """The failures to run once more: all of them, or none if there are too many or one is a verdict.

    A verdict fails the run in any case, so second runs could not help.
    """
    if any(not failure.unanswered for failure in failures) or len(failures) > RERUNS_MAX:
        return []
    return list(failures)


def command(suite, failure: Failure, known: dict) -> list:
    """The words that run the tests of a failure, and nothing else."""
    if suite.counts == "pytest":
        return words(suite.again or "{pytest} {tests}", {**known, "tests": failure.alone})
    return words(suite.again, {**known, "test": failure.alone[0]})


def _last(lines: list) -> str:
    return lines[-1].strip()[:300] if lines else ""

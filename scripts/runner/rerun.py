"""Says which failed tests may run once more: those without an answer, if they are few.

Wrong data is never tried again. A failure that is not recognised is a verdict.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .table import words

RERUNS_MAX = 3

# What drivers print when no answer came. A server's error is an answer, unless it says to ask
# again, or that nodes were late. gocql shows the errors of servers by their words alone; a test
# that wanted another error says so.
GO = re.compile(r"no response received|i/o timeout|connection refused|connection reset|broken pipe|no hosts available"
                r"|unable to create session|context deadline exceeded|gocql: no connections"
                r"|^(?!.*, want ).*(?:Operation timed out - received only|Cannot achieve consistency level"
                r"|did not answer in time|no link to a node could take this query|nodes are overloaded"
                r"|connection to the node was lost|no other node can be reached)")
GO_MESSAGE = re.compile(r"^\s+\w+_test\.go:\d+: ")
JAVA = re.compile(r"^(?:java\.util\.concurrent\.(?:Completion|Execution)Exception: )?[\w.$]*\b(DriverTimeout|AllNodesFailed|NoNodeAvailable"
                  r"|Timeout|SocketTimeout|ClosedConnection|Heartbeat|ConnectionInit|Connect|Overloaded|Bootstrapping|Unavailable|ReadTimeout|WriteTimeout)Exception")
# The first line of a panic by `unwrap` or `expect`, or by a helper that shows errors as these do.
RUST_PANIC = re.compile(r" panicked at .*\n(.*)")
RUST = re.compile(r"^(?!assertion ).*\b(RequestTimeout|ConnectionPoolError|BrokenConnection|ConnectionRefused|ConnectionReset|EmptyPlan"
                  r"|DbError\((?:Overloaded|IsBootstrapping|Unavailable|ReadTimeout|WriteTimeout)|kind: (?:WouldBlock|TimedOut))\b")
JAVA_ANSWER = re.compile(r"Assertion\w*Error|servererrors\.(?!Overloaded|Bootstrapping|Unavailable|ReadTimeout|WriteTimeout)\w+")


@dataclass
class Failure:
    """A failed test, or all tests that failed because the set-up that they share did."""

    suite: object
    tests: list  # their names
    reason: str
    unanswered: bool
    alone: list  # the words that run them alone
    failed: int = 1  # as their suite counts them: a test and its clean-up are two


def of_pytest(suite, verdicts: Path) -> list:
    """Failures from the file of the plugin harness.verdicts."""
    try:
        lines = [json.loads(line) for line in verdicts.read_text().splitlines()]
    except (OSError, json.JSONDecodeError):  # it was not written, or not to its end
        return []
    found = {}
    for line in lines:
        if line["outcome"] != "failed":
            continue
        # A set-up that several tests share fails each of them with the same exception.
        key = line["cause"] if line["when"] == "setup" else line["test"]
        failure = found.setdefault(key, Failure(suite, [], line["reason"], True, [], 0))
        failure.unanswered &= line["unanswered"]
        failure.failed += 1
        if line["test"] not in failure.tests:
            failure.tests.append(line["test"])
            failure.alone.append(line["alone"])
    return list(found.values())


def of_go(suite, text: str) -> list:
    """`go test -v` prints what a test logs before its `--- FAIL` line, and behind it the lines
    of its subtests, which count too."""
    failures, block = [], []
    for line in text.splitlines():
        part = re.match(r"^\s+--- FAIL: (\S+)", line)
        if part and failures and part[1].startswith(f"{failures[-1].tests[0]}/"):
            failures[-1].failed += 1
        end = re.match(r"^--- (PASS|FAIL|SKIP): (\S+)", line)
        if end and end[1] == "FAIL":
            said = [line for line in block if GO_MESSAGE.match(line)]
            failures.append(Failure(suite, [end[2]], _last(block), bool(said) and all(map(GO.search, said)), [end[2]]))
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
        said = RUST_PANIC.findall(match[2])
        failures.append(Failure(suite, [match[1]], _last(lines[:1]), bool(said) and all(map(RUST.search, said)), [match[1]]))
    return failures


def of_drivers(suite, text: str) -> list:
    """Failures in the output of several drivers, each under a line such as `java: ...`. A driver
    runs again as a whole."""
    parts = re.split(r"^(go|java|rust): .*\n", text, flags=re.MULTILINE)[1:]
    failures = []
    for driver, said in zip(parts[::2], parts[1::2], strict=True):
        for failure in {"go": of_go, "java": of_surefire, "rust": of_cargo}[driver](suite, said):
            failure.alone = [driver]
            failures.append(failure)
    return failures


# The status of a test program whose tests failed. Any other one says that it did not come to its
# end.
STATUS_FAILED, CARGO_FAILED = 1, 101
BROKEN_OFF = {"go": re.compile(r"^(panic|fatal error): ", re.MULTILINE),
              "surefire": re.compile(r"forked VM terminated|ExecutionException|SurefireBooterForkException"),
              "totals": re.compile(r"^(panic|fatal error): |forked VM terminated|^Traceback ", re.MULTILINE)}
COMPLETE = {"pytest": re.compile(r"\d+ (?:failed|errors?)\b.* in \d"), "totals": re.compile(r"^\d+ passed, \d+ failed\s*\Z", re.MULTILINE)}
BY_OUTPUT = {"go": of_go, "surefire": of_surefire, "cargo": of_cargo, "totals": of_drivers}


def came_to_its_end(suite, text: str, status: int) -> bool:
    """True if a suite ran all its tests, whatever came of them."""
    if status != (CARGO_FAILED if suite.counts == "cargo" else STATUS_FAILED):
        return False
    broken_off, complete = BROKEN_OFF.get(suite.counts), COMPLETE.get(suite.counts)
    return not (broken_off and broken_off.search(text)) and (complete is None or bool(complete.search(text)))


def failures_of(suite, text: str, verdicts: Path, failed: int, status: int) -> list:
    """The failures of a failed suite. Those that its output does not name are one failure, and a
    verdict; so is its early end."""
    if suite.counts == "pytest":
        found = of_pytest(suite, verdicts)
    elif suite.counts in BY_OUTPUT and suite.again:
        found = BY_OUTPUT[suite.counts](suite, text)
    else:
        found = []
    if sum(failure.failed for failure in found) != failed:
        found.append(Failure(suite, [], "see its log", False, []))
    elif not came_to_its_end(suite, text, status):
        found.append(Failure(suite, [], f"ended early, with status {status}", False, []))
    return found


def candidates(failures: list) -> list:
    """The failures to run once more: all of them, or none if there are too many or one is a
    verdict.

    A verdict fails the run in any case, so second runs could not help.
    """
    if any(not failure.unanswered for failure in failures) or len(failures) > RERUNS_MAX:
        return []
    return list(failures)


def causes(failures: list) -> list:
    """A line for each suite and kind of missing answer: one server that stands still may fail many
    tests."""
    numbers = Counter((failure.suite.name, failure.reason.split(":")[0][:80]) for failure in failures if failure.unanswered)
    return [f"{number} in {suite}: {kind}" for (suite, kind), number in numbers.most_common()]


def command(suite, failure: Failure, known: dict) -> list:
    """The words that run the tests of a failure, and nothing else."""
    if suite.counts == "pytest":
        return words(suite.again or "{pytest} {tests}", {**known, "tests": failure.alone})
    return words(suite.again, {**known, "test": failure.alone[0]})


def _last(lines: list) -> str:
    return lines[-1].strip()[:300] if lines else ""

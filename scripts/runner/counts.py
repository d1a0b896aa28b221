"""Numbers of tests, and names of those that failed, in the output of cargo, go, Surefire and
pytest."""

import json
import re

# Names of failed tests as cargo, pytest, go test and Surefire print them.
FAILED_TEST = re.compile(
    r"^(?:test .* \.\.\. FAILED|FAILED \S.*|ERROR \S+::.*|\s*--- FAIL: .*|\[ERROR\] {3}\S.*)$", re.MULTILINE)
# A line that explains the failure of a command that runs no tests.
COMPLAINT = re.compile(r"^.*(?:\w*[Ee]rror\b|panicked|exit code [1-9]).*$", re.MULTILINE)


def cargo(text: str) -> tuple:
    """Totals over the `test result:` lines."""
    return _sums(r"test result: \w+\. (\d+) passed; (\d+) failed", text)


def pytest(text: str) -> tuple:
    last = next((line for line in reversed(text.splitlines()) if re.search(r"\d+ (passed|failed|error)", line)), "")
    number = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    return number.get("passed", 0), number.get("failed", 0) + number.get("error", 0)


def go(text: str) -> tuple:
    """Tests and subtests of `go test -v`; a package that does not build counts as a failure."""
    passed = len(re.findall(r"^\s*--- PASS", text, re.MULTILINE))
    failed = len(re.findall(r"^\s*--- FAIL", text, re.MULTILINE))
    return passed, failed + len(re.findall(r"^FAIL\s+\S+ \[", text, re.MULTILINE))


def surefire(text: str) -> tuple:
    """The summary of Maven Surefire: the last `Tests run:` line without a time."""
    summaries = re.findall(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$", text, re.MULTILINE)
    if not summaries:
        return 0, 0
    run, failures, errors, skipped = map(int, summaries[-1])
    return run - failures - errors - skipped, failures + errors


def totals(text: str) -> tuple:
    """Totals over the lines `N passed, N failed`."""
    return _sums(r"^(\d+) passed, (\d+) failed$", text)


def soak(text: str) -> tuple:
    """One test for each kind of event that must never occur in hours of load."""
    figures = {}
    for line in text.splitlines():
        if line.startswith("{"):
            figures |= json.loads(line).get("figures", {})
    never = ("lost_writes", "wrong_answers", "unanswered")
    failed = sum(figures.get(name) != 0 for name in never)
    return len(never) - failed, failed


COUNTS = {"cargo": cargo, "pytest": pytest, "go": go, "surefire": surefire, "totals": totals, "soak": soak}


def failed_names(text: str) -> list:
    """Names of the tests that failed, or the last complaint of a command without tests."""
    found = list(FAILED_TEST.finditer(text)) or list(COMPLAINT.finditer(text))[-1:]
    return [line.group().strip()[:200] for line in found]


def _sums(pattern: str, text: str) -> tuple:
    found = re.findall(pattern, text, re.MULTILINE)
    return sum(int(passed) for passed, _ in found), sum(int(failed) for _, failed in found)

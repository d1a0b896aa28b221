"""A pytest plugin that tells the runner how each test ended: wrong, or without an answer.

A test has no answer if it failed with a time-out, a connection that was refused or closed, NoHostAvailable, or an error of a
node that was too busy. The runner runs such a test once more. Any other failure is a verdict: an assertion, an exit code, an
unknown exception. A crashed process and a panic in a log are verdicts too, even if all tests passed. The plugin looks for both
when all tests have ended.

SHUNT_VERDICTS names the file: a line of JSON for each test, and one for each crash.
"""

import json
import os
import signal
import subprocess
import urllib.error
from pathlib import Path

import pytest

PANIC = b"panicked at"
STATUS_PANICKED = 101  # of a Rust program whose main thread panicked
CRASHES = {STATUS_PANICKED, *(-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))}
# Exceptions of drivers and of the harness, by module and name: not every suite has every package.
UNANSWERED = {
    ("cassandra", "Timeout"), ("cassandra", "OperationTimedOut"), ("cassandra", "Unavailable"),
    ("cassandra.connection", "ConnectionException"), ("cassandra.connection", "ConnectionBusy"),
    ("redis.exceptions", "ConnectionError"), ("redis.exceptions", "TimeoutError"), ("harness.cql", "ConnectionLost"),
}
# Answers that say to ask again. They count inside NoHostAvailable only, since a test may be about them.
DEFERRED = {("cassandra.protocol", "IsBootstrappingErrorMessage"), ("cassandra.protocol", "OverloadedErrorMessage"),
            ("cassandra", "Unavailable")}


# Errors of the protocol that a node sends when it is too busy to answer: Overloaded, and time-outs of writes and reads.
BUSY_CODES = {0x1001, 0x1100, 0x1200}


def is_unanswered(error: BaseException) -> bool:
    """True if an exception says only that an answer is missing, and nothing about an answer that came."""
    if isinstance(error, AssertionError):
        return False
    if _is_one_of(error, {("harness.cql", "CqlError")}):
        return error.code in BUSY_CODES
    if isinstance(error, (TimeoutError, ConnectionError, subprocess.TimeoutExpired)):
        return True
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return isinstance(error.reason, BaseException) and is_unanswered(error.reason)
    if isinstance(error, BaseExceptionGroup):
        return all(is_unanswered(one) for one in error.exceptions)
    if type(error).__name__ == "NoHostAvailable":
        errors = getattr(error, "errors", None) or {}
        found = errors.values() if isinstance(errors, dict) else errors
        return all(_is_one_of(one, DEFERRED) or (isinstance(one, BaseException) and is_unanswered(one)) for one in found)
    return _is_one_of(error, UNANSWERED)


def _is_one_of(error, names: set) -> bool:
    return any((base.__module__, base.__name__) in names for base in type(error).__mro__)


class Started:
    """The processes that tests start, and the logs that these write."""

    def __init__(self):
        self.running, self.crashed, self.logs = [], [], set()

    def add(self, process: subprocess.Popen, stdout) -> None:
        self.sweep()
        self.running.append(process)
        if isinstance(getattr(stdout, "name", None), str):
            self.logs.add(stdout.name)

    def sweep(self) -> None:
        for process in self.running:
            if process.poll() in CRASHES:
                self.crashed.append(f"{_words(process)} ended with {process.returncode}")
        self.running = [process for process in self.running if process.returncode is None]

    def complaints(self) -> list:
        """A line for each crash and for each log with a panic."""
        self.sweep()
        return self.crashed + [f"panic in {log}: {line}" for log in sorted(self.logs) for line in _panics(Path(log))]


def _words(process: subprocess.Popen) -> str:
    return process.args if isinstance(process.args, str) else " ".join(map(str, process.args))


def _panics(log: Path) -> list:
    try:
        return [line.decode(errors="replace")[:200] for line in log.read_bytes().splitlines() if PANIC in line][:1]
    except OSError:
        return []  # its test removed it


class Plugin:
    """Writes the file that SHUNT_VERDICTS names."""

    def __init__(self, path: Path):
        self.path = path
        self.started = Started()

    def write(self, **line) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        # The words that run this test alone, wherever pytest starts.
        report.alone = "::".join([str(item.path), *item.nodeid.split("::")[1:]])
        if call.excinfo and report.failed:
            report.unanswered = is_unanswered(call.excinfo.value)
            report.reason = f"{type(call.excinfo.value).__name__}: {call.excinfo.value}"[:300].replace("\n", " ")

    def pytest_runtest_logreport(self, report):
        failed = report.failed
        if report.when != "call" and not failed and report.duration < 0.5:
            return
        self.write(test=report.nodeid, alone=report.alone, when=report.when, seconds=round(report.duration, 2), outcome=report.outcome,
                   unanswered=getattr(report, "unanswered", False), reason=getattr(report, "reason", ""))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        for complaint in self.started.complaints():
            self.write(test="crash", alone="", when="end", seconds=0, outcome="failed", unanswered=False, reason=complaint)
            print(f"\nFAILED crash: {complaint}")
            session.exitstatus = session.exitstatus or 1


def pytest_configure(config):
    path = os.environ.get("SHUNT_VERDICTS")
    if not path or config.pluginmanager.has_plugin("verdicts-file"):
        return
    plugin = Plugin(Path(path))
    config.pluginmanager.register(plugin, "verdicts-file")
    plain = subprocess.Popen

    class Watched(plain):
        """The Popen of tests, which tells `plugin` of each process."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            plugin.started.add(self, options.get("stdout"))

    subprocess.Popen = Watched

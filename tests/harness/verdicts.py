"""A pytest plugin that tells the runner how each test ended: wrong, or without an answer.

A test has no answer if it failed with a time-out, a connection that was refused or closed, NoHostAvailable, or an error of a
node that was too busy. The runner runs such a test once more. Any other failure is a verdict: an assertion, an exit code, an
unknown exception. A crashed process and a panic in a log are verdicts too, even if all tests passed. The plugin looks for both
when all tests have ended.

SHUNT_VERDICTS names the file: a line of JSON for each test, and one for each crash.
"""

import json
import os
import re
import signal
import subprocess
import urllib.error
from pathlib import Path

import pytest

# A line that quotes a panic, such as one of the runner's own reports, begins with other words.
PANIC = re.compile(rb"^thread '[^']*'(?: \(\d+\))? panicked at ")
STATUS_PANICKED = 101  # of a Rust program whose main thread panicked
FATAL = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)
# A shell reports the signal of its child as 128 and the signal's number.
CRASHES = {STATUS_PANICKED, *(-number for number in FATAL), *(128 + number for number in FATAL)}
# Exceptions of drivers and of the harness, by module and name: not every suite has every package.
UNANSWERED = {
    ("cassandra", "Timeout"), ("cassandra", "OperationTimedOut"), ("cassandra", "Unavailable"), ("cassandra.query", "TraceUnavailable"),
    ("cassandra.connection", "ConnectionException"), ("cassandra.connection", "ConnectionBusy"),
    ("cassandra.pool", "NoConnectionsAvailable"),
    ("redis.exceptions", "ConnectionError"), ("redis.exceptions", "TimeoutError"), ("harness.cql", "ConnectionLost"),
    ("http.client", "IncompleteRead"),
}
# Kinds of the above that say that bytes were wrong.
WRONG = {("cassandra.connection", "CrcMismatchException"), ("cassandra.connection", "ProtocolVersionUnsupported")}
# Answers that say to ask again. They count inside NoHostAvailable only, since a test may be about them.
DEFERRED = {("cassandra.protocol", "IsBootstrappingErrorMessage"), ("cassandra.protocol", "OverloadedErrorMessage")}
# Errors of the protocol that a node sends when it is too busy to answer, or takes others for down
# because they are: Unavailable, Overloaded, and time-outs of writes and reads.
BUSY_CODES = {0x1000, 0x1001, 0x1100, 0x1200}


def is_unanswered(error: BaseException) -> bool:
    """True if an exception says only that an answer is missing, and nothing about an answer that came.

    An assertion behind it counts: a time-out while a failed test cleans up does not hide what failed.
    """
    return not _has_assertion(error) and _is_missing_answer(error)


def _has_assertion(error: BaseException | None) -> bool:
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (AssertionError, pytest.fail.Exception)):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _is_missing_answer(error: BaseException) -> bool:
    if _is_one_of(error, WRONG):
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
        errors = getattr(error, "errors", None)
        # A list has the addresses of hosts to which no pool was opened, and the driver keeps no
        # reason. An empty dictionary says that the driver had all hosts down.
        if not isinstance(errors, dict):
            return isinstance(errors, list) and all(isinstance(one, str) for one in errors)
        return all(_is_one_of(one, DEFERRED) or (isinstance(one, BaseException) and is_unanswered(one)) for one in list(errors.values()))
    return _is_one_of(error, UNANSWERED)


def _is_one_of(error, names: set) -> bool:
    return any((base.__module__, base.__name__) in names for base in type(error).__mro__)


def panics(log: Path) -> list:
    """The first line of a log that tells of a panic, if there is one."""
    try:
        return [line.decode(errors="replace")[:200] for line in log.read_bytes().splitlines() if PANIC.match(line)][:1]
    except OSError:
        return []  # its test removed it


class Started:
    """The processes that tests start. Each is examined once, as soon as its end is known: its log may go soon after."""

    def __init__(self):
        self.running, self.found = {}, []

    def add(self, process: subprocess.Popen, stdout) -> None:
        self.running[id(process)] = (process, getattr(stdout, "name", None))

    def examine(self, process: subprocess.Popen) -> None:
        """Looks at a process that ended."""
        _, log = self.running.pop(id(process), (None, None))
        if process.returncode in CRASHES:
            words = process.args if isinstance(process.args, str) else " ".join(map(str, process.args))
            self.found.append(f"{words} ended with {process.returncode}")
        self._read(log)

    def complaints(self) -> list:
        """A line for each crash and for each log with a panic."""
        for process, log in list(self.running.values()):
            if process.poll() is None:
                self._read(log)
        return self.found

    def _read(self, log) -> None:
        if isinstance(log, str):
            self.found += [line for line in (f"panic in {log}: {panic}" for panic in panics(Path(log))) if line not in self.found]


class Plugin:
    """Writes the file that SHUNT_VERDICTS names."""

    def __init__(self, path: Path):
        self.path = path
        self.started = Started()
        self._causes = []  # exceptions of set-ups; a set-up that tests share fails each of them with the same object

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
            report.cause = self._cause(call.excinfo.value)
            report.reason = f"{type(call.excinfo.value).__name__}: {call.excinfo.value}"[:300].replace("\n", " ")

    def _cause(self, error: BaseException) -> int:
        for number, known in enumerate(self._causes):
            if known is error:
                return number
        self._causes.append(error)
        return len(self._causes) - 1

    def pytest_runtest_logreport(self, report):
        failed = report.failed
        if report.when != "call" and not failed and report.duration < 0.5:
            return
        self.write(test=report.nodeid, alone=report.alone, when=report.when, seconds=round(report.duration, 2), outcome=report.outcome,
                   unanswered=getattr(report, "unanswered", False), reason=getattr(report, "reason", ""),
                   cause=getattr(report, "cause", -1))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        for complaint in self.started.complaints():
            self.write(test="crash", alone="", when="end", seconds=0, outcome="failed", unanswered=False, reason=complaint, cause=-1)
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
            self.examined = False
            plugin.started.add(self, options.get("stdout"))

        def poll(self):
            return self._examine(super().poll())

        def wait(self, *arguments, **options):
            return self._examine(super().wait(*arguments, **options))

        def _examine(self, status):
            if status is not None and not self.examined:
                self.examined = True
                plugin.started.examine(self)
            return status

    subprocess.Popen = Watched

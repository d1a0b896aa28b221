"""A run of suites: starts them as the schedule says, reports how each ends, and runs tests without
an answer once more."""

import queue
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import LOGS, ROOT, counts, rerun, services
from .execution import Processes
from .schedule import Schedule
from .table import fill, placeholders, words

LOG_LINES_SHOWN = 120
NAMES_SHOWN = 20
SLOWEST_SHOWN = 8


@dataclass
class Outcome:
    """The end of a suite."""

    suite: object
    passed: int
    failed: int
    seconds: float
    busy_seconds: float


class Run:
    """One run of suites, as many side by side as the processors carry."""

    def __init__(self, suites: list, used: list, environment: dict, logs: Path = LOGS, make_service=services.make):
        self.schedule = Schedule(suites, used)
        self.environment, self.logs, self.make_service = environment, logs, make_service
        self.known = placeholders()
        self.processes = Processes()
        self.servers, self.outcomes, self.failures = {}, [], []
        self.names, self.reruns = [], []
        self._ends = queue.SimpleQueue()
        self._begun = time.monotonic()
        logs.mkdir(parents=True, exist_ok=True)

    def play(self) -> None:
        """Runs everything, and records in `outcomes` how it ended."""
        try:
            while not self.schedule.is_over():
                while (entry := self.schedule.next()) is not None:
                    self._begin(entry)
                if self.schedule.running:
                    self._report(*self._ends.get())
                elif self.schedule.pending:
                    raise RuntimeError(f"nothing can begin: {', '.join(entry.name for entry in self.schedule.pending)}")
            self._run_again()
        finally:
            # A second signal must not break off the end of what runs.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN) if threading.current_thread() is threading.main_thread() else None
            self.processes.interrupt()
            for server in list(self.servers.values()):
                try:
                    server.stop()
                except Exception as error:  # noqa: BLE001 (the others are to stop too)
                    print(f"    {error!r}")

    def totals(self) -> tuple:
        return sum(outcome.passed for outcome in self.outcomes), sum(outcome.failed for outcome in self.outcomes)

    # Starts of suites and services

    def _begin(self, entry) -> None:
        is_service = entry in self.schedule.services
        work = self._start_service if is_service else self._run_suite

        def follow() -> None:
            try:
                ended = work(entry)
            except BaseException as error:  # noqa: BLE001 (the main thread reports it)
                ended = error
            self._ends.put((entry, ended))

        threading.Thread(target=follow, name=entry.name, daemon=True).start()

    def _start_service(self, service):
        begun = time.monotonic()
        try:
            server = self.servers[service.name] = self.make_service(service, self.logs)
            server.start()
        except Exception as error:  # noqa: BLE001 (whatever it is, there is no service)
            return False, self._end_service(service) or str(error) or repr(error), time.monotonic() - begun
        return True, "", time.monotonic() - begun

    def _end_service(self, service) -> str | None:
        """Stops the servers of a service. Returns their complaint, or what kept them from
        stopping."""
        server = self.servers.pop(service.name, None)
        try:
            return server.stop() if server else None
        except Exception as error:  # noqa: BLE001 (the run goes on without it)
            return f"could not be stopped: {error!r}"

    def _run_suite(self, suite, command=None, name=""):
        name = name or slug(suite.name)
        verdicts = self.logs / f"{name}.tests.jsonl"
        verdicts.unlink(missing_ok=True)
        own = {name: fill(value, self.known) for name, value in suite.environment.items()}
        environment = {**self.environment, **own, "SHUNT_VERDICTS": str(verdicts), "PYTHONPATH": str(ROOT / "tests")}
        if suite.service:
            environment |= self.servers[suite.service].environment
        command = command or words(suite.command, self.known)
        result = self.processes.run(command, self.logs / f"{name}.log", environment, suite.timeout_minutes * 60)
        return result, verdicts

    # Ends of suites and services

    def _report(self, entry, ended) -> None:
        good = not isinstance(ended, BaseException)
        if not good:
            self._complain(entry, repr(ended), 0.0)
        elif entry in self.schedule.services:
            good, complaint, seconds = ended
            if not good:
                self._complain(entry, complaint, seconds)
        else:
            good = self._judge(entry, *ended)
        self.schedule.ended(entry, good)
        for entry, lacking in self.schedule.impossible():
            self._complain(entry, f"not run: {lacking} failed", 0.0)
        self._stop_idle_services()

    def _judge(self, suite, result, verdicts) -> bool:
        text = result.log.read_text(errors="replace")
        passed, failed, text = _numbers(suite, result.status, text)
        self._count(suite, passed, failed, result.seconds, result.busy_seconds)
        if failed:
            self.failures += rerun.failures_of(suite, text, verdicts, failed, result.status)
            self.names += [(suite, f"{suite.name}: {name}") for name in counts.failed_names(text)] or [(suite, suite.name)]
            show(result.log, text)
        return not failed

    def _complain(self, entry, complaint: str, seconds: float) -> None:
        """Counts a failure that is no test's: a verdict."""
        self._count(entry, 0, 1, seconds, 0.0)
        self.failures.append(rerun.Failure(entry, [], complaint, False, []))
        self.names.append((entry, f"{entry.name}: {complaint.splitlines()[0]}"))
        print(f"    {complaint}", flush=True)

    def _count(self, suite, passed, failed, seconds, busy_seconds) -> None:
        self.outcomes.append(Outcome(suite, passed, failed, seconds, busy_seconds))
        numbers = f"{passed} passed" + (f", {failed} FAILED" if failed else "")
        # Processor time shows the cost of a suite even if others use the machine too. It leaves out
        # servers that go on.
        print(f"  {suite.name:<52} {seconds:6.1f} s {busy_seconds:5.0f} s busy  {numbers}", flush=True)

    def _stop_idle_services(self) -> None:
        for service in self.schedule.idle_services():
            self._stop(service)
            self.schedule.stopped(service)

    def _stop(self, service) -> None:
        begun = time.monotonic()
        complaint = self._end_service(service)
        if complaint:
            self._complain(service, complaint, time.monotonic() - begun)
        else:
            self._count(service, 1, 0, time.monotonic() - begun, 0.0)

    # Second runs of tests without an answer

    def _run_again(self) -> None:
        for number, failure in enumerate(rerun.candidates(self.failures)):
            suite, name = failure.suite, ", ".join(failure.tests)
            print(f"  once more, alone: {name}: {failure.reason}", flush=True)
            passed, text = self._run_alone(suite, failure, f"again-{number + 1}")
            self.reruns.append((suite, failure, passed))
            if passed:
                outcome = next(outcome for outcome in self.outcomes if outcome.suite is suite)
                outcome.passed, outcome.failed = outcome.passed + len(failure.tests), outcome.failed - failure.failed
            else:
                print(text)
        # The closing lines tell of second runs by themselves.
        excused = {id(outcome.suite) for outcome in self.outcomes if outcome.failed == 0}
        self.names = [(entry, name) for entry, name in self.names if id(entry) not in excused]

    def _run_alone(self, suite, failure, name: str) -> tuple:
        service = next((service for service in self.schedule.services if service.name == suite.service), None)
        if service:
            good, complaint, _ = self._start_service(service)
            if not good:
                return False, complaint
        try:
            result, _ = self._run_suite(suite, rerun.command(suite, failure, self.known), name)
        finally:
            if service:
                self._stop(service)
        text = result.log.read_text(errors="replace")
        passed, failed, text = _numbers(suite, result.status, text)
        return failed == 0 and (suite.counts != "pytest" or passed >= len(failure.tests)), text

    def print_summary(self) -> None:
        """Prints the slowest suites, the second runs, the failures and where the logs are. The last
        line has the totals."""
        slowest = sorted((outcome for outcome in self.outcomes), key=lambda outcome: -outcome.seconds)[:SLOWEST_SHOWN]
        print("slowest: " + ", ".join(f"{outcome.suite.name} {outcome.seconds:.0f} s" for outcome in slowest))
        for suite, failure, good in self.reruns:
            end = "passed the second time" if good else "FAILED again"
            print(f"ran twice: {suite.name}: {', '.join(failure.tests)}: {failure.reason}: {end}")
        unanswered = [failure for failure in self.failures if failure.unanswered]
        if unanswered and not self.reruns:
            print(f"{len(unanswered)} failures without an answer, none tried again: more than {rerun.RERUNS_MAX}, or others failed too")
            for line in rerun.causes(unanswered):
                print(f"  {line}")
        for _, name in self.names[:NAMES_SHOWN]:
            print(f"failed: {name}")
        if len(self.names) > NAMES_SHOWN:
            print(f"and {len(self.names) - NAMES_SHOWN} more")
        passed, failed = self.totals()
        busy = sum(outcome.busy_seconds for outcome in self.outcomes)
        logs = self.logs.relative_to(ROOT) if self.logs.is_relative_to(ROOT) else self.logs
        print(f"after {(time.monotonic() - self._begun) / 60:.1f} minutes, {busy / 60:.1f} minutes of processor time without shared "
              f"servers; logs in {logs}")
        print(f"{passed} passed, {failed} failed", flush=True)


def _numbers(suite, status: int, text: str) -> tuple:
    """(passed, failed, text). A suite that ran nothing proves nothing."""
    passed, failed = counts.COUNTS[suite.counts](text) if suite.counts else (0, 0)
    if status != 0 and failed == 0:
        failed = 1
    elif not suite.counts and status == 0:
        passed = 1
    elif suite.counts and status == 0 and passed == 0:
        failed, text = 1, text + "\nno test was counted in the output above\n"
    return passed, failed, text


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def show(log: Path, text: str) -> None:
    lines = text.splitlines()
    print(f"    --- {log}, last {min(len(lines), LOG_LINES_SHOWN)} of {len(lines)} lines ---")
    for line in lines[-LOG_LINES_SHOWN:]:
        print(f"    {line}")
    print("    ---", flush=True)

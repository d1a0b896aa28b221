"""Steps with a name, a duration and a log that is shown when they fail; used by scripts/run-cassandra and scripts/test."""

import os
import queue
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "target"
# RocksDB from source, with its compressors, where ROCKSDB_COMPILE says so: for every build that has the store in it.
BUNDLED = ["--features", "shunt-storage/bundled"] if os.environ.get("ROCKSDB_COMPILE") else []
LOG_LINES_SHOWN = 120
NAMES_SHOWN = 20
# How cargo, pytest, go test and Surefire name a test that failed.
FAILED_TEST = re.compile(r"^(?:test .* \.\.\. FAILED|FAILED \S.*|ERROR \S+::.*|\s*--- FAIL: .*|\[ERROR\] {3}\S.*)$", re.MULTILINE)
# What is no suite of tests says it so.
COMPLAINT = re.compile(r"^.*(?:\w*[Ee]rror\b|panicked|exit code [1-9]).*$", re.MULTILINE)


@dataclass
class Outcome:
    """How a step ended."""

    passed: int
    failed: int
    seconds: float
    busy_seconds: float


class Steps:
    """Runs commands one after another, quietly, and some beside all others. Those are broken off when it is left."""

    def __init__(self, logs: Path):
        self.logs = logs
        self.outcomes = {}
        self._names = []
        self._children = set()
        self._broken_off = False
        self._beside = []  # lanes that were begun
        self._ended_beside = queue.SimpleQueue()
        self._unreported = 0  # steps of them
        logs.mkdir(parents=True, exist_ok=True)
        self._terminal = sys.stdout.isatty()

    def __enter__(self) -> "Steps":
        return self

    def __exit__(self, *_) -> None:
        if self._unreported:
            self._break_off()

    def run(self, name: str, command, environment=None, count=None, timeout_seconds: float = 1800) -> bool:
        """Runs a step to its end; True if it succeeded.

        `count` turns the step's output into (passed, failed). A step that is no suite of tests counts as one test.
        """
        self._report_beside()
        print(f"  {name:<44}", end=" ", flush=True)
        return self._report(name, *self._measure(name, command, environment, timeout_seconds), count)

    def run_together(self, *steps, timeout_seconds: float = 1800) -> bool:
        """Runs steps (name, command, environment, count) at the same time; each is reported when it has ended."""
        return self.run_lanes(*([step] for step in steps), timeout_seconds=timeout_seconds)

    def run_lanes(self, *lanes, timeout_seconds: float = 1800) -> bool:
        """Runs lists of steps side by side, and each list in its order; the next step of a list begins however the last one ended."""
        ended = queue.SimpleQueue()
        running = self._follow(lanes, ended, timeout_seconds)
        good = True
        try:
            for _ in range(sum(map(len, lanes))):
                good &= self._report_ended(*self._next(ended, running))
                self._report_beside()
        except BaseException:
            self._break_off()
            raise
        return good

    def begin(self, *lanes, timeout_seconds: float = 1800) -> None:
        """Runs lists of steps beside all that is run from now on, until `finish`."""
        self._unreported += sum(map(len, lanes))
        self._beside += self._follow(lanes, self._ended_beside, timeout_seconds)

    def finish(self) -> None:
        """Waits for all that was begun."""
        while self._unreported:
            ended = self._next(self._ended_beside, self._beside)
            self._unreported -= 1
            self._report_ended(*ended)

    def _report_beside(self) -> None:
        while not self._ended_beside.empty():
            self._unreported -= 1
            self._report_ended(*self._ended_beside.get())

    def _follow(self, lanes, ended: queue.SimpleQueue, timeout_seconds: float) -> list:
        def follow(lane) -> None:
            for name, command, environment, count in lane:
                ended.put((name, self._measure(name, command, environment, timeout_seconds), count))

        if not lanes:
            return []
        pool = ThreadPoolExecutor(len(lanes))
        running = [pool.submit(follow, lane) for lane in lanes]
        pool.shutdown(wait=False)
        return running

    def _break_off(self) -> None:
        self._broken_off = True
        for child in list(self._children):
            self._end(child)

    def _report_ended(self, name: str, measured: tuple, count) -> bool:
        print(f"  {name:<44}", end=" ", flush=True)
        return self._report(name, *measured, count)

    @staticmethod
    def _next(ended: queue.SimpleQueue, running: list) -> tuple:
        """What a lane reports next; raises what a lane broke off with."""
        while True:
            try:
                return ended.get(timeout=1)
            except queue.Empty:
                for lane in running:
                    if lane.done():
                        lane.result()

    def _measure(self, name: str, command, environment, timeout_seconds: float) -> tuple:
        """(exit status, seconds, processor seconds, log) of a command."""
        log = self.logs / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".log")
        begun = time.monotonic()
        status, busy_seconds = self._execute(command, log, environment, timeout_seconds)
        return status, time.monotonic() - begun, busy_seconds, log

    def _report(self, name: str, status: int, seconds: float, busy_seconds: float, log: Path, count) -> bool:
        text = log.read_text(errors="replace")
        passed, failed = count(text) if count else (0, 0)
        if status != 0 and failed == 0:
            failed = 1
        elif not count and status == 0:
            passed = 1
        elif count and status == 0 and passed == 0:
            failed = 1  # a suite that ran nothing proves nothing
            text += "\nno test was counted in the output above\n"
        self.outcomes[name] = Outcome(passed, failed, seconds, busy_seconds)
        numbers = f"{passed} passed" + (f", {failed} FAILED" if failed else "") if count else ("FAILED" if failed else "ok")
        # Processor time says what a step costs when others use the machine too. Servers that it leaves running are not in it.
        print(f"{seconds:6.1f} s {busy_seconds:6.0f} s of processors  {numbers}", flush=True)
        if failed:
            self._show(log, text)
            found = list(FAILED_TEST.finditer(text)) or list(COMPLAINT.finditer(text))[-1:]
            self._names += [f"{name}: {line.group().strip()[:200]}" for line in found] or [name]
        return not failed

    def skip(self, name: str, reason: str) -> None:
        """A step that cannot run because an earlier one failed."""
        self.outcomes[name] = Outcome(0, 1, 0.0, 0.0)
        self._names.append(f"{name}: not run")
        print(f"  {name:<44}    not run: {reason}", flush=True)

    def print_failed(self) -> None:
        """What failed, by name, once more: the steps' logs are far above by the end, or cut off."""
        for name in self._names[:NAMES_SHOWN]:
            print(f"failed: {name}")
        if len(self._names) > NAMES_SHOWN:
            print(f"and {len(self._names) - NAMES_SHOWN} more")

    def totals(self) -> tuple:
        return (sum(outcome.passed for outcome in self.outcomes.values()),
                sum(outcome.failed for outcome in self.outcomes.values()))

    def busy_seconds(self) -> float:
        """Processor time of all steps, without that of servers that they left running."""
        return sum(outcome.busy_seconds for outcome in self.outcomes.values())

    def _execute(self, command, log: Path, environment, timeout_seconds: float) -> tuple:
        """(exit status, processor seconds) of a command."""
        with open(log, "wb") as output:
            if self._broken_off:
                output.write(b"not begun: the steps were broken off\n")
                return 130, 0.0
            try:
                child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(environment or {})},
                                         stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                         start_new_session=True)
            except OSError as error:
                output.write(f"{command[0]}: {error}\n".encode())
                return 127, 0.0
            self._children.add(child)
            if command[0] == "nice":
                _make_session_nice(child.pid, command[2])
            try:
                busy_seconds = _wait(child, timeout_seconds)
                return child.returncode, busy_seconds
            except subprocess.TimeoutExpired:
                output.write(f"\nstopped after {timeout_seconds} s\n".encode())
                return 124, 0.0
            finally:
                self._end(child)

    def _end(self, child: subprocess.Popen) -> None:
        """Ends the process group of a step that was broken off, SIGINT first: that lets tests stop what they started."""
        self._children.discard(child)
        for number, patience_seconds in ((signal.SIGINT, 60), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            if child.poll() is not None:
                return
            try:
                os.killpg(child.pid, number)
                child.wait(patience_seconds)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass

    def _show(self, log: Path, text: str) -> None:
        lines = text.splitlines()
        print(f"    --- {log.relative_to(ROOT)}, last {min(len(lines), LOG_LINES_SHOWN)} of {len(lines)} lines ---")
        for line in lines[-LOG_LINES_SHOWN:]:
            print(f"    {line}")
        print("    ---", flush=True)


def _make_session_nice(pid: int, niceness: str) -> None:
    """Linux shares processors evenly between sessions, of which each command is one, however nice the processes in them are."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(niceness)
    except OSError:
        pass  # a kernel that does not, where the processes' own niceness counts


def _wait(child: subprocess.Popen, timeout_seconds: float) -> float:
    """Processor time of a child that has ended and of those that it waited for; Popen's own wait does not tell it."""
    deadline = time.monotonic() + timeout_seconds
    while child.returncode is None:
        try:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
        except ChildProcessError:  # it was broken off, and whoever did so has waited for it
            child.wait()
            break
        if ended:
            child.returncode = os.waitstatus_to_exitcode(status)
            return used.ru_utime + used.ru_stime
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(child.args, timeout_seconds)
        time.sleep(0.05)
    return 0.0


def count_cargo(text: str) -> tuple:
    """Totals over the `test result:` lines of cargo test."""
    return _sums(r"test result: \w+\. (\d+) passed; (\d+) failed", text)


def count_pytest(text: str) -> tuple:
    last = next((line for line in reversed(text.splitlines()) if re.search(r"\d+ (passed|failed|error)", line)), "")
    number = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    return number.get("passed", 0), number.get("failed", 0) + number.get("error", 0)


def count_go(text: str) -> tuple:
    """Tests and subtests of go test -v; a package that does not build counts as a failure."""
    passed = len(re.findall(r"^\s*--- PASS", text, re.MULTILINE))
    failed = len(re.findall(r"^\s*--- FAIL", text, re.MULTILINE))
    return passed, failed + len(re.findall(r"^FAIL\s+\S+ \[", text, re.MULTILINE))


def count_surefire(text: str) -> tuple:
    """The summary of Maven Surefire: the last `Tests run:` line without a time."""
    summaries = re.findall(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$", text, re.MULTILINE)
    if not summaries:
        return 0, 0
    run, failures, errors, skipped = map(int, summaries[-1])
    return run - failures - errors - skipped, failures + errors


def _sums(pattern: str, text: str) -> tuple:
    found = re.findall(pattern, text)
    return sum(int(passed) for passed, _ in found), sum(int(failed) for _, failed in found)

"""Processes of the runner. Each has a log, a session and a deadline, at which it is interrupted and
in the end killed."""

import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from . import ROOT
from .accounting import Account

# SIGINT first: it lets tests stop the servers that they started.
ENDING = ((signal.SIGINT, 60), (signal.SIGTERM, 10), (signal.SIGKILL, 10))
STATUS_TIMED_OUT, STATUS_NOT_FOUND, STATUS_INTERRUPTED = 124, 127, 130


@dataclass
class Result:
    """The end of a process. `busy_seconds` is processor time, including its servers' where the
    kernel counts that."""

    status: int
    seconds: float
    busy_seconds: float
    log: Path


class Processes:
    """The processes that run now, so that an interrupt can end each of them."""

    def __init__(self):
        self._running = set()
        self._lock = threading.Lock()
        self._interrupted = False

    def run(self, command: list, log: Path, environment: dict, timeout_seconds: float) -> Result:
        begun = time.monotonic()
        status, busy_seconds = self._run(command, log, environment, timeout_seconds)
        return Result(status, time.monotonic() - begun, busy_seconds, log)

    def interrupt(self) -> None:
        """Ends all processes that run and lets no other begin."""
        with self._lock:
            self._interrupted = True
            running = list(self._running)
        for child in running:  # all at once, for each may take a minute
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGINT)
        for child in running:
            end(child)

    def _run(self, command, log, environment, timeout_seconds) -> tuple:
        account = Account()
        status, waited_for = self._follow(account, command, log, environment, timeout_seconds)
        counted = account.close()
        return status, waited_for if counted is None else counted

    def _follow(self, account, command, log, environment, timeout_seconds) -> tuple:
        with open(log, "wb") as output:
            try:
                child = self._start([*account.prefix, *command], environment, output)
            except OSError as error:
                output.write(f"{command[0]}: {error}\n".encode())
                return STATUS_NOT_FOUND, 0.0
            if child is None:
                output.write(b"not begun: the run was interrupted\n")
                return STATUS_INTERRUPTED, 0.0
            try:
                return _wait(child, timeout_seconds)
            except subprocess.TimeoutExpired:
                output.write(f"\nstopped after {timeout_seconds} s\n".encode())
                return STATUS_TIMED_OUT, 0.0
            finally:
                end(child)
                with self._lock:
                    self._running.discard(child)

    def _start(self, command, environment, output):
        with self._lock:
            if self._interrupted:
                return None
            child = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment},
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            self._running.add(child)
        return child


def end(child: subprocess.Popen) -> None:
    """Ends a process and its group, if it runs."""
    for number, patience_seconds in ENDING:
        if child.poll() is not None:
            return
        try:
            os.killpg(child.pid, number)
            child.wait(patience_seconds)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def _wait(child: subprocess.Popen, timeout_seconds: float) -> tuple:
    """(status, processor time) of a child and of those that it waited for; Popen's own wait does
    not report the latter."""
    deadline = time.monotonic() + timeout_seconds
    while child.returncode is None:
        try:
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
        except ChildProcessError:  # an interrupt ended it, and waited for it
            child.wait()
            break
        if ended:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, used.ru_utime + used.ru_stime
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(child.args, timeout_seconds)
        time.sleep(0.05)
    return child.returncode, 0.0

"""Processor time of a process and of everything that it starts, including servers in sessions of
their own.

A control group counts it where the kernel lets this user make one. Elsewhere only processes that
were waited for count.
"""

import itertools
import os
import time
from pathlib import Path

# Version 1 of control groups, then version 2 beside it or alone.
ROOTS = (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
EMPTY_WITHIN_SECONDS = 2
_numbers = itertools.count()


class Account:
    """The control group of one process. Without groups `busy_seconds` is None."""

    def __init__(self):
        self._group = None
        for root in ROOTS:
            group = root / f"shunt-tests-{os.getpid()}-{next(_numbers)}"
            try:
                if not (root / "cgroup.procs").exists():
                    continue
                group.mkdir()
            except OSError:
                continue
            self._group = group
            return

    @property
    def prefix(self) -> list:
        """Words to put before a command, which move its process into the group before it starts
        anything."""
        if not self._group:
            return []
        return ["sh", "-c", 'echo $$ > "$0" 2>/dev/null; exec "$@"', str(self._group / "cgroup.procs")]

    def close(self) -> float | None:
        """Returns the seconds that were used, and removes the group unless one of its processes
        still runs."""
        if not self._group:
            return None
        seconds = self._seconds()
        deadline = time.monotonic() + EMPTY_WITHIN_SECONDS
        while time.monotonic() < deadline:
            try:
                self._group.rmdir()
                break
            except OSError:
                time.sleep(0.05)  # processes that just ended are not gone yet
        return seconds

    def _seconds(self) -> float | None:
        try:
            if (self._group / "cpuacct.usage").exists():
                return int((self._group / "cpuacct.usage").read_text()) / 1e9
            for line in (self._group / "cpu.stat").read_text().splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
        except OSError:
            pass
        return None

"""Facts about a process from the kernel: its CPU time, its memory, and whether it is stopped."""

import os
import signal
from pathlib import Path

from . import waits

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
# Threads of Java's compilers, by the name the kernel has for them.
COMPILERS = "CompilerThre"


def cpu_seconds(pid: int) -> float:
    """CPU time of all its threads, including ended ones."""
    return _seconds(Path(f"/proc/{pid}/stat"))


def compiler_seconds(pid: int) -> float:
    """CPU time of the Java compilers in it."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += _seconds(task / "stat") if COMPILERS in (task / "comm").read_text() else 0.0
        except OSError:
            continue  # it ended
    return total


def stop(pid: int) -> None:
    """Stops a process and waits until all its threads stand still.

    The kernel lets one thread stop the others. On a busy machine that thread waits for a processor itself, and the others
    go on meanwhile.
    """
    os.kill(pid, signal.SIGSTOP)
    waits.until(lambda: has_stopped(pid), f"process {pid} has stopped", every_seconds=0.01)


def has_stopped(pid: int) -> bool:
    return all(_state(task / "stat") in "TtXZ" for task in Path(f"/proc/{pid}/task").iterdir())


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"  # it ended


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_SECONDS

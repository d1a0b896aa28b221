"""Jumps of the wall clock that one process sees, and no other.

A program asks for the time by a function that Linux maps into it (vdso(7)): Rust's rustix and the C library alike. That function is written
over in the process alone, by one that asks the kernel and adds some seconds to the wall clock. Leases go by another clock (CLOCK_BOOTTIME),
which such a jump leaves as it is, like one of the machine's. Of x86-64, and for a process that this one may trace."""

import os
import platform
import signal
import struct
from pathlib import Path

from harness import processes
from harness.waits import until

# clock_gettime, the system call; for CLOCK_REALTIME the seconds are added.
BEFORE = bytes.fromhex("b8e4000000"    # mov eax, 228
                       "0f05"          # syscall
                       "85ff"          # test edi, edi
                       "750d"          # jne: to the end
                       "48b9")         # mov rcx, the seconds
BEHIND = bytes.fromhex("48010e" "c3")  # add [rsi], rcx; ret
CODE_BYTES = len(BEFORE) + 8 + len(BEHIND)


def can_jump() -> bool:
    """False where it cannot be done, whatever the process."""
    return platform.machine() == "x86_64" and _mapped(os.getpid()) is not None


def jump(pid: int, seconds: int) -> None:
    """From now on its wall clock shows so many seconds more than the machine's; or less, or with 0 the same."""
    first, end = _mapped(pid)
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(first)
        begin = first + _place_of(memory.read(end - first), b"__vdso_clock_gettime")
        _stop_outside(pid, first, end)
        try:
            memory.seek(begin)
            memory.write(BEFORE + struct.pack("<q", seconds) + BEHIND)
        finally:
            os.kill(pid, signal.SIGCONT)


def _mapped(pid: int) -> tuple | None:
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            return tuple(int(end, 16) for end in line.split()[0].split("-"))
    return None


def _stop_outside(pid: int, first: int, end: int) -> None:
    """Stops it while none of its threads is in the function."""
    def is_outside() -> bool:
        processes.stop(pid)
        if not any(first <= place < end for place in _places(pid)):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    until(is_outside, f"{pid} does not ask for the time when it is looked at", every_seconds=0.001)


def _places(pid: int) -> list:
    """The place of each of its threads: the last word of proc(5). A thread that ends meanwhile has none."""
    places = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            places.append(int((task / "syscall").read_text().split()[-1], 16))
        except OSError:
            continue
    return places


def _place_of(image: bytes, name: bytes) -> int:
    """The start of a function in a shared library (elf(5)). The function must have room for ours."""
    headers_at, = struct.unpack_from("<Q", image, 0x20)
    size, count = struct.unpack_from("<HH", image, 0x36)
    dynamic = next(struct.unpack_from("<Q", image, headers_at + number * size + 8)[0] for number in range(count)
                   if struct.unpack_from("<I", image, headers_at + number * size)[0] == 2)
    tags = {}
    while True:
        tag, value = struct.unpack_from("<QQ", image, dynamic)
        if tag == 0:
            break
        tags[tag] = value
        dynamic += 16
    strings, symbols = tags[5], tags[6]
    # The table of symbols has no end of its own; the strings lie behind it.
    for place in range(symbols, strings, 24):
        name_at, _, _, _, value, length = struct.unpack_from("<IBBHQQ", image, place)
        if image[strings + name_at:].split(b"\0", 1)[0] == name:
            assert length >= CODE_BYTES, f"{name} has {length} bytes"
            return value
    raise AssertionError(f"no {name}")

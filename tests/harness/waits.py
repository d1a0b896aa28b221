"""Helpers with which tests wait for events. Their deadline only ends a test whose event never comes.

For a test that is about time itself, `unpaused` notices whether the machine stood still meanwhile.
"""

import asyncio
import threading
import time

DEADLINE_SECONDS = 180  # far beyond what a busy machine needs
TICK_SECONDS = 0.05


class Late(TimeoutError):
    """An event that a test waited for did not come. The runner counts such a test as one without an answer."""


class NotReady(Late, RuntimeError):
    """A running server did not begin to serve, or did not end, by the deadline."""


def until(condition, what: str, within_seconds: float = DEADLINE_SECONDS, every_seconds: float = 0.1, told=None):
    """Waits for the first true value of `condition()` and returns it. `what` names the event; `told()` describes what there was instead."""
    deadline = time.monotonic() + within_seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Late(f"after {within_seconds} s not yet: {what}" + (f"\n{told()}" if told else ""))
        time.sleep(every_seconds)


async def until_async(condition, what: str, within_seconds: float = DEADLINE_SECONDS,
                      every_seconds: float = 0.1, told=None):
    """`until` for an event loop, whose other tasks go on meanwhile. `condition` may be a coroutine."""
    deadline = time.monotonic() + within_seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise Late(f"after {within_seconds} s not yet: {what}" + (f"\n{told()}" if told else ""))
        await asyncio.sleep(every_seconds)


class Clock:
    """Notices pauses of this process, and so of the machine: the longest time between two ticks that are due every 50 ms."""

    def __init__(self):
        self.longest_seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> "Clock":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        self._thread.join()

    def _tick(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(TICK_SECONDS):
            now = time.monotonic()
            self.longest_seconds = max(self.longest_seconds, now - before)
            before = now


def unpaused(step, pause_seconds: float, times: int = 5):
    """Returns the result of `step()` if the machine paused for less than `pause_seconds` meanwhile. Otherwise the step runs again.

    A step returns what it saw and asserts only what no pause can excuse: an AssertionError fails at once, paused or not.
    """
    for _ in range(times):
        failure = result = None
        with Clock() as clock:
            try:
                result = step()
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001 (judged by the clock)
                failure = error
        if clock.longest_seconds < pause_seconds:
            if failure:
                raise failure
            return result
    raise Late(f"the machine paused for {pause_seconds} s or longer in each of {times} attempts (the last: {clock.longest_seconds:.1f} s)")

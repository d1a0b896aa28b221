"""Steps with a name, a duration, and a log that is shown when they fail; for
scripts/run-cassandra."""

import time
from pathlib import Path

from runner.execution import Processes
from runner.run import show, slug

STEP_SECONDS_MAX = 1800


class Steps:
    """Runs commands one after another, quietly."""

    def __init__(self, logs: Path):
        self.logs = logs
        self._processes = Processes()
        logs.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, command: list) -> bool:
        """Runs a step to its end; True if it succeeded."""
        print(f"  {name:<44}", end=" ", flush=True)
        begun = time.monotonic()
        result = self._processes.run(command, self.logs / f"{slug(name)}.log", {}, STEP_SECONDS_MAX)
        print(f"{time.monotonic() - begun:6.1f} s  {'FAILED' if result.status else 'ok'}", flush=True)
        if result.status:
            show(result.log, result.log.read_text(errors="replace"))
        return result.status == 0

"""Other work on the machine: four loops that never wait, and a writer of 50 MB/s to the disk of the
tests."""

import os
import subprocess
import sys
import time
from pathlib import Path

from . import TARGET
from .execution import end

LOOPS = 4
WRITER_BYTES_PER_SECOND = 50_000_000
WRITER_FILE_BYTES = 500_000_000  # the file starts again at this size
LOOP = ["sh", "-c", "while :; do :; done"]


class Load:
    """Processes that work until the block is left. Each has a session of its own, and so its own
    share of the processors."""

    def __init__(self):
        self.file = TARGET / "under-load.bin"

    def __enter__(self) -> "Load":
        writer = [sys.executable, "-m", "runner.load", str(self.file)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        self.children = [subprocess.Popen(command, env=environment, start_new_session=True) for command in [*[LOOP] * LOOPS, writer]]
        return self

    def __exit__(self, *_) -> None:
        for child in self.children:
            child.kill()
            end(child)
        self.file.unlink(missing_ok=True)


def write(path: Path) -> None:
    """Writes one second's share every second, for ever, and syncs it."""
    block = os.urandom(1_000_000)
    while True:
        with open(path, "wb") as file:
            while file.tell() < WRITER_FILE_BYTES:
                begun = time.monotonic()
                for _ in range(WRITER_BYTES_PER_SECOND // len(block)):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
                time.sleep(max(0, 1 - (time.monotonic() - begun)))


if __name__ == "__main__":
    write(Path(sys.argv[1]))

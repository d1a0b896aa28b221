"""Builds the checker of histories and asks it for its verdict."""

import os
import subprocess
from pathlib import Path

from harness import jars
from harness.waits import Late

HERE = Path(__file__).resolve().parent
LOGS = jars.TARGET / "test-logs"
WITHIN_SECONDS = 180
UNDECIDED = 3


def checker() -> Path:
    """The program; Go's own cache makes a second build cheap."""
    program = Path(os.environ.get("CARGO_TARGET_DIR", jars.TARGET)) / "history" / "check"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "check", check=True)
    return program


def verdict(path: Path) -> "tuple[int, str]":
    """(exit code, what it says) of a history in a file: 0 linearizable, 1 not, 2 not readable, 3 not decided in time."""
    result = subprocess.run([str(checker()), "-within", f"{WITHIN_SECONDS}s", str(path)], text=True, capture_output=True,
                            timeout=WITHIN_SECONDS * 2)
    return result.returncode, result.stdout + result.stderr


def assert_linearizable(history) -> None:
    """Fails with an explanation, and leaves the history where a run's logs are."""
    assert not history.problems, history.problems[:5]
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"history-{history.name}.jsonl"
    history.save(path)
    status, said = verdict(path)
    print(said)
    if status == UNDECIDED:
        raise Late(f"{path.name} in target/test-logs, not decided in time:\n{said}")
    assert status == 0, f"{path.name} in target/test-logs, exit code {status}:\n{said}"
    path.unlink()

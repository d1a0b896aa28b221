"""go-redis, unmodified: its tests are in go/."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.redis import Multiget, only_with, why_not

WHY_NOT = why_not() or ("go is missing: scripts/prerequisites go" if shutil.which("go") is None else "")
pytestmark = only_with(WHY_NOT)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The tests, built once."""
    program = tmp_path_factory.mktemp("go") / "mget.test"
    done = subprocess.run(["go", "test", "-c", "-o", program], cwd=Path(__file__).parent / "go", capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return program


@pytest.mark.parametrize("mode", ["tcp", "cli", "coordinator"])
def test_go_redis(tmp_path, program, mode):
    with Multiget(tmp_path, mode=mode) as tier:
        environment = {**os.environ, "SHUNT_MULTIGET": f"127.0.0.1:{tier.port}"}
        done = subprocess.run([program, "-test.v"], cwd=Path(__file__).parent / "go", env=environment, capture_output=True, text=True, timeout=1200,
                              check=False)
        assert done.returncode == 0 and "--- PASS" in done.stdout, done.stdout + done.stderr

"""cqlsh from PyPI, unmodified."""

import subprocess
import sys
from pathlib import Path

CQLSH = Path(sys.executable).with_name("cqlsh")


def run(script: str, host: str, port: int, home: Path, options=(), fails: bool = False, typed: bool = False) -> str:
    """Runs statements in one session; gives what was printed. `typed`: as a person types them, line by line, and with prompts."""
    command = [sys.executable, CQLSH, host, str(port), "--no-color", "--request-timeout", "60", "--connect-timeout", "20", *options]
    if typed:
        command.append("--tty")
    else:
        file = home / "script.cql"
        file.write_text(script)
        command += ["-f", str(file)]
    result = subprocess.run(command, input=script if typed else "", capture_output=True, text=True, timeout=240,
                            env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert (result.returncode != 0) == fails, result.stdout + result.stderr
    return result.stdout + result.stderr


"""cqlsh from PyPI, unmodified."""

import re
import subprocess
import sys
from pathlib import Path

from . import waits

CQLSH = Path(sys.executable).with_name("cqlsh")
# What it says when the server was late, and not wrong.
NO_ANSWER = re.compile(
    r"OperationTimedOut|NoHostAvailable|Unable to connect|[Tt]imed out|\b(Read|Write)Timeout\b")


# These have no option on the command line. By default cqlsh waits ten seconds for a trace, and for a
# page of COPY TO.
SETTINGS = """
[tracing]
max_trace_wait = 180
[copy]
pagetimeout = 180
requesttimeout = 180
"""


def run(script: str, host: str, port: int, home: Path, options=(), fails: bool = False, typed: bool = False,
        more_settings: str = "") -> str:
    """Runs statements in one session; gives what was printed. `typed`: as a person types them, line by line, and with prompts."""
    settings = home / "cqlshrc"
    settings.write_text(SETTINGS + more_settings)
    command = [sys.executable, CQLSH, host, str(port), "--no-color", "--cqlshrc", settings,
               "--request-timeout", "180", "--connect-timeout", "60", *options]
    if typed:
        command.append("--tty")
    else:
        file = home / "script.cql"
        file.write_text(script)
        command += ["-f", str(file)]
    result = subprocess.run(command, input=script if typed else "", capture_output=True, text=True,
                            timeout=600, cwd=home, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
    said = result.stdout + result.stderr
    if result.returncode != 0 and NO_ANSWER.search(said):
        raise waits.Late(said)
    assert (result.returncode != 0) == fails, said
    return said

"""`shunt bench load` as a function."""

import json
import subprocess

from harness.proxy import binary

TRIES = 10


class WrongAnswers(RuntimeError):
    """Wrong answers, in place of an error that says to ask again."""


def until_answered(measure):
    """The result of `measure`, called again while it is None: on a busy machine, no query may begin
    and end within a short measurement. RuntimeError if every result is None."""
    for _ in range(TRIES):
        found = measure()
        if found is not None:
            return found
    raise RuntimeError(f"in none of {TRIES} runs was one query answered: measure for longer")


def load(target: str, connections: int, outstanding: int, *more, errors_count: bool = True) -> dict:
    """One round; what it reports. WrongAnswers if an answer was wrong; RuntimeError if it failed, or one was missing or, unless they do not
    count, an error."""
    out = subprocess.run(
        [str(binary()), "bench", "load", "--target", target, "--connections", str(connections), "--outstanding",
         str(outstanding), "--json", *(str(argument) for argument in more)],
        capture_output=True, text=True, check=False)
    # An unsound round ends with another exit code, and is reported all the same.
    last = out.stdout.strip().rsplit("\n", 1)[-1]
    report = json.loads(last) if last.startswith("{") else {}
    if report.get("wrong_answers"):
        raise WrongAnswers(f"{target}: {report['wrong_answers']} answers are wrong; errors: {report['errors']}")
    if out.returncode != 0:
        raise RuntimeError(f"shunt bench load failed: {out.stderr or out.stdout}")
    if errors_count and report["error_share"] > 0:
        raise RuntimeError(f"{target} answered wrongly: {report['errors']}")
    if report["connections_lost"] > 0 or report["queries_lost"] > 0:
        raise RuntimeError(f"{target}: {report['connections_lost']} connections lost, {report['queries_lost']} queries without an answer")
    return report

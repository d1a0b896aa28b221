"""The table of suites, tests/suites.toml: the suites, what each needs, and what only one of them
may use at a time."""

import os
import re
import shlex
import time
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import BUNDLED, ROOT, TARGET
from .counts import COUNTS

TABLE = ROOT / "tests" / "suites.toml"
RUNS = ("test", "lint", "unit", "e2e", "long")
PYTEST = [str(TARGET / "python" / "bin" / "python"), "-m", "pytest", "-c", "tests/pytest.ini", "-p", "harness.verdicts"]


class BadTable(Exception):
    """An entry of the table that cannot be right. The message names it."""


@dataclass
class Suite:
    """A command that proves something, or that others need. The head of the table explains the
    fields."""

    name: str
    command: str
    runs: list
    seconds: float
    processors: float
    counts: str | None = None
    lane: str | None = None
    needs: list = field(default_factory=list)
    provides: str | None = None
    service: str | None = None
    environment: dict = field(default_factory=dict)
    timeout_minutes: float = 30
    alone: bool = False
    again: str | None = None


@dataclass
class Service:
    """Servers that suites share: they start before the first of these and stop after the last."""

    name: str
    kind: str
    seconds: float
    processors: float
    lane: str | None = None
    needs: list = field(default_factory=list)
    options: dict = field(default_factory=dict)


def words(command: str, known: dict) -> list:
    """A command as words. `known` has values for its {placeholders}: a text, or a list for a
    placeholder that is a whole word."""
    found = []
    for part in shlex.split(command):
        value = known.get(part[1:-1]) if part.startswith("{") and part.endswith("}") else None
        if isinstance(value, list):
            found += value
        else:
            found.append(fill(part, known))
    return found


def fill(text: str, known: dict) -> str:
    """A text with its {placeholders} replaced, if their values are texts."""
    for name, value in known.items():
        text = text.replace("{" + name + "}", value) if isinstance(value, str) else text
    return text


def placeholders() -> dict:
    return {"pytest": PYTEST, "python": [PYTEST[0]], "bundled": BUNDLED, "root": str(ROOT), "target": str(TARGET),
            "shunt": [os.environ.get("SHUNT_BINARY", "")],
            "extended": os.environ.get("SHUNT_EXTENDED", "3"), "now": str(int(time.time())),
            "path": os.environ.get("PATH", ""), "home": os.environ.get("HOME", "/")}


def environment(run: str, path: Path = TABLE) -> dict:
    """The variables that all suites of a run have, mostly sizes."""
    return tomllib.loads(path.read_text()).get("environment", {}).get(run, {})


def load(path: Path = TABLE) -> tuple:
    """(suites, services) in the order of the file."""
    content = tomllib.loads(path.read_text())
    suites = [_entry(Suite, entry) for entry in content.get("suite", [])]
    services = [_entry(Service, entry) for entry in content.get("service", [])]
    return suites, services


def _entry(kind, entry: dict):
    try:
        return kind(**entry)
    except TypeError as error:
        raise BadTable(f"{entry.get('name', 'an entry without a name')}: {str(error).partition('() ')[2]}") from error


def select(suites: list, services: list, run: str) -> tuple:
    """The suites of a run, and the services that these use."""
    chosen = [suite for suite in suites if run in suite.runs]
    used = {suite.service for suite in chosen if suite.service}
    return chosen, [service for service in services if service.name in used]


def only(suites: list, part: str) -> list:
    """The suites whose name contains `part`. Their needs count as met."""
    found = [suite for suite in suites if part in suite.name]
    if not found:
        raise BadTable(f"no suite of this run has {part!r} in its name; --list prints their names")
    return [replace(suite, needs=[]) for suite in found]


def check(suites: list, services: list) -> None:
    """Raises BadTable for the first entry that names something unknown, or that waits for
    itself."""
    names = [entry.name for entry in [*suites, *services]]
    for name in names:
        if names.count(name) > 1:
            raise BadTable(f"{name}: two entries have this name")
    for suite in suites:
        unknown = set(suite.runs) - set(RUNS)
        if unknown or not suite.runs:
            raise BadTable(f"{suite.name}: runs must be some of {', '.join(RUNS)}, found {suite.runs}")
        if suite.counts not in (None, *COUNTS):
            raise BadTable(f"{suite.name}: counts is {suite.counts!r}, not one of {', '.join(COUNTS)}")
        unknown = set(re.findall(r"{(\w+)}", suite.command + (suite.again or ""))) - set(placeholders()) - {"test", "tests"}
        if unknown:
            raise BadTable(f"{suite.name}: its command has {{{min(unknown)}}}, which is not one of {', '.join(placeholders())}")
        if suite.service and suite.service not in {service.name for service in services}:
            raise BadTable(f"{suite.name}: there is no service {suite.service!r}")
    for run in RUNS:
        chosen, used = select(suites, services, run)
        provided = {name for suite in chosen for name in (suite.name, suite.provides)}
        for entry in [*chosen, *used]:
            for need in entry.needs:
                if need not in provided:
                    raise BadTable(f"{entry.name}: needs {need!r}, which nothing provides in the run {run!r}")
        _check_order(chosen)


def _check_order(suites: list) -> None:
    """Raises BadTable for a need that does not stand before its suite, and so for every circle."""
    done = set()
    for suite in suites:
        for need in suite.needs:
            if need not in done:
                raise BadTable(f"{suite.name}: needs {need!r}, which must stand before it")
        done |= {suite.name, suite.provides}

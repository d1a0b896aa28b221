"""Reads a results file (JSON lines) into scenarios, claims and notes.

Every line is checked before anything is drawn. What is wrong is reported with file, line and what to do, all of it at once
and not the first fault only. A run that was broken off is no fault: its last line may be cut short, its summaries missing;
they are then made here from the measurements.
"""

import json
import re
import statistics
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from . import shapes

FAULTS_SHOWN = 20


class BadResults(Exception):
    """The file is no results file; the message has one line for each fault."""


@dataclass
class Arm:
    """One of the things compared; `missing` is why it was not measured."""

    name: str
    title: str
    missing: str | None


@dataclass
class Quantity:
    """A quantity that is measured (a "figure" in the file); `better` is less, more or neither."""

    name: str
    title: str
    unit: str
    better: str


@dataclass
class Plot:
    """A picture that the scenario asks for, and the sentence beneath it. `on_page`: its medians stand on the page of kept runs, as the first one's."""

    quantity: Quantity
    sentence: str
    on_page: bool = False


@dataclass
class Summary:
    """Median and range over the rounds; `x` is None where the axis has names only."""

    arm: str
    point: str
    x: float | None
    figure: str
    median: float
    low: float
    high: float
    rounds: int


@dataclass
class Comparison:
    """Ratio of an arm to another with its interval; None where there were too few rounds for one."""

    point: str
    figure: str
    arm: str
    base: str
    ratio: float
    low: float | None
    high: float | None
    shown: bool
    rounds: int


@dataclass
class Series:
    """Values over time, or a distribution. A value of None is a gap."""

    arm: str
    point: str
    figure: str
    x_title: str
    x: list
    y: list


@dataclass
class Drawing:
    """A finished picture that came with the results."""

    name: str  # of its file, without directory and ending
    title: str
    svg: str


@dataclass
class Claim:
    """A statement that somebody made, and what was found."""

    scenario: str | None
    text: str
    source: str | None
    theirs: str | None
    ours: str | None
    how: str | None
    verdict: str
    why: str | None


@dataclass
class Scenario:
    """One chapter of the report."""

    name: str
    title: str
    question: str
    setup: str
    source: str | None
    axis_title: str
    axis_scale: str
    arms: list
    quantities: list
    plots: list = field(default_factory=list)
    measurements: int = 0
    rounds: int = 0
    summaries: list = field(default_factory=list)
    comparisons: list = field(default_factory=list)
    series: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    drawings: list = field(default_factory=list)
    derived: bool = False  # summaries were made here, from the measurements
    run: "Results | None" = None  # the run it was measured in, if that is not the report's first

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def points(self) -> list:
        """Points of the summaries in the order of their places on the axis. Without these, shapes such as 64x1 and shares such as
        80 % go by their numbers, other points come after them in the order of the file."""
        places = {}
        for summary in self.summaries:
            places.setdefault(summary.point, summary.x)
        if all(x is not None for x in places.values()):
            return sorted(places, key=places.get)
        return sorted(places, key=_place)


def shape(text: str) -> tuple | None:
    """Connections and the queries in flight on each, of a text such as 64x1."""
    found = re.fullmatch(r"(\d+) ?x ?(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def _place(point: str) -> tuple:
    """Place of a point without a number of its own: shapes with one query in flight first, by their connections."""
    found = shape(point)
    if found:
        return 0, found[1], found[0]
    share = re.fullmatch(r"([\d.]+) ?%.*", point)
    return (0, float(share[1]), 0) if share else (1, 0, 0)


@dataclass
class Results:
    """One run."""

    path: Path
    shunt: str
    commit: str | None
    started: datetime
    smoke: bool
    seed: int | None
    machine: dict
    versions: dict
    scenarios: list = field(default_factory=list)
    claims: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    complete: bool = False
    seconds: float | None = None
    cut_line: int | None = None  # the last line of a run that was broken off while it wrote
    others: list = field(default_factory=list)  # runs whose scenarios were added to this one's
    seconds_alone: float | None = None  # of this run without the others
    kept: bool = False  # read from a file without single measurements

    def scenario(self, name: str) -> Scenario | None:
        return next((scenario for scenario in self.scenarios if scenario.name == name), None)

    def runs(self) -> list:
        """This run and those that were added to it."""
        return [self, *self.others]

    def paths(self) -> list:
        """The files that it was read from."""
        return list(dict.fromkeys(run.path for run in self.runs()))

    def machine_line(self) -> str:
        """The machine of this run alone, in a few words."""
        machine = self.machine
        parts = [machine.get("processor"), f"{machine['processors']}\u00a0CPUs" if machine.get("processors") else None,
                 f"{machine['memory_bytes'] / 1e9:.1f}\u00a0GB" if machine.get("memory_bytes") else None,
                 {True: "virtual", False: "not virtual"}.get(machine.get("virtual"))]
        return ", ".join(part for part in parts if part) or "unknown"

    def machines(self) -> str:
        """Every machine of the measurements. Each chapter says which one its scenario used."""
        return "; in part: ".join(dict.fromkeys(run.machine_line() for run in self.runs()))

    def verdicts(self) -> dict:
        """The number of claims with each verdict. Verdicts without a claim are left out."""
        counts = {verdict: sum(claim.verdict == verdict for claim in self.claims) for verdict in shapes.VERDICTS}
        return {verdict: count for verdict, count in counts.items() if count}


class _Reader:
    """The lines of one file, and what is wrong with them."""

    def __init__(self, path: Path):
        self.path, self.faults, self.lines, self.cut = path, [], [], None

    def fault(self, number: int | str, text: str) -> None:
        """Notes what is wrong with a line, or with a part of a file that has another form."""
        place = f":{number}" if isinstance(number, int) else f": {number}"
        self.faults.append(f"{self.path}{place}: {text}")

    def check(self) -> None:
        if self.faults:
            more = len(self.faults) - FAULTS_SHOWN
            raise BadResults("\n".join(self.faults[:FAULTS_SHOWN] + ([f"and {more} more"] if more > 0 else [])))

    def read(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadResults(f"{self.path}: cannot be read: {error}; give the file that `shunt bench run` wrote") from error
        rows = text.split("\n")
        for number, row in enumerate(rows, 1):
            if row.strip():
                # The line that a broken-off run was writing has no end.
                self._line(number, row, last=number == len(rows))
        self.check()

    def _line(self, number: int, row: str, last: bool) -> None:
        try:
            value = json.loads(row)
        except json.JSONDecodeError as error:
            if last and number > 1:
                self.cut = number
            else:
                self.fault(number, f"no JSON ({error.msg} at column {error.colno}); each line is one object, as "
                                   "`shunt bench run` writes it: delete the line if something else wrote it")
            return
        self.take(number, value)

    def take(self, number: int | str, value) -> None:
        """Checks the form of a line and keeps it."""
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in shapes.KINDS:
            named = f"kind {shapes.shown(kind)} is unknown" if kind is not None else 'an object with a "kind" is wanted'
            self.fault(number, f"{named}; known are {', '.join(shapes.KINDS)}. If a later Shunt wrote the file, build the "
                               "report with that version")
            return
        wrong = shapes.faults(value, shapes.KINDS[kind], "")
        for text in wrong:
            self.fault(number, f"{kind}: {text}")
        if not wrong:
            self.lines.append((number, kind, value))


def read(path: Path) -> Results:
    """The run in a file. Raises BadResults."""
    reader = _Reader(path)
    reader.read()
    return _assembled(reader)


def from_lines(path: Path, lines: list) -> Results:
    """The run that lines of a file in another form tell of: (part of the file, line). Raises BadResults."""
    reader = _Reader(path)
    for where, line in lines:
        reader.take(where, line)
    reader.check()
    return _assembled(reader)


def _assembled(reader: _Reader) -> Results:
    if not reader.lines or reader.lines[0][1] != "run":
        number = reader.lines[0][0] if reader.lines else 1
        reader.fault(number, 'the first line must be of kind "run": the beginning of the file is missing')
        reader.check()
    results = _begin(reader)
    for number, _, line in (entry for entry in reader.lines if entry[1] == "scenario"):
        _scenario(reader, results, number, line)
    reader.check()
    for number, kind, line in reader.lines[1:]:
        _LATER[kind](reader, results, number, line)
    ends = [number for number, kind, _ in reader.lines if kind == "end"]
    if ends and reader.lines[-1][1] != "end":
        reader.fault(ends[0], 'lines follow the line of kind "end"; one file holds one run')
    reader.check()
    for scenario in results.scenarios:
        _complete(scenario, reader.lines)
    return results


def read_all(paths: list) -> Results:
    """The runs of several files as one. Raises BadResults."""
    return join([read(path) for path in paths])


def join(runs: list) -> Results:
    """Runs that belong together, such as that of a scenario that takes hours and that of all others, as one. A scenario that
    several have is taken from the last, and a note says what was found before. Raises BadResults."""
    first, *others = runs
    for other in others:
        _join(first, other)
    return first


def _join(first: Results, other: Results) -> None:
    if other.smoke != first.smoke:
        short, full = (other.path, first.path) if other.smoke else (first.path, other.path)
        raise BadResults(f"{short}: is of the short smoke form, {full} is not; make a report of each")
    for scenario in other.scenarios:
        scenario.run = scenario.run or other
        before = first.scenario(scenario.name)
        if before is None:
            first.scenarios.append(scenario)
        else:
            first.scenarios[first.scenarios.index(before)] = scenario
            scenario.notes += _replaced(first, before)
            first.claims = [claim for claim in first.claims if claim.scenario != scenario.name]
    first.others += other.runs()
    first.claims += other.claims
    first.notes += other.notes
    first.complete = first.complete and other.complete
    first.seconds = None if first.seconds is None or other.seconds is None else first.seconds + other.seconds


def _replaced(run: Results, before: Scenario) -> list:
    """A note of what a replaced measurement had found, so that nothing is measured until it pleases."""
    found = [f"{claim.text}: {claim.ours or 'nothing'}, {claim.verdict}" for claim in run.claims if claim.scenario == before.name]
    part = before.run or run
    when = f"{part.started:%Y-%m-%d %H:%M}, commit {part.commit or 'unknown'}"
    return [f"Measured before, {when}, and replaced by this. {'; '.join(found)}."] if found else []


def _begin(reader: _Reader) -> Results:
    number, _, line = reader.lines[0]
    try:
        started = datetime.fromisoformat(line["started"])
    except ValueError:
        reader.fault(number, f"run: started is {shapes.shown(line['started'])}; a time such as 2026-11-21T23:00:00Z is wanted")
        reader.check()
    return Results(path=reader.path, shunt=line["shunt"], commit=line.get("commit"), started=started, smoke=line["smoke"],
                   seed=line.get("seed"), machine=line["machine"], versions=line.get("versions") or {}, cut_line=reader.cut)


def _scenario(reader: _Reader, results: Results, number: int, line: dict) -> None:
    if results.scenario(line["name"]):
        reader.fault(number, f"scenario {line['name']!r} is there twice; one file holds one run")
        return
    quantities = [Quantity(item["name"], item["title"], item["unit"], item["better"]) for item in line["figures"]]
    scenario = Scenario(
        name=line["name"], title=line["title"], question=line["question"], setup=line["setup"], source=line.get("source"),
        axis_title=line["axis"]["title"], axis_scale=line["axis"]["scale"], quantities=quantities,
        arms=[Arm(item["name"], item["title"], item.get("missing")) for item in line["arms"]])
    for plot in line["plots"]:
        quantity = next((item for item in quantities if item.name == plot["figure"]), None)
        if quantity is None:
            reader.fault(number, f"plot of {plot['figure']!r}, which is none of the scenario's figures; add it to them")
        else:
            scenario.plots.append(Plot(quantity, plot["sentence"], bool(plot.get("on_page"))))
    results.scenarios.append(scenario)


def _known(reader: _Reader, results: Results, number: int, line: dict) -> Scenario | None:
    """The scenario of a line, if it and the line's arms are declared."""
    scenario = results.scenario(line["scenario"])
    if scenario is None:
        reader.fault(number, f"scenario {line['scenario']!r} has no line of kind \"scenario\"; add it or delete this line")
        return None
    names = [arm.name for arm in scenario.arms]
    for arm in (line[key] for key in ("arm", "base") if key in line):
        if arm not in names:
            reader.fault(number, f"arm {arm!r} is none of scenario {scenario.name!r}; it has {', '.join(names) or 'none'}")
            return None
    return scenario


def _point(line: dict) -> str:
    return line.get("point") or ""


def _measurement(reader, results, number, line) -> None:
    scenario = _known(reader, results, number, line)
    if scenario:
        scenario.measurements += 1
        scenario.rounds = max(scenario.rounds, int(line["round"]) + 1)
        for name, value in line["figures"].items():
            for text in shapes.faults(value, shapes.OPTIONAL_NUMBER, f"figures.{name}"):
                reader.fault(number, f"measurement: {text}")


def _series(reader, results, number, line) -> None:
    scenario = _known(reader, results, number, line)
    if scenario is None:
        return
    if line["figure"] not in [quantity.name for quantity in scenario.quantities]:
        reader.fault(number, f"series of {line['figure']!r}, which is none of the scenario's figures; add it to them")
    elif len(line["x"]) != len(line["y"]):
        reader.fault(number, f"series: x has {len(line['x'])} values and y {len(line['y'])}; both must have as many")
    elif any(value is not None for value in line["y"]):
        scenario.series.append(Series(line["arm"], _point(line), line["figure"], line["x_title"], line["x"], line["y"]))


def _summary(reader, results, number, line) -> None:
    scenario = _known(reader, results, number, line)
    if scenario:
        scenario.summaries.append(Summary(line["arm"], _point(line), line.get("x"), line["figure"], line["median"],
                                          line["min"], line["max"], int(line["rounds"])))
        scenario.rounds = max(scenario.rounds, int(line["rounds"]))


def _comparison(reader, results, number, line) -> None:
    scenario = _known(reader, results, number, line)
    if scenario:
        scenario.comparisons.append(Comparison(_point(line), line["figure"], line["arm"], line["base"], line["ratio"],
                                               line.get("low"), line.get("high"), line["shown"], int(line["rounds"])))


def _picture(reader, results, number, line) -> None:
    scenario = _known(reader, results, number, line)
    if scenario:
        scenario.drawings.append(Drawing(line["name"], line["title"], line["svg"]))


def _claim(reader, results, number, line) -> None:
    name = line.get("scenario")
    if name is not None and results.scenario(name) is None:
        reader.fault(number, f"claim: scenario {name!r} has no line of kind \"scenario\"; add it, or write null")
    keys = ("scenario", "text", "source", "theirs", "ours", "how", "verdict", "why")
    results.claims.append(Claim(*(line.get(key) for key in keys)))


def _note(reader, results, number, line) -> None:
    name = line.get("scenario")
    scenario = results.scenario(name) if name is not None else None
    if name is not None and scenario is None:
        reader.fault(number, f"note: scenario {name!r} has no line of kind \"scenario\"; add it, or write null")
        return
    (scenario or results).notes.append(line["text"])


def _end(_reader, results, _number, line) -> None:
    results.complete, results.seconds = line["complete"], line.get("seconds")
    results.seconds_alone = results.seconds


def _second_run(reader, _results, number, _line) -> None:
    reader.fault(number, 'a second line of kind "run"; one file holds one run: split it here')


_LATER = {"run": _second_run, "scenario": lambda *_: None, "measurement": _measurement, "series": _series, "picture": _picture,
          "summary": _summary, "comparison": _comparison, "claim": _claim, "note": _note, "end": _end}


def _complete(scenario: Scenario, lines: list) -> None:
    """Summaries from the measurements where the file has none, as after a run that was broken off."""
    have = {(summary.arm, summary.point, summary.figure) for summary in scenario.summaries}
    values, places = {}, {}
    for _, kind, line in lines:
        if kind == "measurement" and line["scenario"] == scenario.name:
            places[_point(line)] = line.get("x")
            for figure, value in line["figures"].items():
                key = (line["arm"], _point(line), figure)
                if key not in have and value is not None:
                    values.setdefault(key, []).append(value)
    named = {quantity.name for quantity in scenario.quantities}
    for (arm, point, figure), found in values.items():
        if figure in named:
            scenario.derived = True
            scenario.summaries.append(Summary(arm, point, places[point], figure, statistics.median(found), min(found),
                                              max(found), len(found)))

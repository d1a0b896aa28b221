"""Runs that are kept: one small JSON file each, with claims, medians, ratios and their intervals, and no single measurement.

A file has the runs that were put together ("runs"; a scenario's "run" is a place in that list), and for each scenario what its
lines in the results file say. Its medians are "figure: point: arm: [median, smallest, largest, rounds]", its comparisons
"figure: point: arm / other arm: [ratio, low, high, whether a difference is shown, rounds]". Numbers have five digits.
"""

import json
from pathlib import Path

from . import results
from .results import BadResults, Results, Scenario

DIGITS = 5
OVER = " / "  # between two arms that are compared
LINE_CHARACTERS = 130


def text(run: Results) -> str:
    """The file's content."""
    parts = run.runs()
    content = {
        "runs": [_part(part) for part in parts], "notes": run.notes,
        "scenarios": [_scenario(run, scenario, parts) for scenario in run.scenarios],
        "claims": [_claim(claim) for claim in run.claims if claim.scenario is None]}
    return _written(content, 0) + "\n"


def read(path: Path) -> Results:
    """The run that a file keeps. Raises BadResults."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = [list(_lines(content, number)) for number in range(len(content["runs"]))]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadResults(f"{path}: cannot be read: {error}; write it again with --keep") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadResults(f"{path}: is no run that was kept ({type(error).__name__}: {error}); write it again with --keep") from error
    if not parts:
        raise BadResults(f"{path}: names no run; write it again with --keep")
    run = results.join([results.from_lines(path, lines) for lines in parts])
    order = {scenario["name"]: place for place, scenario in enumerate(content["scenarios"])}
    run.scenarios.sort(key=lambda scenario: order[scenario.name])
    run.claims.sort(key=lambda claim: order.get(claim.scenario, len(order)))
    run.kept = True
    return run


def _part(part: Results) -> dict:
    """Date, commit and machine of a run."""
    return {"started": part.started.isoformat(), "commit": part.commit, "shunt": part.shunt, "seed": part.seed,
            "seconds": part.seconds_alone and round(part.seconds_alone), "machine": part.machine, "versions": part.versions}


def _scenario(run: Results, scenario: Scenario, parts: list) -> dict:
    medians, comparisons = {}, {}
    for spot in scenario.summaries:
        row = [_number(spot.median), _number(spot.low), _number(spot.high), spot.rounds]
        medians.setdefault(spot.figure, {}).setdefault(spot.point, {})[spot.arm] = row
    for item in scenario.comparisons:
        row = [_number(item.ratio), _number(item.low), _number(item.high), item.shown, item.rounds]
        comparisons.setdefault(item.figure, {}).setdefault(item.point, {})[f"{item.arm}{OVER}{item.base}"] = row
    places = {spot.point: spot.x for spot in scenario.summaries}
    points = {point: places[point] for point in scenario.points()}
    ordered = {figure: {point: found[point] for point in points if point in found} for figure, found in medians.items()}
    return {
        "name": scenario.name, "run": parts.index(scenario.run) if scenario.run else 0, "title": scenario.title,
        "question": scenario.question, "setup": scenario.setup, "source": scenario.source,
        "axis": {"title": scenario.axis_title, "scale": scenario.axis_scale}, "points": points,
        "arms": [{"name": arm.name, "title": arm.title, "missing": arm.missing} for arm in scenario.arms],
        "figures": [vars(quantity) for quantity in scenario.quantities],
        "plots": [{"figure": plot.quantity.name, "sentence": plot.sentence} | ({"on_page": True} if plot.on_page else {}) for plot in scenario.plots],
        "claims": [_claim(claim) for claim in run.claims if claim.scenario == scenario.name],
        "medians": ordered, "comparisons": comparisons, "notes": scenario.notes}


def _claim(claim) -> dict:
    return {key: value for key, value in vars(claim).items() if key != "scenario" and value is not None}


def _number(value):
    if value is None or isinstance(value, int):
        return value
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) else short


def _lines(content: dict, number: int):
    """The lines of a results file that say the same of one of the runs: (where, line)."""
    part = content["runs"][number]
    yield "runs", {"kind": "run", "smoke": False, **part}
    mine = [scenario for scenario in content["scenarios"] if scenario["run"] == number]
    for scenario in mine:
        where = f"scenario {scenario['name']!r}"
        named = {"scenario": scenario["name"]}
        yield where, {"kind": "scenario", **{key: scenario[key] for key in (
            "name", "title", "question", "setup", "source", "axis", "arms", "figures", "plots")}}
        for figure, point, arm, row in _rows(scenario["medians"]):
            yield where, {"kind": "summary", **named, "arm": arm, "point": point, "x": scenario["points"][point], "figure": figure,
                          **dict(zip(("median", "min", "max", "rounds"), row, strict=True))}
        for figure, point, pair, row in _rows(scenario["comparisons"]):
            arm, base = pair.split(OVER)
            yield where, {"kind": "comparison", **named, "arm": arm, "base": base, "point": point, "figure": figure,
                          **dict(zip(("ratio", "low", "high", "shown", "rounds"), row, strict=True))}
        yield from ((where, {"kind": "claim", **named, **claim}) for claim in scenario["claims"])
        yield from ((where, {"kind": "note", **named, "text": note}) for note in scenario["notes"])
    if number == 0:
        yield from (("claims", {"kind": "claim", **claim}) for claim in content["claims"])
        yield from (("notes", {"kind": "note", "text": note}) for note in content["notes"])
    yield "runs", {"kind": "end", "complete": True, "seconds": part["seconds"]}


def _rows(figures: dict):
    return ((figure, point, name, row) for figure, points in figures.items() for point, names in points.items()
            for name, row in names.items())


def _written(value, depth: int) -> str:
    """JSON in which what fits on a line stands on one, so that a change shows as the lines it is."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value or depth + len(line) <= LINE_CHARACTERS:
        return line
    if isinstance(value, dict):
        begin, end = "{}"
        members = [f"{json.dumps(key, ensure_ascii=False)}: {_written(member, depth + 1)}" for key, member in value.items()]
    else:
        begin, end = "[]"
        members = [_written(member, depth + 1) for member in value]
    indent = " " * (depth + 1)
    return f"{begin}\n" + ",\n".join(indent + member for member in members) + f"\n{' ' * depth}{end}"

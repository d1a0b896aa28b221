"""The page of the runs that are kept, in Markdown: what was run, each claim with its results, medians of what is plotted."""

import re

from . import charts, units
from .results import Results, Scenario

HEAD = """# Results

<!-- Written by experiments/report/build --keep from the files beside it; do not edit. -->

`shunt bench run` judged these claims on full runs. The latest run comes first. A claim is

- *met* when the whole interval of the measured median is where the claim says,
- *not met* when none of the interval is,
- *not shown* otherwise.

"x 0.51 (0.42 to 0.71)" is a ratio and the interval of its median over the rounds.
[Benchmarks](../benchmarks.md) says how to measure, and how to repeat a run.

Each run is one JSON file with its claims, medians, ratios and intervals. `make report
RESULTS=docs/results/NAME.json` makes a page with plots of it below `target`. We keep no single
measurements.

"Theirs" is the finding of a paper; "paper 4" is number 4 of this list:

1. D. Kawanami et al., "A Proxy-Based Query Aggregation Method for Distributed Key-Value Stores",
   FiCloudW 2018.
2. Later work of the same group on a faster proxy.
3. S. Klauck et al., "Eliminating the Bandwidth Bottleneck of Central Query Dispatching Through TCP
   Connection Hand-Over", BTW 2019.
4. J. Bang, "High-Performance Multiget Coordination for Distributed Key-Value Stores" (NetMC), a
   master's thesis of Sungshin Women's University, 2024.
5. P. Menon et al., "CaSSanDra: An SSD Boosted Key-Value Store", ICDE 2014.
"""
RUNS_SHOWN = 2  # of each scenario, beside one another; older ones are in their files


def cell(text: str | None) -> str:
    """Text that cannot end a cell or become markup."""
    plain = " ".join((text or "–").split())
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        plain = plain.replace(sign, instead)
    return re.sub(r"([\\|`\[*])", r"\\\1", plain)


def page(kept: list) -> str:
    """The whole page; `kept` are (name, run), the latest first."""
    if not kept:
        return f"{HEAD}\nNo run has been kept yet.\n"
    names = list(dict.fromkeys(scenario.name for _, run in kept for scenario in run.scenarios))
    # A run may be of one scenario; what the others found is not older for that.
    shown = {which: [(name, run, run.scenario(which)) for name, run in kept if run.scenario(which)][:RUNS_SHOWN] for which in names}
    parts = [HEAD, _runs(kept)]
    parts += [_chapter(found) for found in shown.values()]
    notes = list(dict.fromkeys(note for found in shown.values() for _, run, _ in found for note in run.notes))
    parts += ["## Notes\n\n" + "\n".join(f"- {cell(note)}" for note in notes) + "\n"] if notes else []
    return "\n".join(parts)


def counts(run: Results) -> str:
    """The number of claims with each verdict, in words."""
    return ", ".join(f"{count} {verdict}" for verdict, count in run.verdicts().items()) or "no claims"


def _runs(kept: list) -> str:
    lines = ["| run | claims | begun | commit | machine | what |", "|---|---|---|---|---|---|"]
    for name, run in kept:
        for part in run.runs():
            mine = [scenario.name for scenario in run.scenarios if (scenario.run or run) is part]
            first = part is run
            lines.append(f"| {f'[{name}]({name}.json)' if first else ''} | {counts(run) if first else ''} | {part.started:%Y-%m-%d %H:%M} | "
                         f"{cell(part.commit)} | {cell(part.machine_line())} | "
                         f"{'all but what is below' if first and len(run.runs()) > 1 else cell(', '.join(mine)) if not first else 'all'} |")
    return "\n".join(lines) + "\n"


def _chapter(there: list) -> str:
    """A scenario: its question, its claims in the runs that have it beside one another, the medians of the latest."""
    latest = there[0][2]
    source = f" After {cell(latest.source)}." if latest.source else ""
    parts = [f"## {cell(latest.title)}\n", f"{cell(latest.question)}{source}\n", f"{cell(latest.setup)}\n"]
    claims = {}
    for name, run, scenario in there:
        for claim in run.claims:
            if claim.scenario == scenario.name:
                claims.setdefault(claim.text, {})[name] = claim
    if claims:
        parts.append("\n".join([f"| claim | theirs | {' | '.join(name for name, _, _ in there)} |", "|---|---|" + "---|" * len(there),
                                *(_claim(text, by_run, there) for text, by_run in claims.items())]) + "\n")
    parts += _reasons(claims)
    shown = [plot for number, plot in enumerate(latest.plots) if number == 0 or plot.on_page]
    parts += [_medians(there[0][0], latest, plot.quantity) for plot in shown if latest.summaries]
    parts += [f"- Not measured: {cell(arm.title)}: {cell(arm.missing)}\n" for arm in latest.arms if arm.missing]
    parts += ["\n".join(f"- {cell(note)}" for note in latest.notes) + "\n"] if latest.notes else []
    return "\n".join(part for part in parts if part)


def _claim(text: str, by_run: dict, there: list) -> str:
    theirs = next((claim.theirs for claim in by_run.values() if claim.theirs), None)
    cells = [f"**{claim.verdict}** {cell(claim.ours)}" if claim else "–" for claim in (by_run.get(name) for name, _, _ in there)]
    return f"| {cell(text)} | {cell(theirs)} | {' | '.join(cells)} |"


def _reasons(claims: dict) -> list:
    """Why the latest run did not meet a claim, where it says so."""
    told = {}
    for by_run in claims.values():
        claim = next(iter(by_run.values()))
        if claim.why:
            told.setdefault(claim.why, claim.verdict)
    return ["\n".join(f"- {verdict[:1].upper()}{verdict[1:]}: {cell(why)}" for why, verdict in told.items()) + "\n"] if told else []


def _medians(name: str, scenario: Scenario, quantity) -> str:
    """Median and range of a figure: points down, arms across."""
    found = {(spot.point, spot.arm): spot for spot in scenario.summaries if spot.figure == quantity.name}
    if not found:
        return ""
    unit = units.choose(quantity.unit, [spot.high for spot in found.values()])
    arms = [arm for arm in scenario.arms if any(arm.name == key[1] for key in found)]
    points = [point for point in scenario.points() if any(point == key[0] for key in found)]
    shape = charts.shape_in_words([*points, *(arm.title for arm in arms)])
    note = "; ".join(part for part in (charts.rounds(list(found.values())), charts.BETTER[quantity.better], shape) if part)
    lines = [f"{cell(unit.titled(quantity.title))}, run {name} ({cell(note)}):\n",
             f"| {cell(scenario.axis_title)} | {' | '.join(cell(arm.title) for arm in arms)} |", "|---|" + "---|" * len(arms)]
    lines += [f"| {cell(point)} | {' | '.join(_median(found.get((point, arm.name)), unit) for arm in arms)} |" for point in points]
    return "\n".join(lines) + "\n"


def _median(spot, unit) -> str:
    if spot is None:
        return "–"
    return unit.number(spot.median) + (f" ({unit.number(spot.low)} to {unit.number(spot.high)})" if spot.high > spot.low else "")

"""One scenario of the page: question, set-up, plots with their sentences, medians, comparisons, notes, what is missing."""

import re
from dataclasses import dataclass
from urllib.parse import quote

from . import charts, look, units
from .html import Element, element, join, text
from .results import Comparison, Quantity, Scenario

CHANGE_PERCENT_MIN = 0.5


@dataclass
class Picture:
    """A plot or a drawing as a file beside the page."""

    name: str  # without directory
    data: bytes


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def anchor(scenario: Scenario) -> str:
    """The anchor at the start of the chapter."""
    return f"scenario-{quote(scenario.name, safe='')}"


def chapter(scenario: Scenario, looks: dict, broken_off: bool, pictures: list) -> Element:
    """The section; its plots go to `pictures`, which has those of the chapters before."""
    parts = [element("h2", scenario.title), element("p", scenario.question, class_="question"),
             element("p", element("b", "How: "), scenario.setup)]
    if scenario.source:
        parts.append(element("p", f"After {scenario.source}.", class_="soft"))
    if scenario.run:
        when = f"{scenario.run.started:%Y-%m-%d %H:%M}"
        parts.append(element("p", f"Measured in a run of its own: {when}, commit {scenario.run.commit or 'unknown'}, on "
                             f"{scenario.run.machine_line()}.", class_="soft"))
    missing = [arm for arm in scenario.arms if arm.missing]
    if missing:
        parts.append(element("p", "Not measured:"))
        parts.append(element("ul", *(element("li", element("b", arm.title), f": {arm.missing}") for arm in missing)))
    if not scenario.summaries and not scenario.series:
        parts.append(element("p", "Nothing was measured" + (": the run was broken off before." if broken_off else "."),
                             class_="banner"))
    if scenario.derived:
        told = ("The run has no summaries of these figures; medians and ranges were made from the measurements that it wrote. "
                "Comparisons with an interval need the whole run.")
        parts.append(element("p", told, class_="banner"))
    for plot in scenario.plots:
        parts.append(_plot(scenario, plot, looks, pictures))
    parts += [_drawings(scenario, pictures), _medians(scenario), _comparisons(scenario)]
    if scenario.notes:
        parts.append(element("h3", "Notes"))
        parts.append(element("ul", *(element("li", note) for note in scenario.notes)))
    return element("section", *parts, class_="chapter", id=anchor(scenario))


def _plot(scenario: Scenario, plot, looks: dict, pictures: list) -> Element:
    frames = []
    for kind, drawing in charts.draw(scenario, plot.quantity, looks):
        name = slug(f"{scenario.name}-{plot.quantity.name}") + ("-series" if kind == "series" else "")
        name = _free(name, "png", pictures)
        pictures.append(Picture(f"{name}.png", look.png(drawing)))
        description = f"{plot.quantity.title}. {plot.sentence}"
        frames.append(element("div", Element(look.svg(drawing, name, text(description))), class_="wide"))
    if not frames:
        return element("p", element("b", units.Unit("").titled(plot.quantity.title)), ": no plot, as it was not measured.", class_="soft")
    files = [picture.name for picture in pictures[-len(frames):]]
    links = [part for file in files for part in (" ", element("a", file, href=f"plots/{file}"))]
    return element("figure", *frames, element("figcaption", plot.sentence, element("small", "As a file:", *links)))


def _free(name: str, ending: str, pictures: list) -> str:
    """The name, or a longer one if a picture has it already: names of scenarios may differ in signs only."""
    taken = {picture.name for picture in pictures}
    while f"{name}.{ending}" in taken:
        name += "-more"
    return name


def _drawings(scenario: Scenario, pictures: list) -> Element | None:
    """Links to the drawings that came with the results, which become files beside the plots."""
    links = []
    for drawing in scenario.drawings:
        name = _free(slug(f"{scenario.name}-{drawing.name.removeprefix(scenario.name)}"), "svg", pictures)
        pictures.append(Picture(f"{name}.svg", drawing.svg.encode("utf-8")))
        links.append(element("li", element("a", drawing.title, href=f"plots/{name}.svg")))
    return join([element("h3", "Drawings"), element("ul", *links)]) if links else None


def _medians(scenario: Scenario) -> Element | None:
    """Tables of medians with ranges: a table for each figure, or one for all if there is a single point."""
    named = [quantity for quantity in scenario.quantities if any(spot.figure == quantity.name for spot in scenario.summaries)]
    if not named:
        return None
    arms = [arm for arm in scenario.arms if any(spot.arm == arm.name for spot in scenario.summaries)]
    found = {(spot.figure, spot.point, spot.arm): spot for spot in scenario.summaries}
    points = scenario.points()
    heads = [arm.title for arm in arms]
    if len(points) == 1:
        body = [[_unit(scenario, quantity).titled(quantity.title),
                 *(_cell(found.get((quantity.name, points[0], arm.name)), _unit(scenario, quantity)) for arm in arms)]
                for quantity in named]
        where = f", {scenario.axis_title}: {points[0]}" if points[0] else ""
        tables = [_table(None, f"{_measured(scenario)}{where}", ["", *heads], body)]
    else:
        tables = []
        for quantity in named:
            unit = _unit(scenario, quantity)
            body = [[point, *(_cell(found.get((quantity.name, point, arm.name)), unit) for arm in arms)] for point in points]
            note = ", ".join(part for part in (_measured(scenario), charts.BETTER[quantity.better]) if part)
            tables.append(_table(unit.titled(quantity.title), note, [scenario.axis_title, *heads], body))
    return join([element("h3", "Medians"), element("div", *tables, class_="tables")])


def _measured(scenario: Scenario) -> str:
    return "one round" if scenario.rounds <= 1 else f"median and range of {scenario.rounds} rounds"


def _unit(scenario: Scenario, quantity: Quantity) -> units.Unit:
    return units.choose(quantity.unit, [spot.high for spot in scenario.summaries if spot.figure == quantity.name])


def _cell(spot, unit) -> Element:
    if spot is None:
        return element("span", "not measured", class_="soft")
    span = element("small", f"{unit.number(spot.low)} to {unit.number(spot.high)}") if spot.high > spot.low else None
    return join([unit.number(spot.median), span])


def _table(title, note: str, heads: list, body: list) -> Element:
    caption = element("caption", element("b", title) if title else None, f" ({note})" if title else note)
    rows = [element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in body]
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    table = element("table", caption, element("thead", head), element("tbody", *rows), class_="numbers")
    return element("div", table, class_="wide")


def _comparisons(scenario: Scenario) -> Element | None:
    """A table for each pair of arms: points down, figures across."""
    if not scenario.comparisons:
        return None
    pairs = list(dict.fromkeys((item.arm, item.base) for item in scenario.comparisons))
    tables = []
    for arm, base in pairs:
        mine = {(item.point, item.figure): item for item in scenario.comparisons if (item.arm, item.base) == (arm, base)}
        named = [quantity for quantity in scenario.quantities if any(figure == quantity.name for _, figure in mine)]
        order = {point: index for index, point in enumerate(scenario.points())}
        points = sorted({point for point, _ in mine}, key=lambda point: (order.get(point, len(order)), point))
        if not named:
            continue
        body = [[point, *(_ratio(mine.get((point, quantity.name)), quantity) for quantity in named)] for point in points]
        title = f"{scenario.arm(arm).title} ÷ {scenario.arm(base).title}"
        heads = [scenario.axis_title, *(units.Unit("").titled(item.title) for item in named)]
        tables.append(_table(title, "ratio, with its interval", heads, body))
    return join([element("h3", "Comparisons"), element("div", *tables, class_="tables")]) if tables else None


def _ratio(item: Comparison | None, quantity: Quantity) -> Element:
    if item is None:
        return element("span", "not compared", class_="soft")
    ratio = f"× {units.ratio(item.ratio)}"
    if item.low is None or item.high is None or item.rounds == 1:
        few = "one round" if item.rounds == 1 else f"{item.rounds} rounds"
        return join(["no difference shown", element("small", f"{ratio}, {few}: no interval")])
    interval = f"{units.ratio(item.low)} to {units.ratio(item.high)}"
    if not item.shown:
        few = "" if item.low <= 1 <= item.high else f", too few rounds: {item.rounds}"
        return join(["no difference shown", element("small", f"{ratio} ({interval}){few}")])
    return join([f"{ratio} ({interval})", element("small", in_words(item.ratio, quantity.better))])


def in_words(ratio: float, better: str) -> str:
    """A ratio as a person says it: "45 % less, better"."""
    percent = abs(ratio - 1) * 100
    if percent < CHANGE_PERCENT_MIN:
        return "about the same"
    more = ratio > 1
    size = f"{units.number(ratio)} times as much" if ratio >= 2 else f"{percent:.0f} % {'more' if more else 'less'}"
    judged = {"neither": ""}.get(better, ", better" if more == (better == "more") else ", worse")
    return size + judged

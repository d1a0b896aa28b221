"""The plots of a scenario: a figure against its axis, in rows, over time or as a distribution.

Against an axis medians are marks on a line, in rows they are bars from zero; ranges are thin lines through them. An axis of a line
may be logarithmic, and says so; one of bars never is.
"""

import math
import re
import statistics

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from . import labels, units
from .look import BAND, INK, PAPER, SOFT, canvas
from .results import Quantity, Scenario, shape

BETTER = {"less": "less is better", "more": "more is better", "neither": ""}
# Neighbouring arms are drawn so many points apart, or their range bars would hide each other.
DODGE_POINTS = 2.0
PANEL_COLUMNS, PANEL_ROWS_MAX = 2, 6
# With more values than this dashes would swallow peaks; with more than that only a running median can be followed.
MARKS_PER_LINE, DASHED_MAX, FOLLOWED_MAX = 8, 60, 150
RUNNING = 60  # medians per line, about
SHARES = ("%", "percent", "share")  # never on a logarithmic axis: what is near the whole would lie together
TIME = re.compile(r"(milliseconds?|ms|seconds?|s|minutes?|min|hours?|time)\b", re.IGNORECASE)


def draw(scenario: Scenario, quantity: Quantity, looks: dict) -> list:
    """Draws a figure in each of its kinds: (kind, drawing). Empty if no value was measured."""
    summaries = [summary for summary in scenario.summaries if summary.figure == quantity.name]
    series = [line for line in scenario.series if line.figure == quantity.name]
    drawings = []
    if summaries:
        points = {summary.point for summary in summaries}
        in_rows = scenario.axis_scale == "category" or len(points) == 1
        drawings.append(("medians", (rows if in_rows else against_axis)(scenario, quantity, summaries, looks)))
    if series:
        drawings.append(("series", over(scenario, quantity, series, looks)))
    return drawings


def _sentence(*parts) -> str:
    text = "; ".join(part for part in parts if part)
    return text[:1].upper() + text[1:]


def shape_in_words(texts: list) -> str:
    """Says what shapes such as 256x1 mean, by the first one among points or names of arms."""
    for text in texts:
        found = re.search(r"(?<!\w)([1-9]\d*) ?x ?(\d+)(?!\w)", text)
        if found:
            connections, each = shape(found[0])
            return (f"{found[0]}: {connections} connection{'s' * (connections != 1)} with {each} "
                    f"{'query' if each == 1 else 'queries'} in flight on {'each' if connections != 1 else 'it'}")
    return ""


def rounds(summaries: list) -> str:
    """The number of rounds, in words."""
    counts = sorted({summary.rounds for summary in summaries})
    if counts == [1]:
        return "one round"
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"medians of {span} rounds, ranges from the smallest to the largest"


def _log(quantity: Quantity, summaries: list) -> bool:
    """True if medians need a logarithmic axis, and their ranges can be on one."""
    wanted = labels.needs_log([summary.median for summary in summaries]) and quantity.unit not in SHARES
    return wanted and min(summary.low for summary in summaries) > 0


def _positions(scenario: Scenario, summaries: list) -> tuple:
    """Places of the points: (scale, point to place). Points without a number of their own stand side by side."""
    places = {summary.point: summary.x for summary in summaries}
    ordered = [point for point in scenario.points() if point in places]
    values = [places[point] for point in ordered]
    usable = None not in values and len(set(values)) == len(values)
    if usable and (scenario.axis_scale == "linear" or min(values) > 0):
        return scenario.axis_scale, {point: places[point] for point in ordered}
    return "steps", {point: index for index, point in enumerate(ordered)}


def against_axis(scenario: Scenario, quantity: Quantity, summaries: list, looks: dict):
    """A line for each arm through its medians."""
    arms = [arm for arm in scenario.arms if any(summary.arm == arm.name for summary in summaries)]
    unit = units.choose(quantity.unit, [summary.high for summary in summaries])
    log = _log(quantity, summaries)
    scale, places = _positions(scenario, summaries)
    subtitle = _sentence(rounds(summaries), BETTER[quantity.better], shape_in_words([*places, *(arm.title for arm in arms)]))
    title = unit.titled(quantity.title)
    figure = canvas(3.3 + labels.heading_lines(title, subtitle)[2])
    axes = figure.add_subplot()
    top = labels.heading(figure, title, subtitle)
    labels.value_axis(axes, [summary.low / unit.factor for summary in summaries],
                      [summary.high / unit.factor for summary in summaries], log)
    _point_axis(axes, scale, list(places.values()))
    axes.set_xlabel(_axis_name(scenario.axis_title, scale == "log"))
    axes.set_ylabel(_axis_name(unit.name, log))
    room = labels.label_room(figure, [arm.title for arm in arms])
    labels.place(axes, labels.tick_room(axes) + 0.3, room, top + 0.05, 0.55)
    ends = []
    for index, arm in enumerate(arms):
        mine = sorted((summary for summary in summaries if summary.arm == arm.name), key=lambda spot: places[spot.point])
        shift = (index - (len(arms) - 1) / 2) * DODGE_POINTS / 72
        ends.append(_arm_line(figure, axes, arm, mine, places, unit, looks[arm.name], shift))
    labels.name_ticks(axes, list(places.values()), [_point_name(point, place, scale) for point, place in places.items()])
    labels.end_labels(axes, ends)
    return figure


def _arm_line(figure, axes, arm, mine, places, unit, look, shift) -> tuple:
    xs = [places[summary.point] for summary in mine]
    ys = [summary.median / unit.factor for summary in mine]
    moved = axes.transData + ScaledTranslation(shift, 0, figure.dpi_scale_trans)
    for x, summary in zip(xs, mine):
        if summary.high > summary.low:
            axes.plot([x, x], [summary.low / unit.factor, summary.high / unit.factor], color=look.colour, linewidth=2.2,
                      alpha=0.5, transform=moved, solid_capstyle="butt")
    axes.plot(xs, ys, color=look.colour, linestyle=look.line, marker=look.marker, transform=moved)
    return xs[-1], ys[-1], arm.title, look


def _axis_name(name: str, log: bool) -> str:
    return ", ".join(part for part in (name, "log scale" if log else "") if part)


def _point_axis(axes, scale: str, places: list) -> None:
    low, high = min(places), max(places)
    if scale == "log":
        axes.set_xscale("log")
        margin = (high / low) ** 0.04
        axes.set_xlim(low / margin, high * margin)
    else:
        margin = (high - low) * 0.04 or 1
        axes.set_xlim(low - margin, high + margin)


def _point_name(point: str, place: float, scale: str) -> str:
    """Numbers as on any axis; points that are more than their number by their name."""
    if scale == "steps":
        return labels.wrap(point, 12)
    bare = re.fullmatch(r"[\d.,_]+\s*\D{0,3}", point) is not None
    return units.tick(place) if bare or not point else labels.wrap(point, 12)


def rows(scenario: Scenario, quantity: Quantity, summaries: list, looks: dict):
    """A row for each arm, below a heading for each point."""
    found = {(summary.point, summary.arm): summary for summary in summaries}
    points = [point for point in scenario.points() if any(key[0] == point for key in found)]
    grouped = len(points) > 1
    unit = units.choose(quantity.unit, [summary.high for summary in summaries])
    shapes = shape_in_words([*points, *(arm.title for arm in scenario.arms)])
    named = f"{scenario.axis_title}: {points[0]}" if not grouped and points[0] and scenario.axis_scale != "category" else ""
    subtitle = _sentence(rounds(summaries), BETTER[quantity.better], named, shapes)
    title = unit.titled(quantity.title)
    lines = []  # (height, group or None, arm, summary or None)
    for point in points:
        if grouped:
            lines.append((0.34, point, None, None))
        for arm in scenario.arms:
            summary = found.get((point, arm.name))
            if summary or (not grouped and arm.missing):
                text = labels.wrap(arm.title, 32)
                lines.append((0.13 + 0.165 * (text.count("\n") + 1), None, text, (arm, summary)))
    tall = sum(line[0] for line in lines)
    figure = canvas(tall + 0.72 + labels.heading_lines(title, subtitle)[2])
    axes = figure.add_subplot()
    top = labels.heading(figure, title, subtitle)
    _draw_rows(figure, axes, lines, tall, unit, looks, top)
    axes.set_xlabel(unit.name)
    return figure


def _draw_rows(figure, axes, lines: list, tall: float, unit, looks: dict, top: float) -> None:
    spots = [line[3][1] for line in lines if line[3] and line[3][1]]
    texts = [figure.text(0, 0, line[2], size=9.5) for line in lines if line[2]]
    left = max(labels.extent(figure, text)[2] - labels.extent(figure, text)[0] for text in texts) + 0.2
    for text in texts:
        text.remove()
    labels.place(axes, left, 0.75, top, 0.6)
    axes.set_ylim(tall, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    labels.value_axis(axes, [spot.low / unit.factor for spot in spots], [spot.high / unit.factor for spot in spots], False, "x")
    wide = axes.get_position().width * figure.get_figwidth()
    y, group, edge, beside = 0.0, 0, (labels.EDGE - left) / wide, axes.get_yaxis_transform()
    for height, point, text, row in lines:
        middle = y + height / 2
        if point is not None:
            axes.text(edge, middle + 0.05, point, transform=beside, weight="bold", size=9.5, va="center")
            if group:
                axes.plot([edge, 1], [y, y], transform=beside, color=BAND, linewidth=1.2, clip_on=False)
            group += 1
        else:
            arm, summary = row
            axes.text(-0.1 / wide, middle, text, transform=beside, ha="right", va="center", size=9.5, linespacing=1.1,
                      color=INK if summary else SOFT)
            if summary:
                _draw_row(axes, middle, summary, unit, looks[arm.name])
            else:
                axes.text(0.05 / wide, middle, "not measured", transform=beside, va="center", size=9.5, style="italic", color=SOFT)
        y += height


def _draw_row(axes, y: float, summary, unit, look) -> None:
    low, middle, high = (value / unit.factor for value in (summary.low, summary.median, summary.high))
    axes.barh(y, middle, height=0.17, color=PAPER)  # or the grid would shine through
    axes.barh(y, middle, height=0.17, color=look.colour, alpha=0.65)
    if high > low:
        axes.plot([low, high], [y, y], color=INK, linewidth=1.3, solid_capstyle="butt")
        for end in (low, high):
            axes.plot([end], [y], color=INK, marker="|", markersize=6, markeredgewidth=1.3)
    axes.annotate(unit.number(summary.median), (max(high, middle), y), xytext=(6, 0), textcoords="offset points", va="center",
                  size=9.5, annotation_clip=False)


def over(scenario: Scenario, quantity: Quantity, series: list, looks: dict):
    """Values over time, or a distribution: a panel for each point, a line for each arm."""
    points = list(dict.fromkeys(line.point for line in series))
    order = {point: index for index, point in enumerate(scenario.points())}
    points.sort(key=lambda point: order.get(point, len(order)))
    columns = 1 if _window(series) > 1 else min(PANEL_COLUMNS, len(points))
    shown, hidden = points[:columns * PANEL_ROWS_MAX], points[columns * PANEL_ROWS_MAX:]
    series = [line for line in series if line.point in shown]
    arms = [arm for arm in scenario.arms if any(line.arm == arm.name for line in series)]
    values = [value for line in series for value in line.y if value is not None]
    unit = units.choose(quantity.unit, values)
    log = labels.needs_log(values) and quantity.unit not in SHARES
    more = f"{len(hidden)} more in the raw data" if hidden else ""
    window = _window(series)
    running = f"thin: every value, thick: running median of {window}" if window > 1 else ""
    title, subtitle = unit.titled(quantity.title), _sentence(BETTER[quantity.better], running, more)
    lines = math.ceil(len(shown) / columns)
    alone = len(shown) == 1
    head = labels.heading_lines(title, subtitle)[2]
    figure = canvas((3.3 if alone else 2.05 * lines + 0.5) + head + (0 if alone else 0.6))
    top = labels.heading(figure, title, subtitle)
    if not alone:
        top += labels.key(figure, [(arm.title, looks[arm.name]) for arm in arms], top)
    grid = figure.subplots(lines, columns, squeeze=False)
    panels = list(grid.flat)
    for panel in panels[len(shown):]:
        panel.remove()
    for panel, point in zip(panels, shown):
        mine = [line for line in series if line.point == point]
        _series_panel(panel, mine, arms, looks, unit, log, values)
        if not alone:
            panel.set_title(f"{scenario.axis_title}: {point}" if point else "", loc="left", size=9.5, color=INK)
        panel.set_ylabel(_axis_name(unit.name, log))
    _place_panels(figure, panels[:len(shown)], columns, lines, top, arms, series, looks, unit)
    return figure


def _place_panels(figure, panels, columns, lines, top, arms, series, looks, unit) -> None:
    left = max(labels.tick_room(panel) for panel in panels) + 0.3
    if len(panels) == 1:
        labels.place(panels[0], left, labels.label_room(figure, [arm.title for arm in arms]), top + 0.05, 0.55)
        axes, ends = panels[0], []
        for arm in arms:
            line = [line for line in series if line.arm == arm.name][-1]
            ends.append((*_last(line, unit), arm.title, looks[arm.name]))
        labels.end_labels(axes, ends)
        return
    wide, tall = figure.get_figwidth() / columns, (figure.get_figheight() - top - 0.22) / lines
    alike = len({line.x_title for line in series}) == 1
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        labels.place(panel, column * wide + left, (columns - 1 - column) * wide + 0.15, top + row * tall + 0.3,
                     (lines - 1 - row) * tall + 0.58)
        if alike and index + columns < len(panels):  # the one below says it
            panel.set_xlabel("")


def _window(series: list) -> int:
    """Over how many values a running median is made; 1 if none is needed."""
    most = max(len(line.y) for line in series)
    return most // RUNNING | 1 if most > FOLLOWED_MAX else 1


def _running_medians(ys: list, window: int) -> list:
    """The median around each value; gaps stay gaps."""
    half = window // 2
    around = ([y for y in ys[max(0, index - half):index + half + 1] if not math.isnan(y)] for index in range(len(ys)))
    return [math.nan if math.isnan(y) else statistics.median(near) for y, near in zip(ys, around)]


def _nines(x: float) -> float:
    """Percentiles on an axis on which each nine takes as much room as the one before."""
    return -math.log10(max(1 - x / 100, 1e-6))


def _abscissa(line) -> list:
    return [_nines(x) for x in line.x] if _percentiles(line) else line.x


def _percentiles(line) -> bool:
    return "percentile" in line.x_title.lower() and all(0 <= x <= 100 for x in line.x)


def _last(line, unit) -> tuple:
    """The end of a line."""
    x, y = [(x, y) for x, y in zip(_abscissa(line), line.y) if y is not None][-1]
    return x, y / unit.factor


def _series_panel(axes, series: list, arms: list, looks: dict, unit, log: bool, values: list) -> None:
    labels.value_axis(axes, [min(values) / unit.factor], [max(values) / unit.factor], log)
    for arm in arms:
        for line in (line for line in series if line.arm == arm.name):
            look, window = looks[arm.name], _window([line])
            ys = [math.nan if value is None else value / unit.factor for value in line.y]
            if window > 1:
                axes.plot(_abscissa(line), ys, color=look.colour, linewidth=0.6, alpha=0.4)
                ys = _running_medians(ys, window)
            every = max(1, len(ys) // MARKS_PER_LINE)
            first = arms.index(arm) * every // max(len(arms), 1)
            axes.plot(_abscissa(line), ys, color=look.colour, linestyle=look.line if len(ys) <= DASHED_MAX else "-",
                      linewidth=1.5, marker=look.marker, markersize=4.5, markevery=(first, every))
    xs = [x for line in series for x in line.x]
    axes.set_xlabel(series[0].x_title)
    axes.margins(x=0.02)
    if all(_percentiles(line) for line in series):
        wanted = [50, 90, 99, 99.9, 99.99, 99.999]
        wanted = [value for value in wanted if min(xs) <= value <= max(xs)]
        labels.name_ticks(axes, [_nines(value) for value in wanted], [f"{value:g}" for value in wanted])
    elif labels.needs_log(xs) and not TIME.match(series[0].x_title):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(units.tick))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f"{series[0].x_title}, log scale")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(units.tick))

"""The parts that make a plot readable: its heading, ticks that do not overlap, labels at the ends of lines, keys.

Sizes are inches here, measured from the text as it is drawn, so that nothing is cut off and nothing lies on another.
"""

import re
import textwrap

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from . import units
from .look import INK, SOFT

EDGE = 0.06  # between the text and the edge of the drawing
TITLE_CHARACTERS, SUBTITLE_CHARACTERS, LABEL_CHARACTERS = 78, 100, 20
# A smallest and a largest value further apart than this need a logarithmic axis to be seen both.
LOG_FROM = 40


def extent(figure, text):
    """Box of a text in inches."""
    box = text.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    return box.x0 / figure.dpi, box.y0 / figure.dpi, box.x1 / figure.dpi, box.y1 / figure.dpi


def wrap(text: str, characters: int) -> str:
    """Lines of at most so many characters and of about the same length; a number stays beside its unit."""
    text = re.sub(r"(\d) (\w{1,2}\b)", "\\1\u00a0\\2", text)
    lines = textwrap.wrap(text, characters)
    for width in range(characters - 1, 0, -1):
        narrower = textwrap.wrap(text, width)
        if len(narrower) > len(lines) or any(word not in text.split(" ") for line in narrower for word in line.split(" ")):
            break
        lines = narrower
    return "\n".join(lines) or text


def heading_lines(title: str, subtitle: str) -> tuple:
    """Title and subtitle in lines, and the height they take."""
    title, subtitle = wrap(title, TITLE_CHARACTERS), wrap(subtitle, SUBTITLE_CHARACTERS)
    below = 0.17 * (subtitle.count("\n") + 1) if subtitle else 0
    return title, subtitle, 0.06 + 0.21 * (title.count("\n") + 1) + below + 0.12


def heading(figure, title: str, subtitle: str) -> float:
    """Writes the heading; the height it takes."""
    title, subtitle, height = heading_lines(title, subtitle)
    tall, wide = figure.get_figheight(), figure.get_figwidth()
    top = tall - 0.05
    figure.text(EDGE / wide, top / tall, title, va="top", size=11.5, weight="bold")
    top -= 0.05 + 0.21 * (title.count("\n") + 1)
    figure.text(EDGE / wide, top / tall, subtitle, va="top", size=9.5, color=SOFT, linespacing=1.25)
    return height


def place(axes, left: float, right: float, top: float, bottom: float) -> None:
    """Puts axes so far from the edges of the drawing."""
    wide, tall = axes.figure.get_figwidth(), axes.figure.get_figheight()
    axes.set_position((left / wide, bottom / tall, (wide - left - right) / wide, (tall - top - bottom) / tall))


def tick_room(axes) -> float:
    """Width that the axes' labels on the left take."""
    figure = axes.figure
    figure.draw_without_rendering()
    widths = [extent(figure, label) for label in axes.get_yticklabels() if label.get_text() and label.get_visible()]
    return max((right - left for left, _, right, _ in widths), default=0) + 0.1


def needs_log(values) -> bool:
    """True if these values need a logarithmic axis."""
    found = [value for value in values if value is not None]
    return bool(found) and min(found) > 0 and max(found) / min(found) > LOG_FROM


def value_axis(axes, lows, highs, log: bool, which: str = "y") -> None:
    """Limits and ticks of the axis that shows the figure."""
    low, high = min(lows), max(highs)
    side = axes.yaxis if which == "y" else axes.xaxis
    limits = axes.set_ylim if which == "y" else axes.set_xlim
    if log:
        axes.set(**{f"{which}scale": "log"})
        limits(low / 1.35, high * 1.35)
        subs = (1, 2, 5) if high / low < 300 else (1,)
        side.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    else:
        room = (high - min(low, 0)) * 0.08 or 1
        limits(0 if low >= 0 else low - room, high + room)
        side.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    side.set_major_formatter(FuncFormatter(units.tick))
    side.set_minor_locator(NullLocator())
    axes.grid(True, axis=which)


def name_ticks(axes, places: list, names: list) -> None:
    """Names on the x axis; those that would lie on the one before are left out, the last one is kept."""
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.set_xticklabels(names)
    figure = axes.figure
    figure.draw_without_rendering()
    labels = axes.get_xticklabels()
    boxes = [extent(figure, label) for label in labels]
    kept = [len(labels) - 1] if labels else []
    first_right = None
    for index in range(len(labels) - 1):
        free_left = first_right is None or boxes[index][0] > first_right + 0.08
        if free_left and boxes[index][2] < boxes[-1][0] - 0.08:
            kept.append(index)
            first_right = boxes[index][2]
    kept.sort()
    axes.xaxis.set_major_locator(FixedLocator([places[index] for index in kept]))
    axes.set_xticklabels([names[index] for index in kept])


def label_room(figure, titles: list) -> float:
    """Width of the labels at the ends of lines, wrapped."""
    widest = 0
    for title in titles:
        text = figure.text(0, 0, wrap(title, LABEL_CHARACTERS), size=9.5)
        left, _, right, _ = extent(figure, text)
        widest = max(widest, right - left)
        text.remove()
    return widest + 0.3 + 0.1 + EDGE


def end_labels(axes, ends: list) -> None:
    """Titles right of the axes, each joined with the end of its line; `ends` are (x, y, title, look)."""
    figure = axes.figure
    figure.draw_without_rendering()
    _, bottom, _, top = axes.get_window_extent().extents / figure.dpi
    tall = top - bottom
    rows = []
    for x, y, title, look in ends:
        text = wrap(title, LABEL_CHARACTERS)
        wanted = axes.transData.transform((x, y))[1] / figure.dpi - bottom
        rows.append([min(max(wanted, 0), tall), 0.165 * (text.count("\n") + 1) + 0.05, x, y, text, look])
    rows.sort(key=lambda row: row[0])
    spread(rows, tall)
    wide = axes.get_window_extent().width / figure.dpi
    arrow = {"arrowstyle": "-", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 5}
    for centre, _, x, y, text, look in rows:
        mark, place = 1 + 0.3 / wide, centre / tall
        axes.annotate("", (x, y), xytext=(mark, place), textcoords="axes fraction", annotation_clip=False,
                      arrowprops={**arrow, "color": look.colour})
        axes.plot([mark], [place], transform=axes.transAxes, color=look.colour, marker=look.marker, clip_on=False)
        axes.text(mark + 0.1 / wide, place, text, transform=axes.transAxes, color=look.colour, size=9.5, va="center",
                  linespacing=1.1)


def spread(rows: list, tall: float) -> None:
    """Moves labels (centre, height, ...), sorted by centre, as little as keeps them apart and within `tall`."""
    floor = -0.1
    for row in rows:
        row[0] = max(row[0], floor + row[1] / 2)
        floor = row[0] + row[1] / 2
    ceiling = tall + 0.1
    for row in reversed(rows):
        row[0] = min(row[0], ceiling - row[1] / 2)
        ceiling = row[0] - row[1] / 2


def key_rows(entries: list, wide: float) -> list:
    """Entries (title, look, width in inches) in rows that fit."""
    rows, used = [[]], 0.0
    for entry in entries:
        if rows[-1] and used + entry[2] > wide:
            rows.append([])
            used = 0.0
        rows[-1].append(entry)
        used += entry[2]
    return rows


def key(figure, arms: list, top: float) -> float:
    """A key over the panels, `top` inches from the upper edge; `arms` are (title, look). The height it takes."""
    wide, tall = figure.get_figwidth(), figure.get_figheight()
    entries = []
    for title, look in arms:
        text = figure.text(0, 0, title, size=9.5)
        left, _, right, _ = extent(figure, text)
        text.remove()
        entries.append((title, look, right - left + 0.62))
    rows = key_rows(entries, wide - 2 * EDGE)
    for number, row in enumerate(rows):
        x, y = EDGE, tall - top - 0.1 - 0.2 * number
        for title, look, width in row:
            figure.add_artist(Line2D([x / wide, (x + 0.34) / wide], [y / tall, y / tall], color=look.colour, linestyle=look.line))
            figure.add_artist(Line2D([(x + 0.17) / wide], [y / tall], color=look.colour, marker=look.marker, linestyle="none"))
            figure.text((x + 0.42) / wide, y / tall, title, size=9.5, va="center", color=INK)
            x += width
    return 0.2 * len(rows) + 0.08

"""Numbers and units as people write them: at least three significant digits, commas, and the unit that keeps them short."""

import math
import re
from dataclasses import dataclass

# What a unit is called in a results file: how it is written, larger ones, and from which number on the next one is used.
_TIME = [("ns", 1e-3), ("µs", 1), ("ms", 1e3), ("s", 1e6)]
_BYTES = [("bytes", 1), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9)]
_FAMILIES = {"ns": (_TIME, 1e-3, 10_000), "us": (_TIME, 1, 10_000), "µs": (_TIME, 1, 10_000), "ms": (_TIME, 1e3, 10_000),
             "bytes": (_BYTES, 1, 1_000), "byte": (_BYTES, 1, 1_000)}
_WORDS = {"per_s": "per second", "1/s": "per second", "/s": "per second", "ratio": "ratio", "x": "times", "percent": "%",
          "s": "s", "count": "", "1": ""}


@dataclass
class Unit:
    """The notation of a quantity: its values are divided by `factor`."""

    name: str
    factor: float = 1

    def number(self, value: float) -> str:
        return number(value / self.factor)

    def titled(self, title: str) -> str:
        """A quantity's title as a heading, with the unit behind it unless it says that already."""
        said = not self.name or re.search(rf"(?<!\w){re.escape(self.name)}(?!\w)", title)
        return title[:1].upper() + title[1:] + ("" if said else f", {self.name}")


def choose(unit: str, values) -> Unit:
    """The unit for values that are shown together: the smallest in which the largest of them is still short."""
    if unit not in _FAMILIES:
        return Unit(_WORDS.get(unit, unit.replace("_", " ")))
    family, own, limit = _FAMILIES[unit]
    largest = max((abs(value) for value in values), default=0)
    for name, factor in family:
        if factor >= own and largest * own / factor < limit:
            return Unit(name, factor / own)
    name, factor = family[-1]
    return Unit(name, factor / own)


def number(value: float) -> str:
    """Three significant digits, more before the point; small whole numbers as they are."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-4 or size >= 1e15:
        return f"{value:.2e}"
    if size >= 100:
        return f"{value:,.0f}"
    if value == int(value):
        return str(int(value))
    digits = max(0, 2 - math.floor(math.log10(size)))
    return f"{value:.{digits}f}"


def tick(value: float, _position=None) -> str:
    """A number beside an axis: short, thousands as k, millions as M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):g}{letter}"
    return f"{value:g}"


def ratio(value: float) -> str:
    """A ratio with two digits after the point, or three significant ones."""
    return f"{value:.2f}" if 0.1 <= abs(value) < 10 else number(value)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"

"""Colours, markers and fonts of the plots; a finished drawing as SVG for the page and as PNG beside it.

An arm has colour, marker and line style, so it can be told apart in grey and without seeing colours. The colours are those
of Okabe and Ito, somewhat darker so that lines and words stand out on white. In the SVG each is a variable of the page's
style sheet, which has a second set for dark screens; PNGs are always on white.
"""

import io
import re
from dataclasses import dataclass

import matplotlib

matplotlib.use("agg")

from matplotlib import rcParams  # noqa: E402 (the backend is chosen first)
from matplotlib.figure import Figure  # noqa: E402
from PIL import Image  # noqa: E402

INK, SOFT, GRID, BAND, PAPER = "#1f2328", "#57606a", "#d8dee4", "#f3f5f7", "#ffffff"
WIDTH_INCHES = 7.2
PNG_DPI = 160
PNG_COLOURS = 128


@dataclass(frozen=True)
class Look:
    """The style in which an arm is drawn."""

    colour: str
    marker: str
    line: object


LOOKS = (
    Look("#0a64a4", "o", "-"), Look("#c8500a", "s", (0, (5, 2))), Look("#0b8a66", "^", (0, (1, 1.2))),
    Look("#a3478f", "D", (0, (6, 2, 1, 2))), Look("#8a6d00", "v", (0, (3, 1.4))), Look("#4a4f55", "P", (0, (8, 2, 2, 2, 2, 2))),
    Look("#2f8fc4", "X", (0, (2, 2))), Look("#b3304b", "p", (0, (10, 3))),
)
VARIABLES = {INK: "ink", SOFT: "soft", GRID: "grid", BAND: "band", PAPER: "card",
             **{look.colour: f"arm-{index}" for index, look in enumerate(LOOKS)}}

rcParams.update({
    "font.family": "DejaVu Sans", "font.size": 10, "text.parse_math": False, "text.color": INK, "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT, "axes.labelsize": 9.5, "axes.linewidth": 0.8, "xtick.color": SOFT, "ytick.color": SOFT,
    "xtick.labelsize": 9.5, "ytick.labelsize": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.8, "lines.linewidth": 1.8, "lines.markersize": 5.5, "svg.fonttype": "none",
    "svg.hashsalt": "shunt", "path.simplify_threshold": 0.4, "legend.frameon": False, "figure.facecolor": "none",
    "axes.facecolor": "none", "xtick.major.size": 3.5, "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0,
})


class Wardrobe:
    """Gives arms of the same name the same look in all scenarios, and arms of one scenario different ones if it can."""

    def __init__(self):
        self._slots = {}

    def looks(self, names: list) -> dict:
        """Name to look, for the arms of one scenario."""
        taken, chosen = set(), {}
        for name in names:
            slot = self._slots.setdefault(name, len(self._slots)) % len(LOOKS)
            free = [(slot + step) % len(LOOKS) for step in range(len(LOOKS)) if (slot + step) % len(LOOKS) not in taken]
            slot = free[0] if free else slot
            taken.add(slot)
            chosen[name] = LOOKS[slot]
        return chosen


def canvas(height_inches: float) -> Figure:
    return Figure(figsize=(WIDTH_INCHES, height_inches))


def png(figure: Figure) -> bytes:
    """The drawing on white, with few colours: a fifth of the size, and nothing that can be seen is lost."""
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=PNG_DPI, facecolor="white", metadata={"Software": None})
    small = io.BytesIO()
    image = Image.open(raw).convert("RGB").quantize(PNG_COLOURS, dither=Image.Dither.NONE)
    image.save(small, format="png", optimize=True)
    return small.getvalue()


def svg(figure: Figure, name: str, description: str) -> str:
    """The drawing as an element of the page: its colours and font are the page's, its ids begin with `name`."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    head, body = re.search(r"<svg ([^>]*)>(.*)</svg>", text, re.DOTALL).groups()
    box = re.search(r'viewBox="([^"]*)"', head).group(1)
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]*>", lambda tag: _of_the_page(tag.group(), name), body)
    body = re.sub(r"\n\s*", "\n", body)
    return f'<svg viewBox="{box}" role="img" aria-label="{description}">{body.strip()}</svg>'


def _of_the_page(tag: str, name: str) -> str:
    """A tag with ids of its own, the page's colours and font, and no more digits than can be seen."""
    tag = tag.replace("xlink:href=", "href=").replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    for colour, variable in VARIABLES.items():
        tag = tag.replace(colour, f"var(--{variable})")
    tag = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "var(--font)", tag)
    return re.sub(r"(\d+\.\d\d)\d+", r"\1", tag)

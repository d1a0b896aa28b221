"""The page: what was run, the claims, a chapter for each scenario, notes. One file that needs nothing beside it."""

from pathlib import Path

from . import units
from .chapter import anchor, chapter
from .html import Element, element
from .look import Wardrobe
from .results import Claim, Results

GENERATOR = "Shunt report"
STYLE = Path(__file__).with_name("style.css")
MARKS = {"met": "✓", "not met": "✗", "not shown": "≈", "not measured": "–"}


def render(results: Results) -> tuple:
    """The page's text and its pictures."""
    wardrobe, chapters, pictures = Wardrobe(), [], []
    for scenario in results.scenarios:
        looks = wardrobe.looks([arm.name for arm in scenario.arms])
        chapters.append(chapter(scenario, looks, not results.complete, pictures))
    title = f"Shunt, measured {results.started:%Y-%m-%d}"
    head = element("head", element("meta", charset="utf-8"),
                   element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("meta", name="generator", content=GENERATOR), element("title", title),
                   element("style", Element(STYLE.read_text(encoding="utf-8"))))
    body = element("main", element("h1", title), *_front(results), *chapters, _notes(results), _source(results))
    return f'<!DOCTYPE html>\n{element("html", head, element("body", body), lang="en")}\n', pictures


def warnings(results: Results) -> list:
    """Warnings that a reader must see before the figures."""
    found = []
    if results.smoke:
        found.append("This is the short smoke form: it shows that everything runs. Its figures are no results.")
    if not results.complete:
        cut = f" Line {results.cut_line} of the file, its last, was cut off." if results.cut_line else ""
        found.append(f"The run was broken off before its end: what it had not yet written is missing here.{cut}")
    return found


def _front(results: Results) -> list:
    facts = [("started", f"{results.started:%Y-%m-%d %H:%M} {results.started.tzname() or ''}".strip()),
             ("took", units.duration(results.seconds) if results.seconds else None),
             ("Shunt", f"{results.shunt}, commit {results.commit}" if results.commit else f"{results.shunt}, commit unknown"),
             ("machine", results.machines()),
             ("kernel", "; ".join(dict.fromkeys(filter(None, (run.machine.get("kernel") for run in results.runs())))) or None),
             ("seed", results.seed),
             ("beside it", ", ".join(f"{name} {version}" for name, version in results.versions.items()) or None),
             ("form", "smoke (short)" if results.smoke else "full"), ("ended", "complete" if results.complete else "broken off")]
    parts = [element("dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts
                             if value is not None), class_="run")]
    parts += [element("p", text, class_="banner", role="note") for text in warnings(results)]
    parts.append(_claims(results))
    if results.scenarios:
        chapters = [element("li", element("a", item.title, href=f"#{anchor(item)}")) for item in results.scenarios]
        parts.append(element("nav", element("h3", "Chapters"), element("ol", *chapters)))
    return parts


def _claims(results: Results) -> Element:
    if not results.claims:
        return element("p", "The run makes no claims.", class_="soft")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in results.verdicts().items())
    heads = ["claim", "theirs", "ours", "how ours was measured", "verdict"]
    rows = [element("tr", *_claim(results, claim)) for claim in results.claims]
    table = element("table", element("thead", element("tr", *(element("th", name, scope="col") for name in heads))),
                    element("tbody", *rows), class_="claims")
    return element("section", element("h2", "Claims"), element("p", f"{counts}.", class_="soft"),
                   element("div", table, class_="wide"), class_="front")


def _claim(results: Results, claim: Claim) -> list:
    scenario = results.scenario(claim.scenario) if claim.scenario else None
    text = element("a", claim.text, href=f"#{anchor(scenario)}") if scenario else claim.text
    badge = element("span", f"{MARKS[claim.verdict]} {claim.verdict}", class_=f"verdict {claim.verdict.replace(' ', '-')}")
    return [element("td", text, element("small", claim.source) if claim.source else None),
            element("td", claim.theirs or "–", data_name="theirs"), element("td", claim.ours or "–", data_name="ours"),
            element("td", claim.how or "–", data_name="how"),
            element("td", badge, element("small", claim.why) if claim.why else None)]


def _notes(results: Results) -> Element | None:
    if not results.notes:
        return None
    notes = [element("li", note) for note in results.notes]
    return element("section", element("h2", "Notes"), element("ul", *notes), class_="chapter", id="notes")


def files(results: Results) -> dict:
    """The files that the run was read from, and their names beside the page."""
    names = {}
    for path in results.paths():
        name, number = path.name, 1
        while name in names.values():
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        names[path] = name
    return names


def _source(results: Results) -> Element:
    names = list(files(results).values())
    links = [part for name in names for part in (element("a", name, href=name), ", ")]
    told, they = ("one file", "It has") if len(names) == 1 else (f"{len(names)} files", "They have")
    if not results.kept:
        told += " of raw data"
    raw = "the run's medians, ranges and ratios, and no single measurement" if results.kept else "each round of each measurement"
    return element("section", element("h2", "Where this comes from"), element(
        "p", f"Everything above was made from {told}, ", *links, "by ",
        element("code", f"experiments/report/build {' '.join(names)}"), f". {they} {raw}. Medians are over rounds "
        "in which the arms follow one another; a range is from the smallest to the largest. A ratio is one arm's figure divided by "
        "another's, the median over the rounds; its interval is that of this median by order statistics, 95 % (94 % with five "
        "rounds). Where it contains 1, or the rounds are too few for one, no difference is shown."),
        class_="chapter", id="source")

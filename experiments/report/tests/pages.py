"""Reports that the tests build, and their pages read as a browser reads them."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import invented

from report import results, runs

VOID = {"meta", "img", "br", "hr", "link", "input"}


@dataclass
class Page(HTMLParser):
    """A page's elements: what is open at its end, what is wrong with it, ids, links, text."""

    faults: list = field(default_factory=list)
    open: list = field(default_factory=list)
    elements: list = field(default_factory=list)  # (name, attributes)
    texts: list = field(default_factory=list)  # (name of the element, text)

    def __post_init__(self):
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, *without: str) -> str:
        return " ".join(" ".join(text for name, text in self.texts if name not in without).split())

    def ids(self) -> list:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def parse(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


@dataclass
class Report:
    """A report that was written, and its page."""

    directory: Path
    page: Page


def build(directory: Path, rows: list) -> Report:
    """Writes the results and their report below a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    index = runs.write(results.read(invented.write(directory / "run.jsonl", rows)), directory / "report")
    return Report(index.parent, parse(index))

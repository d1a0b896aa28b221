"""The table of claims in a Markdown file, between two markers that the file has already."""

import os
import re
from pathlib import Path

from .page import warnings
from .results import Results

BEGIN, END = "<!-- results -->", "<!-- /results -->"


class NoMarkers(Exception):
    """The file does not say where the table belongs."""


def cell(text: str | None) -> str:
    """Text that cannot end a cell or become markup."""
    plain = " ".join((text or "–").split())
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        plain = plain.replace(sign, instead)
    return re.sub(r"([\\|`\[*])", r"\\\1", plain)


def table(results: Results, link: str | None) -> str:
    """What goes between the markers; `link` leads to the whole report."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in results.verdicts().items()) or "no claims"
    commits = list(dict.fromkeys(run.commit for run in results.runs() if run.commit))
    listed = " and ".join(part for part in (", ".join(commits[:-1]), *commits[-1:]) if part)
    where = f"commit{'s' * (len(commits) > 1)} {listed}" if commits else f"version {results.shunt}"
    lines = [f"Run of {results.started:%Y-%m-%d}, {cell(where)}, on {cell(results.machines())}: {counts}."]
    if link:
        lines[0] += f" [The whole report]({link})."
    lines += [f"**{cell(text)}**" for text in warnings(results)]
    if results.claims:
        lines += ["", "| claim | theirs | ours | verdict |", "|---|---|---|---|"]
        for claim in results.claims:
            lines.append(f"| {cell(claim.text)} | {cell(claim.theirs)} | {cell(claim.ours)} | {claim.verdict} |")
    return "\n".join(lines)


def update(path: Path, results: Results, report: Path | None) -> bool:
    """Writes the table into a file; False if it was there already. `report` is the page that is kept."""
    text = path.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise NoMarkers(f"{path}: the table belongs between one line {BEGIN} and one line {END} after it; put both where it "
                        "shall be")
    link = Path(os.path.relpath(report, path.parent)).as_posix() if report else None
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    new = f"{before}{BEGIN}\n{table(results, link)}\n{END}{after}"
    if new == text:
        return False
    path.write_text(new, encoding="utf-8")
    return True

"""Writes reports, and keeps full runs below docs/results: a small JSON file of each, and one page of all."""

import shutil
from pathlib import Path

from . import kept, markdown, page
from .results import Results


class Refused(Exception):
    """A reason to write no report; the message says what to do."""


def write(run: Results, directory: Path) -> Path:
    """The report of a run in a directory, instead of an older one. The page."""
    text, pictures = page.render(run)
    index, plots = directory / "index.html", directory / "plots"
    if plots.exists():
        if not (index.exists() and page.GENERATOR in index.read_text(encoding="utf-8", errors="replace")[:2000]):
            raise Refused(f"{plots}: exists, and no report lies beside it; give an empty or new directory with --out")
        shutil.rmtree(plots)
    plots.mkdir(parents=True)
    for picture in pictures:
        (plots / picture.name).write_bytes(picture.data)
    for path, name in page.files(run).items():
        _copy(path, directory / name)
    index.write_text(text, encoding="utf-8")
    return index


def keep(run: Results, home: Path) -> Path:
    """Keeps a run below `home` as a file named by its date, and writes the page of all anew. The file."""
    if run.smoke or not run.complete:
        what = "is of the short smoke form, whose figures are no results" if run.smoke else "was broken off before its end"
        raise Refused(f"{run.path}: {what}; only full runs are kept")
    home.mkdir(parents=True, exist_ok=True)
    file = _file(run, home)
    file.write_text(kept.text(run), encoding="utf-8")
    update_page(home)
    return file


def update_page(home: Path) -> Path:
    """Writes the page anew from the runs that are kept. The page."""
    readme = home / "README.md"
    readme.write_text(markdown.page([(file.stem, run) for file, run in _kept(home)]), encoding="utf-8")
    return readme


def latest(home: Path) -> Path | None:
    """The file of the run that was begun last."""
    return next((file for file, _ in _kept(home)), None)


def _kept(home: Path) -> list:
    """Files and their runs, the latest first."""
    found = [(file, kept.read(file)) for file in home.glob("*.json")]
    return sorted(found, key=lambda entry: (entry[1].started.timestamp(), entry[0].stem), reverse=True)


def _copy(source: Path, to: Path) -> None:
    if not (to.exists() and to.samefile(source)):
        shutil.copyfile(source, to)


def _file(run: Results, home: Path) -> Path:
    """The run's own file if it was kept before; otherwise one that is free."""
    date = f"{run.started:%Y-%m-%d}"
    number = 1
    while True:
        file = home / (f"{date}.json" if number == 1 else f"{date}-{number}.json")
        if not file.exists() or _same_run(kept.read(file), run):
            return file
        number += 1


def _same_run(one: Results, other: Results) -> bool:
    return (one.started, one.commit, one.seed) == (other.started, other.commit, other.seed)

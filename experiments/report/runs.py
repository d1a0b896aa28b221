"""Writes reports, and keeps those of full runs below docs/results with a list of them by date."""

import shutil
from pathlib import Path

from . import page, results
from .readme import cell

HEAD = """# Results

Runs of `shunt bench run` whose reports were kept, the latest first. Each directory has the report (`index.html`, one file that
needs no network), its plots (`plots`) and the raw data (`results.jsonl`, and `results-2.jsonl` and so on where scenarios had a
run of their own). This list is written by `experiments/report/build --keep`.
"""


class Refused(Exception):
    """Nothing was written; the message says why and what to do."""


def write(run: results.Results, directory: Path) -> Path:
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
    for part, name in zip(run.runs(), page.files(run)):
        _copy(part.path, directory / name)
    index.write_text(text, encoding="utf-8")
    return index


def keep(run: results.Results, home: Path) -> Path:
    """Keeps a run's report below `home`, in a directory named by its date, and updates the list. The page."""
    directory = _directory(run, home)
    directory.mkdir(parents=True, exist_ok=True)
    parts = run.runs()
    copies = [directory / ("results.jsonl" if number == 1 else f"results-{number}.jsonl") for number in range(1, len(parts) + 1)]
    # All are read before one is written: a run may be kept under a name that another had.
    contents = [part.path.read_bytes() for part in parts]
    for content, copy in zip(contents, copies):
        copy.write_bytes(content)
    for old in set(_files(directory)) - set(copies):
        old.unlink()
    index = write(results.read_all(copies), directory)
    update_list(home)
    return index


def _copy(source: Path, to: Path) -> None:
    if not (to.exists() and to.samefile(source)):
        shutil.copyfile(source, to)


def _files(directory: Path) -> list:
    """The results files of a run that was kept, the first one first."""
    return sorted(directory.glob("results*.jsonl"), key=lambda file: (len(file.name), file.name))


def _directory(run: results.Results, home: Path) -> Path:
    """The run's own directory if it was kept before; otherwise one that is free."""
    date = f"{run.started:%Y-%m-%d}"
    number = 1
    while True:
        directory = home / (date if number == 1 else f"{date}-{number}")
        kept = directory / "results.jsonl"
        if not kept.exists() or _same_run(results.read(kept), run):
            return directory
        number += 1


def _same_run(one: results.Results, other: results.Results) -> bool:
    return (one.started, one.commit, one.seed) == (other.started, other.commit, other.seed)


def update_list(home: Path) -> None:
    """Writes the list anew from the runs that are there."""
    home.mkdir(parents=True, exist_ok=True)
    runs = [(file.parent.name, results.read_all(_files(file.parent))) for file in home.glob("*/results.jsonl")]
    runs.sort(key=lambda entry: (entry[1].started.timestamp(), entry[0]), reverse=True)
    lines = [_line(name, run) for name, run in runs]
    table = ["| run | commit | machine | claims | |", "|---|---|---|---|---|", *lines] if lines else ["No run has been kept yet."]
    (home / "README.md").write_text(HEAD + "\n" + "\n".join(table) + "\n", encoding="utf-8")


def _line(name: str, run: results.Results) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in run.verdicts().items()) or "none"
    marks = [mark for mark, there in (("smoke", run.smoke), ("broken off", not run.complete)) if there]
    commits = ", ".join(dict.fromkeys(part.commit or "unknown" for part in run.runs()))
    return (f"| [{name}]({name}/index.html) | {cell(commits)} | {cell(run.machines())} | {counts} | "
            f"{', '.join(marks)} |")

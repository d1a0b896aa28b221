"""The command, the README's table and the reports that are kept."""

import random
import subprocess
import sys
from pathlib import Path

import invented
import pytest

from report import readme, results, runs, units
from report.chapter import in_words

ROOT = Path(__file__).resolve().parents[2]


def run_of(directory: Path, **fields):
    directory.mkdir(parents=True, exist_ok=True)
    rows = [{**invented.RUN, **fields}, *invented.nothing(), *invented.claims()[3:], {"kind": "end", "complete": True, "seconds": 5}]
    return results.read(invented.write(directory / "run.jsonl", rows))


def command(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "report", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=120, check=False)


def test_the_command_writes_page_plots_and_raw_data(tmp_path):
    path = invented.write(tmp_path / "run.jsonl", [dict(invented.RUN), *invented.values(random.Random(1))])
    done = command(path, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}/out/index.html\n", "")
    assert (tmp_path / "out" / "run.jsonl").read_bytes() == path.read_bytes()
    assert (tmp_path / "out" / "index.html").stat().st_size > 10_000
    assert [file.name for file in (tmp_path / "out" / "plots").iterdir()] == ["value-sizes-memory.png"]


def test_the_command_says_what_is_wrong(tmp_path):
    path = invented.write(tmp_path / "run.jsonl", [dict(invented.RUN), {"kind": "measure"}])
    done = command(path, "--out", tmp_path / "out")
    assert done.returncode == 1 and done.stderr.startswith(f"{path}:2: kind 'measure' is unknown")
    assert not (tmp_path / "out").exists()
    assert command(path, "--out", "x", "--keep").returncode == 2


def test_a_report_replaces_a_report_and_nothing_else(tmp_path):
    run = run_of(tmp_path)
    runs.write(run, tmp_path / "out")
    (tmp_path / "out" / "plots" / "old.png").write_bytes(b"")
    runs.write(run, tmp_path / "out")
    assert list((tmp_path / "out" / "plots").iterdir()) == []
    (tmp_path / "mine" / "plots").mkdir(parents=True)
    with pytest.raises(runs.Refused, match="no report lies beside it"):
        runs.write(run, tmp_path / "mine")


def test_a_report_may_be_written_where_its_results_are(tmp_path):
    run = run_of(tmp_path / "out")
    before = run.path.read_bytes()
    runs.write(run, tmp_path / "out")
    assert run.path.read_bytes() == before


def test_the_table_is_written_between_its_markers_and_only_once(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("# Head\n\n<!-- results -->\nold\n<!-- /results -->\n\ntail\n", encoding="utf-8")
    run = results.read(invented.write(tmp_path / "run.jsonl", invented.lines()))
    assert readme.update(path, run, tmp_path / "docs" / "index.html")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Head\n\n<!-- results -->\nRun of 2026-11-21, commit abc1234, on AMD EPYC 7B13")
    assert text.endswith("<!-- /results -->\n\ntail\n") and "old" not in text
    assert "| Shunt costs a ring less CPU than a round-robin driver | +19 % | × 1.43 (1.35 to 1.50) | met |" in text
    assert "[The whole report](docs/index.html)" in text
    assert not readme.update(path, run, tmp_path / "docs" / "index.html")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", ["", "<!-- results -->\n", "<!-- /results -->\n<!-- results -->\n", "<!-- results -->" * 2])
def test_a_readme_without_markers_is_left_alone(tmp_path, text):
    path = tmp_path / "README.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(readme.NoMarkers, match="put both where"):
        readme.update(path, run_of(tmp_path), None)
    assert path.read_text(encoding="utf-8") == text


def test_text_cannot_leave_its_cell_in_markdown():
    assert readme.cell("a | b\n<script>`x` [y](z)") == "a \\| b &lt;script&gt;\\`x\\` \\[y](z)"
    assert readme.cell(None) == "–"


def test_a_smoke_run_and_one_broken_off_are_marked_in_the_readme(tmp_path):
    run = run_of(tmp_path, smoke=True)
    run.complete = False
    text = readme.table(run, None)
    assert "**This is the short smoke form" in text and "**The run was broken off" in text


def test_kept_runs_are_listed_by_date_and_a_run_is_kept_once(tmp_path):
    home = tmp_path / "kept"
    runs.update_list(home)
    assert "No run has been kept yet." in (home / "README.md").read_text(encoding="utf-8")
    first = run_of(tmp_path / "1")
    assert runs.keep(first, home) == home / "2026-11-21" / "index.html"
    assert runs.keep(run_of(tmp_path / "2", started="2026-11-21T23:30:00Z", smoke=True), home).parent.name == "2026-11-21-2"
    assert runs.keep(run_of(tmp_path / "3", started="2026-12-01T01:00:00+02:00"), home).parent.name == "2026-12-01"
    text = (home / "README.md").read_text(encoding="utf-8")
    assert runs.keep(first, home) == home / "2026-11-21" / "index.html"
    assert (home / "README.md").read_text(encoding="utf-8") == text
    rows = [line.split("]")[0] for line in text.splitlines() if line.startswith("| [")]
    assert rows == ["| [2026-12-01", "| [2026-11-21-2", "| [2026-11-21"]
    assert "| 1 not measured | smoke |" in text and "(2026-12-01/index.html)" in text
    assert "results.jsonl" in (home / "2026-11-21" / "index.html").read_text(encoding="utf-8")
    assert (home / "2026-11-21" / "results.jsonl").read_bytes() == first.path.read_bytes()


def test_runs_of_different_scenarios_make_one_report(tmp_path):
    one = invented.write(tmp_path / "one.jsonl", [dict(invented.RUN), *invented.values(random.Random(1))])
    other = invented.write(tmp_path / "other" / "one.jsonl", [
        {**invented.RUN, "commit": "fedcba9"}, *invented.nothing(), {"kind": "end", "complete": True, "seconds": 5}])
    done = command(one, other, "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "one-2.jsonl").read_bytes() == other.read_bytes()
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert text.count("Measured in a run of its own: 2026-11-21 23:00, commit fedcba9, on AMD EPYC 7B13") == 1
    assert "2 files of raw data" in text and 'href="one-2.jsonl"' in text
    short = invented.write(tmp_path / "short.jsonl", [{**invented.RUN, "smoke": True}, *invented.nothing()])
    assert "make a report of each" in command(one, short, "--out", tmp_path / "mixed").stderr


def test_of_a_scenario_that_was_run_again_the_last_run_counts(tmp_path):
    again = [{**line, "ours": "again"} for line in invented.claims() if line["scenario"] == "aggregation-windows"]
    first = invented.write(tmp_path / "1.jsonl", invented.lines())
    more = invented.write(tmp_path / "2.jsonl", [{**invented.RUN, "commit": "fedcba9"}, *invented.windows(random.Random(5)), *again])
    one, both = results.read(first), results.read_all([first, more])
    assert [item.name for item in both.scenarios] == [item.name for item in one.scenarios]
    assert both.scenario("aggregation-windows").run.commit == "fedcba9" and both.scenario("ring-cost").run is None
    assert [claim.ours for claim in both.claims if claim.scenario == "aggregation-windows"] == ["again"] * len(again)
    assert len(both.claims) == len(one.claims)


def test_each_machine_is_named(tmp_path):
    one = invented.write(tmp_path / "one.jsonl", [dict(invented.RUN), *invented.values(random.Random(1))])
    elsewhere = {**invented.RUN, "machine": {**invented.MACHINE, "processor": "Another", "kernel": "Linux 9"}}
    other = invented.write(tmp_path / "other.jsonl", [elsewhere, *invented.nothing()])
    run = results.read_all([one, other])
    assert "on AMD EPYC 7B13" in readme.table(run, None) and "; in part: Another," in readme.table(run, None)
    page = runs.write(run, tmp_path / "out").read_text(encoding="utf-8")
    assert "commit abc1234, on Another," in page and "; Linux 9<" in page
    assert "in part" not in readme.table(results.read_all([one, one]), None)


def test_a_kept_file_may_change_its_place(tmp_path):
    home, first = tmp_path / "kept", run_of(tmp_path / "1")
    second, third = (invented.write(tmp_path / f"{name}.jsonl", [{**invented.RUN, "commit": name}, *invented.nothing()])
                     for name in ("second", "third"))
    runs.keep(results.read_all([first.path, second]), home)
    kept = home / "2026-11-21"
    runs.keep(results.read_all([kept / "results.jsonl", third, kept / "results-2.jsonl"]), home)
    assert (kept / "results-2.jsonl").read_bytes() == third.read_bytes()
    assert (kept / "results-3.jsonl").read_bytes() == second.read_bytes()


def test_runs_that_make_one_report_are_kept_together(tmp_path):
    home, first = tmp_path / "kept", run_of(tmp_path / "1")
    more = invented.write(tmp_path / "2" / "soak.jsonl", [
        {**invented.RUN, "commit": "fedcba9"}, *invented.values(random.Random(1)), {"kind": "end", "complete": True, "seconds": 5}])
    runs.keep(results.read_all([first.path, more]), home)
    kept = home / "2026-11-21"
    assert (kept / "results-2.jsonl").read_bytes() == more.read_bytes()
    assert "| [2026-11-21](2026-11-21/index.html) | abc1234, fedcba9 |" in (home / "README.md").read_text(encoding="utf-8")
    runs.keep(results.read_all([kept / "results.jsonl", kept / "results-2.jsonl"]), home)
    assert (kept / "results-2.jsonl").read_bytes() == more.read_bytes()
    runs.keep(first, home)
    assert [file.name for file in kept.glob("*.jsonl")] == ["results.jsonl"]


def test_drawings_become_files_beside_the_plots(tmp_path):
    scenario = invented.nothing()[0]["name"]
    drawing = {"kind": "picture", "scenario": scenario, "name": "../256x1", "title": "<i>Flames", "svg": "<svg>1</svg>"}
    path = invented.write(tmp_path / "run.jsonl", [dict(invented.RUN), *invented.nothing(), drawing, drawing])
    runs.write(results.read(path), tmp_path / "out")
    files = sorted((tmp_path / "out" / "plots").iterdir())
    assert [file.read_text(encoding="utf-8") for file in files] == ["<svg>1</svg>"] * 2
    assert all(file.suffix == ".svg" and "256x1" in file.name for file in files)
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "&lt;i&gt;Flames" in text and all(f'href="plots/{file.name}"' in text for file in files)


@pytest.mark.parametrize("value, wanted", [(7.9, "7.90"), (0.3204, "0.320"), (81234, "81,234"), (64, "64"), (15.34, "15.3"), (0, "0"),
                                           (-2.5, "-2.50"), (0.00001, "1.00e-05"), (100.4, "100")])
def test_numbers(value, wanted):
    assert units.number(value) == wanted


def test_units_keep_numbers_short():
    assert units.choose("us", [7.9, 81.0]).name == "µs"
    assert units.choose("us", [2_100_000]).number(2_100_000) == "2,100" and units.choose("us", [2_100_000]).name == "ms"
    assert units.choose("bytes", [15_000_000]).number(15_000_000) == "15"
    assert units.choose("ms", [25_000]).number(25_000) == "25" and units.choose("ms", [25_000]).name == "s"
    assert units.choose("queries_per_write", [3]).name == "queries per write"
    assert units.choose("us", [1]).titled("CPU") == "CPU, µs" and units.choose("1/s", [1]).titled("per second") == "Per second"
    assert units.choose("count", [1]).titled("Threads") == "Threads"
    assert units.choose("s", [1]).titled("Seconds lost") == "Seconds lost, s"
    assert [units.tick(value) for value in (0.1, 1000, 20_000, 1_500_000)] == ["0.1", "1000", "20k", "1.5M"]
    assert (units.duration(59.6), units.duration(1234), units.duration(9000)) == ("60 s", "21 min", "2 h 30 min")


@pytest.mark.parametrize("ratio, better, wanted", [
    (0.55, "less", "45 % less, better"), (1.3, "less", "30 % more, worse"), (2.4, "more", "2.40 times as much, better"),
    (0.9, "neither", "10 % less"), (1.001, "less", "about the same")])
def test_ratios_in_words(ratio, better, wanted):
    assert in_words(ratio, better) == wanted

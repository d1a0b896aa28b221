"""The command, and the runs that are kept."""

import json
import random
import subprocess
import sys
from pathlib import Path

import invented
import pytest

from report import charts, kept, markdown, results, runs, units
from report.chapter import in_words

ROOT = Path(__file__).resolve().parents[2]


def run_of(directory: Path, **fields):
    directory.mkdir(parents=True, exist_ok=True)
    rows = [{**invented.RUN, **fields}, *invented.nothing(), *invented.claims()[3:], {"kind": "end", "complete": True, "seconds": 5}]
    return results.read(invented.write(directory / "run.jsonl", rows))


def command(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "report", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=600, check=False)


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
    missing = command(tmp_path / "no.json", "--out", tmp_path / "out")
    assert missing.returncode == 1 and missing.stderr.startswith(f"{tmp_path}/no.json: cannot be read")


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


def test_text_cannot_leave_its_cell_in_markdown():
    assert markdown.cell("a | b\n<script>`x` [y](z)") == "a \\| b &lt;script&gt;\\`x\\` \\[y](z)"
    assert markdown.cell(None) == "–"


@pytest.mark.parametrize("fields, why", [({"smoke": True}, "short smoke form"), ({"complete": False}, "broken off")])
def test_only_full_runs_are_kept(tmp_path, fields, why):
    run = run_of(tmp_path)
    vars(run).update(fields)
    with pytest.raises(runs.Refused, match=why):
        runs.keep(run, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_kept_runs_are_listed_by_date_and_a_run_is_kept_once(tmp_path):
    home = tmp_path / "kept"
    home.mkdir()
    assert runs.latest(home) is None
    assert "No run has been kept yet." in runs.update_page(home).read_text(encoding="utf-8")
    first = run_of(tmp_path / "1")
    assert runs.keep(first, home) == home / "2026-11-21.json"
    assert runs.keep(run_of(tmp_path / "2", started="2026-11-21T23:30:00Z"), home).name == "2026-11-21-2.json"
    assert runs.keep(run_of(tmp_path / "3", started="2026-12-01T01:00:00+02:00"), home).name == "2026-12-01.json"
    text = (home / "README.md").read_text(encoding="utf-8")
    assert runs.keep(first, home) == home / "2026-11-21.json"
    assert (home / "README.md").read_text(encoding="utf-8") == text
    rows = [line.split("]")[0] for line in text.splitlines() if line.startswith("| [")]
    assert rows == ["| [2026-12-01", "| [2026-11-21-2", "| [2026-11-21"]
    assert "| [2026-12-01](2026-12-01.json) | 1 not measured |" in text
    assert runs.latest(home) == home / "2026-12-01.json"


def told(run) -> list:
    """The contents of a kept run: all but single measurements, courses over time and drawings."""
    summaries, comparisons = (lambda spot: (spot.figure, spot.point, spot.arm)), (lambda item: (item.figure, item.point, item.arm, item.base))
    return [(scenario.name, scenario.title, scenario.points(), sorted(scenario.summaries, key=summaries),
             sorted(scenario.comparisons, key=comparisons), scenario.notes, scenario.plots, scenario.arms, scenario.run and scenario.run.commit) for scenario in run.scenarios]


def rounded(rows: list) -> list:
    """Lines whose numbers have the digits of a kept run."""
    keys = ("median", "min", "max", "ratio", "low", "high")
    return [{key: float(f"{value:.{kept.DIGITS}g}") if key in keys and value is not None else value for key, value in row.items()}
            for row in rows]


def test_a_kept_run_says_what_its_results_file_said(tmp_path):
    first = invented.write(tmp_path / "1.jsonl", rounded(invented.lines()))
    more = invented.write(tmp_path / "2.jsonl", rounded([
        {**invented.RUN, "commit": "fedcba9", "versions": {}}, *invented.windows(random.Random(5)),
        {"kind": "end", "complete": True, "seconds": 5}]))
    run = results.read_all([first, more])
    file = runs.keep(run, tmp_path / "kept")
    again = kept.read(file)
    assert told(again) == told(run)
    assert sorted(map(str, again.claims)) == sorted(map(str, run.claims)) and again.verdicts() == run.verdicts()
    assert again.notes == run.notes and (again.complete, again.smoke) == (True, False)
    assert [(part.commit, part.started, part.machine, part.versions) for part in again.runs()] == [
        (part.commit, part.started, part.machine, part.versions) for part in run.runs()]
    assert kept.text(again) == file.read_text(encoding="utf-8")
    assert file.stat().st_size < first.stat().st_size / 4
    text = runs.write(again, tmp_path / "out").read_text(encoding="utf-8")
    assert "no single measurement" in text and (tmp_path / "out" / file.name).read_bytes() == file.read_bytes()


def test_the_page_of_kept_runs_has_claims_beside_one_another_and_medians(tmp_path):
    home = tmp_path / "kept"
    runs.keep(results.read(invented.write(tmp_path / "1.jsonl", invented.lines())), home)
    later = [{**row, "verdict": "not met", "ours": "none"} if row["kind"] == "claim" else row for row in invented.lines()]
    later[0] = {**later[0], "started": "2026-11-25T00:00:00Z"}
    runs.keep(results.read(invented.write(tmp_path / "2.jsonl", later)), home)
    text = (home / "README.md").read_text(encoding="utf-8")
    assert "| Shunt costs a ring less CPU than a round-robin driver | +19 % | **not met** none | **met** × 1.43 (1.35 to 1.50) |" in text
    assert "- Not met: the window fills by itself" in text and "- Not measured: HAProxy: haproxy is not installed" in text
    assert all(f"## {row['title']}\n" in text for row in invented.lines() if row["kind"] == "scenario")
    median = next(row for row in invented.lines() if row["kind"] == "summary" and row["figure"] == "node_cpu_us")
    assert f"| {median['point']} | {median['median']:.0f} ({median['min']:.0f} to {median['max']:.0f}) |" in text


def test_the_page_of_kept_runs_has_the_medians_of_other_plots_where_the_scenario_says_so(tmp_path):
    rows = invented.windows(random.Random(1))
    name = rows[0]["figures"][1]["title"]
    for is_wanted in (False, True):
        plots = [{**plot, "on_page": is_wanted} if plot["figure"] == "rate_per_s" else plot for plot in rows[0]["plots"]]
        path = invented.write(tmp_path / f"{is_wanted}.jsonl", [dict(invented.RUN), {**rows[0], "plots": plots}, *rows[1:],
                                                                {"kind": "end", "complete": True, "seconds": 5}])
        runs.keep(results.read(path), tmp_path / str(is_wanted))
        text = (tmp_path / str(is_wanted) / "README.md").read_text(encoding="utf-8")
        assert (f"{name}, " in text) == is_wanted and "CPU of the proxy per query, " in text


@pytest.mark.parametrize("change, why", [
    (lambda content: content.pop("runs"), "is no run that was kept"), (lambda content: content.update(runs=[]), "names no run"),
    (lambda content: content["scenarios"][0].update(title=7), "scenario 'aggregation-windows': scenario: title is 7"),
    (lambda content: content["claims"].append({"text": "all", "verdict": "maybe"}), "claims: claim: verdict is 'maybe'"),
    (lambda content: next(iter(content["scenarios"][0]["medians"]["cpu_us"].values())).update(proxy=[1]), "is no run that was kept")])
def test_a_kept_file_that_is_damaged_is_named(tmp_path, change, why):
    file = runs.keep(results.read(invented.write(tmp_path / "1.jsonl", invented.lines())), tmp_path / "kept")
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(results.BadResults) as fault:
        kept.read(file)
    assert str(file) in str(fault.value) and why in str(fault.value)


def test_the_page_of_kept_runs_is_that_of_the_files_beside_it():
    home = ROOT.parent / "docs" / "results"
    found = [(file, kept.read(file)) for file in home.glob("*.json")]
    found.sort(key=lambda entry: entry[1].started, reverse=True)
    assert found and (home / "README.md").read_text(encoding="utf-8") == markdown.page([(file.stem, run) for file, run in found])
    assert {file.name for file in home.iterdir()} == {"README.md", *(file.name for file, _ in found)}


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


def test_the_last_run_of_a_repeated_scenario_counts(tmp_path):
    again = [{**line, "ours": "again"} for line in invented.claims() if line["scenario"] == "aggregation-windows"]
    first = invented.write(tmp_path / "1.jsonl", invented.lines())
    more = invented.write(tmp_path / "2.jsonl", [{**invented.RUN, "commit": "fedcba9"}, *invented.windows(random.Random(5)), *again])
    one, both = results.read(first), results.read_all([first, more])
    assert [item.name for item in both.scenarios] == [item.name for item in one.scenarios]
    assert both.scenario("aggregation-windows").run.commit == "fedcba9" and both.scenario("ring-cost").run is None
    assert [claim.ours for claim in both.claims if claim.scenario == "aggregation-windows"] == ["again"] * len(again)
    assert len(both.claims) == len(one.claims)
    before = next(claim for claim in one.claims if claim.scenario == "aggregation-windows")
    assert [note for note in both.scenario("aggregation-windows").notes if f"{before.text}: {before.ours}, not met" in note]


def test_the_page_of_kept_runs_has_the_last_two_of_each_scenario(tmp_path):
    whole = results.read(invented.write(tmp_path / "whole.jsonl", invented.lines()))
    part = results.read(invented.write(tmp_path / "part.jsonl", [dict(invented.RUN), *invented.windows(random.Random(5))]))
    text = markdown.page([("c", part), ("b", part), ("a", whole)])
    titles = [line for line in text.splitlines() if line.startswith("## ") and line != "## Notes"]
    assert len(titles) == len(set(titles)) == len(whole.scenarios), "runs of one scenario do not hide the others"
    chapter = text.split(f"## {whole.scenario('aggregation-windows').title}")[1].split("## ")[0]
    assert "run c (" in chapter and "run a (" not in chapter


def test_each_machine_is_named(tmp_path):
    one = invented.write(tmp_path / "one.jsonl", [dict(invented.RUN), *invented.values(random.Random(1))])
    elsewhere = {**invented.RUN, "machine": {**invented.MACHINE, "processor": "Another", "kernel": "Linux 9"}}
    other = invented.write(tmp_path / "other.jsonl", [elsewhere, *invented.nothing()])
    run = results.read_all([one, other])
    listed = markdown.page([("x", run)])
    assert "| AMD EPYC 7B13, 2" in listed and "| Another, 2" in listed
    page = runs.write(run, tmp_path / "out").read_text(encoding="utf-8")
    assert "commit abc1234, on Another," in page and "; Linux 9<" in page
    assert "in part" not in results.read_all([one, one]).machines()


def test_shapes_and_shares_stand_in_their_order(tmp_path):
    points = ["half load", "1024x1", "8x128", "80 %", "64x1", "100 %", "1x128", "5 % reads"]
    rows = [line for point in points for line in invented.rounds_of(random.Random(1), "order", "a", point, None, {"cpu_us": 3.0})]
    head = invented.scenario("order", "Order", ("load", "category"), [("a", "A")], [invented.figure("cpu_us", "CPU", "us")], [])
    run = results.read(invented.write(tmp_path / "run.jsonl", [dict(invented.RUN), head, *rows]))
    wanted = ["64x1", "1024x1", "1x128", "8x128", "5 % reads", "80 %", "100 %", "half load"]
    assert sorted(run.scenarios[0].points()) == sorted(wanted)
    assert [point for point in run.scenarios[0].points() if "x" in point] == wanted[:4]
    assert [point for point in run.scenarios[0].points() if "%" in point] == wanted[4:7]


@pytest.mark.parametrize("texts, said", [
    (["INSERT", "256x1"], "256x1: 256 connections with 1 query in flight on each"), (["Shunt, 8 x 32"], "8 x 32: 8 connections with "
     "32 queries in flight on each"), (["1x128"], "1x128: 1 connection with 128 queries in flight on it"), (["0x64", "ax1", "64"], "")])
def test_shapes_are_explained(texts, said):
    assert charts.shape_in_words(texts) == said


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

"""The page of a whole run, and of runs that lack something."""

import json
import math
import random
import re

import invented
import pytest
from pages import build
from PIL import Image

from report import charts, results

PNG_BYTES_MAX = 100_000


def without(rows: list, *kinds: str) -> list:
    """The lines but those of some kinds."""
    return [row for row in rows if row["kind"] not in kinds]


def small(*more, arms=None, rounds: int = 5) -> list:
    """A run of one short scenario."""
    arms = arms or [("proxy", "Shunt"), ("direct", "driver")]
    head = invented.scenario("short", "Short", ("clients", "log"), arms, [invented.figure("cpu_us", "CPU per query", "us")],
                             [("cpu_us", "What a query costs.")])
    draws = random.Random(3)
    body = [line for arm in arms if len(arm) == 2 for x in (1, 10)
            for line in invented.rounds_of(draws, "short", arm[0], str(x), x, {"cpu_us": 8.0 + x}, rounds)]
    return [dict(invented.RUN), head, *body, *more, {"kind": "end", "complete": True, "seconds": 90}]


@pytest.mark.parametrize("scale", ["category", "log"])
def test_points_that_have_places_are_in_their_order(tmp_path, scale):
    rows = [row if row["kind"] != "scenario" else {**row, "axis": {**row["axis"], "scale": scale}} for row in small()]
    measured = [row for row in rows if row["kind"] == "measurement"]
    others = [row for row in rows if row["kind"] in ("run", "scenario")]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*others, *reversed(measured)]))
    assert results.read(path).scenarios[0].points() == ["1", "10"]


def test_the_page_is_well_formed_and_ids_are_unique(whole):
    assert whole.page.faults == [] and whole.page.open == []
    ids = whole.page.ids()
    assert len(ids) == len(set(ids)) and len(ids) > 20


def test_the_page_needs_nothing_but_itself(whole):
    source = (whole.directory / "index.html").read_text(encoding="utf-8")
    names = {name for name, _ in whole.page.elements}
    assert not names & {"script", "link", "iframe", "img", "object"}
    assert not re.search(r"https?:|//[a-z]|@import|src=", source)
    assert set(re.findall(r"url\(([^)]*)\)", source)) <= {f"#{name}" for name in whole.page.ids()}
    assert [name for name, attributes in whole.page.elements for key in attributes if key.startswith("on")] == []


def test_every_link_leads_somewhere(whole):
    links = [attributes.get("href") for name, attributes in whole.page.elements if name in ("a", "use")]
    assert len(links) > 20
    for link in links:
        assert link[1:] in whole.page.ids() if link.startswith("#") else (whole.directory / link).is_file(), link


def test_every_plot_is_a_small_valid_png_and_is_on_the_page(whole):
    files = sorted((whole.directory / "plots").iterdir())
    drawings = [attributes for name, attributes in whole.page.elements if name == "svg"]
    linked = {attributes["href"] for name, attributes in whole.page.elements if name == "a" and "plots/" in attributes["href"]}
    # Three of the windows, one of the values, two of the ring, two of the lost node, one each of the other two.
    assert len(files) == len(drawings) == 10 and linked == {f"plots/{file.name}" for file in files}
    for file in files:
        with Image.open(file) as image:
            assert image.format == "PNG" and image.width > 1000
            image.load()
        assert file.stat().st_size < PNG_BYTES_MAX, file
    assert all(drawing["aria-label"] and drawing["role"] == "img" for drawing in drawings)


def test_the_page_says_what_was_run(whole):
    text = whole.page.text("style")
    for said in ("0.3.0, commit abc1234", "2026-11-21 23:00 UTC", "AMD EPYC 7B13, 2 CPUs, 16.4 GB, virtual", "Linux 6.1.0-18-amd64",
                 "haproxy 2.6.12, cassandra 5.0.9, redis 7.0.15", "21 min", "complete", "run.jsonl"):
        assert said in text, said
    assert "smoke form" not in text and "was broken off" not in text


def test_the_page_has_claims_chapters_sentences_and_notes(whole):
    text = whole.page.text("style")
    rows = invented.lines()
    for row in rows:
        if row["kind"] == "scenario":
            assert all(said in text for said in (row["title"], row["question"], row["setup"])), row["name"]
        elif row["kind"] in ("claim", "note"):
            assert row["text"] in text
    for verdict in ("✓ met", "✗ not met", "≈ not shown", "– not measured"):
        assert verdict in text
    assert "1 met, 1 not met, 1 not shown, 1 not measured." in text
    assert "The node dies at 20 seconds and is back at 40." in text
    assert "HAProxy : haproxy is not installed" in text
    assert "Nothing was measured." in text, "of the scenario with no arm"


def test_medians_and_comparisons_are_in_words(whole):
    text = whole.page.text("style")
    median = next(row for row in invented.lines() if row["kind"] == "summary" and row["figure"] == "cpu_us")
    assert f"{median['median']:.1f} {median['min']:.1f} to {median['max']:.1f}" in text
    assert "no difference shown × 1.01 (0.95 to 1.07)" in text
    assert "× 0.67 (0.63 to 0.71) 33 % less, better" in text
    assert "no difference shown × 2.40, one round: no interval" in text


@pytest.mark.parametrize("rounds, said", [(1, "× 0.30, one round: no interval"), (3, "× 0.30 (0.28 to 0.32), too few rounds: 3")])
def test_a_difference_that_is_not_shown_is_never_told_as_one(make, rounds, said):
    line = {**invented.comparison("short", "1", 1, "cpu_us", "proxy", "direct", 0.3), "shown": False, "rounds": rounds}
    text = make(small(line)).page.text("style")
    assert f"no difference shown {said}" in text and "less, better" not in text


def test_text_of_the_file_never_becomes_markup(make):
    evil = '<script>alert("1")</script> & \' $x^2$'
    rows = small({"kind": "claim", "scenario": "short", "text": evil, "verdict": "met", "how": evil, "source": evil},
                 {"kind": "note", "scenario": None, "text": evil}, arms=[("proxy", evil), ("direct", "driver")])
    rows[1] = {**rows[1], "title": evil, "question": evil, "axis": {"title": evil, "scale": "log"},
               "figures": [{**rows[1]["figures"][0], "title": evil}], "plots": [{"figure": "cpu_us", "sentence": evil}]}
    rows[0] = {**rows[0], "commit": evil, "versions": {evil: evil}}
    report = make(rows)
    assert report.page.faults == [] and "script" not in {name for name, _ in report.page.elements}
    assert report.page.text("style").count(evil) > 8


def test_a_scenario_with_a_strange_name_has_files_and_links(make):
    report = make([{**row, **{key: "../a b/ü" for key in ("scenario",) if key in row}} if row["kind"] != "scenario"
                   else {**row, "name": "../a b/ü"} for row in small()])
    assert [file.name for file in (report.directory / "plots").iterdir()] == ["a-b-cpu-us.png"]


def test_a_run_that_was_broken_off_says_so_and_shows_what_it_has(make):
    rows = [dict(invented.RUN), *without(invented.ring(random.Random(1)), "summary", "comparison"), *invented.nothing()]
    report = make(rows)
    text = report.page.text("style")
    assert "The run was broken off before its end" in text and "broken off before." in text
    assert "medians and ranges were made from the measurements" in text
    assert len(list((report.directory / "plots").iterdir())) == 2


def test_a_last_line_that_was_cut_off_is_a_run_broken_off(tmp_path, make):
    path = invented.write(tmp_path / "cut.jsonl", small())
    path.write_text(path.read_text(encoding="utf-8")[:-25], encoding="utf-8")
    run = results.read(path)
    assert not run.complete and run.cut_line == len(small())
    assert run.scenarios[0].summaries


def test_an_end_that_is_not_complete_is_a_run_broken_off(make):
    report = make([*small()[:-1], {"kind": "end", "complete": False, "seconds": 3}])
    assert "The run was broken off" in report.page.text("style")


def test_the_smoke_form_says_that_its_figures_are_none(make):
    rows = small(rounds=1)
    rows[0] = {**rows[0], "smoke": True, "commit": None, "machine": {}, "versions": {}}
    text = make(rows).page.text("style")
    assert "short smoke form" in text and "(one round" in text and "commit unknown" in text


def test_arms_that_are_missing_are_named_and_leave_no_gap_in_the_drawing(make):
    report = make(small(arms=[("proxy", "Shunt"), ("haproxy", "HAProxy", "not installed")]))
    text = report.page.text("style")
    assert "HAProxy : not installed" in text
    assert len(list((report.directory / "plots").iterdir())) == 1


def test_arms_that_stop_early_and_points_without_numbers_are_drawn(make):
    rows = [row for row in small() if not (row.get("arm") == "direct" and row.get("point") == "10")]
    assert len(list((make(rows).directory / "plots").iterdir())) == 1
    zero = [{**row, "x": 0} if row.get("x") == 1 else {**row, "x": None} if row.get("x") == 10 else row for row in small()]
    assert len(list((make(zero).directory / "plots").iterdir())) == 1


@pytest.mark.parametrize("factor, scale", [(0, "log"), (-1, "log"), (-1, "category"), (1e-9, "category"), (1e12, "log")])
def test_values_of_any_size_are_drawn(make, factor, scale):
    keys = ("median", "min", "max")
    rows = [{**row, **{key: row[key] * factor for key in keys}} if row["kind"] == "summary" else row for row in small()]
    rows = [{**row, "min": row["max"], "max": row["min"]} if row["kind"] == "summary" and factor < 0 else row for row in rows]
    rows[1]["axis"]["scale"] = scale
    assert len(list((make(rows).directory / "plots").iterdir())) == 1


@pytest.mark.parametrize("count, panels", [(20, 3), (400, 8)])
def test_series_of_any_length_are_drawn_with_their_gaps(make, count, panels):
    head = small()[1]
    points = [str(number) for number in range(panels)]
    lines = [{"kind": "series", "scenario": "short", "arm": "proxy", "point": point, "figure": "cpu_us", "x_title": "seconds",
              "x": list(range(count)), "y": [None if second == 7 else 3 + second % 5 for second in range(count)]} for point in points]
    report = make([dict(invented.RUN), head, *lines])
    text = report.page.text("style")
    assert len(list((report.directory / "plots").iterdir())) == 1
    assert ("running median of 7" in text) == ("2 more in the raw data" in text) == (count == 400)


def test_a_running_median_keeps_gaps_and_drops_peaks():
    ys = charts._running_medians([1, 1, 9, 1, math.nan, 2, 2], 3)
    assert ys[:4] == [1, 1, 1, 5] and math.isnan(ys[4]) and ys[5:] == [2, 2]


def test_a_run_with_nothing_but_its_first_line(make):
    report = make([dict(invented.RUN)])
    text = report.page.text("style")
    assert "The run makes no claims." in text and "broken off" in text


def test_the_same_results_give_the_same_page(tmp_path):
    pages = [build(tmp_path / name, small()).directory for name in ("one", "two")]
    assert len({(page / "index.html").read_bytes() for page in pages}) == 1
    assert len({(page / "plots" / "short-cpu-us.png").read_bytes() for page in pages}) == 1

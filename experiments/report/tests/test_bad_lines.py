"""Results files with something wrong in them: each fault is named with its line and what to do."""

import invented
import pytest

from report import results

BASE = [dict(invented.RUN),
        invented.scenario("short", "Short", ("clients", "log"), [("proxy", "Shunt")], [invented.figure("cpu_us", "CPU", "us")], []),
        {"kind": "measurement", "scenario": "short", "arm": "proxy", "point": "1", "x": 1, "round": 0, "figures": {"cpu_us": 1.5}},
        {"kind": "end", "complete": True, "seconds": 1}]
SERIES = {"kind": "series", "scenario": "short", "arm": "proxy", "point": None, "figure": "cpu_us", "x_title": "seconds",
          "x": [1, 2], "y": [1, None]}
COMPARISON = {"kind": "comparison", "scenario": "short", "point": "1", "figure": "cpu_us", "arm": "proxy", "base": "proxy",
              "ratio": 1, "shown": False, "rounds": 1}


def changed(number: int, **fields) -> list:
    """The base with other fields in a line."""
    return [{**row, **fields} if index == number - 1 else row for index, row in enumerate(BASE)]


def with_third(row: dict) -> list:
    return [*BASE[:2], row, BASE[3]]


CASES = {
    "unknown kind": (changed(3, kind="mesurement"), ":3: kind 'mesurement' is unknown; known are run, scenario, measurement"),
    "no kind": (with_third({"arm": "proxy"}), ':3: an object with a "kind" is wanted'),
    "kind of another type": (changed(3, kind=["run"]), ":3: kind ['run'] is unknown"),
    "missing field": (with_third({"kind": "measurement", "scenario": "short", "arm": "proxy", "figures": {}}),
                      ":3: measurement: round is missing"),
    "null field": (changed(3, round=None), ":3: measurement: round is null"),
    "text for a number": (changed(3, round="0"), ":3: measurement: round is '0'; a number is wanted"),
    "true for a number": (changed(3, round=True), ":3: measurement: round is True; a number is wanted"),
    "not a number": (changed(3, x=float("nan")), ":3: measurement: x is nan; a number is wanted"),
    "text for a figure": (changed(3, figures={"cpu_us": "7"}), ":3: measurement: figures.cpu_us is '7'; a number or null is wanted"),
    "list for an object": (changed(3, figures=[]), ":3: measurement: figures is []; an object is wanted"),
    "field within a list": (changed(2, arms=[{"name": "a"}]), ":2: scenario: arms[0].title is missing"),
    "unknown scale": (changed(2, axis={"title": "x", "scale": "ln"}), ":2: scenario: axis.scale is 'ln'; one of \"category\","),
    "unknown scenario": (changed(3, scenario="long"), ":3: scenario 'long' has no line of kind \"scenario\""),
    "unknown arm": (changed(3, arm="floor"), ":3: arm 'floor' is none of scenario 'short'; it has proxy"),
    "unknown base": (with_third({**COMPARISON, "base": "x"}), ":3: arm 'x' is none of scenario 'short'"),
    "plot of no figure": (changed(2, plots=[{"figure": "p99", "sentence": "s"}]), ":2: plot of 'p99', which is none"),
    "series of no figure": (with_third({**SERIES, "figure": "p99"}), ":3: series of 'p99', which is none"),
    "series of two lengths": (with_third({**SERIES, "y": [1]}), ":3: series: x has 2 values and y 1"),
    "scenario twice": ([*BASE[:2], BASE[1], BASE[3]], ":3: scenario 'short' is there twice"),
    "two runs": ([*BASE[:3], BASE[0]], ':4: a second line of kind "run"'),
    "something after the end": ([BASE[0], BASE[1], BASE[3], BASE[2]], ':3: lines follow the line of kind "end"'),
    "no first line": (BASE[1:], ':1: the first line must be of kind "run"'),
    "no time": (changed(1, started="yesterday"), ":1: run: started is 'yesterday'; a time such as 2026"),
    "claim of no scenario": (with_third({"kind": "claim", "scenario": "x", "text": "t", "verdict": "met"}), ":3: claim: scenario 'x'"),
    "note of no scenario": (with_third({"kind": "note", "scenario": "x", "text": "t"}), ":3: note: scenario 'x' has no line"),
    "unknown verdict": (with_third({"kind": "claim", "text": "t", "verdict": "maybe"}), ":3: claim: verdict is 'maybe'; one of"),
}


def refusal(path) -> str:
    with pytest.raises(results.BadResults) as caught:
        results.read(path)
    return str(caught.value)


def test_the_base_of_the_cases_is_good(tmp_path):
    for rows in (BASE, with_third(SERIES), with_third(COMPARISON)):
        assert results.read(invented.write(tmp_path / "run.jsonl", rows)).complete


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_with_its_line(tmp_path, name):
    rows, wanted = CASES[name]
    path = invented.write(tmp_path / "run.jsonl", rows)
    text = refusal(path)
    assert text.startswith(f"{path}{wanted}") and text.count("\n") == 0, text


def test_a_line_that_is_no_json_in_the_middle_is_a_fault(tmp_path):
    path = invented.write(tmp_path / "run.jsonl", BASE)
    rows = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*rows[:2], "Segmentation fault", *rows[2:]]) + "\n", encoding="utf-8")
    assert refusal(path).startswith(f"{path}:3: no JSON (Expecting value at column 1)")


def test_all_faults_are_named_and_many_are_counted(tmp_path):
    rows = [BASE[0], BASE[1], *({**BASE[2], "arm": 1} for _ in range(30)), BASE[3]]
    text = refusal(invented.write(tmp_path / "run.jsonl", rows))
    assert text.count("arm is 1; a string is wanted") == 20 and text.endswith("and 10 more")


def test_a_file_that_is_empty_or_not_there(tmp_path):
    path = tmp_path / "run.jsonl"
    assert f"{path}: cannot be read" in refusal(path)
    path.write_text("", encoding="utf-8")
    assert refusal(path).startswith(f'{path}:1: the first line must be of kind "run"')
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in refusal(path)


def test_fields_of_a_later_version_are_left_alone(tmp_path):
    assert results.read(invented.write(tmp_path / "run.jsonl", changed(3, colour="red"))).complete

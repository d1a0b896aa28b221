"""Figures from the output of the clients of transfers. Money that appears or disappears ends the run."""

import json
from argparse import Namespace

import pytest

from experiments import transfers
from harness import jars

REPORT = {"queries": 4000, "applied": 1000, "not_applied": 2900, "error_share": 0.025, "seconds": 2.0, "rate": 2000.0,
          "latency_us": {"p50": 10.0, "p99": 20.0}, "own": {"cpu_us_per_query": 3.0}, "applied_so_far": 1500, "in_doubt_so_far": 120,
          "processes": [{"cpu_us_per_query": 1.0}, {"cpu_us_per_query": 4.0}]}
JAVA = {"transfers": 500, "seconds": 2.0, "conflicts": 20, "errors": 4, "p50_us": 100.0, "p99_us": 300.0}


def test_figures_are_those_of_what_was_applied():
    found = transfers.figures(REPORT, "lwt")
    assert (found["rate_per_s"], found["p50_us"], found["cpu_us"], found["load_cpu_us"]) == (500.0, 10.0, 20.0, 12.0)
    assert (found["again_per_s"], found["errors_per_s"]) == (1450.0, 50.0)
    assert transfers.figures(REPORT | {"applied": 0}, "lwt") == {}


def test_contending_clients_report_no_latency():
    found = transfers.figures(REPORT, "lwt", True)
    assert found["rate_per_s"] == 500.0 and "p50_us" not in found and "p99_us" not in found
    assert [point.label for point in transfers.POINTS if point.contended and "lwt" in point.arms] == ["16 clients, one account", "64 clients, one account"]


def test_a_lock_is_taken_and_released_by_two_statements():
    found, of_statements = transfers.figures(REPORT, "lock decided"), transfers.figures(REPORT, "decided")
    assert (found["rate_per_s"], found["cpu_us"], found["p50_us"]) == (250.0, 40.0, of_statements["p50_us"])
    assert found["errors_per_s"] == of_statements["errors_per_s"]
    assert transfers.expected_after("lock", 0, REPORT) == range(0, transfers.OWN_ACCOUNTS * transfers.CLIENTS_MAX + 1)
    assert max(point.shape[0] * point.shape[1] for point in transfers.POINTS if "lock" in point.arms) == transfers.CLIENTS_MAX


def test_each_answer_to_a_write_counts():
    found = transfers.figures(REPORT, "write")
    assert (found["rate_per_s"], found["cpu_us"]) == (2000.0, 5.0) and "again_per_s" not in found


def test_figures_of_java():
    found = transfers.java_figures(JAVA, [0.5, 0.25])
    assert (found["rate_per_s"], found["again_per_s"], found["errors_per_s"]) == (250.0, 10.0, 2.0)
    assert (found["cpu_us"], found["load_cpu_us"]) == (1000.0, 500.0)
    assert transfers.java_figures(JAVA | {"transfers": 0}, [0, 0]) == {}


def test_transfers_leave_the_sum_and_withdrawals_lessen_it():
    assert list(transfers.expected_after("transaction", 9000, REPORT)) == [9000]
    assert transfers.expected_after("one row", 9000, REPORT | {"in_doubt_so_far": 0}) == range(7500, 7501)
    # What timed out may have been applied, or not.
    assert transfers.expected_after("lwt", 9000, REPORT) == range(7380, 7501)


def test_a_wrong_sum_ends_the_run(monkeypatch):
    monkeypatch.setattr(transfers, "SETTLED_SECONDS", 0)
    transfers.check("transaction", lambda: 9000, range(9000, 9001))
    for found in (8999, 9001):
        with pytest.raises(transfers.WrongTotal, match=f"have {found}, and should have 9000"):
            transfers.check("transaction", lambda found=found: found, range(9000, 9001))
    with pytest.raises(transfers.WrongTotal, match="should have 7380 to 7500"):
        transfers.check("lwt", lambda: 7501, range(7380, 7501))


def test_writes_that_are_still_made_are_waited_for(monkeypatch):
    monkeypatch.setattr(transfers.time, "sleep", lambda _: None)
    sums = iter([8999, 8999, 9000])
    transfers.check("transaction", lambda: next(sums), range(9000, 9001))
    assert next(sums, None) is None


def test_without_scalardb_a_note_says_why(monkeypatch, capsys):
    def fail():
        raise jars.MissingTool("Maven could not resolve ScalarDB's jars:\n[INFO] x\n[ERROR] no such version\n[ERROR] help")

    monkeypatch.setattr(transfers.jars, "java", lambda: None)
    monkeypatch.setattr(transfers, "library", fail)
    options = Namespace(arms=["write", "java", "scalardb"], json=True)
    assert transfers.java(None, None, [], 3, options) is None and options.arms == ["write"]
    note = json.loads(capsys.readouterr().out)
    assert note["kind"] == "note" and note["text"].endswith("ScalarDB's jars: [ERROR] no such version")


def test_failed_runs_are_repeated_and_reported_and_wrong_results_are_not(monkeypatch, capsys):
    point, options = transfers.POINTS[0], Namespace(json=True)
    asked = []

    def fails(*errors):
        asked.clear()
        left = list(errors)

        def once(*_):
            asked.append(1)
            if left:
                raise left.pop(0)
            return {"rate_per_s": 1}
        monkeypatch.setattr(transfers, "once", once)

    fails(RuntimeError("answered wrongly: {'0x1001': 3}"))
    assert transfers.twice(None, "guarded", point, options, 1) == {"rate_per_s": 1} and len(asked) == 2
    assert "0x1001" in json.loads(capsys.readouterr().out)["text"]
    for errors, times in ((RuntimeError(), RuntimeError()), 2), ((transfers.WrongTotal(),), 1), ((transfers.generator.WrongAnswers(),), 1):
        fails(*errors)
        with pytest.raises(RuntimeError):
            transfers.twice(None, "guarded", point, options, 1)
        assert len(asked) == times


@pytest.mark.parametrize("wrong, code", [(1, 2), (1, 0), (0, 2)])
def test_a_wrong_answer_is_known_by_itself_whatever_the_exit_code(monkeypatch, wrong, code):
    said = json.dumps({"wrong_answers": wrong, "error_share": 0, "errors": {}, "connections_lost": 0, "queries_lost": 0})
    out = Namespace(returncode=code, stdout=said + "\n", stderr="")
    monkeypatch.setattr(transfers.generator.subprocess, "run", lambda *_, **__: out)
    with pytest.raises(RuntimeError) as raised:
        transfers.generator.load("a:1", 1, 1)
    assert isinstance(raised.value, transfers.generator.WrongAnswers) == (wrong > 0)

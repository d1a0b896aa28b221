"""Outcomes of operations by their errors. A wrong history fails a test, and is kept."""

import cassandra
import pytest
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage

from history import verdict
from history.record import FAILED, INDETERMINATE, OK, History, NotDone, outcome_of

UNAVAILABLE = cassandra.Unavailable("too few", consistency=4, required_replicas=2, alive_replicas=1)
OPEN = [cassandra.WriteTimeout("late", write_type=0), cassandra.WriteFailure("half", write_type=0),
        cassandra.OperationTimedOut(), ConnectionShutdown("gone"), NoHostAvailable("none", {}), OSError("reset")]


@pytest.mark.parametrize("error", OPEN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("conditional", [False, True])
def test_these_errors_leave_the_outcome_open(error, conditional):
    assert outcome_of(error, conditional) == INDETERMINATE


def test_these_errors_promise_that_nothing_was_done():
    for promised in (OverloadedErrorMessage(0x1001, "full", None), IsBootstrappingErrorMessage(0x1002, "not yet", None), NotDone("its fence is over")):
        assert [outcome_of(promised, conditional) for conditional in (False, True)] == [FAILED, FAILED]
    assert outcome_of(UNAVAILABLE, conditional=False) == FAILED
    assert outcome_of(UNAVAILABLE, conditional=True) == INDETERMINATE


def raises(error):
    def execute():
        raise error

    return execute


@pytest.fixture
def history(monkeypatch, tmp_path):
    monkeypatch.setattr(verdict, "LOGS", tmp_path)
    history = History("recorded", seed=7)
    history.write("w", "register", "k", "write", "w.1", lambda: [])
    history.write("w", "list", "l", "overwrite", [1, 2], lambda: [])
    history.conditional("c", "lock", "acquire", "c.1", lambda: (True, None))
    history.conditional("d", "lock", "acquire", "d.1", lambda: (False, "c.1"))
    history.conditional("c", "lock", "release", "c.1", raises(cassandra.WriteTimeout("late", write_type=0)))
    history.conditional("d", "lock", "acquire", "d.2", lambda: (True, None))
    assert history.read("r", "register", "k", lambda: "w.1") == (OK, "w.1")
    history.read("r", "list", "l", raises(cassandra.ReadTimeout("late")))
    return history


def test_a_right_history_passes(history, tmp_path, capsys):
    history.read("r", "list", "l", lambda: [1, 2])
    verdict.assert_linearizable(history)
    assert "3 of 3 keys are linearizable" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong, said", [
    (lambda history: history.read("r", "register", "k", lambda: None), "null was read after"),
    (lambda history: history.read("r", "list", "l", lambda: [1, 2, 1, 2]), "there twice: 1,2,1,2"),
    (lambda history: history.conditional("c", "lock", "acquire", "c.2", lambda: (True, None)), "two holders"),
], ids=["lost", "doubled", "two-holders"])
def test_a_wrong_history_fails_and_is_kept(history, tmp_path, wrong, said):
    wrong(history)
    with pytest.raises(AssertionError, match=said):
        verdict.assert_linearizable(history)
    assert [kept.name for kept in tmp_path.iterdir()] == ["history-recorded.jsonl"]


def test_a_statement_that_is_refused_is_no_outcome(history):
    history.write("w", "register", "k", "write", "w.2", raises(cassandra.InvalidRequest("no such column")))
    with pytest.raises(AssertionError, match="no such column"):
        verdict.assert_linearizable(history)


def test_answers_too_close_to_a_death_are_in_doubt():
    history = History("fresh")
    for number in range(3):
        history.conditional("c", "k", "release", f"o{number}", lambda: (True, None, None))
        history.conditional("c", "k", "acquire", f"p{number}", lambda: (True, "p", 1))
    for line, call in zip(history.lines, (0, 0, 500, 500, 1_000, 1_000)):
        line |= {"call": call * 1_000_000, "return": (call + 10) * 1_000_000}
    history.doubt("release", [(590 * 1_000_000, 600 * 1_000_000)], within_ms=100)
    outcomes = [(line["op"], line["outcome"]) for line in history.lines]
    assert outcomes == [("release", "ok"), ("acquire", "ok"), ("release", "indeterminate"), ("acquire", "ok"), ("release", "ok"), ("acquire", "ok")]
    assert "applied" not in history.lines[2]

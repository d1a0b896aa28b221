"""A missed read is forgiven only while nodes disagreed about who has which row; an answer that did not
come is no wrong one."""

import pytest

from harness import waits
from harness.load import OVERLOADED, UNAVAILABLE, Load, Missed


@pytest.fixture
def load():
    return Load("127.0.0.1", 1, "load")


def missed(write_begun: float, read_ended: float) -> Missed:
    return Missed("key", "value", [], write_begun, read_ended)


@pytest.mark.parametrize("times", [(1, 3), (3, 4), (5, 9), (1, 9), (1, 2), (6, 9)])
def test_a_read_missed_while_nodes_disagreed_is_forgiven(load, times):
    load.wrong = [missed(*times)]
    load.assert_clients_unharmed(disagreed=(2, 6))


@pytest.mark.parametrize("times", [(0.5, 1.9), (6.1, 7)])
def test_a_read_missed_before_or_afterwards_is_not(load, times):
    load.wrong = [missed(3, 4), missed(*times)]
    with pytest.raises(AssertionError, match="Missed"):
        load.assert_clients_unharmed(disagreed=(2, 6))


def test_a_value_that_nobody_wrote_never_is(load):
    load.wrong = [missed(3, 4)._replace(found=[{"value": "another"}])]
    with pytest.raises(AssertionError, match="another"):
        load.assert_clients_unharmed(disagreed=(2, 6))


def test_without_a_disagreement_no_missed_read_is(load):
    load.wrong = [missed(3, 4)]
    with pytest.raises(AssertionError, match="Missed"):
        load.assert_clients_unharmed()


def test_a_query_without_an_answer_is_late(load):
    load.silent = ["key"]
    with pytest.raises(waits.Late, match="key"):
        load.assert_clients_unharmed()


def test_a_query_that_no_node_took_is_late_unless_that_is_the_fault(load):
    load.errors[OVERLOADED], load.messages[OVERLOADED] = 1, "the link was lost"
    with pytest.raises(waits.Late, match="the link was lost"):
        load.assert_clients_unharmed()
    load.assert_clients_unharmed({OVERLOADED})


@pytest.mark.parametrize("harm", ["wrong", "lost", "error"])
def test_wrong_answers_are_reported_before_late_ones(load, harm):
    load.silent, load.errors[OVERLOADED], load.messages[OVERLOADED] = ["key"], 1, "the link was lost"
    if harm == "wrong":
        load.wrong = [missed(3, 4)]
    elif harm == "lost":
        load.lost = ["client 1"]
    else:
        load.errors[UNAVAILABLE], load.messages[UNAVAILABLE] = 1, "no replica"
    with pytest.raises(AssertionError):
        load.assert_clients_unharmed()

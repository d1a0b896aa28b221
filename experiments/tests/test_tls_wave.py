"""What the rounds of a load beside a wave of handshakes come to."""

import json

import pytest

from experiments import tls_wave

ROUND = {"error_share": 0, "wrong_answers": 0, "connections_lost": 0, "queries_lost": 0, "latency_us": {"p50": 50, "p99": 90}}


def test_a_round_in_which_all_was_answered_counts():
    assert tls_wave.sound(json.dumps(ROUND))["latency_us"]["p99"] == 90


@pytest.mark.parametrize("line", ["", "some words", *(json.dumps(ROUND | {name: 1}) for name in ("error_share", "connections_lost", "queries_lost"))])
def test_a_round_with_errors_or_losses_does_not(line):
    with pytest.raises(RuntimeError, match="not all was answered"):
        tls_wave.sound(line)

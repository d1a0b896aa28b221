"""Results of rounds of a load beside a wave of handshakes."""

import json
import ssl

import pytest

from experiments import tls_wave

ROUND = {"error_share": 0, "wrong_answers": 0, "connections_lost": 0, "queries_lost": 0, "latency_us": {"p50": 50, "p99": 90}}


def test_a_round_in_which_all_was_answered_counts():
    assert tls_wave.sound(json.dumps(ROUND))["latency_us"]["p99"] == 90


@pytest.mark.parametrize("line", ["", "some words", *(json.dumps(ROUND | {name: 1}) for name in ("error_share", "connections_lost", "queries_lost"))])
def test_a_round_with_errors_or_losses_does_not(line):
    with pytest.raises(RuntimeError, match="not all was answered"):
        tls_wave.sound(line)


def test_a_client_hello_is_one_record_of_a_handshake():
    hello = tls_wave.client_hello(ssl.create_default_context())
    assert hello[0] == 22 and hello[5] == 1
    assert len(hello) == 5 + int.from_bytes(hello[3:5], "big")


def test_a_wave_with_another_number_of_handshakes_does_not_count():
    during = ROUND | {"latency_us": {"p50": 60, "p99": 140}}
    assert tls_wave.figures(ROUND, during, 0.5, 7, wanted=7)["added_p99_us"] == 50
    with pytest.raises(RuntimeError, match="6 handshakes in place of 7"):
        tls_wave.figures(ROUND, during, 0.5, 6, wanted=7)

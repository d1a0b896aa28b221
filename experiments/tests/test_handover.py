"""Figures from the output of wrk."""

import pytest

from experiments import handover, handover_cql

WRK = """Running 10s test @ http://10.99.0.100:8080/1048576
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    84.56ms   12.34ms 123.45ms   75.00%
    Req/Sec    24.10      5.00    40.00     70.00%
  Latency Distribution
     50%   83.10ms
     75%   90.00ms
     90%  100.00ms
     99%    1.20s
  240 requests in 10.00s, 241.50MB read
Requests/sec:     24.00
Transfer/sec:     24.15MB
"""


def test_wrk_output_is_read():
    found = handover.read_wrk(WRK)
    assert (found["requests"], found["seconds"], found["errors"]) == (240, 10.0, 0)
    assert (found["p50_us"], found["p99_us"]) == (pytest.approx(83_100), pytest.approx(1_200_000))
    assert found["bytes_per_s"] == pytest.approx(24.15 * handover.MIB)


def test_connections_that_are_cut_and_answers_that_are_none_are_errors():
    cut = WRK.replace("Requests/sec", "  Socket errors: connect 1, read 2, write 0, timeout 3\n  Non-2xx or 3xx responses: 4\nRequests/sec")
    assert handover.read_wrk(cut)["errors"] == 10


def test_small_answers_count_as_bodies_and_large_ones_as_bytes():
    run = handover.read_wrk(WRK)
    small = handover.figures([run, run], 100, sent=96_000, middle_cpu_s=0.001)
    assert small["mbit_per_s"] == pytest.approx(8e-6 * 48 * 100) and small["sent_per_byte"] == pytest.approx(2)
    assert small["cpu_s_per_gb"] == pytest.approx(1e9 * 0.001 / 48_000)
    large = handover.figures([run, run], handover.MIB, sent=0, middle_cpu_s=None)
    assert large["mbit_per_s"] == pytest.approx(8e-6 * 2 * 24.15 * handover.MIB) and "cpu_s_per_gb" not in large


def test_the_choice_is_compared_with_the_better_one_where_all_were_measured():
    of_arm = {"by size": {"mbit_per_s": 90.0}, "relay": {"mbit_per_s": 50.0}, "always": {"mbit_per_s": 100.0}}
    assert handover.to_better(of_arm, "by size") == pytest.approx(0.9)
    assert handover.to_better(of_arm | {"always": {}}, "by size") is None and handover.to_better({"relay": {"mbit_per_s": 1.0}}, "by size") is None


def test_large_cql_values_count_in_bytes_and_small_queries_by_their_latency():
    small = {"rate": 50.0, "latency_us": {"p50": 1.0, "p99": 2.0}}
    large = {"rate": 5.0, "latency_us": {"p50": 3.0, "p99": 4.0}}
    found = handover_cql.figures(small, large, handover.MIB)
    assert found["mbit_per_s"] == pytest.approx(5 * 8.388608) and (found["small_p99_us"], found["large_p50_us"]) == (2.0, 3.0)

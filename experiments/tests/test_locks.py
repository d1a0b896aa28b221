"""Figures from the output of the load generator and of the example."""

import pytest

from experiments import locks

TABLE = """1000000 locks: 98 ns each to acquire, 75.2 bytes each
90 ns each to release
names at random: 500 ns to acquire and release
1000 waiters: 80 ns to hand over and queue up again
"""
LATENCY = {"p50": 10.0, "p99": 20.0}
REPORT = {"queries": 4000, "seconds": 2.0, "rate": 2000.0, "latency_us": {"p50": 1.0, "p99": 2.0}, "own": {"cpu_us_per_query": 3.0},
          "processes": [{"cpu_us_per_query": 1.0}, {"cpu_us_per_query": 4.0}],
          "operations": {"acquire": {"count": 2000, "latency_us": LATENCY}, "release": {"count": 2000, "latency_us": {"p50": 5.0}}}}


def test_figures_of_the_table():
    found = locks.parse_table(TABLE)
    assert found["64x1, 1,000,000 names"] == {"bytes_per_lock": 75.2, "per_core_s": 4e6}
    assert found["one lock, 1,000 waiters"] == {"handovers_per_core_s": 12.5e6}


def test_latency_is_that_of_acquiring_and_cpu_that_of_all_servers():
    found = locks.figures(REPORT, "durable", locks.POINTS[0])
    assert (found["p50_us"], found["p99_us"], found["release_p50_us"], found["cpu_us"]) == (10.0, 20.0, 5.0, 5.0)
    assert found["per_core_s"] == pytest.approx(200_000) and "handovers_per_s" not in found


def test_a_hand_over_is_an_acquire():
    waits = next(point for point in locks.POINTS if point.waits)
    found = locks.figures(REPORT, "fast", waits)
    assert found["handovers_per_s"] == pytest.approx(1000) and found["handovers_per_core_s"] == pytest.approx(100_000)


def test_an_insert_is_no_lock():
    found = locks.figures(REPORT, "insert", locks.POINTS[0])
    assert found["p50_us"] == 1.0 and "release_p50_us" not in found

"""Figures and curves from the output of the load."""

import pytest

from experiments import multiget_redis


def window(seconds: float, rate: float, switched: int = 0, failed: int = 0) -> dict:
    multigets = round(rate * seconds)
    return {"seconds": seconds, "rate": rate, "multigets": multigets, "operations": multigets, "failed": failed, "client": {"switched": switched}}


def test_the_client_s_processor_and_all_others_are_told_apart():
    process = {"pid": 1, "cpu_us_per_query": 20.0}
    found = {"multigets": 90, "operations": 100, "rate": 50.0, "failed": 0, "latency_us": {"p50": 1.0, "p99": 2.0}, "own": process,
             "processors": [{"cpu_us_per_operation": 25.0, "utilisation": 0.5}, {"cpu_us_per_operation": 40.0}, {"cpu_us_per_operation": 10.0}],
             "processes": [{"pid": 7, "cpu_us_per_query": 3.0}, {"pid": 8, "cpu_us_per_query": 4.0}, {"pid": 9, "cpu_us_per_query": 5.0}],
             "traffic": {"sent_packets": 5.0, "received_packets": 6.0, "sent_bytes": 100.0, "received_bytes": 900.0}, "client": {"repeated": 1}}
    figures = multiget_redis.figures(found, {7: "shim", 8: "shim", 9: "redis"}, own=0)
    assert (figures["client_cpu_us"], figures["others_cpu_us"], figures["cpu_us"]) == (25.0, 50.0, 75.0)
    assert (figures["shims_cpu_us"], figures["servers_cpu_us"], figures["twemproxy_cpu_us"]) == (7.0, 5.0, 0)
    assert (figures["packets"], figures["bytes"], figures["per_core_s"]) == (11.0, 1000.0, pytest.approx(40_000))
    assert figures["repeated"] == pytest.approx(0.01)
    assert multiget_redis.figures(found | {"latency_us": None, "multigets": 0}, {}, own=0) is None


def test_a_curve_says_what_was_lost_and_how_long_the_return_took():
    rounds = [window(0.5, 1000, 400)] * 4 + [window(0.5, 100)] + [window(0.5, 800)] * 3 + [window(0.5, 800)] + [window(0.5, 950, 400)] * 3
    drawn, found = multiget_redis.along(rounds, away_s=2.0)
    assert (len(drawn["x"]), drawn["x"][-1], drawn["y"][4]) == (12, 6.0, 100)
    assert (found["before_per_s"], found["meanwhile_per_s"], found["failed"]) == (1000, 800, 0)
    assert found["lowest_share"] == pytest.approx(0.1) and found["back_s"] == pytest.approx(1.0)


def test_a_fast_tier_without_the_network_is_not_back():
    rounds = [window(1, 1000, 900)] * 2 + [window(1, 1000)] * 4
    assert "back_s" not in multiget_redis.along(rounds, away_s=2.0)[1]


def test_processors_as_the_kernel_reads_them():
    assert multiget_redis.mask_of([0]) == "00000001" and multiget_redis.mask_of([1, 2]) == "00000006"
    assert multiget_redis.mask_of([1, 33]) == "00000002,00000002"


def test_every_arm_and_curve_has_a_way():
    assert set(multiget_redis.CURVES.values()) <= set(multiget_redis.SPLITS_AT) <= set(multiget_redis.ARMS)
    assert all(point.servers <= 5 for point in multiget_redis.POINTS.values())

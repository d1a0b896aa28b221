"""A load without answers."""

import pytest

from experiments import extension_cost, generator

REPORT = {"queries": 10, "rate": 5.0, "latency_us": {"p50": 1.0, "p99": 2.0}, "processes": [{"cpu_us_per_query": 3.0}]}


class Node:
    contact = "127.0.0.1:1"

    def pid(self):
        return 1


class Front:
    listen = "127.0.0.1:2"

    def get(self, path):
        return 200, ""


def test_a_load_that_nobody_answered_is_repeated_and_its_figures_are_not_used(monkeypatch):
    reports = [REPORT | {"queries": 3, "latency_us": None}, REPORT | {"queries": 0, "latency_us": None}, REPORT]
    monkeypatch.setattr(extension_cost, "load", lambda *_: reports.pop(0))
    monkeypatch.setattr(extension_cost, "compiler_seconds", lambda pid: 0)
    found = extension_cost.run(extension_cost.ARMS[0], [Node(), Node()], [Front(), Front()], "SELECT", 0.1)
    assert (found["p50"], found["cpu_us"], reports) == (1.0, 3.0, [])


def test_a_load_that_nobody_ever_answers_ends_the_program():
    tries = []
    with pytest.raises(RuntimeError, match="measure for longer"):
        generator.until_answered(lambda: tries.append(None))
    assert len(tries) == generator.TRIES

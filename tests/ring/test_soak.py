"""What the two-hour run says is taken from the whole run, and a load's wrong answers are in it."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from ring import soak

WINDOW = {"queries": 100, "error_share": 0.0, "latency_us": {"p50": 1.0, "p99": 2.0, "max": 3.0}, "wrong_answers": 0,
          "wrong_values": 0, "queries_lost": 0, "connections_lost": 0}


class Growing:
    """A proxy whose memory grows by a byte each time that somebody looks."""

    looks = 0

    def alive(self) -> bool:
        return True

    def resident_bytes(self) -> int:
        self.looks += 1
        return 1000 + self.looks


@pytest.fixture
def memory():
    watched = soak.Memory(Growing(), 0.001)
    watched.start()
    while len(watched.bytes) < 20:
        time.sleep(0.001)
    watched.stop()
    return watched


def test_memory_is_looked_at_while_the_load_says_nothing(memory):
    looks = len(memory.bytes)
    assert memory.times == sorted(memory.times) and memory.bytes == list(range(1001, 1001 + looks))
    assert memory.growth() > 1
    time.sleep(0.01)
    assert len(memory.bytes) == looks, "it goes on after its end"


@pytest.mark.parametrize("what, figure", [("wrong_answers", "wrong_answers"), ("wrong_values", "wrong_answers"),
                                          ("queries_lost", "unanswered"), ("connections_lost", "connections_lost")])
def test_what_one_window_saw_is_in_the_figures(memory, capsys, what, figure):
    windows = soak.Windows(SimpleNamespace(keys=1, window=30, seconds=60), 10.0)
    windows.reports = [WINDOW, WINDOW | {what: 3}]
    load = SimpleNamespace(acknowledged={"a": "b"}, wrong=[], silent=[], lost=[], summary=lambda: "")
    soak.report(SimpleNamespace(window=30), 10.0, windows, memory, [], load, 0)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures[figure] == 3
    others = {"wrong_answers", "unanswered", "connections_lost", "lost_writes"} - {figure}
    assert not any(figures[name] for name in others)


def test_nodes_that_need_long_to_find_each_other_end_nothing():
    attempts = []

    class Slow:
        def wait_up(self):
            attempts.append(1)
            if len(attempts) < 3:
                raise RuntimeError("ring soak not complete after 120 s")

    asyncio.run(soak.whole_again(Slow(), SimpleNamespace(is_alive=lambda: True)))
    assert len(attempts) == 3
    asyncio.run(soak.whole_again(Slow(), SimpleNamespace(is_alive=lambda: False)))
    assert len(attempts) == 3

"""Results of the two-hour run: they cover the whole run, and include wrong answers of a load."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from experiments import soak
from harness.waits import until

WINDOW = {"queries": 100, "error_share": 0.0, "latency_us": {"p50": 1.0, "p99": 2.0, "max": 3.0}, "wrong_answers": 0,
          "wrong_values": 0, "not_found": 0, "queries_lost": 0, "connections_lost": 0, "waiting": 0, "shed": 0}


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
    until(lambda: len(watched.bytes) >= 20, "it has looked", every_seconds=0.001)
    watched.stop()
    return watched


def test_memory_is_looked_at_while_the_load_says_nothing(memory):
    looks = len(memory.bytes)
    assert memory.times == sorted(memory.times) and memory.bytes == list(range(1001, 1001 + looks))
    assert memory.growth() > 1
    time.sleep(0.01)
    assert len(memory.bytes) == looks, "it goes on after its end"


def said(capsys, memory, *reports, strays=0, read_back=None) -> dict:
    """The figures that come of these windows."""
    windows = soak.Windows(SimpleNamespace(keys=1, window=30, seconds=60), 10.0)
    windows.reports = list(reports)
    load = SimpleNamespace(acknowledged={"a": "b"}, wrong=[], silent=[], lost=[], strays=lambda: strays, summary=lambda: "")
    read_back = {"lost_writes": 0} if read_back is None else read_back
    soak.report(SimpleNamespace(window=30), 10.0, windows, memory, [], load, read_back)
    return json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]


@pytest.mark.parametrize("what, figure", [("wrong_answers", "wrong_answers"), ("wrong_values", "wrong_answers"),
                                          ("not_found", "wrong_answers"), ("queries_lost", "unanswered"),
                                          ("connections_lost", "connections_lost")])
def test_one_windows_findings_are_in_the_figures(memory, capsys, what, figure):
    figures = said(capsys, memory, WINDOW, WINDOW | {what: 3})
    assert figures[figure] == 3
    others = {"wrong_answers", "unanswered", "connections_lost", "lost_writes"} - {figure}
    assert not any(figures[name] for name in others)


def test_a_window_without_an_answer_is_not_the_fastest(memory, capsys):
    figures = said(capsys, memory, WINDOW, WINDOW | {"queries": 0, "latency_us": None}, WINDOW)
    assert (figures["p50_us"], figures["p99_us"], figures["worst_p99_us"]) == (1.0, 2.0, 2.0)
    assert "p50_us" not in said(capsys, memory, WINDOW | {"queries": 0, "latency_us": None})


def test_unread_rows_are_not_called_found(memory, capsys):
    assert "lost_writes" not in said(capsys, memory, WINDOW, read_back={})
    assert said(capsys, memory, WINDOW, strays=2)["wrong_answers"] == 2


def test_measurements_are_printed_although_the_end_fails(monkeypatch, capsys):
    class Remembering:
        acknowledged, wrong, silent, lost = {"a": "b"}, [], [], []

        def __init__(self, *_, **__):
            pass

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

        strays, summary = staticmethod(lambda: 0), staticmethod(lambda: "")

        async def missing(self):
            raise TimeoutError("a read was never answered")

    class Over(soak.Windows):
        def run(self):
            self.process = SimpleNamespace(terminate=lambda: None)
            self.reports.append(WINDOW)

    monkeypatch.setattr(soak, "Load", Remembering)
    monkeypatch.setattr(soak, "Windows", Over)
    monkeypatch.setattr(soak, "saturation", lambda options: 10.0)
    options = SimpleNamespace(keys=1, window=30, seconds=60, share=0.7, restart_every=1)
    front = SimpleNamespace(host="", port=0, alive=lambda: True, resident_bytes=lambda: 1)
    with pytest.raises(TimeoutError):
        asyncio.run(soak.soak(None, front, options))
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    assert figures["p99_us"] == 2.0 and "lost_writes" not in figures


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

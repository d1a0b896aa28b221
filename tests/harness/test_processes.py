"""Processes are stopped as a whole."""

import os
import signal
import subprocess
import sys

import pytest

from . import processes

# Four threads that never wait.
BUSY = "import threading\n[threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start() for _ in range(4)]\n" \
       "print('runs', flush=True)\nthreading.Event().wait()"


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "runs\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_process_has_stopped_when_all_its_threads_have(busy):
    assert not processes.has_stopped(busy)
    processes.stop(busy)
    assert processes.has_stopped(busy)
    before = processes.cpu_seconds(busy)
    assert processes.cpu_seconds(busy) == before
    os.kill(busy, signal.SIGCONT)

"""Both servers of a run: a ring of one Cassandra, and our node; the only place that knows how our node is started."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from ring import cql, jars
from ring.cluster import Cluster

RING = "differential"
NODE_DIRECTORY = jars.TARGET / "differential" / "node"
READY_SECONDS = 30
# Tables are made and dropped all the time; making each change durable at once is what would take longest.
# What a counter had before it was deleted comes back as long as it is in the counter cache, and only then.
JAVA_OPTIONS = ["-Dcassandra.test.flush_local_schema_changes=false", "-Dcassandra.config.allow_system_properties=true",
                "-Dcassandra.settings.counter_cache_size=0MiB"]


def cassandra() -> Cluster:
    """A ring of one, not started yet; its schema changes are quick and do not survive kill -9."""
    ring = Cluster(RING, nodes=1, heap_mb=1024, optimise=True)
    for node in ring.nodes:
        node.settings.java_options += JAVA_OPTIONS
    return ring


class OurNode:
    """One process of the embedded node with an empty directory; its output goes to a file."""

    def __init__(self, contact: str | None = None, directory: Path = NODE_DIRECTORY):
        self.contact = contact or f"127.0.0.1:{_free_port()}"
        self.directory, self.log = directory, directory.with_suffix(".log")
        self._process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        binary = os.environ.get("SHUNT_NODE_BINARY") or str(jars.TARGET / "debug" / "examples" / "serve")
        return [binary, str(self.directory), self.contact]

    def start(self) -> OurNode:
        host, port = self.contact.rsplit(":", 1)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + READY_SECONDS
        while not cql.answers(host, int(port)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the node does not answer on {self.contact}; its output:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.1)
        return self

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if not self.alive():
            return
        self._process.stdin.close()  # it serves until its input ends
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def __enter__(self) -> OurNode:
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]

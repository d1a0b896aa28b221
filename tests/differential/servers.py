"""Both servers of a run: a ring of one Cassandra, and an embedded node; the only place that says how they are started."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.ports import free_port

RING = "differential"
MEMORY = Path("/dev/shm")  # a file system in memory: a table's files live for seconds, and need no disk
# Tables are made and dropped all the time; making each change durable at once is what would take longest.
# What a counter had before it was deleted comes back as long as it is in the counter cache, and only then.
# A statement that leaves the cache would have to be prepared again, and is described anew then.
JAVA_OPTIONS = ["-Dcassandra.test.flush_local_schema_changes=false", "-Dcassandra.unsafesystem=true",
                "-Dcassandra.config.allow_system_properties=true", "-Dcassandra.settings.counter_cache_size=0MiB",
                "-Dcassandra.settings.prepared_statements_cache_size=256MiB"]


def ring(storage: Path) -> Cluster:
    """A ring that is not started yet. Its schema changes are quick and do not survive kill -9. The full
    JIT would take longer to compile than it saves: each kind of statement runs a few thousand times at
    most.
    """
    cluster = Cluster(RING, nodes=1, heap_mb=1024, patient=True)
    for node in cluster.nodes:
        node.settings.java_options += JAVA_OPTIONS
        node.settings.storage = storage
    return cluster


@contextmanager
def cassandra() -> Iterator[str]:
    """An Apache Cassandra without data for as long as the context lasts: its host:port."""
    with tempfile.TemporaryDirectory(prefix="shunt-differential-", dir=MEMORY if MEMORY.is_dir() else None) as storage:
        cluster = ring(Path(storage))
        cluster.start(wipe=True)
        try:
            yield cluster.contacts
        finally:
            cluster.stop(wipe=True)


@contextmanager
def node() -> Iterator[str]:
    """An embedded node without data for as long as the context lasts: its host:port. It has to live to the end."""
    contact = f"127.0.0.1:{free_port()}"
    embedded = Embedded("differential", contact, ["node", "--listen", contact, "--admin", "off"], [contact])
    with embedded:
        yield contact
        if not embedded.alive():
            raise RuntimeError(f"the node ended by itself; the end of its log:\n{embedded.log_tail()}")


@contextmanager
def both(ours: str | None, theirs: str | None) -> Iterator[tuple[str, str]]:
    """Contacts of the node and of Cassandra; what is not given is started."""
    with _given(ours, node) as mine, _given(theirs, cassandra) as other:
        yield mine, other


@contextmanager
def _given(contact: str | None, start) -> Iterator[str]:
    if contact:
        yield contact
        return
    with start() as started:
        yield started

"""Both servers of a run: a ring of one Cassandra, and an embedded node; the only place that says how they are started."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import Iterator

from ring.cluster import Cluster
from ring.embedded import Embedded

RING = "differential"
# Tables are made and dropped all the time; making each change durable at once is what would take longest.
# What a counter had before it was deleted comes back as long as it is in the counter cache, and only then.
JAVA_OPTIONS = ["-Dcassandra.test.flush_local_schema_changes=false", "-Dcassandra.config.allow_system_properties=true",
                "-Dcassandra.settings.counter_cache_size=0MiB"]


def ring() -> Cluster:
    """Not started yet. Its schema changes are quick and do not survive kill -9."""
    cluster = Cluster(RING, nodes=1, heap_mb=1024, optimise=True)
    for node in cluster.nodes:
        node.settings.java_options += JAVA_OPTIONS
    return cluster


@contextmanager
def cassandra() -> Iterator[str]:
    """An Apache Cassandra without data for as long as the context lasts: its host:port."""
    cluster = ring()
    cluster.start(wipe=True)
    try:
        yield cluster.contacts
    finally:
        cluster.stop(wipe=True)


@contextmanager
def node() -> Iterator[str]:
    """An embedded node without data for as long as the context lasts: its host:port. It has to live to the end."""
    contact = f"127.0.0.1:{_free_port()}"
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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]

"""Servers that suites share, by kind. Each must live to the end and stop in good order, which
counts as a test."""

import os
from pathlib import Path

from harness.cluster import Cluster
from harness.embedded import Embedded
from harness.proxy import UNDISTURBED_PROXY, Proxy
from harness.verdicts import panics


class EmbeddedNodes:
    """Embedded nodes: one alone, or three behind a proxy in the same process."""

    def __init__(self, proxied: bool, log: Path):
        make = Embedded.through_proxy if proxied else Embedded.direct
        self.process = make(log=log)
        self.environment = self.process.environment

    def start(self) -> None:
        self.process.start()

    def stop(self) -> str | None:
        """Stops the process. Returns a complaint if it ended early or did not stop in good
        order."""
        return _complaint(self.process)


class Ring:
    """Three Cassandra nodes, `extended` of them with the extension; with `proxied`, a proxy in
    front of them."""

    def __init__(self, extended: int, proxied: bool, log: Path):
        self.ring = Cluster("ring", extended=int(os.environ.get("SHUNT_EXTENDED", extended)), fleeting=True, patient=True)
        self.front = Proxy(self.ring.contacts, options=UNDISTURBED_PROXY, log=log) if proxied else None
        self.environment = {"SHUNT_RING": self.ring.contacts, "SHUNT_RF": "3"}

    def start(self) -> None:
        self.ring.start(wipe=True)
        if self.front:
            self.front.start(ready_within_seconds=300)
            self.environment["SHUNT_CONTACT"] = self.front.listen

    def stop(self) -> str | None:
        ended = [node.contact for node in self.ring.nodes if not node.pid()]
        try:
            complaint = _complaint(self.front) if self.front else None
        finally:
            self.ring.stop()
        return complaint or (f"nodes ended by themselves: {', '.join(ended)}" if ended else None)


def _complaint(process) -> str | None:
    alive, status = process.alive(), process.stop()
    panic = panics(process.log)
    if panic:
        return f"panicked: {panic[0]}"
    if alive and status == 0:
        return None
    return f"{'ended by itself' if not alive else 'did not stop in good order'}, status {status}; its log ends with\n{process.log_tail(60)}"


def make(service, logs: Path):
    log = logs / f"service-{service.name.replace(' ', '-')}.log"
    if service.kind == "embedded":
        return EmbeddedNodes(log=log, **service.options)
    if service.kind == "ring":
        return Ring(log=log, **service.options)
    raise ValueError(f"{service.name}: there is no kind of service {service.kind!r}")

"""Decides what begins next: of the suites that fit on the processors, the one with the longest
chain of work behind it.

The decisions need no clock and no process, so tests can play them through.
"""

import os
from dataclasses import dataclass, field

# Recorded processors are averages. A total a little above the machine's number keeps all of them
# busy.
OVERCOMMITMENT = 1.25


@dataclass
class Schedule:
    """Entries that are pending, running or done: suites, and the starts of services."""

    suites: list
    services: list
    processors: float = field(default_factory=lambda: float(os.cpu_count() or 2))

    def __post_init__(self):
        self.pending = [*self.services, *self.suites]
        self.running = {}  # by name
        self.up = set()  # services
        self.failed, self.succeeded = set(), set()
        self._ranks = self._rank()

    def next(self):
        """An entry to begin now, or None. The caller reports its end with `ended`."""
        for entry in sorted(self._ready(), key=lambda entry: -self._ranks[entry.name]):
            if self._fits(entry):
                self.pending.remove(entry)
                self.running[entry.name] = entry
                return entry
        return None

    def ended(self, entry, good: bool) -> None:
        del self.running[entry.name]
        if entry in self.services:
            if good:
                self.up.add(entry.name)
            else:
                self.failed.add(entry.name)
            return
        (self.succeeded if good else self.failed).add(entry.name)
        if getattr(entry, "provides", None):
            (self.succeeded if good else self.failed).add(entry.provides)

    def impossible(self) -> list:
        """(entry, what it lacks) for each pending entry that can never begin. These are no longer
        pending afterwards."""
        found = []
        for entry in list(self.pending):
            lacking = [need for need in self._wanted(entry) if need in self.failed]
            if lacking:
                self.pending.remove(entry)
                self.failed.add(entry.name)
                if getattr(entry, "provides", None):
                    self.failed.add(entry.provides)
                found.append((entry, lacking[0]))
        return found

    def idle_services(self) -> list:
        """Services that are up and that no suite uses any more. The caller stops them, then calls
        `stopped`."""
        used = {suite.service for suite in [*self.pending, *self.running.values()] if getattr(suite, "service", None)}
        return [service for service in self.services if service.name in self.up and service.name not in used]

    def stopped(self, service) -> None:
        self.up.discard(service.name)

    def is_over(self) -> bool:
        return not self.pending and not self.running

    def _wanted(self, entry) -> list:
        service = getattr(entry, "service", None)
        return [*entry.needs, *([service] if service else [])]

    def _ready(self) -> list:
        ready, heads = [], set()
        busy = {entry.lane for entry in self.running.values() if entry.lane}
        busy |= {service.lane for service in self.services if service.name in self.up and service.lane}
        for entry in self.pending:
            if entry.lane in busy:
                continue
            if not all(need in self.succeeded for need in entry.needs):
                continue
            if getattr(entry, "service", None) and entry.service not in self.up:
                continue
            # A lane keeps the order of the table.
            if entry.lane and entry.lane in heads:
                continue
            heads.add(entry.lane)
            ready.append(entry)
        return ready

    def _fits(self, entry) -> bool:
        if getattr(entry, "alone", False) and self.up - {entry.service}:
            return False
        if not self.running:
            return True
        if getattr(entry, "alone", False) or any(getattr(other, "alone", False) for other in self.running.values()):
            return False
        used = sum(other.processors for other in self.running.values())
        return used + entry.processors <= self.processors * OVERCOMMITMENT

    def _rank(self) -> dict:
        """Seconds from the start of each entry to the end of the longest chain that waits for
        it."""
        behind = {entry.name: [] for entry in self.pending}
        providers = {}
        for entry in self.pending:
            providers.setdefault(entry.name, []).append(entry.name)
            if getattr(entry, "provides", None):
                providers.setdefault(entry.provides, []).append(entry.name)
        for entry in self.pending:
            for need in self._wanted(entry):
                for name in providers.get(need, ()):
                    behind[name].append(entry.name)
        lanes = {}
        for entry in self.pending:
            if entry.lane:
                if entry.lane in lanes:
                    behind[lanes[entry.lane]].append(entry.name)
                lanes[entry.lane] = entry.name
        entries = {entry.name: entry for entry in self.pending}
        ranks = {}

        def rank(name: str, path: tuple = ()) -> float:
            if name not in ranks:
                later = [rank(other, (*path, name)) for other in behind[name] if other not in path]
                ranks[name] = entries[name].seconds + max(later, default=0)
            return ranks[name]

        for name in entries:
            rank(name)
        return ranks

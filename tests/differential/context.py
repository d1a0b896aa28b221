"""State of the generator of one sequence: its table, the values in play, its clock and its times to live."""

from __future__ import annotations

from random import Random

from .schema import Column, Shapes, Table
from .types import Type
from .values import NULL, Pool, Value

TIES, RISING, SERVER = "ties", "rising", "server"
PAST, FUTURE = 1_000_000_000_000_000, 4_000_000_000_000_000  # µs, before and after anything the server's clock says
TTL_LARGEST = 20 * 365 * 24 * 3600


class Context:
    """State of the generator; nothing here depends on what an endpoint answers.

    The clock has three ways. TIES: explicit timestamps that collide and go back. RISING: explicit ones that never do.
    SERVER: none are given, the server's own clock decides. Of two cells with one timestamp the one that expires later
    wins, by the second, so that equal times to live would make the outcome depend on when a second ends: no time to
    live is used twice in a sequence, and a table's default goes with clocks that have no ties.
    """

    def __init__(self, rng: Random):
        self.rng = rng
        self.shapes = Shapes(rng)
        self.clock = rng.choices((TIES, RISING, SERVER), (55, 15, 30))[0]
        self.pinned: dict[str, Value] = {}  # key columns that have one value for now
        self._now = rng.choice((PAST, FUTURE))
        # A conditional write comes after all that it writes to in the node, and at the clock's time in Cassandra, where nobody
        # sees it behind what is from the future. So those of a sequence have only what is past before them.
        self.conditional = self._now == PAST
        self.drops_columns = rng.random() < 0.5
        self._ttls = [100_000 + 1_000 * number for number in range(3_000)]
        rng.shuffle(self._ttls)
        for _ in range(rng.choice((0, 0, 1, 2))):
            self.shapes.definition()
        self.table: Table = self.shapes.table(counter=rng.random() < 0.1)
        self.rows_of_another_time()
        if self.table.counter:
            self.clock = SERVER
        elif self.clock != TIES and rng.random() < 0.3:
            self.table.default_ttl = 90_000

    def stamp(self) -> int:
        """A timestamp in µs for USING TIMESTAMP or as the protocol's default."""
        if self.clock == RISING:
            self._now += self.rng.randint(1, 3)
            return self._now
        self._now += self.rng.choice((0, 0, 1))
        if self.rng.random() < 0.003:
            return self.rng.choice((0, 1, -1, -(2**63) + 1) + (() if self.drops_columns or self.conditional else (2**63 - 1,)))
        return self._now + self.rng.choice((0, 0, 0, 0, -1, -2, -5))

    def default_stamp(self) -> int | None:
        return None if self.clock == SERVER else max(0, self.stamp())  # the driver cannot send one below

    def drop_stamp(self) -> int | None:
        """Timestamp of the drop of a column, after every other one so far. Cassandra fails to read newer values until it flushes."""
        servers_time = self.clock == SERVER or self._now < FUTURE and self.rng.random() < 0.5
        return None if servers_time or self.conditional else 2 * FUTURE

    def ttl(self) -> int:
        return self._ttls.pop() if self._ttls else 99_000

    def rows_of_another_time(self) -> None:
        """New values from here on: other partitions, without tombstones yet."""
        keys = len(self.table.partition) + len(self.table.clustering)
        self.pool = Pool(self.rng, 4 if keys == 1 else 3 if keys < 4 else 2)

    def key(self, column: Column) -> Value:
        return self.pinned.get(column.name) or self.pool.key(column.type, column.role == "clustering")

    def value(self, kind: Type, null_share: float = 0.0) -> Value:
        return NULL if self.rng.random() < null_share else self.pool.value(kind)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

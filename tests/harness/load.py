"""Load that remembers: every write acknowledged to a client is noted, every lost connection and every error counted."""

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from harness import cql, waits

WRITE = "INSERT INTO faults.writes (key, value) VALUES (?, ?)"
READ = "SELECT value FROM faults.writes WHERE key = ?"
# Of each client between queries: load, but processor time is left for a node that starts.
PAUSE_SECONDS = 0.05
STARTING_PAUSE_SECONDS = 0.1  # and in the end, for all that was written until then is read again
READS_AT_ONCE = 64  # while looking for what was written
ANSWER_WITHIN_SECONDS = 120  # far beyond the deadlines of the proxy and of Cassandra: an answer, even an error, must come


async def answered(read, says_nothing=lambda error: True):
    """The result of `read`. After an error that says nothing, `read` is called again."""
    errors = Counter()

    async def attempt() -> "list | None":
        try:
            return [await read()]
        except (cql.CqlError, TimeoutError) as error:
            if not says_nothing(error):
                raise
            errors[repr(error)] += 1

    result, = await waits.until_async(attempt, "a read that says something", every_seconds=0.3,
                                      told=lambda: dict(errors))
    return result


class Missed(NamedTuple):
    """A read that did not find what was written before it; times are of time.monotonic()."""

    key: str
    value: str
    found: list
    write_begun: float
    read_ended: float


class Load:
    """Clients that write and read back in a loop, each over one socket that is never reopened.

    Used as an asynchronous context manager; leaving it stops the clients and waits for their last answers.
    """

    def __init__(self, host: str, port: int, name: str, clients: int = 24, consistency: int = cql.QUORUM,
                 pause_seconds: float = PAUSE_SECONDS):
        self.pause_seconds = pause_seconds
        self.host, self.port, self.name, self.consistency = host, port, name, consistency
        self.acknowledged = {}
        self.errors = Counter()  # by CQL error code
        self.messages = {}  # one example for each code
        self.lost = []  # connections that ended under their client
        self.silent = []  # queries that were never answered
        self.wrong = []  # reads at QUORUM that missed an acknowledged write, as Missed
        self._clients = clients
        self._connections = []
        self._noted = set()  # connections whose loss their client has noted
        self._tasks = []
        self._running = True

    async def __aenter__(self):
        self._connections = await asyncio.gather(
            *(cql.Connection.open(self.host, self.port, timeout_seconds=ANSWER_WITHIN_SECONDS)
              for _ in range(self._clients)))
        self._tasks = [asyncio.create_task(self._client(number, connection))
                       for number, connection in enumerate(self._connections)]
        return self

    async def __aexit__(self, *_):
        self._running = False
        await asyncio.gather(*self._tasks)
        for connection in self._connections:
            if connection.lost.done() and connection not in self._noted:
                self.lost.append(f"afterwards: {connection.lost.result()}")
            connection.close()

    async def more_acknowledged(self, count: int, within_seconds: float = 240) -> None:
        """Waits until so many more writes were acknowledged: the ring and the proxy do work."""
        goal = len(self.acknowledged) + count

        def reached() -> bool:
            assert not self.lost, f"connections lost: {self.lost[:3]}"
            return len(self.acknowledged) >= goal

        await waits.until_async(reached, f"{goal} writes acknowledged", within_seconds, 0.05,
                                told=self.summary)

    async def _client(self, number: int, connection: cql.Connection) -> None:
        statements = None
        turn = 0
        while self._running:
            turn += 1
            await asyncio.sleep(self.pause_seconds)
            key, value = f"{self.name}-{number}-{turn}", f"{turn * 7919 % 1_000_003}"
            begun = time.monotonic()
            try:
                if statements is None:
                    statements = [await connection.prepare(text, ANSWER_WITHIN_SECONDS) for text in (WRITE, READ)]
                await connection.execute(statements[0], [key.encode(), value.encode()], self.consistency,
                                         ANSWER_WITHIN_SECONDS)
                self.acknowledged[key] = value
                if turn % 4 == 0 and self.consistency == cql.QUORUM:
                    await self._read_back(connection, statements[1], key, value, begun)
            except cql.CqlError as error:
                self.errors[error.code] += 1
                self.messages.setdefault(error.code, error.message)
            except cql.ConnectionLost as error:
                self.lost.append(f"client {number} in turn {turn}: {error}")
                self._noted.add(connection)
                return
            except TimeoutError:
                self.silent.append(key)

    async def _read_back(self, connection, statement, key: str, value: str, begun: float) -> None:
        found = await connection.execute(statement, [key.encode()], self.consistency, ANSWER_WITHIN_SECONDS)
        if [row["value"] for row in found] != [value]:
            self.wrong.append(Missed(key, value, found, begun, time.monotonic()))

    def strays(self) -> int:
        """Answers with a stream id that nobody waits for."""
        return sum(connection.strays for connection in self._connections)

    def summary(self) -> str:
        errors = {f"{code:#06x}": (count, self.messages.get(code)) for code, count in self.errors.items()}
        return (f"{len(self.acknowledged)} writes acknowledged, errors {errors}, {len(self.lost)} connections lost, "
                f"{len(self.silent)} queries without an answer, {len(self.wrong)} wrong reads")

    def assert_clients_unharmed(self, errors_allowed=frozenset(), disagreed: "tuple | None" = None) -> None:
        """Asserts that no client lost a connection or waits in vain, and that the fault explains every
        error.

        A query without an answer is one too many, and so is one that no node took (Overloaded). The
        machine can cause both, so they raise Late, after the faults that only the proxy can cause.

        `disagreed`: from when to when nodes disagreed about who has which row. In that time, a read at
        QUORUM through one of them may miss a write through another. It finds nothing then, and never
        something else.
        """
        print(self.summary())
        assert not self.lost, self.lost[:5]
        since, until = disagreed or (float("inf"), float("-inf"))
        wrong = [missed for missed in self.wrong
                 if missed.found or missed.read_ended < since or missed.write_begun > until]
        assert not wrong, (disagreed, wrong[:5])
        assert not self.strays()
        surprising = {f"{code:#06x}": self.messages[code] for code in self.errors
                      if code not in {*errors_allowed, OVERLOADED}}
        assert not surprising, surprising
        if self.silent:
            raise waits.Late(f"{len(self.silent)} queries without an answer: {self.silent[:5]}")
        if self.errors[OVERLOADED] and OVERLOADED not in errors_allowed:
            count, message = self.errors[OVERLOADED], self.messages[OVERLOADED]
            raise waits.Late(f"{count} queries taken by no node: {message}")

    async def assert_nothing_lost(self, consistency: int = cql.QUORUM) -> None:
        assert self.acknowledged, "no write was acknowledged at all"
        missing = await self.missing(consistency)
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged writes lost: {missing[:5]}"

    async def missing(self, consistency: int = cql.QUORUM) -> list:
        """Reads every acknowledged write; the keys of those that are not found."""
        connection = await cql.Connection.open(
            self.host, self.port, timeout_seconds=ANSWER_WITHIN_SECONDS)
        try:
            statement = await connection.prepare(READ, ANSWER_WITHIN_SECONDS)
            turns = asyncio.Semaphore(READS_AT_ONCE)
            return [key for key in await asyncio.gather(
                *(self._missing(connection, statement, key, consistency, turns) for key in self.acknowledged)) if key]
        finally:
            connection.close()

    async def _missing(self, connection, statement, key: str, consistency: int, turns) -> "str | None":
        """The key, if its value is not found."""
        async with turns:
            rows = await answered(
                lambda: connection.execute(statement, [key.encode()], consistency, ANSWER_WITHIN_SECONDS))
            return None if [row["value"] for row in rows] == [self.acknowledged[key]] else key


# What a coordinator may answer while a replica it counted on does not (native_protocol_v4.spec, section 9).
UNAVAILABLE, OVERLOADED, WRITE_TIMEOUT, READ_TIMEOUT = 0x1000, 0x1001, 0x1100, 0x1200
WRITE_FAILURE, READ_FAILURE = 0x1500, 0x1300
OF_A_LOST_REPLICA = frozenset({UNAVAILABLE, WRITE_TIMEOUT, READ_TIMEOUT, WRITE_FAILURE, READ_FAILURE})

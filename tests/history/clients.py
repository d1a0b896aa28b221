"""Clients of the Python driver that write and read the same keys again and again, each a thread with a role.

| key        | table               | who                                                                               |
|------------|---------------------|-----------------------------------------------------------------------------------|
| register   | registers           | one writer or several, the client's timestamps or the server's; several readers   |
| pair       | pairs               | one writer: deletes the partition and writes it anew in a batch; several readers  |
| list       | lists               | overwritten once or appended to, read back at once and at the end                 |
| lock       | locks               | all that want it: IF NOT EXISTS, IF owner = ?; read at SERIAL                     |

A client repeats nothing by itself: the driver's retries are off, so each operation is one request. One whose outcome is
open is recorded as that, and the client goes on. The owner of a lock has a new name for each acquisition.
"""

import logging
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, RoundRobinPolicy

from harness.driver import PATIENT
from harness.waits import Late, until

from .record import FAILED, OK, History

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS {0}.registers (key text PRIMARY KEY, value text)",
    "CREATE TABLE IF NOT EXISTS {0}.lists (key text PRIMARY KEY, value list<int>)",
    "CREATE TABLE IF NOT EXISTS {0}.pairs (key text, part int, head int static, value int, PRIMARY KEY (key, part))",
    "CREATE TABLE IF NOT EXISTS {0}.locks (key text PRIMARY KEY, owner text)",
)
STATEMENTS = {
    "write": "INSERT INTO registers (key, value) VALUES (?, ?)",
    "overwrite": "UPDATE registers SET value = ? WHERE key = ?",
    "read": "SELECT value FROM registers WHERE key = ?",
    "list insert": "INSERT INTO lists (key, value) VALUES (?, ?)",
    "list update": "UPDATE lists SET value = ? WHERE key = ?",
    "list append": "UPDATE lists SET value = value + ? WHERE key = ?",
    "list read": "SELECT value FROM lists WHERE key = ?",
    "pair write": "BEGIN BATCH DELETE FROM pairs USING TIMESTAMP ? WHERE key = ?;"
                  " INSERT INTO pairs (key, head) VALUES (?, ?) USING TIMESTAMP ?;"
                  " INSERT INTO pairs (key, part, value) VALUES (?, 1, ?) USING TIMESTAMP ?;"
                  " INSERT INTO pairs (key, part, value) VALUES (?, 2, ?) USING TIMESTAMP ? APPLY BATCH",
    "pair read": "SELECT head, value FROM pairs WHERE key = ?",
    "acquire": "INSERT INTO locks (key, owner) VALUES (?, ?) IF NOT EXISTS",
    "release": "DELETE FROM locks WHERE key = ? IF owner = ?",
    "lock read": "SELECT owner FROM locks WHERE key = ?",
}
ANSWER_WITHIN_SECONDS = 120  # beyond every deadline of proxy and nodes
APART_SECONDS = 0.01  # between writes of one client to one key, whose order two clocks decide
CONNECTIONS = 4  # of the driver with one kind of timestamps
READS_AT_ONCE = 16  # of everything at the end

# That a server which was killed is down is no news to the test.
logging.getLogger("cassandra").setLevel(logging.ERROR)


class Connection:
    """A session of the driver with its statements prepared."""

    def __init__(self, cluster: Cluster, keyspace: str, client_timestamps: bool):
        self.session = cluster.connect(keyspace)
        self.session.use_client_timestamp = client_timestamps
        self.statements = {name: self.session.prepare(text) for name, text in STATEMENTS.items()}
        self.statements["lock read"].consistency_level = ConsistencyLevel.SERIAL

    def rows(self, statement: str, *values) -> list:
        return list(self.session.execute(self.statements[statement], values, timeout=ANSWER_WITHIN_SECONDS))

    def one(self, statement: str, key: str):
        rows = self.rows(statement, key)
        return rows[0][0] if rows else None

    def pair(self, key: str):
        """The whole partition as one value: the value of its static column, then that of each row."""
        rows = self.rows("pair read", key)
        return [rows[0].head, *(row.value for row in rows)] if rows else None

    def conditional(self, statement: str, key: str, owner: str) -> tuple:
        row = self.rows(statement, key, owner)[0]
        return row[0], getattr(row, "owner", None)


class Clients(ExitStack):
    """The clients of a test, as a context: they connect at its start, and stop at its end at the latest."""

    def __init__(self, history: History, host: str, port: int, keyspace: str, seed: int):
        super().__init__()
        self.history, self.host, self.port, self.keyspace, self.seed = history, host, port, keyspace, seed
        self.keys = {"register": {}, "pair": {}, "list": {}, "lock": {}}  # by kind; dicts for their order
        self.up = threading.Event()  # unset while there is no server to ask
        self.up.set()
        self._slower = dict.fromkeys(self.keys, 1)
        self._stop = threading.Event()
        self._threads = []
        self._abandoned = set()  # owners who do not know whether they have their lock: whoever meets one releases it
        self._failures = []

    def __enter__(self):
        with ExitStack() as opened:
            self.connections = {of_client: [self._connect(opened, of_client) for _ in range(CONNECTIONS)]
                                for of_client in (True, False)}
            opened.callback(self._end)  # what has failed before is not hidden by who has no answer
            self.push(opened.pop_all())
        return self

    def _connect(self, opened: ExitStack, client_timestamps: bool) -> Connection:
        profile = ExecutionProfile(RoundRobinPolicy(), FallthroughRetryPolicy(), ConsistencyLevel.QUORUM,
                                   ConsistencyLevel.SERIAL, request_timeout=ANSWER_WITHIN_SECONDS)
        cluster = Cluster([self.host], port=self.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                          reconnection_policy=ConstantReconnectionPolicy(0.2, None), schema_metadata_enabled=False,
                          token_metadata_enabled=False, protocol_version=5 if client_timestamps else 4, **PATIENT)
        opened.callback(cluster.shutdown)
        return Connection(cluster, self.keyspace, client_timestamps)

    # Roles. Each is called with its name, a connection and its own random numbers, and makes one step of a loop.

    def registers(self, name: str, writers: int, client_timestamps: bool, pause_seconds: float, writers_of_a_key: int = 1):
        for number in range(writers):
            key = f"{name}-{number // writers_of_a_key}"
            self.keys["register"][key] = None
            self._start(f"{name}-w{number}", "register", self._register_writer, client_timestamps, pause_seconds, key)

    def readers(self, kind: str, readers: int, pause_seconds: float):
        for number in range(readers):
            self._start(f"{kind}-r{number}", kind, self._reader, number % 2 == 0, pause_seconds, kind)

    def lists(self, name: str, writers: int, pause_seconds: float, client_timestamps: bool = True):
        for number in range(writers):
            self._start(f"{name}-w{number}", "list", self._list_writer, client_timestamps, pause_seconds)

    def pairs(self, name: str, writers: int, pause_seconds: float):
        for number in range(writers):
            self.keys["pair"][f"{name}-{number}"] = None
            self._start(f"{name}-w{number}", "pair", self._pair_writer, True, pause_seconds, f"{name}-{number}")

    def locks(self, name: str, locks: int, clients: int, pause_seconds: float):
        keys = [f"{name}-{number}" for number in range(locks)]
        self.keys["lock"] |= dict.fromkeys(keys)
        for number in range(clients):
            self._start(f"{name}-c{number}", "lock", self._locker, number % 2 == 0, pause_seconds, keys)

    def _start(self, client: str, kind: str, step, client_timestamps: bool, pause_seconds: float, *arguments):
        connection = self.connections[client_timestamps][len(self._threads) % CONNECTIONS]
        draw = random.Random(f"{self.seed} {client}")

        def loop():
            turn = 0
            try:
                while not self._stop.wait(pause_seconds * self._slower[kind] * draw.uniform(0.5, 1.5)):
                    self.up.wait()
                    turn += 1
                    if not step(client, connection, draw, turn, *arguments):
                        self._stop.wait(0.05)  # an error: another one would follow at once
            except Exception as error:  # of the client itself, not of the server
                self._failures.append(f"{client}: {error!r}")

        thread = threading.Thread(target=loop, name=client, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _register_writer(self, client, connection, draw, turn, key) -> bool:
        value = f"{client}.{turn}"
        by = draw.choice([("write", key, value), ("overwrite", value, key)])
        return self.history.write(client, "register", key, "write", value, lambda: connection.rows(*by)) == OK

    def _reader(self, client, connection, draw, turn, kind) -> bool:
        return self._read(client, connection, kind, draw.choice(list(self.keys[kind]))) == OK

    def _list_writer(self, client, connection, draw, turn) -> bool:
        """A list of its own for each turn: one that is doubled afterwards stays so."""
        key, value = f"{client}-{turn}", [turn * 10, turn * 10 + 1]
        self.keys["list"][key] = None
        by = draw.choice([("list insert", key, value), ("list update", value, key)])
        outcome = self.history.write(client, "list", key, "overwrite", value, lambda: connection.rows(*by))
        # Not after an overwrite that may still come: the append would stay, and before it. Elements are ordered by when each
        # coordinator received them, and two have the same time within a millisecond.
        if outcome == OK and draw.randrange(4) == 0:
            time.sleep(APART_SECONDS)
            more = [turn * 10 + 2]
            outcome = self.history.write(client, "list", key, "append", more, lambda: connection.rows("list append", more, key))
        return self._read(client, connection, "list", key) == OK == outcome

    def _pair_writer(self, client, connection, draw, turn, key) -> bool:
        deleted = time.time_ns() // 1000
        written, value = deleted + 1, turn
        parts = (deleted, key, key, value, written, key, value, written, key, value, written)
        return self.history.write(client, "register", f"pair {key}", "write", [value] * 3,
                                  lambda: connection.rows("pair write", *parts)) == OK

    def _locker(self, client, connection, draw, turn, keys) -> bool:
        key, owner = draw.choice(keys), f"{client}.{turn}"
        outcome, result = self._conditional(client, connection, "acquire", key, owner)
        if outcome == OK and not result[0]:
            if result[1] in self._abandoned:
                self._conditional(client, connection, "release", key, result[1])
            return draw.randrange(4) > 0 or self._read(client, connection, "lock", key) == OK
        if outcome == FAILED:
            return False
        if outcome != OK:
            self._abandoned.add(owner)
        elif draw.randrange(4) == 0:
            self._read(client, connection, "lock", key)
        released, _ = self._conditional(client, connection, "release", key, owner)
        if released != OK:
            self._abandoned.add(owner)
        return released == OK == outcome

    def _conditional(self, client, connection, op, key, owner) -> tuple:
        return self.history.conditional(client, key, op, owner, lambda: connection.conditional(op, key, owner))

    def _read(self, client, connection, kind: str, key: str) -> str:
        if kind == "pair":
            return self.history.read(client, "register", f"pair {key}", lambda: connection.pair(key))[0]
        statement = {"register": "read", "list": "list read", "lock": "lock read"}[kind]
        return self.history.read(client, kind, key, lambda: connection.one(statement, key))[0]

    # What the test does with them.

    def slow_down(self, factor: float, but: str = "") -> None:
        """Pauses become so many times as long, but for one kind: for a node that starts, or for that kind. 1 is as before."""
        self._slower |= dict.fromkeys(self.keys, factor) | ({but: 1} if but else {})

    def run_for(self, seconds: float) -> None:
        """Runs for this time or longer; no result depends on the number of operations."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.05)

    def more(self, model: str, count: int) -> None:
        """Waits until so many more operations of a model succeeded: whatever was done to the nodes, they work."""
        goal = self.history.count(model) + count

        def reached() -> bool:
            self.check()
            return self.history.count(model) >= goal

        until(reached, f"{count} more of {model} succeeded", told=lambda: dict(self.history.errors))

    def check(self) -> None:
        assert not self._failures, self._failures[:3]
        assert not self.history.problems, self.history.problems[:3]

    def stop(self) -> None:
        """Ends all clients, each after its last answer."""
        alive = self._end()
        if alive:
            raise Late(f"without an answer: {alive}")

    def _end(self) -> list:
        """The clients without an answer."""
        self._stop.set()
        self.up.set()
        deadline = time.monotonic() + ANSWER_WITHIN_SECONDS * 4
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def read_everything(self, kinds=("register", "pair", "list", "lock")) -> None:
        """Reads every key. One that fails, as with a replica that has just come back, is read again."""
        everything = [(kind, key) for kind in kinds for key in self.keys[kind]]
        connections = [connection for of_kind in self.connections.values() for connection in of_kind]

        def read(number: int) -> None:
            kind, key = everything[number]
            until(
                lambda: self._read("last", connections[number % len(connections)], kind, key) == OK,
                f"{kind} {key} is read",
                every_seconds=0.5,
                told=lambda: dict(self.history.errors),
            )

        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            list(pool.map(read, range(len(everything))))

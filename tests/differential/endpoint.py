"""One side of the comparison, over connections of the Python driver.

The driver's connections, messages and codecs are used without its policies: nothing is retried, and an error arrives as
the server sent it. Answers come by callback, so that one thread keeps many sequences going.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable

from cassandra import ConsistencyLevel
from cassandra.connection import ConnectionBusy, DefaultEndPoint
from cassandra.io.libevreactor import LibevConnection
from cassandra.protocol import (
    RESULT_KIND_PREPARED, RESULT_KIND_ROWS, RESULT_KIND_SCHEMA_CHANGE, RESULT_KIND_SET_KEYSPACE, ExecuteMessage,
    PrepareMessage, QueryMessage)
from cassandra.query import UNSET_VALUE

from .outcome import Outcome, lost
from .raw import RawError, decode
from .step import LITERAL, PREPARED, UNSET, Step

CONNECT_SECONDS = 60
PAGES_MAX = 2_000
PREPARED_AGAIN_MAX = 50  # Cassandra's cache, once full, may drop a new statement at once
DETAILS = ("keyspace", "table", "function", "arg_types")

logging.getLogger("cassandra").setLevel(logging.CRITICAL)


class Endpoint:
    """A server, one keyspace on it, and a few connections. A sequence keeps to one connection, given by its number."""

    def __init__(self, contact: str, keyspace: str, protocol_version: int = 5, connections: int = 2):
        host, port = contact.rsplit(":", 1)
        self.contact, self.keyspace, self._version = contact, keyspace, protocol_version
        self._endpoint = DefaultEndPoint(host, int(port))
        LibevConnection.initialize_reactor()
        self._connections = [self._connect() for _ in range(connections)]
        self._lock = threading.Lock()

    def _connect(self) -> LibevConnection:
        return LibevConnection.factory(self._endpoint, CONNECT_SECONDS, protocol_version=self._version, compression=False)

    def connection(self, number: int) -> LibevConnection:
        """A usable one, made anew if it was closed. Waits, so it is not for the driver's own thread."""
        number %= len(self._connections)
        with self._lock:
            if self._connections[number].is_defunct or self._connections[number].is_closed:
                self._connections[number] = self._connect()
            return self._connections[number]

    def execute(self, text: str) -> Outcome:
        """Runs one statement and waits; for what is around the sequences."""
        done, outcomes = threading.Event(), []
        Exchange(self, Names(self.keyspace, ""), Step("around", text), lambda outcome: (outcomes.append(outcome), done.set())).start()
        return outcomes[0] if done.wait(180) else lost("no answer within 180 s")

    def submit(self, step: Step, names: Names, done: Callable[[Outcome], None]) -> None:
        """Runs a step; `done` is called once, on another thread."""
        Exchange(self, names, step, done).start()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class Names:
    """Values of the placeholders of a sequence's statements on one endpoint, and its prepared statements."""

    def __init__(self, keyspace: str, suffix: str, number: int = 0):
        self.keyspace, self.suffix, self.number = keyspace, suffix, number
        self.prepared: dict[str, Prepared] = {}

    def text(self, step: Step) -> str:
        return step.text.replace("@ks@", self.keyspace).replace("@n@", self.suffix)

    def neutral(self, text: str) -> str:
        return text.replace(self.keyspace, "@ks@")


class Prepared:
    """A prepared statement on one endpoint."""

    def __init__(self, message, description: tuple):
        self.id, self.metadata_id = message.query_id, message.result_metadata_id
        self.columns = message.column_metadata or []
        self.description = description


class Exchange:
    """The messages of one statement: prepared if need be, executed, fetched page by page."""

    def __init__(self, endpoint: Endpoint, names: Names, step: Step, done: Callable[[Outcome], None]):
        self._endpoint, self._names, self._step, self._done = endpoint, names, step, done
        self._text = names.text(step)
        self._values = None if step.values is None else [UNSET_VALUE if value is UNSET else value for value in step.values]
        self._connection: LibevConnection | None = None
        self._rows: list = []
        self._pages: list = []
        self._columns: list | None = None
        self._prepared: Prepared | None = None
        self._prepared_now = False
        self._prepared_again = 0

    def start(self) -> None:
        try:
            self._connection = self._endpoint.connection(self._names.number)
            if self._step.form == PREPARED:
                self._prepared = self._names.prepared.get(self._text)
                if self._prepared is None:
                    self._send(PrepareMessage(self._text), self._on_prepared)
                    return
            self._execute(None)
        except Exception as error:  # the connection is gone, or cannot be made
            self._finish(lost(repr(error)))

    def _execute(self, paging_state: bytes | None) -> None:
        step, timestamp = self._step, self._step.timestamp
        settings = {"serial_consistency_level": ConsistencyLevel.SERIAL, "fetch_size": step.page_size,
                    "paging_state": paging_state, "timestamp": timestamp}
        if self._prepared is not None:
            message = ExecuteMessage(self._prepared.id, self._values, ConsistencyLevel.ONE, skip_meta=bool(self._prepared.columns),
                                     result_metadata_id=self._prepared.metadata_id, **settings)
            self._send(message, self._on_answer, self._prepared.columns)
            return
        message = QueryMessage(self._text, ConsistencyLevel.ONE, **settings)
        if step.form != LITERAL:
            message.query_params = self._values
        self._send(message, self._on_answer)

    def _send(self, message, callback, columns=None) -> None:
        connection = self._connection
        with connection.lock:
            stream = connection.get_request_id()
            connection.in_flight += 1

        def answered(response):
            with connection.lock:
                connection.in_flight -= 1
            try:
                callback(response)
            except Exception as error:
                self._finish(lost(repr(error)))

        for _ in range(100):
            try:
                connection.send_msg(message, stream, answered, decoder=decode, result_metadata=columns)
                return
            except ConnectionBusy:
                time.sleep(0.01)
        raise ConnectionBusy(self._endpoint.contact)

    def _on_prepared(self, response) -> None:
        if not self._ok(response):
            return
        if response.kind != RESULT_KIND_PREPARED:
            self._finish(Outcome("nonsense", message=f"kind {response.kind} to PREPARE"))
            return
        neutral = self._names.neutral
        markers = tuple((neutral(keyspace), table, name, neutral(kind)) for keyspace, table, name, kind in response.bind_metadata)
        self._prepared = Prepared(response, (markers, tuple(response.pk_indexes or ()), self._described(response.column_metadata)))
        self._names.prepared[self._text] = self._prepared
        self._prepared_now = self._prepared_again == 0
        self._execute(None)

    def _described(self, columns) -> tuple:
        return tuple((name, self._names.neutral(kind)) for _, _, name, kind in columns or ())

    def _on_answer(self, response) -> None:
        if isinstance(response, RawError) and response.unprepared and self._prepared_again < PREPARED_AGAIN_MAX:
            self._prepared_again += 1  # the schema changed, or the cache is full; drivers prepare again
            self._send(PrepareMessage(self._text), self._on_prepared)
            return
        if not self._ok(response):
            return
        if response.kind == RESULT_KIND_ROWS:
            self._on_rows(response)
        elif response.kind == RESULT_KIND_SCHEMA_CHANGE:
            event = response.schema_change_event
            self._finish(Outcome("schema", detail=tuple(self._names.neutral(str(event.get(key))) for key in
                                                        ("target_type", "change_type", "keyspace", "table", "type"))))
        else:
            self._finish(Outcome("keyspace" if response.kind == RESULT_KIND_SET_KEYSPACE else "void"))

    def _on_rows(self, response) -> None:
        if self._columns is None:
            self._columns = response.columns
        if self._prepared is not None and response.result_metadata_id:
            self._prepared.metadata_id, self._prepared.columns = response.result_metadata_id, response.column_metadata
        self._rows += response.parsed_rows
        self._pages.append(len(response.parsed_rows))
        if response.paging_state and len(self._pages) < PAGES_MAX:
            self._execute(response.paging_state)
            return
        self._finish(Outcome("rows", self._described(self._columns), self._neutral_rows(), self._pages))

    def _neutral_rows(self) -> list:
        if not self._step.names_keyspace:
            return self._rows
        name = self._names.keyspace.encode()
        return [tuple(value and value.replace(name, b"@ks@") for value in row) for row in self._rows]

    def _ok(self, response) -> bool:
        """False, and done, if it is an error."""
        if isinstance(response, RawError):
            detail = None
            if isinstance(response.info, dict):
                detail = tuple(self._names.neutral(str(response.info[name])) for name in DETAILS if name in response.info)
            self._finish(Outcome("error", code=response.code, message=response.message, detail=detail))
            return False
        if isinstance(response, Exception):
            self._finish(lost(repr(response)))
            return False
        return True

    def _finish(self, outcome: Outcome) -> None:
        # Who has to prepare again, and when, is the server's: what it says then may be said of a table that was altered since.
        if self._prepared is not None and self._prepared_now:
            outcome.prepared = self._prepared.description
        done, self._done = self._done, lambda _: None
        done(outcome)

"""The answer of an endpoint to one statement."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

TRUNCATE_ERROR = 0x1003
BUSY_CODES = (0x1000, 0x1001, 0x1002, 0x1100, 0x1200, 0x1700)  # says nothing about the statement, only about load
ERROR_NAMES = {
    0x0000: "ServerError", 0x000A: "ProtocolError", 0x0100: "BadCredentials", 0x1000: "Unavailable", 0x1001: "Overloaded",
    0x1002: "IsBootstrapping", 0x1003: "TruncateError", 0x1100: "WriteTimeout", 0x1200: "ReadTimeout", 0x1300: "ReadFailure",
    0x1400: "FunctionFailure", 0x1500: "WriteFailure", 0x1600: "CDCWriteFailure", 0x1700: "CASWriteUnknown", 0x2000: "SyntaxError",
    0x2100: "Unauthorized", 0x2200: "Invalid", 0x2300: "ConfigError", 0x2400: "AlreadyExists", 0x2500: "Unprepared"}
LOST = -1  # no answer at all: the connection broke, or nothing came in time


@dataclass
class Outcome:
    """`kind` is rows, void, schema, keyspace or error. `prepared` describes markers, key positions and result columns."""

    kind: str
    columns: tuple = ()  # of (name, type)
    rows: list = field(default_factory=list)  # of tuples of bytes or None, all pages
    pages: list = field(default_factory=list)  # rows in each page
    code: int | None = None
    message: str = ""
    detail: object = None  # what the error or the schema change names
    prepared: tuple | None = None  # of a statement that was prepared for the first time

    @property
    def error(self) -> str:
        return "no answer" if self.code == LOST else ERROR_NAMES.get(self.code, f"0x{self.code or 0:04x}")

    @property
    def busy(self) -> bool:
        """True if the endpoint was too slow, so that nothing can be concluded."""
        slow = self.code in (*BUSY_CODES, LOST)
        slow |= self.code == TRUNCATE_ERROR and "timed out" in self.message.lower()
        return self.kind == "error" and slow

    def altered(self, **changes) -> Outcome:
        return replace(self, **changes)


def lost(message: str) -> Outcome:
    return Outcome("error", code=LOST, message=message)

"""One statement of a sequence, as it is run on both endpoints, kept in a file and run again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

LITERAL, BOUND, PREPARED = "literal", "bound", "prepared"


class Unset(Enum):
    """A value that is not sent (protocol v4 and later). An Enum, so that it is the same one in every process."""

    UNSET = "UNSET"


UNSET = Unset.UNSET


@dataclass
class Step:
    """`@ks@` in the text stands for the keyspace, `@n@` for what makes the names of one run of a sequence its own."""

    kind: str  # dotted, the first part is the statement: select.slice
    text: str
    form: str = LITERAL  # values in the text; sent with the text; prepared first
    values: list | None = None  # bytes, None or UNSET
    page_size: int | None = None
    timestamp: int | None = None  # the protocol's default timestamp; None lets the server choose
    reads: bool = False  # changes nothing, so it may run beside other reads and be left out when a failure is shrunk
    names_keyspace: bool = False  # the answer's text contains the keyspace's name

    def to_json(self) -> dict:
        values = {name: value for name, value in asdict(self).items() if value is not None and value is not False}  # a timestamp may be 0
        if self.values is not None:
            values["values"] = [_encoded(value) for value in self.values]
        return values

    @classmethod
    def from_json(cls, values: dict) -> Step:
        step = cls(**values)
        if step.values is not None:
            step.values = [_decoded(value) for value in step.values]
        return step

    def shown(self) -> str:
        """For people."""
        notes = []
        if self.form != LITERAL:
            notes.append(f"{self.form} [{', '.join(_brief(value) for value in self.values)}]")
        if self.page_size:
            notes.append(f"page size {self.page_size}")
        if self.timestamp is not None and not self.reads:
            notes.append(f"default timestamp {self.timestamp}")
        return self.text + (f"   -- {'; '.join(notes)}" if notes else "")


def _encoded(value):
    if value is UNSET:
        return "unset"
    return None if value is None else "0x" + value.hex()


def _decoded(text):
    if text == "unset":
        return UNSET
    return None if text is None else bytes.fromhex(text[2:])


def _brief(value) -> str:
    text = str(_encoded(value))
    return text if len(text) <= 80 else f"{text[:76]}... ({len(value)} bytes)"

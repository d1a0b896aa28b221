"""A history: what clients asked, when, and what they know of the outcome, as lines of JSON."""

import json
import time
from collections import Counter
from pathlib import Path

from cassandra import RequestValidationException, Unavailable
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, RequestValidationException as RequestRefused

OK, FAILED, INDETERMINATE = "ok", "failed", "indeterminate"


class NotDone(Exception):
    """A refusal that is an outcome of the statement: nothing was done, and nothing will be."""


def outcome_of(error: Exception, conditional: bool) -> str:
    """The outcome of a write by its error. Every error that does not promise "not executed" leaves it open.

    A conditional statement may be Unavailable for its last phase, when it has been decided already.
    """
    promised = isinstance(error, (NotDone, OverloadedErrorMessage, IsBootstrappingErrorMessage)) or isinstance(error, Unavailable) and not conditional
    return FAILED if promised else INDETERMINATE


class History:
    """Operations as they are recorded by any number of threads. Times are ns of the monotonic clock since it began."""

    def __init__(self, name: str, **config):
        self.name, self.config = name, config
        self.began = time.monotonic_ns()
        self.began_at = time.time()
        self.lines = []
        self.events = []
        self.crashes = []  # (from, to) of kills of everything that has data
        self.errors = Counter()
        self.problems = []  # what no fault explains: a statement that the server did not understand

    def now(self) -> int:
        return time.monotonic_ns() - self.began

    def note(self, event: str) -> None:
        """Notes an action of the test on the nodes, which is printed with the verdict."""
        self.events.append(f"{self.now() / 1e6:.0f} ms: {event}")

    def crash(self, kill) -> None:
        """Kills all that has data. What was seen of a write that was under way may be gone then."""
        begun = self.now()
        self.note("killed")
        kill()
        self.crashes.append((begun, self.now()))

    def read(self, client: str, model: str, key: str, execute) -> "tuple[str, object]":
        """Executes a read and records what it found. (outcome, value)"""
        return self._operation(client, model, key, "read", None, execute, lambda found: {"value": found})

    def write(self, client: str, model: str, key: str, op: str, value, execute) -> str:
        """Executes a write and records it. The outcome."""
        return self._operation(client, model, key, op, value, execute, lambda _: {})[0]

    def conditional(self, client: str, key: str, op: str, owner: str, execute) -> "tuple[str, object]":
        """Executes a conditional statement on a lock; `execute` gives (applied, owner found), and where locks have fences the holder's
        as a third. (outcome, that)"""
        return self._operation(client, "lock", key, op, owner, execute, lambda result: dict(zip(("applied", "found", "fence"), result)))

    def may_be_given_back(self, client: str, key: str, owner: str, since: int) -> None:
        """Notes that the server itself may release the grant of a client that is gone, at any later time or never."""
        self.lines.append({"model": "lock", "key": key, "client": client, "op": "release", "value": owner, "call": since, "return": self.now(),
                           "outcome": INDETERMINATE, "error": "nobody sent it: the lock of a client that is gone"})

    def doubt(self, op: str, spans: list, within_ms: int) -> None:
        """Operations that were under way, or answered, so close to one of these (from, to) may have
        come to nothing, whatever was said of them."""
        around = within_ms * 1_000_000
        for line in self.lines:
            if (
                line["op"] == op
                and line["outcome"] == OK
                and any(
                    line["call"] - around <= to and since <= line["return"] + around
                    for since, to in spans
                )
            ):
                for answered in ("applied", "found", "fence"):
                    line.pop(answered, None)
                line |= {"outcome": INDETERMINATE, "error": "it may have died with who answered it"}

    def look(self, client: str, key: str, execute) -> "tuple[str, object]":
        """Executes a read of a lock that has fences; `execute` gives (owner, fence). (outcome, that)"""
        return self._operation(client, "lock", key, "read", None, execute, lambda found: dict(zip(("value", "fence"), found)))

    def _operation(self, client, model, key, op, value, execute, of_result) -> "tuple[str, object]":
        line = {"model": model, "key": key, "client": client, "op": op, "value": value, "call": self.now()}
        try:
            result = execute()
        except (RequestValidationException, RequestRefused) as error:
            self.problems.append(f"{client}, {op} of {key}: {error!r}")
            result, line["outcome"] = None, FAILED
        except Exception as error:  # of any kind: the outcome of the operation is open, and that is what is to be recorded
            result, line["outcome"] = None, outcome_of(error, conditional=model == "lock")
            line["error"] = f"{type(error).__name__}: {error}"[:200]
            self.errors[f"{op}: {type(error).__name__}"] += 1
        else:
            line |= {"outcome": OK, **of_result(result)}
        line["return"] = self.now()
        self.lines.append(line)
        return line["outcome"], result

    def count(self, model: str = None, outcome: str = OK) -> int:
        return sum(line["outcome"] == outcome and model in (None, line["model"]) for line in list(self.lines))

    def save(self, path: Path) -> None:
        # A clock that was set while the test ran decides which write is the last one.
        stepped = (time.time() - self.began_at) - self.now() / 1e9
        config = self.config | {"crashes": self.crashes, "events": self.events, "errors": dict(self.errors),
                                "clock_stepped_ms": round(stepped * 1000)}
        with open(path, "w") as out:
            for line in [{"config": config}, *self.lines]:
                out.write(json.dumps(line) + "\n")

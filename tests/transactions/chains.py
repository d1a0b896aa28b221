"""Clients that replace the value of a row by one of their own, each on the condition that the value is still the one they know.

Every value is used once. So those that were replaced make a chain: nobody's value has two successors, and all that were answered as applied
are on the way to the last value, in the order in which their clients saw them end and begin."""

import threading
import time

from cassandra import InvalidRequest
from cassandra.cluster import NoHostAvailable
from cassandra.policies import ConstantReconnectionPolicy, RetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, SyntaxException

from harness.waits import until
from locks.fleet import Threads

from .conftest import connected, once_served, prepared

FIRST = "first"
# Of a client between two requests, so that nodes, proxies and clients do not take both processors
# while the test waits for something else.
PAUSE_SECONDS = 0.02


class Once(RetryPolicy):
    """Asks again what was certainly not executed, and nothing else."""

    def on_request_error(self, query, consistency, error, retry_num):
        if isinstance(error, (IsBootstrappingErrorMessage, OverloadedErrorMessage)) and retry_num < 10:
            return self.RETRY_NEXT_HOST, consistency
        return self.RETHROW, None


def has_written_nothing(error):
    """True if all hosts say so that were asked. The errors of OperationTimedOut are those of hosts
    that were asked before the one that was late."""
    errors = error.errors.values() if isinstance(error, NoHostAvailable) else [error]
    return all(isinstance(one, (IsBootstrappingErrorMessage, OverloadedErrorMessage)) for one in errors)


class Chains(Threads):
    def __init__(self, fleet, table, rows, clients):
        self.table, self.rows = table, rows
        self.session = fleet.connect(timeout_seconds=8, heartbeat_seconds=2, reconnection_policy=ConstantReconnectionPolicy(1))
        self.replace = prepared(self.session, f"UPDATE {table} SET owner = ? WHERE name = ? IF owner = ?")
        self.replace.retry_policy = Once()
        self.guard = threading.Lock()
        # (row, value before, value, begun, ended or None, applied or None if nobody knows)
        self.asked, self.count, self.errors, self.faults = [], 0, {}, []
        self.known = dict.fromkeys(rows, FIRST)
        self.threads = [threading.Thread(target=self.go_on, args=(number,), daemon=True) for number in range(clients)]

    def __exit__(self, *_):
        super().__exit__()
        self.session.cluster.shutdown()

    def begin(self):
        for row in self.rows:
            insert = f"INSERT INTO {self.table} (name, owner) VALUES (%s, %s)"
            once_served(self.session, insert, (row, FIRST))
        return self

    def go_on(self, number):
        turn = 0
        while self.going:
            turn += 1
            row = self.rows[(number + turn) % len(self.rows)]
            before, value = self.known[row], f"{number}-{turn}"
            begun = time.monotonic()
            try:
                found = self.session.execute(self.replace, (value, row, before)).one()
            except (InvalidRequest, SyntaxException) as error:
                self.faults.append(repr(error))
                return
            except Exception as error:  # noqa: BLE001 (every error that a fault causes is one that clients get)
                refused = has_written_nothing(error)
                kind = f"{type(error).__name__}: {getattr(error, 'errors', error)}"[:200]
                with self.guard:
                    self.errors[kind] = self.errors.get(kind, 0) + 1
                    if not refused:
                        self.asked.append((row, before, value, begun, None, None))
                time.sleep(0.05)
                continue
            applied, ended = found["[applied]"], time.monotonic()
            with self.guard:
                self.asked.append((row, before, value, begun, ended, applied))
                self.count += applied
            if not applied and "owner" not in found:
                self.faults.append(f"{row} is gone: {found}")
                return
            self.known[row] = value if applied else found["owner"]
            time.sleep(PAUSE_SECONDS)

    def wait_for(self, more):
        """Until so many more were applied."""
        wanted = self.count + more

        def is_there():
            assert not self.faults, self.faults[:3]
            return self.count >= wanted

        until(is_there, f"{wanted} were applied", every_seconds=0.05,
              told=lambda: f"{self.count} were; {self.errors}")

    def check(self, session):
        """Once all have ended. Returns how many were applied, and of how many nobody was told."""
        assert not self.faults, self.faults[:3]
        for row in self.rows:
            last = session.execute(f"SELECT owner FROM {self.table} WHERE name = %s", (row,)).one()["owner"]
            check(row, [one for one in self.asked if one[0] == row], last)
        return sum(one[5] is True for one in self.asked), sum(one[5] is None for one in self.asked)


def check_at_rest(fleet, chains):
    """Once they have ended."""
    with connected(fleet) as session:
        applied, in_doubt = chains.check(session)
    print(f"{applied} applied, {in_doubt} in doubt, {chains.errors}")
    assert applied > 100


def check(row, asked, last):
    by_value = {value: one for one in asked for value in [one[2]]}
    assert len(by_value) == len(asked), "every value is used once"
    # From the last value back to the first.
    chain, value = [], last
    while value != FIRST:
        assert value in by_value, f"{row}: nobody has written {value}"
        chain.append(by_value[value])
        assert by_value[value][5] is not False, f"{row}: {value} is there, and was answered as not applied"
        value = by_value[value][1]
    assert len(set(map(id, chain))) == len(chain)
    on_chain = {one[2] for one in chain}
    lost = [one for one in asked if one[5] is True and one[2] not in on_chain]
    assert not lost, f"{row}: {len(lost)} were applied, and are lost: {lost[:3]}; the last is {last}"
    # What ended before another began comes before it.
    latest_begin = float("inf")
    for one in chain:  # the last first
        ended = one[4]
        if one[5] is True:
            assert one[3] <= latest_begin
        latest_begin = min(latest_begin, ended if ended is not None else float("inf"))

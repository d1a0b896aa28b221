"""Waits until each core of each proxy of a fleet knows the rules of shunt.guards, or their end.

Each core reads the rules for itself, every two seconds, and a client's writes go by what the core
of its connection has read. The core that decides is one of these cores."""

from harness import cql
from harness.waits import until

from .known import INVALID, UNSERVED, Clients

RULED = ("the rule of shunt.guards", "takes part in no transactions")


def wait_until_ruled(fleet, rows, clients=Clients):
    """Waits until each core refuses a plain write to these tables. `rows` has a row of each table
    that nobody needs: a core that does not know the rule yet deletes it."""
    wait_for_each_client(fleet, rows, clients, True, "knows the rule of")


def wait_until_unruled(fleet, rows, clients=Clients):
    """Waits until no core refuses such a write."""
    wait_for_each_client(fleet, rows, clients, False, "knows no rule of")


def wait_for_each_client(fleet, rows, clients, answer, what):
    with clients(fleet.proxies) as connected:
        for client in connected.all:
            for table, row in rows.items():
                until(lambda: is_refused(client, table, row) is answer,  # noqa: B023
                      f"a core {what} {table}")


def is_refused(client, table, row):
    """True if a rule refuses a plain write, False if the write is done, None if nobody serves it."""
    try:
        client.query(f"DELETE FROM {table} WHERE {row}", cql.QUORUM)
    except cql.CqlError as error:
        if error.code in UNSERVED:
            return None
        assert error.code == INVALID and any(part in error.message for part in RULED), error
        return True
    return False

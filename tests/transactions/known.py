"""Waits until each core of each proxy of a fleet knows the mode of a table, or the nodes' schema.

Each core reads the modes for itself, every two seconds, and a client's statements go by what the
core of its connection has read. So a client of its own asks each core."""

import json
import re
from contextlib import ExitStack

from harness import cql
from harness.waits import until

from .conftest import connected

INVALID = 0x2200
# Unavailable, overloaded, bootstrapping, and the time-outs: the next try may be served.
UNSERVED = (0x1000, 0x1001, 0x1002, 0x1100, 0x1200)
# Nodes take a timestamp. Proxies refuse it on a table whose statements they take.
TIMED = "DELETE FROM {} USING TIMESTAMP 1 WHERE {}"
PLAIN = "DELETE FROM {} WHERE {}"
CONDITIONAL = "DELETE FROM {} WHERE {} IF EXISTS"
COMPARED = ("same", "different", "not_compared")
OBSERVATION = re.compile(
    r'^shunt_transaction_observations_total{[^}]*result="(\w+)"[^}]*} (\d+)', re.MULTILINE)


class Clients:
    """A client of each core of each proxy. No other client may come or go while these connect."""

    def __init__(self, proxies):
        self.open = ExitStack()
        self.all = []
        with ExitStack() as unless_all:
            unless_all.callback(self.open.close)
            for one in proxies:
                self.connect(one)
            unless_all.pop_all()

    def connect(self, one):
        """Connects until each core has a client. A connection goes to the core with the fewest."""
        before = clients_by_core(one)

        def reaches_all():
            client = cql.Session(one.host, one.port, timeout_seconds=60)
            self.all.append(self.open.enter_context(client))
            now = clients_by_core(one)
            return all(now[core] > count for core, count in before.items())

        until(reaches_all, f"a client of each core of {one.listen}", every_seconds=0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open.close()


def page(one, path):
    return until(lambda: one.get(path)[1], f"{path} of {one.listen}")


def status(one):
    return json.loads(page(one, "/status"))


def clients_by_core(one):
    return {core["core"]: core["clients"] for core in status(one)["cores"]}


def said(client, text):
    """The code of the error that answers a statement, or 0 if there is none."""
    try:
        client.query(text, cql.QUORUM)
    except cql.CqlError as error:
        return error.code
    return 0


def wait_until_taken(fleet, *tables, where="name = 'nobody'", proxies=None):
    """Waits until each core, of these proxies or all, takes the statements on these tables and
    serves them. The tables have the mode `conditional`, `full` or `mixed_reads`."""
    def is_taken(client, table):
        timed = said(client, TIMED.format(table, where))
        assert timed in (0, INVALID, *UNSERVED), hex(timed)
        return timed == INVALID and said(client, PLAIN.format(table, where)) == 0

    wait_for_each_client(proxies or fleet.proxies, tables, is_taken, "takes the statements on")


def wait_until_left_to_nodes(fleet, *tables, where="name = 'nobody'"):
    """Waits until each core leaves the statements on these tables to nodes, and refuses none."""
    def is_left(client, table):
        return said(client, TIMED.format(table, where)) == 0

    wait_for_each_client(fleet.proxies, tables, is_left, "leaves to nodes the statements on")


def wait_until_observed(fleet, *tables, where="name = 'nobody'"):
    """Waits until each core knows that these tables have the mode `observe`, and their owner
    compares. Nobody else may write to these tables meanwhile."""
    def is_counted(text, result):
        def is_counted_for(client, table):
            before = observed(fleet)[result]
            is_answered = said(client, text.format(table, where)) == 0
            return is_answered and observed(fleet)[result] == before + 1
        return is_counted_for

    for text, result in ((TIMED, "not_compared"), (CONDITIONAL, "same")):
        what = f"has counted as {result} a statement on"
        wait_for_each_client(fleet.proxies, tables, is_counted(text, result), what)


def observed(fleet):
    """The counts of all proxies together, for statements on tables with the mode `observe`."""
    counts = dict.fromkeys(COMPARED, 0)
    for one in fleet.proxies:
        for result, count in observed_by(one).items():
            counts[result] += count
    return counts


def observed_by(one):
    return {result: int(count) for result, count in OBSERVATION.findall(page(one, "/metrics"))}


class Modes:
    """A function that waits until each core has read the modes once more. Until then, a core does not
    count an answer that differs from the one that the proxies would have given."""

    def __init__(self, fleet, table):
        self.fleet, self.table, self.is_taken = fleet, table, False
        with connected(fleet) as session:
            session.execute(f"CREATE TABLE {table} (name text PRIMARY KEY, owner text)")

    def __call__(self):
        """Changes the mode of `table`. A core that knows the new mode has read the modes since."""
        self.is_taken = not self.is_taken
        mode = "mixed_reads" if self.is_taken else "off"
        with connected(self.fleet) as session:
            session.execute(f"ALTER TABLE {self.table} WITH transactional_mode = '{mode}'")
        wait = wait_until_taken if self.is_taken else wait_until_left_to_nodes
        wait(self.fleet, self.table)


def wait_for_each_client(proxies, tables, is_so, what):
    with Clients(proxies) as clients:
        for number, client in enumerate(clients.all):
            for table in tables:
                named = f"client {number} of {len(clients.all)}: its core {what} {table}"
                until(lambda: is_so(client, table), named)  # noqa: B023 (within this round)


def wait_until_schema_is_known(fleet):
    """Waits until each proxy has read the nodes' present schema, and told it to its cores."""
    host, port = fleet.contact_points.split(",")[0].rsplit(":", 1)
    with cql.Session(host, int(port), timeout_seconds=60) as node:
        local = node.query("SELECT schema_version FROM system.local")
    version = str(local[0]["schema_version"])
    for one in fleet.proxies:
        until(lambda: status(one)["ring"]["schema_version"] == version,  # noqa: B023
              f"{one.listen} knows the schema {version}")

"""Tables with the mode `observe`: nodes decide what is asked, and it is counted whether the proxies would have answered the same."""

import os
import re
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.policies import FallthroughRetryPolicy
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage
from cassandra.query import BatchStatement, SimpleStatement

from differential.endpoint import Endpoint, Names
from differential.step import Step
from harness.waits import Late, unpaused, until

from .chains import Chains, check_at_rest
from .conftest import KEYSPACE, answered, connected, insistent, prepare
from .known import COMPARED, Modes, observed, wait_until_observed
from .test_conditional import LEASES, ROWS, change_mode, name
from .test_conditional_answers import TABLE, Maker, ask

STATEMENTS = int(os.environ.get("SHUNT_OBSERVED_STATEMENTS", "300"))
SEED = int(os.environ.get("SHUNT_OBSERVED_SEED", "1"))
# A proxy gives a node up that has said nothing for 4 s.
REFUSED_WITHIN_SECONDS = 3


class Counted:
    """Counts since the start of the block."""

    def __init__(self, fleet):
        self.fleet, self.before = fleet, observed(fleet)

    def __call__(self, result):
        return observed(self.fleet)[result] - self.before[result]

    def all(self):
        now = observed(self.fleet)
        return {result: now[result] - self.before[result] for result in COMPARED}

    def wait_until_compared(self, times):
        """Clients go on meanwhile: an owner that has just learnt of the mode compares from ten
        seconds later on."""
        until(lambda: self("same") >= times, f"{times} answers are compared", told=self.all)

    def wait_for_all(self, times):
        """The counts after this many statements. A core counts an answer that differs once it has read
        the modes again, and every other answer at once."""
        def found():
            now = self.all()
            return now if sum(now.values()) >= times else None

        return until(found, f"{times} answers are counted", told=self.all)


@pytest.fixture(scope="module")
def watched(fleet, nodes):
    """(leases, rows, made-up statements' table): observed; the last of nodes beside it."""
    with connected(fleet) as session:
        prepare(session, nodes[1])
        names = [name() for _ in range(4)]
        for table, text in zip(names, [LEASES, ROWS, TABLE, TABLE]):
            session.execute(text.format(table))
        change_mode(session, "observe", names[:3])
        wait_until_observed(fleet, names[0])
        # A driver that waits for schema agreement may have changed one mode long after another.
        wait_until_observed(fleet, names[2], where="name = 'nobody' AND part = 0")
        yield names


@pytest.fixture(scope="module")
def read_modes(fleet, watched):
    return Modes(fleet, name())


def test_no_answer_differs(fleet, watched, read_modes, nodes):
    """Made-up statements: answers are those that the proxies would have given, and those that an embedded node gives on another table. On a ring
    such a table may come to be another one: which of a plain and a conditional write is the later one hangs on the clocks of nodes."""
    has_pair = nodes[1] == 1
    maker, counted = Maker(SEED), Counted(fleet)
    endpoints = [Endpoint(f"{one.host}:{one.port}", KEYSPACE, version, connections=1)
                 for one, version in zip(fleet.proxies, (4, 5))]
    names = [[Names(KEYSPACE, table.split(".")[1]) for table in watched[2:]] for _ in endpoints]
    conditional = wrong = 0
    try:
        for number in range(STATEMENTS):
            step, at = maker.step(), number % 2
            seen = ask(endpoints[at], names[at][0], step)
            plain = ask(endpoints[at], names[at][1], step) if has_pair else seen
            shown = f"statement {number} of seed {SEED}: {step.shown()}\nthrough the proxies: {seen}\nof nodes: {plain}"
            assert (seen.kind, seen.columns, seen.rows, seen.code) == (plain.kind, plain.columns, plain.rows, plain.code), shown
            conditional += seen.kind == "rows"
            wrong += seen.kind == "error"
            if has_pair and number % 50 == 49:
                rows = [ask(endpoints[0], of, Step("select", "SELECT * FROM @ks@.@n@", reads=True)) for of in names[0]]
                assert sorted(map(str, rows[0].rows)) == sorted(map(str, rows[1].rows)), shown
    finally:
        for endpoint in endpoints:
            endpoint.close()
    read_modes()
    counts = counted.all()
    print(f"{conditional} conditional, {wrong} wrong of {STATEMENTS}: {counts}")
    assert counts["different"] == 0 and conditional > STATEMENTS / 3
    # A row of which only the key is left may go at any time, so that nothing is said of it.
    assert counts["same"] + counts["not_compared"] >= conditional and counts["not_compared"] < conditional / 4 + wrong


def test_writes_past_the_proxies_are_reported(fleet, session, watched, past_the_proxies):
    table, row, counted = watched[0], f"past-{uuid.uuid4().hex[:6]}", Counted(fleet)
    replace = session.prepare(f"UPDATE {table} SET owner = ? WHERE name = ? IF owner = ?")
    assert session.execute(f"INSERT INTO {table} (name, owner) VALUES ('{row}', 'a') IF NOT EXISTS").one()["[applied]"]
    assert session.execute(replace, ("b", row, "a")).one()["[applied]"]
    assert (counted("same"), counted("different")) == (2, 0)
    assert past_the_proxies.execute(f"UPDATE {table} SET owner = 'x' WHERE name = '{row}' IF owner = 'b'").one()["[applied]"]
    # The node's answer is what counts, and from it on the row is known as it is.
    assert session.execute(replace, ("c", row, "b")).one() == {"[applied]": False, "owner": "x"}
    assert session.execute(replace, ("c", row, "x")).one() == {"[applied]": True}
    assert counted.wait_for_all(4) == {"same": 3, "different": 1, "not_compared": 0}

    def logs():
        return [one.log.read_text(errors="replace") for one in fleet.proxies]

    # It is counted, and then it is logged.
    until(lambda: any("a node's answer differs from the proxies'" in log and table in log for log in logs()), "the log tells of it", told=logs)


@pytest.mark.parametrize("statement", [
    "INSERT INTO {} (name, owner) VALUES ('r', 'a') USING TIMESTAMP 5",
    "UPDATE {} SET owner = 'a' WHERE name IN ('r', 's')",
    "INSERT INTO {} JSON '{{\"name\": \"r\", \"owner\": \"a\"}}'",
    "UPDATE {} SET until = to_timestamp(now()), owner = 'a' WHERE name = 'r' IF owner = null",
    "BEGIN BATCH INSERT INTO {} (name, owner) VALUES ('r', 'a') IF NOT EXISTS APPLY BATCH",
    "BEGIN BATCH INSERT INTO {} (name, owner) VALUES ('r', 'a') APPLY BATCH",
])
@pytest.mark.parametrize("prepared", [False, True], ids=["text", "prepared"])
def test_statements_that_conditional_would_refuse_are_carried_out(fleet, session, watched, statement, prepared):
    table, counted = watched[0], Counted(fleet)
    session.execute(f"TRUNCATE {table}")
    statement = statement.format(table)
    session.execute(session.prepare(statement) if prepared else statement)
    assert session.execute(f"SELECT owner FROM {table} WHERE name = 'r'").one() == {"owner": "a"}
    assert counted.all() == {"same": 0, "different": 0, "not_compared": 1}
    # Whatever it has changed, nothing is said by what was known before.
    assert session.execute(f"UPDATE {table} SET owner = 'b' WHERE name = 'r' IF owner = 'a'").one() == {"[applied]": True}
    assert counted.wait_for_all(2)["different"] == 0


@pytest.mark.parametrize("statement", [
    "INSERT INTO {table} (name, owner) VALUES ('{row}', 'z') USING TIMESTAMP {now}",
    "UPDATE {table} USING TIMESTAMP {now} SET owner = 'z' WHERE name = '{row}'",
    "UPDATE {table} SET owner = 'z' WHERE name IN ('{row}', 'another')",
    "INSERT INTO {table} JSON '{{\"name\": \"{row}\", \"owner\": \"z\"}}'",
    "UPDATE {table} SET until = to_timestamp(now()), owner = 'z' WHERE name = '{row}'",
    "TRUNCATE {table}",
])
@pytest.mark.parametrize("prepared", [False, True], ids=["text", "prepared"])
def test_statements_that_conditional_would_refuse_make_no_difference(fleet, session, watched, statement, prepared):
    """A row that the owner knows is changed by it."""
    table, owner = watched[0], None if statement.startswith("TRUNCATE") else "z"

    def same():
        """Asserts that the answers about another row are the same."""
        row, counted = f"known-{uuid.uuid4().hex[:6]}", Counted(fleet)
        insert = f"INSERT INTO {table} (name, owner) VALUES ('{row}', 'a') IF NOT EXISTS"
        assert session.execute(insert).one()["[applied]"]
        text = statement.format(table=table, row=row, now=int(time.time() * 1_000_000) + 1_000)
        session.execute(session.prepare(text) if prepared else text)
        update = f"UPDATE {table} SET owner = 'b' WHERE name = '{row}' IF owner = %s"
        assert session.execute(update, (owner,)).one() == {"[applied]": True}
        found = counted.wait_for_all(2 if owner is None else 3)
        assert found["different"] == 0
        return found["same"]

    # Nothing is said for want of an answer in time, on a machine with much to do: then once more.
    until(lambda: same() == 2, "both answers are compared")


def test_batches_of_the_protocol_are_carried_out(fleet, session, watched):
    table, counted = watched[0], Counted(fleet)
    session.execute(f"TRUNCATE {table}")
    batch = BatchStatement()
    batch.add(SimpleStatement(f"INSERT INTO {table} (name, owner) VALUES ('b', 'a')"))
    batch.add(session.prepare(f"UPDATE {table} SET fence = ? WHERE name = 'b'"), (7,))
    session.execute(batch)
    assert session.execute(f"SELECT owner, fence FROM {table} WHERE name = 'b'").one() == {"owner": "a", "fence": 7}
    assert counted.all() == {"same": 0, "different": 0, "not_compared": 1}


@pytest.mark.parametrize("statement, shown", [
    ("BEGIN TRANSACTION UPDATE {} SET owner = 'a' WHERE name = 'r'; COMMIT TRANSACTION", "no batch and no transaction"),
    ("INSERT INTO {} (name, nothing) VALUES ('r', 1) IF NOT EXISTS", "nothing"),
    ("UPDATE {} SET owner = 'a' WHERE name = 'r' IF name = 'r'", "PRIMARY KEY"),
])
def test_errors_are_those_of_nodes(session, watched, statement, shown):
    with pytest.raises(InvalidRequest, match=shown):
        session.execute(statement.format(watched[0]))


def test_a_clients_own_parameters_count(session, watched):
    """Timestamps and consistency levels go to the node as they came."""
    table = watched[0]
    session.execute(f"TRUNCATE {table}")
    insert = session.prepare(f"INSERT INTO {table} (name, owner) VALUES (?, 'a')")
    before = int(time.time() * 1_000_000)
    bound = insert.bind(("r",))
    bound.consistency_level = ConsistencyLevel.ONE
    session.execute(bound)
    written = session.execute(f"SELECT WRITETIME(owner) AS at FROM {table} WHERE name = 'r'").one()["at"]
    assert before <= written <= int(time.time() * 1_000_000), "the driver's own clock"
    three = SimpleStatement(f"UPDATE {table} SET owner = 'b' WHERE name = 'r' IF owner = 'a'", consistency_level=ConsistencyLevel.THREE)
    try:
        assert session.execute(three).one()["[applied]"]
    except Exception as error:  # noqa: BLE001 (a ring of one node has its own words for it)
        assert "THREE" in repr(error) or "alive" in repr(error), error


@pytest.mark.parametrize("statement", [
    "INSERT INTO {} (name, owner) VALUES (?, 'a') IF NOT EXISTS",
    "INSERT INTO {} (name, owner) VALUES (?, 'a')",
    "INSERT INTO {} (name, owner) VALUES (?, 'a') USING TIMESTAMP 5",
])
def test_no_statement_is_refused_while_nodes_are_slow(fleet, session, nodes, watched, statement):
    """More observations come than the owner sends at once: the others wait, as they do at a node."""
    if nodes[1] != 1:
        pytest.skip("for an embedded node, which is stopped for a while")
    insert = session.prepare(statement.format(watched[0]))
    insert.retry_policy = FallthroughRetryPolicy()
    answered(lambda: session.execute(insert, ("warm",)), IsBootstrappingErrorMessage, "the first statement")
    node = embedded(nodes[0])

    def ask_of_one_that_stands_still():
        begun, refused = time.monotonic(), []

        def note(error):
            if isinstance(error, OverloadedErrorMessage):
                refused.append(time.monotonic())

        os.kill(node, signal.SIGSTOP)
        try:
            rows = [f"slow-{uuid.uuid4().hex}" for _ in range(600)]
            asked = [session.execute_async(insert, (row,)) for row in rows]
            for one in asked:
                one.add_errback(note)
            # Longer than a proxy asks again by itself what it could not serve, less than a lease.
            time.sleep(1.2)
        finally:
            os.kill(node, signal.SIGCONT)
        for one in asked:
            try:
                one.result()
            except IsBootstrappingErrorMessage as error:
                # Its lease was about to end when the node stood still, or it stood still itself.
                assert re.search("not reached a quorum|was paused", str(error)), error
            except OverloadedErrorMessage as error:
                # Nobody but a node that stands still for longer, by itself, is given up so late.
                if min(refused, default=time.monotonic()) - begun < REFUSED_WITHIN_SECONDS:
                    raise
                raise Late("the node stood still for longer") from error

    # What a statement is refused for after a longer time is its deadline.
    unpaused(ask_of_one_that_stands_still, pause_seconds=2)
    fleet.wait_until_settled(len(fleet.proxies))


def embedded(contact):
    """The process of an embedded node."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:4] == [b"node", b"--listen", contact.encode()]:
            found.append(int(process.name))
    [pid] = found
    return pid


def test_writes_hidden_by_a_later_timestamp_make_no_difference(fleet, watched, read_modes):
    """Nodes say that a statement is applied which a value in the future hides, and so do the proxies. What the row is then they do not keep."""
    table = watched[0]

    def same():
        counted = Counted(fleet)
        value, deletion = (f"future-{uuid.uuid4().hex[:6]}" for _ in range(2))
        session.execute(f"INSERT INTO {table} (name, owner) VALUES ('{value}', 'a')")
        session.execute(f"DELETE FROM {table} WHERE name = '{deletion}'")
        for _ in range(4):
            session.execute(f"UPDATE {table} SET owner = 'b' WHERE name = '{value}' IF owner = 'a'")
            session.execute(f"INSERT INTO {table} (name, owner) VALUES ('{deletion}', 'a') IF NOT EXISTS")
        read_modes()
        print(counted.all())
        assert counted("different") == 0
        return counted("same")

    with connected(fleet) as session:
        session.timestamp_generator = lambda: int((time.time() + 6) * 1_000_000)
        # Nothing is said for want of an answer in time, on a busy machine: then once more.
        until(lambda: same() == 8, "all answers are compared")


def test_values_that_expire_make_no_difference(fleet, session, watched, read_modes):
    """A value that expires between the look at it and the node's decision."""
    table, counted = watched[0], Counted(fleet)
    insert = session.prepare(f"INSERT INTO {table} (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 2")
    rows, applied = [f"life-{number}" for number in range(20)], [0]

    def insert_all():
        applied[0] += sum(session.execute(insert, (row, "a")).one()["[applied]"] for row in rows)
        return applied[0] >= 3 * len(rows)

    until(insert_all, "values have expired", every_seconds=0, told=lambda: applied)
    read_modes()
    assert counted("different") == 0


def test_the_mode_changes_under_load(fleet, session, read_modes):
    """From nodes to proxies and back, with `observe` between them and without. What was answered as
    applied stays so, whoever has decided it."""
    by_observe, directly = name(), name()
    different = Counted(fleet)
    for table in (by_observe, directly):
        session.execute(LEASES.format(table))
    both = [Chains(fleet, table, ["a", "b"], 4).begin() for table in (by_observe, directly)]
    with both[0], both[1]:
        for mode in ("observe", "conditional", "observe", "off"):
            mode_directly = "conditional" if mode == "conditional" else "off"
            for chains in both:
                chains.wait_for(50)
            session.execute(f"ALTER TABLE {directly} WITH transactional_mode = '{mode_directly}'")
            change_mode(session, mode, [by_observe])
            change_mode(session, mode_directly, [directly])
            for chains in both:
                chains.wait_for(50)
            if mode == "observe":
                Counted(fleet).wait_until_compared(50)
    for chains in both:
        check_at_rest(fleet, chains)
    read_modes()
    assert different("different") == 0


def test_nothing_is_compared_while_a_proxy_may_not_know_of_the_mode(fleet, session, watched, read_modes):
    """Each proxy has set the mode of some tables, so that it knows of these at once; the owner, and the third, learn of them seconds later."""
    sessions = [insistent(fleet.connect(to=number)) for number in range(3)]
    tables = [name() for _ in range(6)]
    for table in tables:
        session.execute(LEASES.format(table))
        session.execute(f"INSERT INTO {table} (name, owner) VALUES ('r', '0')")
    replaces = [[one.prepare(f"UPDATE {table} SET owner = ? WHERE name = 'r' IF owner = ?") for one in sessions] for table in tables]
    counted, turn = Counted(fleet), 0
    changed = [sessions[number % 3].execute_async(f"ALTER TABLE {table} WITH transactional_mode = 'observe'") for number, table in enumerate(tables)]
    [one.result() for one in changed]
    with ThreadPoolExecutor(1) as pool:
        all_know = pool.submit(read_modes)
        while not all_know.done() or turn < 30:
            turn += 1
            for replace in replaces:
                at = turn % 3
                found = sessions[at].execute(replace[at], (str(turn), str(turn - 1))).one()
                assert found == {"[applied]": True}
        all_know.result()
    read_modes()
    assert counted("different") == 0
    if not counted("not_compared"):
        raise Late("nobody asked anything before all proxies knew the modes")
    [one.cluster.shutdown() for one in sessions]


@pytest.mark.parametrize("made, shown", [
    ("(k int PRIMARY KEY, n counter)", "counters"),
    ("(k int PRIMARY KEY, v int) WITH default_time_to_live = 5", "default_time_to_live"),
])
def test_tables_that_could_not_be_decided_are_not_observed(session, made, shown):
    table = name()
    session.execute(f"CREATE TABLE {table} {made}")
    with pytest.raises(InvalidRequest, match=f"'observe'.*{shown}"):
        session.execute(f"ALTER TABLE {table} WITH transactional_mode = 'observe'")
    session.execute(f"DROP TABLE {table}")

"""The harness itself, without a server: generation, comparison, files. And with a Cassandra, whether it sees what is planted.

SHUNT_CASSANDRA (host:port) names the server; the tests that need one are skipped without it.
"""

import math
import os
import pickle
import queue
import struct
from collections import Counter

import pytest
from cassandra import OperationTimedOut

from differential import expected, multiget, plant, report, workers
from differential.compare import compare
from differential.outcome import Outcome, lost
from differential.runner import Failure, Runner
from differential.sequence import KINDS, Sequence
from differential.shrink import Shrinker
from differential.step import BOUND, LITERAL, PREPARED, UNSET, Step
from harness import waits

SELECT = Step("select.all", "SELECT * FROM t", reads=True)


def rows(*values, column="v", pages=None):
    return Outcome("rows", ((column, "int"),), [(value,) for value in values], pages or [len(values)])


def test_a_report_shows_where_long_answers_differ():
    long = b"x" * 500
    ours, theirs = rows(*[b"same"] * 40, long + b" a " + long), rows(*[b"same"] * 40, long + b" b " + long)
    shown = report.describe(theirs, ours)
    assert " b x" in shown and "38 rows before these" in shown and shown.count("\n") == 4


def test_pages_may_end_early_where_elements_were_deleted():
    step = Step("select.filtering", "SELECT v FROM t WHERE s CONTAINS 1 ALLOW FILTERING", reads=True, page_size=2)
    found = [expected.find(compare(step, ours, theirs), Counter())
             for ours, theirs in ((rows(b"1", b"2", pages=[2, 0]), rows(b"2")), (rows(b"1", b"2", pages=[2, 0]), rows(b"3")))]
    assert [entry and entry.name for entry in found] == ["deleted element", None]


@pytest.mark.parametrize("number", range(2))
def test_a_sequence_is_a_function_of_seed_and_number(number):
    first, again = (Sequence(7, number).steps() for _ in range(2))
    assert [step.to_json() for step in first] == [step.to_json() for step in again]
    assert [step.to_json() for step in first] != [step.to_json() for step in Sequence(8, number).steps()]


def test_every_kind_and_every_form_is_drawn():
    steps = [step for number in range(20) for step in Sequence(1, number).steps()]
    assert {step.kind for step in steps} == {kind.name for kind in KINDS} | {"ddl.drop"}
    assert {step.form for step in steps} == {LITERAL, BOUND, PREPARED}
    assert any(UNSET in (step.values or []) for step in steps)


def test_only_keeps_to_a_kind_beside_the_groundwork():
    kinds = {step.kind for number in range(5) for step in Sequence(1, number, "select.group_by").steps()}
    assert "select.group_by" in kinds
    assert kinds <= {"select.group_by", "insert", "update.counter", "ddl.create", "ddl.drop", "select.all"}


def test_no_time_to_live_is_used_twice_where_timestamps_tie():
    for number in range(12):
        used = [step.text.split("TTL ")[1].split()[0] for step in Sequence(1, number).steps()
                if step.form == LITERAL and step.kind == "insert" and "USING" in step.text and "TTL " in step.text]
        used = [ttl for ttl in used if len(ttl) >= 6 and ttl != "630720001"]
        assert len(used) == len(set(used))


def test_steps_survive_a_file(tmp_path):
    steps = Sequence(3, 2).steps()
    plan = workers.Plan("a:1", "b:2", 1, 3)
    report.DIRECTORY, kept = tmp_path, report.DIRECTORY
    try:
        difference = compare(SELECT, rows(b"1"), rows(b"2"))
        path = report.write(plan, Failure(2, steps, difference), 0)
    finally:
        report.DIRECTORY = kept
    assert report.read(str(path)) == steps
    assert pickle.loads(pickle.dumps(steps)) == steps


@pytest.mark.parametrize("ours, cassandra, aspect", [
    (rows(b"1", b"2"), rows(b"1", b"2"), None),
    (rows(b"1", b"2"), rows(b"2", b"1"), "order"),
    (rows(b"1"), rows(b"1", b"2"), "rows"),
    (rows(None), rows(b""), "rows"),
    (rows(b"1", column="w"), rows(b"1"), "columns"),
    (Outcome("error", code=0x2200, message="one"), Outcome("error", code=0x2200, message="another"), None),
    (Outcome("error", code=0x2000), Outcome("error", code=0x2200), "error"),
    (Outcome("error", code=0x2400, detail=("k", "t")), Outcome("error", code=0x2400, detail=("k", "u")), "detail"),
    (Outcome("void"), Outcome("error", code=0x2200), "error"),
    (Outcome("void"), rows(), "kind"),
])
def test_differences_are_named(ours, cassandra, aspect):
    difference = compare(SELECT, ours, cassandra)
    assert (difference and difference.aspect) == aspect


def test_pages_may_be_smaller_but_not_larger_than_asked():
    step = Step("select.all", "SELECT * FROM t", page_size=2, reads=True)
    whole = rows(b"1", b"2", b"3", pages=[2, 1])
    assert compare(step, rows(b"1", b"2", b"3", pages=[1, 2, 0]), whole) is None
    assert compare(step, rows(b"1", b"2", b"3", pages=[3]), whole).aspect == "page"


def test_clocks_are_compared_with_tolerance_and_given_timestamps_exactly():
    def stamp(number, column="writetime(v)"):
        return rows(struct.pack(">q", number), column=column)

    def ttl(number):
        return rows(struct.pack(">i", number), column="ttl(v)")

    now = 1_700_000_000_000_000
    assert compare(SELECT, stamp(now), stamp(now + 5_000)) is None
    assert compare(SELECT, stamp(now, "v"), stamp(now + 5_000, "v")).aspect == "rows"
    assert compare(SELECT, stamp(1_000_000_000_000_001), stamp(1_000_000_000_000_002)).aspect == "rows"
    assert compare(SELECT, stamp(1_000_000_000_000_001), stamp(now)).aspect == "rows"
    assert compare(SELECT, ttl(100_000), ttl(99_998)) is None
    assert compare(SELECT, ttl(100_000), ttl(101_000)).aspect == "rows"
    assert compare(SELECT, ttl(100_000), rows(None, column="ttl(v)")).aspect == "rows"


@pytest.fixture(scope="module")
def sides():
    contact = os.environ.get("SHUNT_CASSANDRA")
    if not contact:
        pytest.skip("SHUNT_CASSANDRA is not set")
    with workers.Sides(workers.Plan(contact, contact, 1, 1), "h") as both:
        yield both


@pytest.mark.parametrize("name", plant.CHANGES)
def test_planted_differences_are_found(sides, name):
    change, aspect = plant.CHANGES[name]
    only = {"applied": "lwt", "write time": "select.times", "page": "select.all", "order": "select.all"}.get(name)
    found, planted = set(), 0
    for number in range(30):
        ours = plant.Planted(sides.ours, change, every=1)
        tally = Runner(ours, sides.cassandra, "h").run(iter([(number, Sequence(1, number, only, length=150).steps())]), 1)
        found |= {failure.difference.aspect for failure in tally.failures}
        planted += ours.counts["planted"]
        if aspect in found:
            break
    assert planted and found == {aspect}


def test_a_failure_shrinks_to_the_statements_it_needs(sides):
    """The wrong row and its table remain of two dozen inserts and reads."""
    text = "INSERT INTO @ks@.t@n@ (a, b) VALUES ({0}, {0})"
    steps = [Step("ddl.create", "CREATE TABLE @ks@.t@n@ (a int PRIMARY KEY, b int)")]
    for number in range(12):
        steps += [Step("insert", text.format(number)), Step("select.key", f"SELECT a FROM @ks@.t@n@ WHERE a = {number}", reads=True)]
    last = Step("select.all", "SELECT b FROM @ks@.t@n@ WHERE a = 7", reads=True)

    def change(step, outcome):
        return outcome.altered(rows=[(b"\0\0\0\1",)]) if step == last and outcome.rows else None

    ours = plant.Planted(sides.ours, change, every=1)
    failure, = Runner(ours, sides.cassandra, "h").run(iter([(0, [*steps, last])]), 1).failures
    shrunk = Shrinker(ours, sides.cassandra, "h").shrink(failure)
    assert shrunk.minimised
    assert shrunk.steps == [steps[0], Step("insert", text.format(7)), last]


def failed(code, message=""):
    return Outcome("error", code=code, message=message)


class Says:
    """An endpoint that answers everything with one outcome."""

    keyspace = "k"

    def __init__(self, outcome):
        self.outcome = outcome

    def submit(self, step, names, done):
        done(self.outcome)


@pytest.mark.parametrize("ours, theirs", [
    (failed(0x1001, "the request waited 11 s for a worker"), rows(b"1")), (failed(0x1200), rows(b"1")), (lost("closed"), rows(b"1")),
    (rows(b"1"), failed(0x1001)),
])
def test_a_server_that_was_too_busy_is_no_difference(ours, theirs):
    tally = Runner(Says(ours), Says(theirs)).run(iter([(7, [SELECT])]), 1)
    assert not tally.signatures and tally.abandoned_numbers == [7] and tally.abandoned.total() == 1


def test_another_error_is_one():
    tally = Runner(Says(failed(0x0000)), Says(rows(b"1"))).run(iter([(7, [SELECT])]), 1)
    assert tally.signatures.total() == 1 and not tally.abandoned


class Answers:
    """A proxy that gives one answer after the other, and counts how often it is asked."""

    def __init__(self, *answers):
        self.answers, self.count = list(answers), 0

    def ask(self, message, decoder=None):
        self.count += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def raw(code=None):
    return multiget.Raw(8, 0, b"rows") if code is None else multiget.Raw(0, 0, struct.pack(">i", code) + b"why")


REQUEST = multiget.Draw("SELECT", [], None, False, 1, False, True)
STATEMENT = type("Statement", (), {"query_id": b"1", "result_metadata_id": None})


def test_a_proxy_that_was_too_busy_is_asked_again():
    split, whole = Answers(raw(0x1001), raw(0x1200), raw()), Answers(raw(), raw(0x1001), raw())
    assert multiget.both(split, whole, (STATEMENT, STATEMENT), REQUEST) == ([raw()], [raw()])
    assert (split.count, whole.count) == (3, 3)


@pytest.mark.parametrize("answer", [raw(0x2200), raw(0x0000), multiget.Raw(8, 0, b"other")])
def test_another_answer_is_told_at_once(answer):
    split, whole = Answers(answer), Answers(raw())
    assert multiget.both(split, whole, (STATEMENT, STATEMENT), REQUEST) == ([answer], [raw()])
    assert (split.count, whole.count) == (1, 1)


@pytest.mark.parametrize("outcome, error", [(lost("closed"), waits.Late), (failed(0x1001), waits.Late), (failed(0x2200), RuntimeError)])
def test_a_keyspace_that_is_not_made_says_why(outcome, error):
    with pytest.raises(error, match="no keyspace could be made"):
        workers.check_keyspace(outcome, "a:1")


@pytest.mark.parametrize("error, expected", [(OperationTimedOut(), waits.Late), (waits.Late("x"), waits.Late), (ValueError("x"), RuntimeError)])
def test_a_process_tells_if_there_was_no_answer(monkeypatch, error, expected):
    def fail(plan, worker):
        raise error

    monkeypatch.setattr(workers, "work", fail)
    results = queue.SimpleQueue()
    workers._child(None, 3, results)
    worker, told = results.get()
    assert worker == 3 and type(told) is expected and "process 3" in str(told)
    assert type(pickle.loads(pickle.dumps(told))) is expected


ACROSS = "Batch with conditions cannot span multiple partitions"


@pytest.mark.parametrize("kind, text, theirs, ours, entry", [
    ("select.group_by", "SELECT a FROM t GROUP BY a", failed(0x1300), rows(b"1"), "GROUP BY breaks"),
    ("select.key", "SELECT a FROM t", failed(0x1300), rows(b"1"), None),
    ("lwt.batch", "BEGIN BATCH", failed(0, f"java.lang.IllegalArgumentException: {ACROSS} (x)"), failed(0x2200, ACROSS),
     "unforeseen exception"),
    ("lwt.batch", "BEGIN BATCH", failed(0, f"java.lang.IllegalArgumentException: {ACROSS} (x)"), Outcome("void"), None),
    ("select.key", "SELECT log(a) FROM t", failed(0, "java.lang.ArithmeticException: x"), failed(0x2200), None),
    ("select.key", "SELECT log(a) FROM t", failed(0x2200), failed(0x2000), None),
    ("select.filtering", "SELECT v FROM t WHERE s CONTAINS 1 ALLOW FILTERING", rows(b"1", b"2"), rows(b"2"), "deleted element"),
    ("select.filtering", "SELECT v FROM t WHERE s CONTAINS 1 ALLOW FILTERING", rows(b"2"), rows(b"1", b"2"), None),
    ("select.all", "SELECT log(a) FROM t", rows(struct.pack(">d", -math.nan)), rows(struct.pack(">d", math.nan)), "last bit"),
    ("select.all", "SELECT log(a) FROM t", rows(struct.pack(">d", 1.0)), rows(struct.pack(">d", math.nan)), None),
    ("update", "UPDATE", failed(0, "IndexOutOfBoundsException: Index 0 out of bounds for length 0"), failed(0x2200, "ttl is too large"),
     "index in no partition"),
    ("update", "UPDATE", failed(0, "IndexOutOfBoundsException: Index 0 out of bounds for length 0"), failed(0x2200, "no such column"), None),
    ("select.key", "SELECT m[1], m[0..2] FROM t", rows(b"12"), rows(b"1234"), "two selections of a map"),
    ("select.key", "SELECT m[0..2] FROM t", rows(b"12"), rows(b"1234"), None),
    ("select.key", "SELECT m[1], m[0..2] FROM t", rows(b"12"), rows(b"34"), None),
    ("invalid.type", "INSERT", failed(0x1500), failed(0x2200, "'1' is no value of type tuple<int>"), "constant for a tuple"),
    ("insert", "INSERT", Outcome("void"), failed(0x2200, "'1' is no value of type tuple<int>"), None),
])
def test_only_listed_differences_are_expected(kind, text, theirs, ours, entry):
    difference = compare(Step(kind, text, reads=kind.startswith("select")), ours, theirs)
    uses = Counter()
    found = expected.find(difference, uses)
    assert (found and found.name) == entry
    assert uses.total() == (entry is not None)

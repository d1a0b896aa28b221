"""Tests of second runs: the runner runs made-up suites, whose tests fail in every way."""

import subprocess
import sys
import textwrap

import pytest

sys.path.insert(0, "scripts")

from runner import rerun  # noqa: E402 (the path comes first)
from runner.counts import COUNTS  # noqa: E402
from runner.run import Run  # noqa: E402
from runner.table import Service, Suite  # noqa: E402

# A test that fails with the given line, in its first run only.
ONCE = """
    from pathlib import Path
    def test_it():
        seen = Path(__file__).with_suffix(".seen")
        if not seen.exists():
            seen.touch()
            {}
"""
ALWAYS = """
    def test_it():
        {}
"""
NO_HOST = ("exec('class NoHostAvailable(Exception): pass'); error = locals()['NoHostAvailable']('all closed'); "
           "error.errors = {'127.0.0.1': ConnectionResetError('closed')}; raise error")
WRONG_HOST = NO_HOST.replace("ConnectionResetError", "ValueError")
# What the Python driver raises when it has all hosts down, and when it could open no pool.
NO_HOST_UP, NO_POOL = (NO_HOST.replace("{'127.0.0.1': ConnectionResetError('closed')}", errors) for errors in ("{}", "['127.0.0.1']"))


@pytest.fixture
def play(tmp_path, capsys):
    """Runs each file of tests as a suite. Returns the totals and the text that the runner printed."""

    def run(*bodies: str):
        suites = []
        for number, body in enumerate(bodies):
            file = tmp_path / f"test_made_up_{number}.py"
            file.write_text(textwrap.dedent(body))
            words = f"{sys.executable} -m pytest -q -p no:cacheprovider -p harness.verdicts -c /dev/null --rootdir {tmp_path}"
            suites.append(Suite(f"suite {number}", f"{words} {file}", ["test"], 1, 0.5, counts="pytest", again=words + " {tests}"))
        of_suites = Run(suites, [], {}, logs=tmp_path / "logs")
        of_suites.play()
        of_suites.print_summary()
        return of_suites.totals(), capsys.readouterr().out

    return run


LATE = [
    ("raise TimeoutError('no event')", "TimeoutError"),
    ("raise ConnectionRefusedError('nobody there')", "ConnectionRefusedError"),
    ("raise ConnectionResetError('closed')", "ConnectionResetError"),
    ("import http.client; raise http.client.IncompleteRead(b'half')", "IncompleteRead"),
    ("import subprocess; subprocess.run(['sleep', '60'], timeout=0.1)", "TimeoutExpired"),
    (NO_HOST, "NoHostAvailable"),
    (NO_HOST_UP, "NoHostAvailable"),
    (NO_POOL, "NoHostAvailable"),
]


@pytest.mark.parametrize("first", range(0, len(LATE), rerun.RERUNS_MAX))
def test_a_missing_answer_is_tried_once_more_and_named(play, first):
    faults = LATE[first:first + rerun.RERUNS_MAX]
    totals, printed = play(*(ONCE.format(fault) for fault, _ in faults))
    assert totals == (len(faults), 0), printed
    closing = [line for line in printed.splitlines() if line.startswith("ran twice: ")]
    assert len(closing) == len(faults), printed
    for number, (_, name) in enumerate(faults):
        of_suite, = (line for line in closing if f"suite {number}: " in line)
        assert "test_it" in of_suite and name in of_suite and "passed the second time" in of_suite
    assert printed.splitlines()[-1] == f"{len(faults)} passed, 0 failed"


# Its first run fails, and so does the clean-up.
TWICE = """
    import pytest
    from pathlib import Path
    @pytest.fixture
    def is_first():
        seen = Path(__file__).with_suffix(".seen")
        is_first = not seen.exists()
        seen.touch()
        yield is_first
        if is_first:
            {}
    def test_it(is_first):
        if is_first:
            raise TimeoutError("no event")
"""


def test_a_missing_answer_behind_another_is_tried_again_with_it(play):
    totals, printed = play(TWICE.format("raise TimeoutError('the table was not dropped')"))
    assert totals == (1, 0) and printed.count("passed the second time") == 1, printed


def test_a_verdict_behind_a_missing_answer_fails_at_once(play):
    totals, printed = play(TWICE.format("assert [1] == [2]"))
    assert totals == (0, 2) and "ran twice" not in printed, printed


def test_a_second_missing_answer_fails(play):
    totals, printed = play(ALWAYS.format("raise TimeoutError('no event')"))
    assert totals == (0, 1) and "FAILED again" in printed


VERDICTS = [
    "assert [1] == [2]",
    "assert False, 'TimeoutError: only in the words'",
    "raise ValueError('wrong')",
    "import subprocess, sys; assert subprocess.run([sys.executable, '-c', 'raise SystemExit(3)']).returncode == 0",
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'raise SystemExit(3)'], check=True)",
    WRONG_HOST,
    "import pytest; pytest.fail('leaked 3 files')",
    "raise ExceptionGroup('two', [TimeoutError(), ValueError()])",
]


def test_verdicts_fail_at_once(play):
    totals, printed = play("\n".join(f"def test_{number}():\n    {fault}" for number, fault in enumerate(VERDICTS)))
    assert totals == (0, len(VERDICTS)), printed
    assert not any(words in printed for words in ("ran twice", "once more", "without an answer")), printed


def test_a_crash_fails_though_every_test_passed(play):
    totals, printed = play(ALWAYS.format("import os, signal, subprocess; p = subprocess.Popen(['sleep', '60']); "
                                         "os.kill(p.pid, signal.SIGSEGV); p.wait()"))
    assert totals[1] == 1 and "ended with -11" in printed


def test_a_crash_behind_a_missing_answer_fails_at_once(play):
    totals, printed = play(ONCE.format("import os, signal, subprocess; p = subprocess.Popen(['sleep', '60']); "
                                       "os.kill(p.pid, signal.SIGABRT); p.wait(); raise ConnectionResetError('closed')"))
    assert totals[1] >= 1 and "ran twice" not in printed


def test_a_panic_in_a_log_fails_though_every_test_passed(play, tmp_path):
    log = tmp_path / "server.log"
    body = (f"import subprocess; log = open({str(log)!r}, 'wb'); "
            "subprocess.Popen(['echo', \"thread 'core-0' panicked at src/lib.rs:1\"], stdout=log).wait()")
    totals, printed = play(ALWAYS.format(body))
    assert totals[1] == 1 and "panic in" in printed and "server.log" in printed


def test_a_log_that_quotes_a_panic_is_none(play, tmp_path):
    log = tmp_path / "suite.log"
    body = (f"import subprocess; log = open({str(log)!r}, 'wb'); "
            "subprocess.Popen(['echo', \"FAILED crash: panic in server.log: thread 'core-0' panicked at src/lib.rs:1\"], stdout=log).wait()")
    totals, printed = play(ALWAYS.format(body))
    assert totals == (1, 0), printed


def test_more_than_three_missing_answers_fail_and_none_is_tried_again(play):
    totals, printed = play(*[ONCE.format("raise TimeoutError('no event')")] * 4)
    assert totals == (0, 4) and "none tried again" in printed


def test_three_missing_answers_are_tried_again(play):
    totals, printed = play(*[ONCE.format("raise TimeoutError('no event')")] * 3)
    assert totals == (3, 0) and printed.count("passed the second time") == 3


@pytest.mark.parametrize("body", [
    # A time-out while a failed test cleans up.
    """
    def test_it():
        try:
            assert [1] == [2]
        finally:
            raise TimeoutError("the table was not dropped")
    """,
    # The run ends early, or dies, behind a missing answer.
    """
    import pytest
    def test_late(): raise TimeoutError("no event")
    def test_end(): pytest.exit("enough")
    def test_never(): assert False
    """,
    """
    import os
    def test_late(): raise TimeoutError("no event")
    def test_end(): os.kill(os.getpid(), 9)
    """,
])
def test_a_time_out_hides_nothing_behind_it(play, body):
    totals, printed = play(body)
    assert totals[1] >= 1 and "ran twice" not in printed, printed


def test_set_ups_of_each_test_are_failures_of_their_own(play):
    totals, printed = play("""
        import pytest
        from pathlib import Path
        @pytest.fixture
        def server(request):
            seen = Path(__file__).with_suffix(f".seen{request.node.name}")
            if not seen.exists():
                seen.touch()
                raise ConnectionRefusedError("it is gone")
        @pytest.mark.parametrize("number", range(5))
        def test_it(server, number): pass
    """)
    assert totals == (0, 5) and "none tried again" in printed, printed


def test_a_second_run_that_skips_does_not_count(play):
    totals, printed = play("""
        import pytest
        from pathlib import Path
        @pytest.fixture(scope="module")
        def server():
            seen = Path(__file__).with_suffix(".seen")
            if seen.exists():
                return
            seen.touch()
            raise TimeoutError("it did not start")
        def test_one(server): pass
        def test_two(server): pytest.skip("not today")
    """)
    assert totals[1] == 2 and "FAILED again" in printed, printed


def test_a_panic_is_seen_before_its_log_is_gone(play):
    totals, printed = play("""
        import subprocess
        def test_it(tmp_path):
            with open(tmp_path / "server.log", "wb") as log:
                subprocess.Popen(["echo", "thread 'core-0' panicked at src/lib.rs:1"], stdout=log).wait()
            (tmp_path / "server.log").unlink()
    """)
    assert totals[1] == 1 and "panic in" in printed, printed


class BadServer:
    """A service that stops badly, or does not start."""

    environment = {}

    def __init__(self, starts: bool):
        self.starts = starts

    def start(self):
        if not self.starts:
            raise TimeoutError

    def stop(self):
        return "it panicked" if self.starts else None


@pytest.mark.parametrize("starts", [True, False])
def test_a_bad_service_fails_the_run_by_name(tmp_path, capsys, starts):
    service = Service("ring", "ring", 1, 0.1)
    suite = Suite("suite", "true", ["test"], 1, 0.1, service="ring")
    of_suites = Run([suite], [service], {}, logs=tmp_path / "logs", make_service=lambda *_: BadServer(starts))
    of_suites.play()
    of_suites.print_summary()
    printed = capsys.readouterr().out
    assert of_suites.totals()[1] >= 1 and "failed: ring: " in printed, printed


def test_nothing_is_tried_again_beside_a_verdict(play):
    totals, printed = play(ONCE.format("raise TimeoutError('no event')"), ALWAYS.format("assert False"))
    assert totals == (0, 2) and "ran twice" not in printed


def test_a_set_up_that_fails_is_one_failure_of_all_its_tests(play):
    totals, printed = play("""
        import pytest
        from pathlib import Path
        @pytest.fixture(scope="module")
        def server():
            seen = Path(__file__).with_suffix(".seen")
            if not seen.exists():
                seen.touch()
                raise TimeoutError("it did not start")
        @pytest.mark.parametrize("number", range(9))
        def test_it(server, number): pass
    """)
    assert totals == (9, 0), printed


def test_a_suite_that_runs_nothing_fails(play):
    totals, _ = play("x = 1")
    assert totals == (0, 1)


GO_LATE = """\
    driver_test.go:30: gocql: no response received from cassandra within timeout period
--- FAIL: TestQuorum (11.00s)
"""
GO_EXCUSE = """\
    driver_test.go:30: gocql: unable to dial control conn 127.0.0.1: connection refused
    driver_test.go:40: read 3, wrote 4
--- FAIL: TestValues (0.20s)
"""
JAVA_EXCUSE = """\
[ERROR] com.shunt.ValuesTest.sets -- Time elapsed: 0.1 s <<< FAILURE!
org.opentest4j.AssertionFailedError: expected: <X> but was: com.datastax.oss.driver.api.core.DriverTimeoutException

"""


@pytest.mark.parametrize(("counts", "text"), [("go", GO_EXCUSE), ("surefire", JAVA_EXCUSE)])
def test_words_of_a_time_out_excuse_no_wrong_data(tmp_path, counts, text):
    suite = Suite("driver", "run", ["test"], 1, 1, counts=counts, again="run {test}")
    assert rerun.candidates(rerun.failures_of(suite, text, tmp_path / "none", 1, 1)) == []


@pytest.mark.parametrize(("text", "status"), [(GO_LATE + "panic: test timed out after 10m0s\n", 1), (GO_LATE, 124), (GO_LATE, -9)])
def test_a_driver_that_ended_early_is_a_verdict(tmp_path, text, status):
    suite = Suite("driver", "run", ["test"], 1, 1, counts="go", again="run {test}")
    assert rerun.candidates(rerun.failures_of(suite, text, tmp_path / "none", 1, status)) == []
    assert len(rerun.candidates(rerun.failures_of(suite, GO_LATE, tmp_path / "none", 1, 1))) == 1


GO_OUTPUT = """\
--- PASS: TestPaging (0.10s)
    driver_test.go:30: gocql: no response received from cassandra within timeout period
--- FAIL: TestQuorum (11.00s)
    driver_test.go:40: read 3, wrote 4
--- FAIL: TestValues (0.20s)
FAIL
"""
# Each subtest counts, and runs again with the others.
GO_SUBTEST = """\
    values_test.go:30: INSERT INTO items (key) VALUES (?): the connection to the node was lost
--- FAIL: TestFiveMegabytes (7.71s)
    --- PASS: TestFiveMegabytes/default (1.59s)
    --- FAIL: TestFiveMegabytes/snappy (6.12s)
--- PASS: TestQuorum (1.00s)
    --- PASS: TestQuorum/default (1.00s)
FAIL
"""
GO_SERVER = """\
    driver_test.go:30: INSERT INTO items (key) VALUES (?): Operation timed out - received only 1 responses.
--- FAIL: TestQuorum (11.00s)
    driver_test.go:30: Shunt: no link to a node could take this query in time; the nodes are overloaded or unreachable
--- FAIL: TestCounts (11.00s)
    driver_test.go:40: got *gocql.RequestErrWriteTimeout Operation timed out - received only 1 responses., want *gocql.RequestErrInvalid
--- FAIL: TestErrors (0.20s)
    driver_test.go:40: SELECT a FROM b: unconfigured table b
--- FAIL: TestTables (0.20s)
FAIL
"""
JAVA_SERVER = """\
[ERROR] com.shunt.BatchTest.logged -- Time elapsed: 5.1 s <<< ERROR!
com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException: Cassandra timeout during SIMPLE write query at consistency LOCAL_QUORUM
\tat com.datastax.X.y(X.java:1)

[ERROR] com.shunt.PagingTest.pages -- Time elapsed: 2.1 s <<< ERROR!
java.util.concurrent.CompletionException: com.datastax.oss.driver.api.core.DriverTimeoutException: Query timed out after PT2S
\tat com.datastax.X.y(X.java:1)

[ERROR] com.shunt.ManyLinksTest.links -- Time elapsed: 60.1 s <<< ERROR!
java.util.concurrent.TimeoutException: links() timed out after 60 seconds
\tat com.datastax.X.y(X.java:1)

[ERROR] com.shunt.TypesTest.sets -- Time elapsed: 0.1 s <<< ERROR!
java.util.concurrent.CompletionException: com.datastax.oss.driver.api.core.servererrors.InvalidQueryException: unconfigured table b

[ERROR] com.shunt.ErrorsTest.syntax -- Time elapsed: 0.1 s <<< FAILURE!
org.opentest4j.AssertionFailedError: Unexpected exception type thrown, expected: <SyntaxError> but was: <com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException>
"""
RUST_SERVER = """\
---- paging::pages stdout ----
setup plain

thread 'paging::pages' (12) panicked at src/lib.rs:10:5:
INSERT INTO items (key) VALUES (?): LastAttemptError(DbError(WriteTimeout { consistency: LocalQuorum, received: 1 }, "Operation timed out"))

---- batch::logged stdout ----

thread 'batch::logged' (12) panicked at tests/driver/batch.rs:10:5:
connect: EmptyPlan

---- waiting::drained stdout ----

thread 'waiting::drained' (12) panicked at crates/testing/src/blocking.rs:60:5:
an answer: Os { code: 11, kind: WouldBlock, message: "Resource temporarily unavailable" }

---- values::sets stdout ----

thread 'values::sets' (13) panicked at src/lib.rs:10:5:
SELECT a FROM b: LastAttemptError(DbError(Invalid, "unconfigured table b"))

---- errors::syntax stdout ----

thread 'errors::syntax' (13) panicked at tests/driver/errors.rs:10:5:
assertion `left == right` failed: DbError(WriteTimeout { .. })
  left: 1

failures:
    paging::pages
"""
JAVA_OUTPUT = """\
[ERROR] com.shunt.PagingTest.pages -- Time elapsed: 2.1 s <<< ERROR!
com.datastax.oss.driver.api.core.DriverTimeoutException: Query timed out after PT2S
\tat com.datastax.X.y(X.java:1)

[ERROR] com.shunt.ValuesTest.sets -- Time elapsed: 0.1 s <<< FAILURE!
org.opentest4j.AssertionFailedError: expected: <1> but was: <2>

[ERROR] com.shunt.LocksTest.held -- Time elapsed: 0.1 s <<< ERROR!
com.datastax.oss.driver.api.core.AllNodesFailedException: All 1 node(s) tried failed: [com.datastax.oss.driver.api.core.servererrors.ServerError: x]
"""
RUST_OUTPUT = """\
---- paging::pages stdout ----

thread 'paging::pages' (12) panicked at tests/driver/paging.rs:10:5:
called `Result::unwrap()` on an `Err` value: RequestTimeout(30s)
note: run with `RUST_BACKTRACE=1`

---- values::sets stdout ----

thread 'values::sets' (13) panicked at tests/driver/values.rs:10:5:
assertion `left == right` failed
  left: 1

failures:
    paging::pages
"""


def test_a_subtest_without_an_answer_runs_again_with_its_test(tmp_path):
    suite = Suite("driver", "run", ["test"], 1, 1, counts="go", again="run ^{test}$")
    failed = COUNTS["go"](GO_SUBTEST)[1]
    [failure] = rerun.candidates(rerun.failures_of(suite, GO_SUBTEST, tmp_path / "none", failed, 1))
    assert (failure.failed, rerun.command(suite, failure, {})) == (2, ["run", "^TestFiveMegabytes$"])


def test_the_closing_lines_name_the_causes_of_many_failures(play):
    totals, printed = play("""
        import pytest
        @pytest.mark.parametrize("number", range(5))
        def test_it(number): raise TimeoutError(f"no event {number}")
    """)
    assert totals == (0, 5) and "\n  5 in suite 0: TimeoutError\n" in printed, printed


@pytest.mark.parametrize(("counts", "text", "unanswered", "wrong"), [
    ("go", GO_OUTPUT, ["TestQuorum"], ["TestValues"]),
    ("surefire", JAVA_OUTPUT, ["com.shunt.PagingTest#pages"], ["com.shunt.ValuesTest#sets", "com.shunt.LocksTest#held"]),
    ("cargo", RUST_OUTPUT, ["paging::pages"], ["values::sets"]),
    ("go", GO_SERVER, ["TestQuorum", "TestCounts"], ["TestErrors", "TestTables"]),
    ("surefire", JAVA_SERVER, ["com.shunt.BatchTest#logged", "com.shunt.PagingTest#pages", "com.shunt.ManyLinksTest#links"], ["com.shunt.TypesTest#sets", "com.shunt.ErrorsTest#syntax"]),
    ("cargo", RUST_SERVER, ["paging::pages", "batch::logged", "waiting::drained"], ["values::sets", "errors::syntax"]),
])
def test_other_languages_tell_missing_answers_from_wrong_ones(tmp_path, counts, text, unanswered, wrong):
    suite = Suite("driver", "run", ["test"], 1, 1, counts=counts, again="run -run {test}")
    failures = rerun.failures_of(suite, text, tmp_path / "none", len(unanswered) + len(wrong), 101 if counts == "cargo" else 1)
    assert [failure.tests[0] for failure in failures if failure.unanswered] == unanswered
    assert [failure.tests[0] for failure in failures if not failure.unanswered] == wrong
    assert rerun.command(suite, failures[0], {})[-1] == failures[0].tests[0]


def test_several_drivers_in_one_output_are_told_apart(tmp_path):
    suite = Suite("drivers", "run", ["test"], 1, 1, counts="totals", again="run {test}")
    text = f"java: locks\n{JAVA_OUTPUT}\ngo: locks\n{GO_OUTPUT}\nrust: a proxy is killed\n{RUST_OUTPUT}\n9 passed, 7 failed\n"
    failures = rerun.failures_of(suite, text, tmp_path / "none", 7, 1)
    missing = [(failure.tests[0], failure.alone) for failure in failures if failure.unanswered]
    assert missing == [("com.shunt.PagingTest#pages", ["java"]), ("TestQuorum", ["go"]), ("paging::pages", ["rust"])]
    assert len(failures) == 7


def test_failures_that_the_output_does_not_name_are_verdicts(tmp_path):
    suite = Suite("driver", "run", ["test"], 1, 1, counts="go", again="run {test}")
    failures = rerun.failures_of(suite, GO_OUTPUT, tmp_path / "none", 3, 1)
    assert not rerun.candidates(failures) and any(failure.reason == "see its log" for failure in failures)


def test_the_drivers_exceptions_are_known():
    names = ("from cassandra import OperationTimedOut, Unavailable; from cassandra.connection import ConnectionException; "
             "from cassandra.cluster import NoHostAvailable; from cassandra.pool import NoConnectionsAvailable; "
             "from cassandra.query import TraceUnavailable; from harness.cql import CqlError")
    checks = ("from harness.verdicts import is_unanswered as so; "
              "assert all(map(so, (OperationTimedOut(), ConnectionException('x'), TraceUnavailable(), CqlError(0x1000, 'x')))); "
              "assert so(NoHostAvailable('none', {'127.0.0.1': NoConnectionsAvailable()})); "
              "assert not so(CqlError(0x2200, 'x'))")
    subprocess.run([sys.executable, "-c", f"{names}; {checks}"], check=True, env={"PYTHONPATH": "tests", "PATH": "/usr/bin:/bin"})

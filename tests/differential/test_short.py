"""The differential test as CI runs it: more than 5,000 statements on Cassandra and on an embedded node;
`make test-long` runs more than 100,000.

Both are started here, unless SHUNT_NODE or SHUNT_CASSANDRA (host:port) says where one runs already.
SHUNT_DIFFERENTIAL_STATEMENTS and SHUNT_DIFFERENTIAL_SEED change how much and what.
"""

import os
from dataclasses import replace

import pytest

from differential import report, servers, workers
from differential.runner import Tally
from differential.sequence import KINDS
from harness import waits

# Of this seed, so few statements are of every kind and meet nine of the differences in expected.py, more
# than 20,000 of others. The long run has a new seed each time.
SEED = int(os.environ.get("SHUNT_DIFFERENTIAL_SEED", "3"))
STATEMENTS = int(os.environ.get("SHUNT_DIFFERENTIAL_STATEMENTS", "5000"))
PLANNED_SHARE = 1.15  # some sequences end early: with an expected difference that leaves other data, or a slow answer
AGAIN_MAX = workers.Plan.processes * workers.Plan.concurrency  # sequences under way: a moment of stillness meets all of them


@pytest.fixture(scope="module")
def tally():
    with servers.both(os.environ.get("SHUNT_NODE"), os.environ.get("SHUNT_CASSANDRA")) as (node, cassandra):
        plan = workers.Plan(node, cassandra, int(STATEMENTS * PLANNED_SHARE), SEED)
        result, seconds = workers.timed(plan)
        result.add(again(plan, result))
    for position, failure in enumerate(result.failures):
        report.show(plan, failure, report.write(plan, failure, position))
    report.summary(result, seconds)
    print(f"again: {report.COMMAND} --seed {plan.seed} --statements {plan.statements}", flush=True)
    return result


def again(plan, result) -> Tally:
    """The tally of sequences with a statement without an answer, each of which runs again alone. On a
    busy machine, Cassandra gives statements up. A sequence with a different answer does not run again."""
    numbers = sorted(set(result.abandoned_numbers))
    result.abandoned.clear()
    result.abandoned_numbers.clear()
    if len(numbers) > AGAIN_MAX:
        raise waits.Late(f"{len(numbers)} sequences had statements without an answer")
    alone = Tally()
    for number in numbers:
        found = workers.run(replace(plan, sequence=number))
        print(f"sequence {number} alone: {dict(found.signatures + found.abandoned) or 'no difference'}", flush=True)
        alone.add(found)
    return alone


def test_every_answer_is_cassandras(tally):
    differences = tally.signatures.total()
    assert not differences, f"{differences} differences, shown above with the commands that replay them"


def test_enough_statements_of_every_kind_ran(tally):
    if tally.abandoned:
        raise waits.Late(f"no answers also when nothing else runs: {tally.abandoned}")
    assert tally.statements.total() >= STATEMENTS
    assert not {kind.name for kind in KINDS} - tally.statements.keys()

"""The differential test as CI runs it: more than 20,000 statements on Cassandra and on an embedded node; `make test-long` runs
more than 100,000.

Both are started here, unless SHUNT_NODE or SHUNT_CASSANDRA (host:port) says where one runs already.
SHUNT_DIFFERENTIAL_STATEMENTS and SHUNT_DIFFERENTIAL_SEED change how much and what.
"""

import os
from dataclasses import replace

import pytest

from differential import report, servers, workers
from differential.runner import Tally

SEED = int(os.environ.get("SHUNT_DIFFERENTIAL_SEED", "11"))
STATEMENTS = int(os.environ.get("SHUNT_DIFFERENTIAL_STATEMENTS", "20000"))
PLANNED_SHARE = 1.15  # some sequences end early: with an expected difference that leaves other data, or a slow answer
AGAIN_MAX = workers.Plan.processes * workers.Plan.concurrency  # sequences under way: a moment of stillness meets all of them


@pytest.fixture(scope="module")
def tallies():
    with servers.both(os.environ.get("SHUNT_NODE"), os.environ.get("SHUNT_CASSANDRA")) as (node, cassandra):
        plan = workers.Plan(node, cassandra, int(STATEMENTS * PLANNED_SHARE), SEED)
        result, seconds = workers.timed(plan)
        alone = again(plan, result)
    for position, failure in enumerate(result.failures):
        report.show(plan, failure, report.write(plan, failure, position))
    report.summary(result, seconds)
    print(f"again: {report.COMMAND} --seed {plan.seed} --statements {plan.statements}", flush=True)
    return result, alone


def again(plan, result) -> Tally:
    """What comes of sequences that differed, or were abandoned, when each runs alone. A machine that is too busy makes
    Cassandra give statements up half done, and time to live runs out between one side and the other: that does not come
    back."""
    differing = {number for numbers in result.where.values() for number in numbers}
    numbers = sorted(differing.union(result.abandoned_numbers))
    alone = Tally()
    if len(numbers) > AGAIN_MAX:
        alone.signatures["too many sequences to run them again"] = len(numbers)
        return alone
    for number in numbers:
        found = workers.run(replace(plan, sequence=number))
        print(f"sequence {number} alone: {dict(found.signatures + found.abandoned) or 'no difference'}", flush=True)
        alone.add(found)
    return alone


def test_every_answer_is_cassandras(tallies):
    _, alone = tallies
    assert not alone.signatures, f"{alone.signatures.total()} differences, shown above with the commands that replay them"


def test_enough_statements_ran(tallies):
    result, alone = tallies
    assert not alone.abandoned, f"too slow also when nothing else runs: {alone.abandoned}"
    assert result.statements.total() + alone.statements.total() >= STATEMENTS

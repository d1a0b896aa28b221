"""The short form of the differential test, as CI runs it: more than 100,000 statements on Cassandra and on an embedded node.

Both are started here, unless SHUNT_NODE or SHUNT_CASSANDRA (host:port) says where one runs already.
SHUNT_DIFFERENTIAL_STATEMENTS and SHUNT_DIFFERENTIAL_SEED change how much and what.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from differential import report, servers, workers

SEED = int(os.environ.get("SHUNT_DIFFERENTIAL_SEED", "11"))
STATEMENTS = int(os.environ.get("SHUNT_DIFFERENTIAL_STATEMENTS", "100000"))
PLANNED_SHARE = 1.15  # some sequences end early: with an expected difference that leaves other data, or a slow answer
ABANDONED_SHARE_MAX = 0.05
AGAIN_MAX = workers.Plan.processes * workers.Plan.concurrency  # sequences under way: a moment of stillness meets all of them


@pytest.fixture(scope="module")
def tally():
    with servers.both(os.environ.get("SHUNT_NODE"), os.environ.get("SHUNT_CASSANDRA")) as (node, cassandra):
        plan = workers.Plan(node, cassandra, int(STATEMENTS * PLANNED_SHARE), SEED)
        result, seconds = workers.timed(plan)
        result.repeated = again(plan, result)
    for position, failure in enumerate(result.failures):
        report.show(plan, failure, report.write(plan, failure, position))
    report.summary(result, seconds)
    print(f"again: {report.COMMAND} --seed {plan.seed} --statements {plan.statements}", flush=True)
    return result


def again(plan, result) -> Counter:
    """What differs once more when its sequence runs alone. A machine that is too busy makes Cassandra give statements up
    half done, and time to live runs out between one side and the other: that does not come back."""
    numbers = sorted({number for numbers in result.where.values() for number in numbers})
    repeated = Counter({"too many sequences differ to run them again": len(numbers)} if len(numbers) > AGAIN_MAX else {})
    for number in numbers[:AGAIN_MAX]:
        found = workers.run(replace(plan, sequence=number)).signatures
        print(f"sequence {number} alone: {dict(found) or 'no difference'}", flush=True)
        repeated.update(found)
    return repeated


def test_every_answer_is_cassandras(tally):
    assert not tally.repeated, f"{tally.repeated.total()} differences, shown above with the commands that replay them"


def test_enough_statements_ran(tally):
    assert tally.abandoned.total() <= max(ABANDONED_SHARE_MAX * tally.sequences, AGAIN_MAX), tally.abandoned
    assert tally.signatures or tally.statements.total() >= STATEMENTS, tally.statements.total()

"""The short form of the differential test, as CI runs it: more than 100,000 statements on Cassandra and on an embedded node.

Both are started here, unless SHUNT_NODE or SHUNT_CASSANDRA (host:port) says where one runs already.
SHUNT_DIFFERENTIAL_STATEMENTS and SHUNT_DIFFERENTIAL_SEED change how much and what.
"""

import os

import pytest

from differential import report, servers, workers

SEED = int(os.environ.get("SHUNT_DIFFERENTIAL_SEED", "11"))
STATEMENTS = int(os.environ.get("SHUNT_DIFFERENTIAL_STATEMENTS", "100000"))
PLANNED_SHARE = 1.1  # some sequences end early: with an expected difference that leaves other data, or a slow answer
ABANDONED_SHARE_MAX = 0.05


@pytest.fixture(scope="module")
def tally():
    with servers.both(os.environ.get("SHUNT_NODE"), os.environ.get("SHUNT_CASSANDRA")) as (node, cassandra):
        plan = workers.Plan(node, cassandra, int(STATEMENTS * PLANNED_SHARE), SEED)
        result, seconds = workers.timed(plan)
    for position, failure in enumerate(result.failures):
        report.show(plan, failure, report.write(plan, failure, position))
    report.summary(result, seconds)
    print(f"again: {report.COMMAND} --seed {plan.seed} --statements {plan.statements}", flush=True)
    return result


def test_every_answer_is_cassandras(tally):
    assert not tally.signatures, f"{tally.signatures.total()} differences, shown above with the commands that replay them"


def test_enough_statements_ran(tally):
    assert tally.abandoned.total() <= ABANDONED_SHARE_MAX * tally.sequences, tally.abandoned
    assert tally.signatures or tally.statements.total() >= STATEMENTS, tally.statements.total()

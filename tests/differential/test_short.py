"""The short form of the differential test, as CI runs it.

SHUNT_NODE (host:port of `shunt node`) and SHUNT_CASSANDRA (host:port of an Apache Cassandra 5.0) say what is running.
SHUNT_DIFFERENTIAL_STATEMENTS and SHUNT_DIFFERENTIAL_SEED change how much and what.
"""

import os

import pytest

from differential import report, workers

SEED = int(os.environ.get("SHUNT_DIFFERENTIAL_SEED", "1"))
STATEMENTS = int(os.environ.get("SHUNT_DIFFERENTIAL_STATEMENTS", "100000"))
ABANDONED_SHARE_MAX = 0.05


@pytest.fixture(scope="module")
def tally():
    node, cassandra = os.environ.get("SHUNT_NODE"), os.environ.get("SHUNT_CASSANDRA")
    if not node or not cassandra:
        pytest.skip("SHUNT_NODE and SHUNT_CASSANDRA are not set")
    plan = workers.Plan(node, cassandra, STATEMENTS, SEED)
    result, seconds = workers.timed(plan)
    for position, failure in enumerate(result.failures):
        report.show(plan, failure, report.write(plan, failure, position))
    report.summary(result, seconds)
    return result


def test_every_answer_is_cassandras(tally):
    assert not tally.signatures, f"{tally.signatures.total()} differences, shown above"


def test_enough_statements_ran(tally):
    assert tally.statements.total() >= STATEMENTS * (1 - ABANDONED_SHARE_MAX), tally.abandoned

"""Errors of the driver that say that nothing was written."""

import pytest
from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage

from .chains import has_written_nothing
from .conftest import is_not_asked

REFUSED = IsBootstrappingErrorMessage(0x1002, "this proxy has no lease", None)
BUSY = OverloadedErrorMessage(0x1001, "the lock waits; nothing was written, ask again", None)
NOT_SENT = [ConnectionException("Host has been marked down or removed"), ConnectionException("Pool is shutdown"),
            ConnectionException("Pool for a is shutdown"), NoConnectionsAvailable("none"), ConnectionBusy("busy")]
LOST = ConnectionShutdown("the connection was closed")


def of_hosts(*errors):
    return NoHostAvailable("none", dict(enumerate(errors)))


@pytest.mark.parametrize("error", [REFUSED, BUSY, of_hosts(REFUSED), of_hosts(REFUSED, BUSY)])
def test_a_write_that_all_refused_was_not_made(error):
    assert has_written_nothing(error)


@pytest.mark.parametrize("error", [LOST, of_hosts(REFUSED, LOST), OperationTimedOut({"a": "late"}), OperationTimedOut()])
def test_a_write_that_was_sent_may_have_been_made(error):
    assert not has_written_nothing(error)


def test_a_late_answer_after_a_refusal_is_in_doubt():
    """The driver tells the errors of the hosts that it had asked before."""
    assert not has_written_nothing(OperationTimedOut({"a": REFUSED}, "b"))


@pytest.mark.parametrize("errors", [[REFUSED], [BUSY], NOT_SENT, [REFUSED, BUSY, *NOT_SENT], []])
def test_a_request_that_all_refused_or_did_not_get_may_be_repeated(errors):
    assert is_not_asked(of_hosts(*errors))


@pytest.mark.parametrize("errors", [[LOST], [REFUSED, LOST], [*NOT_SENT, OverloadedErrorMessage(0x1001, "the node is busy", None)]])
def test_a_statement_that_one_host_may_have_done_is_in_doubt(errors):
    assert not is_not_asked(of_hosts(*errors))

//! The error that a client gets if no node answered its request, or if a node that was given up may
//! have executed it.

use shunt_reactor::Io;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::errors::ReplicaCounts;
use shunt_wire::cql::message::{
    Consistency, ErrorDetails, ErrorMessage, error_code, split_response_prefix,
};

use crate::core::Core;
use crate::fault::NodeError;
use crate::link::Pending;
use crate::metrics::{Outcome, QueryKind};
use crate::plan::{Plan, Work};
use crate::reply::{self, Answer};
use crate::traces::spans;
use shunt_wire::printable::printable_to;

/// Bytes of a node's message in an error of the proxy's own.
const WORDS_BYTES_MAX: usize = 1_024;

/// Handles an ERROR to a request that another node had before. That node never answered, or said
/// only that it is overloaded. It may have executed the request, so the client must not be told
/// that nothing was done. If the ERROR would say that, this sends a write timeout with the second
/// node's message instead, and returns `true`.
///
/// One node may accept a request that another refuses: nodes hear of changes of the schema and of
/// roles one after the other.
pub(crate) fn refused_after_all(
    core: &mut Core,
    io: &mut Io,
    pending: &Pending,
    flags: u8,
    body: &[u8],
) -> bool {
    let body = split_response_prefix(flags, body).map_or(&[][..], |(_, body)| body);
    let code = error_code::peek(body);
    if !code.is_some_and(|code| NodeError(code).says_not_carried_out())
        || !may_have_changed(pending)
    {
        return false;
    }
    let version = core.clients.version_of(pending.client).unwrap_or_default();
    let words = ErrorMessage::decode(version, body)
        .map_or_else(|_| String::new(), |error| shown(error.message));
    let why = format!(
        "the first node may have carried it out or may do so yet, and another refused it{words}"
    );
    fail(core, io, pending, Outcome::LinkLost, &why);
    true
}

/// A node's message, in the form for an error of the proxy's own.
fn shown(words: &str) -> String {
    format!(": {}", printable_to(words, WORDS_BYTES_MAX))
}

/// Answers a request with the error that tells a driver the truth: a write timeout if it may have
/// changed something, or may do so yet; Overloaded if it did not and will not.
pub(crate) fn fail(core: &mut Core, io: &mut Io, pending: &Pending, outcome: Outcome, why: &str) {
    let Some(version) = core.clients.version_of(pending.client) else {
        core.context.metrics.in_flight.sub(1);
        core.clients.tenants.end(pending.plan.tenant, 0);
        spans::abandon(core, pending.trace);
        return;
    };
    let mut body = Vec::new();
    failure(pending, outcome, why).put(&mut body, version);
    let answer = Answer::plain(opcode::ERROR, pending.stream, &body);
    reply::pass_on(core, io, pending, &answer, outcome);
}

/// The error for a request without an answer.
///
/// It must never say "not executed" of a request that may have been: drivers repeat after
/// Overloaded and ServerError, some even statements that are not marked idempotent. After a write
/// timeout of a kind other than `BATCH_LOG` none does by itself. The protocol has no error for a
/// schema change or a grant with an unknown outcome; all drivers understand a write timeout, and it
/// states what is known.
pub(crate) fn failure<'a>(pending: &Pending, outcome: Outcome, why: &'a str) -> ErrorMessage<'a> {
    let plan = &pending.plan;
    let counts =
        ReplicaCounts { consistency: Consistency(plan.consistency), received: 0, block_for: 1 };
    if may_have_changed(pending) {
        return write_timeout(counts, write_type(plan), why);
    }
    if plan.work == Work::Read && outcome == Outcome::TimedOut {
        return ErrorMessage {
            code: error_code::READ_TIMEOUT,
            message: why,
            details: ErrorDetails::ReadTimeout { counts, data_present: false },
        };
    }
    ErrorMessage::plain(error_code::OVERLOADED, why)
}

/// The error for a statement on locks, or a transaction, that may have been carried out.
pub(crate) fn in_doubt(why: &str) -> ErrorMessage<'_> {
    let consistency = Consistency::QUORUM;
    write_timeout(ReplicaCounts { consistency, received: 0, block_for: 1 }, "CAS", why)
}

fn write_timeout<'a>(
    counts: ReplicaCounts,
    write_type: &'static str,
    why: &'a str,
) -> ErrorMessage<'a> {
    ErrorMessage {
        code: error_code::WRITE_TIMEOUT,
        message: why,
        details: ErrorDetails::WriteTimeout { counts, write_type, contentions: Some(0) },
    }
}

/// True if a request may have changed something, or may do so yet, on a node that never answered.
pub(crate) fn may_have_changed(pending: &Pending) -> bool {
    pending.fate_unknown && may_change(&pending.plan)
}

/// True if a request may change anything. An unknown one may.
fn may_change(plan: &Plan) -> bool {
    match plan.work {
        Work::Read => false,
        Work::Write | Work::Schema => true,
        Work::Other => plan.kind != QueryKind::Prepare,
    }
}

/// The write type of a lost request. Never `BATCH_LOG`, which drivers take as permission to repeat
/// the batch.
fn write_type(plan: &Plan) -> &'static str {
    match plan.kind {
        _ if plan.conditional => "CAS",
        QueryKind::Batch => "BATCH",
        _ => "SIMPLE",
    }
}

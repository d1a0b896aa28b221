//! Requests of clients that have left are cancelled.

use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::requests::At;
use crate::fleet::requests::answer_form::AnswerKind;
use crate::locks::{batch, dispatch};
use crate::transactions::execute;

/// Cancels all requests of a client that has left.
pub(crate) fn cancel_all(core: &mut Core, io: &mut Io, first: u32) {
    let mut next = first;
    while let Some((ticket, pending)) = core.fleet.requests.take_first(core.context.index, next) {
        next = pending.after();
        core.context.metrics.in_flight.sub(1);
        match pending.form.kind {
            AnswerKind::Batch(group) => batch::abandon(core, io, group),
            AnswerKind::Message if matches!(pending.at, At::Here(_)) => {
                execute::cancel(core, io, ticket)
            }
            _ => dispatch::cancel(core, io, ticket, &pending),
        }
    }
}

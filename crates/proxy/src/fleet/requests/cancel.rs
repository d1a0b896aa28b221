//! Requests of clients that have left are cancelled.

use shunt_reactor::Io;

use crate::core::Core;
use crate::fleet::requests::At;
use crate::fleet::requests::answer_form::AnswerKind;
use crate::locks::{batch, dispatch};
use crate::transactions::execute;

/// Cancels all requests of a client that has left.
pub(crate) fn cancel_all(core: &mut Core, io: &mut Io, first: u32) {
    let mut rest = first;
    while let Some((ticket, next)) = core.fleet.requests.detach_first(core.context.index, rest) {
        rest = next;
        core.context.metrics.in_flight.sub(1);
        let Some(pending) = core.fleet.requests.get_mut(ticket) else { continue };
        match (&pending.form.kind, pending.at) {
            (AnswerKind::Batch(group), _) => {
                let group = *group;
                core.fleet.requests.take(ticket);
                batch::abandon(core, io, group);
            }
            (AnswerKind::Message, At::Here(_)) => {
                core.fleet.requests.take(ticket);
                execute::cancel(core, io, ticket);
            }
            _ => dispatch::cancel(core, io, ticket),
        }
    }
}

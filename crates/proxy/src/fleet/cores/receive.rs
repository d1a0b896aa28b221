//! Messages from other cores of this process.

use std::sync::Arc;

use shunt_reactor::Io;

use crate::client::announce;
use crate::core::Core;
use crate::fleet::cores::{Batch, CoreMessage};
use crate::fleet::notices;
use crate::locks::{dispatch, keeper, overview};
use crate::transactions::execute;

/// Takes all messages of a batch.
pub(crate) fn take_batch(core: &mut Core, io: &mut Io, batch: &Batch) {
    for said in batch.iter() {
        match said {
            CoreMessage::Notice(notice) => notices::take_notice(core, io, notice),
            CoreMessage::Ask(request) => {
                keeper::take_remote(core, io, &request);
            }
            CoreMessage::Longest(ticket, namespace, most) => {
                overview::answer(core, io, ticket, namespace, most)
            }
            CoreMessage::Answer(ticket, reply) => dispatch::deliver(core, io, ticket, &reply),
            CoreMessage::Transaction(ticket, who, message) => {
                execute::start(core, io, ticket, &String::from_utf8_lossy(who), message);
            }
            CoreMessage::TransactionAnswer(ticket, head, body) => {
                core.fleet.transactions.tell(ticket, head, body.to_vec())
            }
            CoreMessage::Cancel(ticket, is_awaited) => {
                execute::cancel(core, io, ticket);
                keeper::cancel_remote(core, io, ticket, is_awaited);
            }
        }
    }
    if let Some(owners) = &batch.owners {
        core.fleet.peers.owners = Some(Arc::clone(owners));
    }
    if let Some(fleet) = &batch.fleet {
        announce::changed(core, io, Arc::clone(fleet));
    }
    keeper::set_due(core, io);
}

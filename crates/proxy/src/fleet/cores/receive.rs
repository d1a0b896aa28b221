//! Messages from other cores of this process are received.

use std::sync::Arc;

use shunt_reactor::Io;

use crate::client::announce;
use crate::core::Core;
use crate::fleet::cores::{Batch, Said};
use crate::fleet::lease;
use crate::locks::{dispatch, keep, overview};
use crate::transactions::execute;

/// Takes all messages of a batch.
pub(crate) fn take(core: &mut Core, io: &mut Io, batch: &Batch) {
    for said in batch.iter() {
        match said {
            Said::Notice(word) => lease::take(core, io, word),
            Said::Ask(request) => {
                keep::take_remote(core, io, &request);
            }
            Said::Longest(ticket, namespace, most) => {
                overview::answer(core, io, ticket, namespace, most)
            }
            Said::Answer(ticket, reply) => dispatch::deliver(core, io, ticket, &reply),
            Said::Transaction(ticket, who, message) => {
                execute::start(core, io, ticket, &String::from_utf8_lossy(who), message);
            }
            Said::Told(ticket, head, body) => {
                core.fleet.transactions.tell(ticket, head, body.to_vec())
            }
            Said::Cancel(ticket, is_awaited) => {
                execute::cancel(core, io, ticket);
                keep::cancel_remote(core, io, ticket, is_awaited);
            }
        }
    }
    if let Some(owners) = &batch.owners {
        core.fleet.peers.owners = Some(Arc::clone(owners));
    }
    if let Some(fleet) = &batch.fleet {
        announce::changed(core, io, Arc::clone(fleet));
    }
    keep::set_due(core, io);
}

//! What other cores of this process have said.

use std::sync::Arc;

use shunt_reactor::Io;

use crate::client::announce;
use crate::core::Core;
use crate::lanes::{Batch, Said};
use crate::locks::{ask, keep, overview, words};
use crate::transactions::execute;

/// Takes all messages of a batch.
pub(crate) fn take(core: &mut Core, io: &mut Io, batch: &Batch) {
    for said in batch.iter() {
        match said {
            Said::Word(word) => words::take(core, io, word),
            Said::Ask(request) => {
                if let Some(handle) = keep::take(core, io, &request) {
                    core.fleet.locks.remote.insert(request.ticket.0, handle);
                }
            }
            Said::Longest(ticket, namespace, most) => {
                overview::answer(core, io, ticket, namespace, most)
            }
            Said::Answer(ticket, reply) => ask::deliver(core, io, ticket, &reply),
            Said::Transaction(ticket, who, message) => {
                execute::start(core, io, ticket, &String::from_utf8_lossy(who), message);
            }
            Said::Told(ticket, head, body) => {
                core.fleet.transactions.tell(ticket, head, body.to_vec())
            }
            Said::Cancel(ticket, is_awaited) => {
                execute::cancel(core, io, ticket);
                if let Some(handle) = core.fleet.locks.remote.remove(&ticket.0) {
                    keep::cancel(core, io, ticket, handle, is_awaited);
                }
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

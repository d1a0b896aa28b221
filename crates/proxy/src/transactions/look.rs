//! The owner of a lock is asked who holds it, for a request that relies on it; [`super::fence`]
//! hears the answer.

use std::sync::Arc;

use shunt_language::facade::Table;
use shunt_locks::{Namespace, Ticket};
use shunt_reactor::Io;

use super::asker;
use super::guarded::Guarded;
use crate::core::Core;
use crate::fault::Fault;
use crate::locks::ask;
use crate::locks::form::{Form, FormKind};
use crate::locks::question::Question;
use crate::locks::request::Operation;
use crate::locks::requests::Asker;
use shunt_transactions::guard::request::Guard;

/// Requests that wait to hear of a lock, and bytes of them.
const WAITING_MAX: usize = 4_096;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// Sends a request on to this core, of this proxy, when its lock is known to be held.
pub(super) fn ask(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    to: (usize, Arc<str>),
    guard: Guard<'_>,
    message: &[u8],
) {
    let keeping = &mut core.fleet.transactions;
    if keeping.guarded.len() >= WAITING_MAX
        || keeping.guarded_bytes + message.len() > WAITING_BYTES_MAX
    {
        let fault = Fault::overloaded(
            "Shunt: too many requests wait to hear if their locks are held; ask again",
        );
        return keeping.fail(ticket, &fault.into());
    }
    keeping.guarded_bytes += message.len();
    keeping.guarded.insert(ticket.0, Guarded { to, message: message.into() });
    let namespace = if guard.is_fast { Namespace::Memory } else { Namespace::Durable };
    let table = if guard.is_fast { Table::FastLocks } else { Table::Locks };
    let name = guard.name.as_bytes();
    let question = Question { table, namespace, operation: Operation::Look, name, owner: &[] };
    let form = Form {
        kind: FormKind::Fence(ticket),
        texts: name.to_vec(),
        name_bytes: name.len(),
        ..Form::default()
    };
    let login = asker::login_of(core, ticket);
    let asker = Asker { role: Arc::from(""), login, was_forwarded: false };
    ask::ask_for(core, io, &asker, &question, form);
}

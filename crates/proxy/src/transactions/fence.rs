//! Whether a lock is held with the fence that a request names: its owner is asked, just before the request is sent on.
//!
//! This alone would not do: the lock may be another's by the time that the transaction is carried out. What is decided there
//! ([`super::own_rows`]) is whether anybody has come with a later fence.

use std::sync::Arc;

use shunt_language::facade::Table;
use shunt_locks::{Namespace, Ticket};
use shunt_reactor::Io;

use super::besides::{Besides, Guard};
use super::known::Asked;
use super::own_rows::dead;
use super::{asker, take};
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::locks::ask;
use crate::locks::form::{Form, FormKind};
use crate::locks::outbox::{Reply, Verdict};
use crate::locks::question::Question;
use crate::locks::request::Operation;
use crate::locks::requests::Asker;

/// Requests that wait to hear of a lock, and bytes of them.
const WAITING_MAX: usize = 4_096;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A request that waits to hear if its lock is held.
pub(super) struct Guarded {
    /// The core that is sent it then, and whose share it counts to.
    to: (usize, Arc<str>),
    message: Box<[u8]>,
}

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
    if keeping.guarded.len() >= WAITING_MAX || keeping.guarded_bytes + message.len() > WAITING_BYTES_MAX {
        let fault = Fault::overloaded("Shunt: too many requests wait to hear if their locks are held; ask again");
        return keeping.fail(ticket, &fault.into());
    }
    keeping.guarded_bytes += message.len();
    keeping.guarded.insert(ticket.0, Guarded { to, message: message.into() });
    let namespace = if guard.is_fast { Namespace::Memory } else { Namespace::Durable };
    let table = if guard.is_fast { Table::FastLocks } else { Table::Locks };
    let name = guard.name.as_bytes();
    let question = Question { table, namespace, operation: Operation::Look, name, owner: &[] };
    let form = Form { kind: FormKind::Fence(ticket), texts: name.to_vec(), name_bytes: name.len(), ..Form::default() };
    let login = asker::login_of(core, ticket);
    let asker = Asker { role: Arc::from(""), login, was_forwarded: false };
    ask::ask_for(core, io, &asker, &question, form);
}

/// Who holds the lock is known, or nobody could say.
pub(crate) fn heard(core: &mut Core, io: &mut Io, ticket: Ticket, outcome: &Reply<'_>) {
    let keeping = &mut core.fleet.transactions;
    let Some(Guarded { to: (keeper, who), message }) = keeping.guarded.remove(&ticket.0) else { return };
    keeping.guarded_bytes -= message.len();
    // Its client may be gone.
    if core.fleet.locks.requests_mut().get_mut(ticket).is_none() {
        return;
    }
    let Some((asked, guard)) = Asked::read(&message).ok().and_then(|asked| Some((asked, asked.besides.guard?))) else {
        return;
    };
    let fault = match (outcome.verdict, outcome.holder) {
        (Verdict::Seen, Some(held)) if held.fence == guard.fence => {
            return take::send_to(core, io, ticket, keeper, &who, &message);
        }
        // It may have been carried out before, under its key.
        (Verdict::Seen, _) if !asked.besides.key.is_empty() => {
            let guard = Some(Guard { is_over: true, ..guard });
            let asked = Asked { besides: Besides { guard, ..asked.besides }, ..asked };
            let mut message = Vec::new();
            asked.put(&mut message);
            return take::send_to(core, io, ticket, keeper, &who, &message);
        }
        (Verdict::Seen, _) => dead(guard.name, guard.fence),
        _ => {
            let why = format!(
                "Shunt: it is not known if lock '{}' is held: the proxy that keeps it did not say; nothing was written, ask again",
                guard.name
            );
            Fault::new(FaultKind::Unserved, why)
        }
    };
    core.fleet.transactions.fail(ticket, &fault.into());
}

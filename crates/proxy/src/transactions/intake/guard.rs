//! Whether a lock is held with the fence that a request names: the lock's owner is asked just
//! before the request is sent on.
//!
//! This check alone is not enough: another client may hold the lock by the time that the
//! transaction is carried out. The core that carries it out compares fences again
//! ([`shunt_transactions::guard`]).

use std::sync::Arc;

use shunt_language::lock_tables::Table;
use shunt_locks::{Namespace, Ticket};
use shunt_reactor::Io;
use shunt_transactions::guard::idempotency::dead;
use shunt_transactions::guard::request::{Guard, Safeguards};
use shunt_transactions::request::Request;

use super::client;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::requests::Asker;
use crate::fleet::requests::answer_form::{AnswerForm, AnswerKind};
use crate::locks::dispatch;
use crate::locks::reply::{Reply, Verdict};
use crate::locks::request::LockRequest;
use crate::locks::request::Operation;
use crate::transactions::effects::Effect;
use crate::transactions::job::GuardedRequest;

/// Sends a request to this core once its lock is known to be held.
pub(crate) fn check(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    to: (usize, Arc<str>),
    guard: Guard<'_>,
    message: &[u8],
) {
    let keeping = &mut core.fleet.transactions;
    if !keeping.guarded.insert(ticket, GuardedRequest { to, message: message.into() }) {
        let fault = Fault::overloaded(
            "Shunt: too many requests, in all or of this role, wait for answers about their locks; ask again",
        );
        return keeping.fail(ticket, &fault.into());
    }
    let namespace = if guard.is_fast { Namespace::Memory } else { Namespace::Durable };
    let table = if guard.is_fast { Table::FastLocks } else { Table::Locks };
    let name = guard.name.as_bytes();
    let question = LockRequest { table, namespace, operation: Operation::Look, name, owner: &[] };
    let form = AnswerForm {
        kind: AnswerKind::Fence(ticket),
        texts: name.to_vec(),
        name_bytes: name.len(),
        ..AnswerForm::default()
    };
    let login = client::login_of(core, ticket);
    let asker = Asker { role: Arc::from(""), login, was_forwarded: false };
    dispatch::ask_for(core, io, &asker, &question, form);
}

/// Takes in the answer of the lock's owner.
pub(crate) fn lock_answered(core: &mut Core, ticket: Ticket, outcome: &Reply<'_>) {
    let Some(GuardedRequest { to, message }) = core.fleet.transactions.guarded.remove(ticket)
    else {
        return;
    };
    // The client may be gone.
    if core.fleet.requests.get_mut(ticket).is_none() {
        return;
    }
    let Some((asked, guard)) =
        Request::decode(&message).ok().and_then(|asked| Some((asked, asked.safeguards.guard?)))
    else {
        return;
    };
    let fault = match (outcome.verdict, outcome.holder) {
        (Verdict::Seen, Some(held)) if held.fence == guard.fence => {
            return core
                .fleet
                .transactions
                .effects
                .list
                .push(Effect::SendToCore(ticket, to, message));
        }
        // The request may have been carried out before, under its key.
        (Verdict::Seen, _) if !asked.safeguards.key.is_empty() => {
            let guard = Some(Guard { is_over: true, ..guard });
            let asked = Request { safeguards: Safeguards { guard, ..asked.safeguards }, ..asked };
            let mut message = Vec::new();
            asked.encode(&mut message);
            return core.fleet.transactions.effects.list.push(Effect::SendToCore(
                ticket,
                to,
                message.into(),
            ));
        }
        (Verdict::Seen, _) => dead(guard.name, guard.fence).into(),
        _ => {
            let why = format!(
                "Shunt: the proxy that owns lock '{}' did not say whether it is held; nothing was written, ask again",
                guard.name
            );
            Fault::new(FaultKind::Unserved, why)
        }
    };
    core.fleet.transactions.fail(ticket, &fault.into());
}

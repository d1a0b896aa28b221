//! Whether a lock is held with the fence that a request names: its owner is asked, just before the
//! request is sent on.
//!
//! This alone would not do: the lock may be another's by the time that the transaction is carried
//! out. What is decided there ([`super::own_rows`]) is whether anybody has come with a later fence.

use shunt_locks::Ticket;

use super::guarded::Guarded;
use super::outbox::Wanted;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::locks::outbox::{Reply, Verdict};
use shunt_transactions::guard::idempotency::dead;
use shunt_transactions::guard::request::{Besides, Guard};
use shunt_transactions::request::Asked;

/// Who holds the lock is known, or nobody could say.
pub(crate) fn heard(core: &mut Core, ticket: Ticket, outcome: &Reply<'_>) {
    let keeping = &mut core.fleet.transactions;
    let Some(Guarded { to, message }) = keeping.guarded.remove(&ticket.0) else { return };
    keeping.guarded_bytes -= message.len();
    // Its client may be gone.
    if core.fleet.locks.requests_mut().get_mut(ticket).is_none() {
        return;
    }
    let Some((asked, guard)) =
        Asked::read(&message).ok().and_then(|asked| Some((asked, asked.besides.guard?)))
    else {
        return;
    };
    let fault = match (outcome.verdict, outcome.holder) {
        (Verdict::Seen, Some(held)) if held.fence == guard.fence => {
            return core.fleet.transactions.outbox.wanted.push(Wanted::Send(ticket, to, message));
        }
        // It may have been carried out before, under its key.
        (Verdict::Seen, _) if !asked.besides.key.is_empty() => {
            let guard = Some(Guard { is_over: true, ..guard });
            let asked = Asked { besides: Besides { guard, ..asked.besides }, ..asked };
            let mut message = Vec::new();
            asked.put(&mut message);
            return core.fleet.transactions.outbox.wanted.push(Wanted::Send(
                ticket,
                to,
                message.into(),
            ));
        }
        (Verdict::Seen, _) => dead(guard.name, guard.fence).into(),
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

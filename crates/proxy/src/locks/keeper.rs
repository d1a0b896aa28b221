//! Drives the state machine of this core's locks: requests, timers, and the outcomes of writes. The
//! effects of each step wait in a queue until the event is over ([`super::effects`]).

use shunt_locks::{
    Asked, Handle, Limits, LoadId, Locks, Namespace, NotServed, Outcome, Quota, Row, Sink, Ticket,
    WriteId, Written,
};
use shunt_reactor::Io;

use crate::client::identity;
use crate::core::Core;
pub(crate) use crate::fleet::levels::now;
use crate::locks::effects::Effects;
use crate::locks::request::{KeeperRequest, Operation};
use crate::metrics::LockEvent;

/// Accepts a request. Returns a handle if the request is not answered yet.
pub(crate) fn take_request(
    core: &mut Core,
    io: &mut Io,
    request: &KeeperRequest<'_>,
) -> Option<Handle> {
    let now = now(io);
    let KeeperRequest { ticket, namespace, operation, name, role, owner } = *request;
    if namespace == Namespace::Memory && !core.fleet.locks.lasts_no_longer(operation) {
        // The client's core did not know the longest TTL yet. It will when it sends the request
        // again.
        core.fleet.locks.effects.reply(ticket, Outcome::NotServed(NotServed::Elsewhere));
        return None;
    }
    let locks = &mut core.fleet.locks;
    let is_release =
        namespace == Namespace::Durable && matches!(operation, Operation::Release { .. });
    if is_release && !locks.backlog.has_room(locks.effects.rows_count(), role) {
        // Without room for its row, the release would leave the lock held for the shard's next
        // owner.
        locks.effects.reply(ticket, Outcome::Quota(Quota::Requests));
        return None;
    }
    let asked = Asked { namespace, name, role, owner, ticket };
    let forced = is_operators(core.context.config.username.as_deref(), role);
    let (table, effects) = core.fleet.locks.table();
    let handle = match operation {
        Operation::Acquire { mode, ttl_ms, wait_ms } => {
            table.acquire(now, &asked, mode, (ttl_ms, wait_ms), effects)
        }
        Operation::Renew { mode, ttl_ms, fence } => {
            table.renew(now, &asked, mode, (ttl_ms, fence), effects)
        }
        Operation::Release { fence } => table.release(now, &asked, fence, forced, effects),
        Operation::GiveBack { fence } => table.give_back(now, &asked, fence, effects),
        Operation::Look => table.look(now, &asked, effects),
        Operation::List { fast } => {
            // The list is made once it is certain that this core may answer for the lock.
            core.fleet.locks.listings.insert(ticket.0, (name.into(), fast));
            let (table, effects) = core.fleet.locks.table();
            table.look(now, &asked, effects)
        }
    };
    set_due(core, io);
    handle
}

/// Accepts a request of another core's client.
pub(crate) fn take_remote(core: &mut Core, io: &mut Io, request: &KeeperRequest<'_>) {
    if let Some(handle) = take_request(core, io, request) {
        core.fleet.locks.remote.insert(request.ticket.0, handle);
    }
}

/// Cancels a request of another core's client.
pub(crate) fn cancel_remote(core: &mut Core, io: &mut Io, ticket: Ticket, is_awaited: bool) {
    if let Some(handle) = core.fleet.locks.remote.remove(&ticket.0) {
        cancel(core, io, ticket, handle, is_awaited);
    }
}

/// True for the role by which the proxies log in. It may write to the tables of the fleet, so it
/// may release the locks of every role. Names that a display has changed may stand for several
/// roles, and count for none.
fn is_operators(own: Option<&str>, role: &[u8]) -> bool {
    own.is_some_and(|own| {
        own.as_bytes() == role && !own.contains(['\\', '…']) && own != identity::UNKNOWN
    })
}

/// Cancels a request. If its client waits for an answer, the answer says that the outcome is
/// unknown.
pub(crate) fn cancel(
    core: &mut Core,
    io: &mut Io,
    ticket: Ticket,
    handle: Handle,
    is_awaited: bool,
) {
    core.fleet.locks.listings.remove(&ticket.0);
    let now = now(io);
    let (table, effects) = core.fleet.locks.table();
    if table.cancel(now, handle, effects) && is_awaited {
        effects.reply(ticket, Outcome::InDoubt);
    }
    set_due(core, io);
}

/// Notes the outcome of a write.
pub(super) fn written(core: &mut Core, io: &mut Io, id: WriteId, written: Written) {
    let now = now(io);
    let (table, effects) = core.fleet.locks.table();
    table.written(now, id, written, effects);
    set_due(core, io);
}

/// Adds rows of a partition. Returns false if this core cannot keep so many.
pub(super) fn loaded(
    core: &mut Core,
    io: &mut Io,
    load: LoadId,
    rows: &[Row<'_>],
    last: bool,
) -> bool {
    let now = now(io);
    let (table, effects) = core.fleet.locks.table();
    let is_taken = table.loaded(now, load, rows.iter().copied(), last, effects);
    set_due(core, io);
    is_taken
}

/// Notes that rows could not be read. Returns false if nothing waits for them any more.
pub(super) fn load_failed(core: &mut Core, io: &mut Io, load: LoadId) -> bool {
    let (table, effects) = core.fleet.locks.table();
    let was_awaited = table.load_failed(load, effects);
    set_due(core, io);
    was_awaited
}

/// Ends the holds, waits and writes whose time is over.
pub(super) fn due(core: &mut Core, io: &mut Io) {
    let now = now(io);
    let (table, effects) = core.fleet.locks.table();
    let more = table.tick(now, effects);
    set_due(core, io);
    if more {
        set_timer(core, io, io.now_ns() + 1);
    }
}

/// Updates the counters of the metrics.
pub(crate) fn tick(core: &mut Core) {
    core.fleet.locks.lists_bytes = 0;
    core.fleet.locks.visits = 0;
    use LockEvent::{
        Expired, Granted, InDoubt, Loaded, Released, Renewed, WaitTimedOut, WaitedFor, WrittenAgain,
    };
    let Some(table) = &core.fleet.locks.table else { return };
    let (metrics, counters) = (&core.context.metrics.locks, table.counters());
    core.fleet.locks.damaged.count(&metrics.unreadable);
    metrics.held.set(table.holds() as u64);
    metrics.waiting.set(table.requests() as u64);
    for (event, count) in [
        (Granted, counters.grants),
        (WaitedFor, counters.waited_grants),
        (WaitTimedOut, counters.wait_timeouts),
        (Renewed, counters.renewals),
        (Released, counters.releases),
        (Expired, counters.expiries),
        (InDoubt, counters.in_doubt),
        (Loaded, counters.loaded_holds),
        (WrittenAgain, counters.redriven),
    ] {
        let counted = metrics.events.of(event);
        counted.add(count - counted.get());
    }
}

/// Sets the timer for what is due next.
pub(crate) fn set_due(core: &mut Core, io: &mut Io) {
    if let Some(due_ms) = core.fleet.locks.table.as_ref().and_then(|table| table.next_due_ms()) {
        set_timer(core, io, due_ms.saturating_mul(1_000_000).max(io.now_ns() + 1));
    }
}

/// Makes sure that [`due`] runs at this time or before.
pub(super) fn wake(core: &mut Core, io: &mut Io, at_ns: u64) {
    set_timer(core, io, at_ns);
}

fn set_timer(core: &mut Core, io: &mut Io, at_ns: u64) {
    if core.fleet.locks.wakes.wants(at_ns) {
        io.set_timer(at_ns, super::TIMER);
    }
}

impl super::LockKeeper {
    /// True if a lock in memory may be held for as long as the request asks. The shard's next owner
    /// waits no longer than that.
    fn lasts_no_longer(&self, operation: Operation) -> bool {
        match operation {
            Operation::Acquire { ttl_ms, .. } | Operation::Renew { ttl_ms, .. } => {
                ttl_ms <= self.max_ttl_ms
            }
            Operation::Release { .. }
            | Operation::GiveBack { .. }
            | Operation::Look
            | Operation::List { .. } => true,
        }
    }

    /// The locks, created at the first use, and the queue for their effects.
    pub(super) fn table(&mut self) -> (&mut Locks, &mut Effects) {
        let table = self.table.get_or_insert_with(|| Box::new(Locks::new(Limits::default())));
        (table, &mut self.effects)
    }

    /// Leaves out steps, for a test.
    #[cfg(feature = "weakened")]
    pub(crate) fn leave_out(&mut self, without: shunt_locks::Without) {
        self.table().0.leave_out(without);
    }
}

#[cfg(test)]
mod tests {
    use shunt_locks::Mode;

    use super::*;
    use crate::locks::LockKeeper;

    #[test]
    fn only_the_role_of_the_proxies_is_the_operators() {
        assert!(is_operators(Some("shunt"), b"shunt"));
        for (own, role) in [
            (None, &b""[..]),
            (None, b"shunt"),
            (Some("shunt"), b""),
            (Some("shunt"), b"shunt2"),
            // As other roles are shown too.
            (Some("unknown"), b"unknown"),
            (Some("a…"), "a…".as_bytes()),
            (Some("a\\u{1}"), b"a\\u{1}"),
        ] {
            assert!(!is_operators(own, role), "{own:?} {role:?}");
        }
    }

    /// The client's core may not know the longest TTL yet.
    #[test]
    fn nothing_lasts_longer_in_memory_than_the_next_owner_waits() {
        let keeper = LockKeeper { max_ttl_ms: 30_000, ..LockKeeper::default() };
        let acquire = |ttl_ms| Operation::Acquire { mode: Mode::Shared, ttl_ms, wait_ms: 0 };
        let renew = |ttl_ms| Operation::Renew { mode: None, ttl_ms, fence: None };
        assert!(keeper.lasts_no_longer(acquire(30_000)) && keeper.lasts_no_longer(renew(30_000)));
        assert!(!keeper.lasts_no_longer(acquire(31_000)) && !keeper.lasts_no_longer(renew(31_000)));
        assert!(keeper.lasts_no_longer(Operation::Release { fence: None }));
    }
}

//! Performs the effects of a core's locks at the end of the event that caused them.

use shunt_locks::{Namespace, NotServed, Quota, Ticket};
use shunt_reactor::Io;

use crate::core::Core;
use crate::locks::reply::{Reply, Verdict};
use crate::locks::{dispatch, keeper, listing, permission, rows};

/// Handles the timer: repeats requests, and ends holds, waits and writes whose time is over.
pub(crate) fn due(core: &mut Core, io: &mut Io) {
    core.fleet.locks.wakes.passed(io.now_ns());
    permission::due(core, io);
    dispatch::ask_again(core, io);
    keeper::due(core, io);
}

/// Performs all queued effects. Further effects that they cause are left for the next call.
#[cold]
pub(crate) fn perform(core: &mut Core, io: &mut Io) {
    let mut effects = std::mem::take(&mut core.fleet.locks.effects);
    for (ticket, reply) in effects.replies() {
        match core.fleet.locks.listings.remove(&ticket.0) {
            Some((name, fast)) if reply.verdict == Verdict::Seen => {
                list(core, io, (ticket, reply), &name, fast)
            }
            _ => dispatch::answered(core, io, ticket, &reply),
        }
    }
    for row in effects.rows() {
        rows::write(core, io, &row);
    }
    for load in &effects.loads {
        rows::read_partition(core, io, *load, None);
    }
    effects.clear();
    if core.fleet.locks.effects.is_empty() {
        core.fleet.locks.effects = effects;
    }
}

/// Answers with all holders of a lock and all requests that wait for it.
fn list(
    core: &mut Core,
    io: &mut Io,
    (ticket, reply): (Ticket, Reply<'_>),
    name: &[u8],
    fast: Option<bool>,
) {
    if !dispatch::has_room_for_list(core, io, ticket) {
        dispatch::answered(core, io, ticket, &Verdict::Quota(Quota::Requests).into());
        return;
    }
    let now = keeper::now(io);
    let (table, _) = core.fleet.locks.table();
    if fast != Some(false) && table.is_memory_unknown(now, name) {
        // A list without the holder would show the lock as free.
        dispatch::answered(core, io, ticket, &Verdict::NotServed(NotServed::Grace).into());
        return;
    }
    let (mut entries, mut count) = (Vec::new(), 0);
    for (is_fast, namespace) in [(false, Namespace::Durable), (true, Namespace::Memory)] {
        if fast.is_none_or(|fast| fast == is_fast) && count < listing::ROWS_MAX {
            table.queue(now, namespace, name, |holder, role| {
                count += 1;
                listing::put(&mut entries, is_fast, holder.fence == 0, &holder, role);
                count < listing::ROWS_MAX
            });
        }
    }
    core.fleet.locks.lists_bytes += entries.len();
    dispatch::answered(
        core,
        io,
        ticket,
        &Reply { verdict: Verdict::Listed, list: &entries, ..reply },
    );
}

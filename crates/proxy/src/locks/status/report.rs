//! A core reports its locks and its fleet to the admin pages, once a second at most. The size of a
//! report is bounded.

use shunt_language::lock_tables::reply::Row;
use shunt_locks::Namespace;
use shunt_reactor::Io;
use tokio::sync::mpsc;

use crate::core::Core;
use crate::locks::status::{
    CoreLockList, CoreLocks, FleetShown, QUEUES_MAX, Queue, UNREADABLE_MAX, longest,
};
use crate::locks::{listing, overview};

/// Members that are shown; a fleet has up to 64 that live, and some that did.
const MEMBERS_MAX: usize = 128;

/// Sends the report of this core.
pub(crate) fn send(core: &mut Core, io: &mut Io, answer: &mpsc::Sender<CoreLocks>) {
    if answer.is_closed() {
        return;
    }
    let mut queues = Vec::new();
    for namespace in [Namespace::Durable, Namespace::Memory] {
        add_queues(core, io, namespace, &mut queues);
    }
    longest(&mut queues);
    let not_a_member = core.fleet.membership.not_a_member().map(str::to_owned);
    let unreadable = core.fleet.locks.damaged.shown(UNREADABLE_MAX);
    let unmade = core.fleet.transactions.unmade(io.now_ns());
    let report = CoreLocks {
        core: core.context.index,
        queues,
        fleet: fleet(core, io),
        not_a_member,
        unreadable,
        unmade,
    };
    // Who asked has gone, or has room for the answer of each core.
    let _ = answer.try_send(report);
}

fn add_queues(core: &mut Core, io: &mut Io, namespace: Namespace, queues: &mut Vec<Queue>) {
    let locks = locks(core, io, namespace, QUEUES_MAX);
    queues.extend(locks.into_iter().filter(|lock| lock.waiters > 0));
}

/// The first locks of this core, longest queues first.
fn locks(core: &mut Core, io: &mut Io, namespace: Namespace, most: usize) -> Vec<Queue> {
    // Nobody has asked for a lock yet.
    if core.fleet.locks.table.is_none() {
        return Vec::new();
    }
    let Ok(list) = overview::look(core, io, namespace, most as u32) else { return Vec::new() };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lock = |row: Row<'_>| Queue {
        name: text(row.name.unwrap_or_default()),
        is_durable: namespace == Namespace::Durable,
        owner: row.owner.map(text),
        is_shared: row.shared.unwrap_or(false),
        fence: row.fence,
        ttl_ms: row.ttl_ms,
        waiters: row.waiters.unwrap_or(0),
    };
    let locks = listing::longest(&list, most).into_iter().map(lock).collect();
    core.fleet.locks.snapshots[usize::from(namespace == Namespace::Memory)].list = list;
    locks
}

/// Sends the locks of this core.
pub(crate) fn send_list(core: &mut Core, io: &mut Io, answer: &mpsc::Sender<CoreLockList>) {
    if answer.is_closed() {
        return;
    }
    let both = [Namespace::Durable, Namespace::Memory];
    let both = both.map(|namespace| locks(core, io, namespace, listing::ROWS_MAX));
    let is_cut = both.iter().any(|locks| locks.len() >= listing::ROWS_MAX);
    let list = CoreLockList { core: core.context.index, locks: both.concat(), is_cut };
    // The requester has gone, or has room for the answer of each core.
    let _ = answer.try_send(list);
}

fn fleet(core: &Core, io: &Io) -> Option<FleetShown> {
    let member = core.fleet.membership.member()?;
    let (status, now_ns) = (member.status(), io.read_clock_ns());
    let (members, others) = member.members(now_ns, MEMBERS_MAX);
    let lease_left_ms = status.valid_until_ns.saturating_sub(now_ns) / 1_000_000;
    Some(FleetShown {
        own: member.incarnation(),
        epoch: status.epoch,
        lease_left_ms,
        members,
        others,
    })
}

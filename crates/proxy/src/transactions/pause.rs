//! A paused process does not know what others have done meanwhile: a table may have another mode,
//! or a rule. Until it has read both, the statements of its clients wait (`Stall::MODES`), for
//! [`SETTLES_NS`] at most each time. Then it refuses them, except on keyspaces in which no table
//! had a mode or a rule before.
//!
//! The same holds for a process that runs and cannot read modes and rules: those that it knows
//! count for [`MODES_TRUSTED_NS`] from their question on. Other proxies wait for longer before they
//! go by a new mode ([ADR 36](../../../../docs/adr/0036-modes-count-for-six-seconds.md)).
//! Statements on keyspaces without a mode or a rule do not wait then.
//!
//! The same holds for a process that starts and finds no quorum: one replica may have missed a
//! mode. It has no earlier modes to go by, so after [`SETTLES_NS`] it refuses statements on all
//! tables until it has read modes and rules at the fleet's level ([ADR
//! 32](../../../../docs/adr/0032-no-table-is-served-by-one-replicas-word.md)). A core begins in the
//! same doubt if the control plane asked for the modes too long ago: the node, the process or the
//! mailbox may have taken any time since, and a table may have got another mode ([ADR
//! 35](../../../../docs/adr/0035-a-core-begins-with-modes-of-known-age.md)).
//!
//! This must never: serve a table by one replica's word, or because one node denies a table or the
//! right to read it; serve a table by modes of unknown age or older than
//! [`INITIAL_AGE_MAX_NS`](shunt_transactions::catalogue::switching::INITIAL_AGE_MAX_NS) when the
//! core begins; send a statement on by the old mode of a keyspace in use once others go by a new
//! one; end a wait by an answer to a question from before the wait began, or from an earlier wait.
//! A statement that was read before is out of its hands: it may be on its way to a node.

use shunt_reactor::Io;
use shunt_transactions::catalogue::modes::{Doubt, InitialModes, Trust};
use shunt_transactions::catalogue::switching::{MODES_TRUSTED_NS, SETTLES_NS};
use shunt_wire::cql::envelope::Header;

use crate::client::Stall;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::fleet::forwarding;
use crate::limits::{SECOND_NS, STILL_NS};
use crate::transactions::modes::polling::Polling;

/// Notes the time at which the core begins.
pub(crate) fn start(core: &mut Core, io: &Io) {
    core.fleet.transactions.modes.ticked_ns = io.now_ns();
}

/// Begins a core with the modes and rules that the control plane has read. If these are in doubt,
/// or too old, the core reads modes and rules itself before it sends on statements on tables.
pub(crate) fn begin(core: &mut Core, io: &mut Io, read: Option<&InitialModes>) {
    let now_ns = io.read_clock_ns();
    if let Some(read) = read {
        core.router.modes.begin_with(read.modes.clone());
    }
    let doubt = read.map_or(Some(Doubt::Old), |read| read.doubt(now_ns));
    let keeper = &mut core.fleet.transactions;
    (keeper.modes.polling.next_ns, keeper.rules_polling.polling.next_ns) = (0, 0);
    keeper.modes.began_ns = Some(read.map_or(now_ns, |read| read.asked_ns));
    keeper.modes.has_known = doubt.is_none();
    if let Some(read) = read {
        let was_read = !read.modes.are_in_doubt();
        let (modes, rules) = (&mut keeper.modes.polling, &mut keeper.rules_polling.polling);
        (modes.was_read, rules.was_read) = (was_read, was_read);
        modes.denials.has_rows = read.modes.has_use();
        rules.denials.has_rows = !read.modes.rules.is_empty();
    }
    if let Some(doubt) = doubt.filter(|_| is_of_fleet(core)) {
        begin_in_doubt(core, now_ns, doubt);
    }
}

fn begin_in_doubt(core: &mut Core, now_ns: u64, doubt: Doubt) {
    note_pause(core, now_ns);
    core.context.metrics.modes_in_doubt.set(1);
    core.context.metrics.transactions.modes_unknown.set(1);
    let (index, seconds) = (core.context.index, SETTLES_NS / SECOND_NS);
    match doubt {
        Doubt::NoQuorum => tracing::warn!(
            core = index,
            "no quorum has said which tables have a mode or a rule: statements on tables wait for that, and are refused after {seconds} seconds"
        ),
        Doubt::Old => tracing::warn!(
            core = index,
            "this proxy took so long to start that tables may have got another mode or rule: statements on tables wait until it has read them \
             again, and are refused after {seconds} seconds"
        ),
    }
}

/// A fleet is named: it has modes and rules, whether or not this proxy is a member of it now.
pub(super) fn is_of_fleet(core: &Core) -> bool {
    core.context.config.fleet.is_some()
}

/// This process may have stood still for so long that others have changed a table's mode or rule,
/// and go by that: until this core has read them it sends nobody to nodes. Called before anything
/// that a client has sent is read. Returns the time that it went by.
#[inline]
pub(crate) fn check_for_pause(core: &mut Core, io: &mut Io) -> u64 {
    // Not the turn's time: what comes while this process stands still within a turn is read in the
    // same turn.
    if !is_of_fleet(core) {
        return io.now_ns();
    }
    let now_ns = io.read_clock_ns();
    if now_ns.saturating_sub(core.fleet.transactions.modes.ticked_ns) > STILL_NS {
        note_pause(core, now_ns);
    }
    now_ns
}

/// Each time anew, also if what has changed in the time before is not known yet.
#[cold]
fn note_pause(core: &mut Core, now_ns: u64) {
    core.router.modes.trust = Trust::Nothing;
    begin_wait(core, now_ns);
    let keeper = &mut core.fleet.transactions;
    keeper.modes.polling.forget_denials();
    keeper.rules_polling.polling.forget_denials();
}

/// Answers to earlier questions end no wait. A core that never knew any modes has waited already if
/// it refuses.
fn begin_wait(core: &mut Core, now_ns: u64) {
    let keeper = &mut core.fleet.transactions;
    keeper.modes.woke_ns = now_ns;
    (keeper.modes.polling.next_ns, keeper.rules_polling.polling.next_ns) = (0, 0);
    keeper.modes.refuses &= !keeper.modes.has_known;
}

/// Begins a wait on keyspaces in use once modes or rules are too old. On others a proxy serves what
/// it can, as without a fleet.
pub(super) fn end_trust(core: &mut Core, now_ns: u64) {
    if core.router.modes.are_in_doubt() || !core.router.modes.has_use() {
        return;
    }
    let keeper = &core.fleet.transactions;
    let Some(began_ns) = keeper.modes.began_ns else { return };
    if keeper.modes.polling.is_old(began_ns, now_ns)
        || keeper.rules_polling.polling.is_old(began_ns, now_ns)
    {
        core.router.modes.trust = Trust::OnlyUnusedKeyspaces;
        begin_wait(core, now_ns);
        core.context.metrics.transactions.modes_unknown.set(1);
        tracing::warn!(
            core = core.context.index,
            "tables' modes and rules could not be read for {} seconds: statements on keyspaces in which a table has a mode or a rule \
             wait for that, and are refused after {} seconds",
            MODES_TRUSTED_NS / SECOND_NS,
            SETTLES_NS / SECOND_NS
        );
    }
}

/// Ends a wait after [`SETTLES_NS`]: the core refuses the statements that wait. If it knew modes
/// before, it serves keyspaces without any by these.
pub(super) fn end_overdue_wait(core: &mut Core, now_ns: u64) {
    let modes = &mut core.fleet.transactions.modes;
    let is_over = now_ns.saturating_sub(modes.woke_ns) > SETTLES_NS;
    if !core.router.modes.are_in_doubt() || modes.refuses || !is_over {
        return;
    }
    modes.refuses = true;
    if modes.has_known {
        match core.router.modes.has_use() {
            true => {
                core.router.modes.trust = Trust::OnlyUnusedKeyspaces;
                warn_of_refusals(core);
            }
            false => end_doubt(core),
        }
    }
    resume_clients(core);
}

/// Logs that a core which was paused refuses statements, unless an earlier line has said so.
fn warn_of_refusals(core: &Core) {
    let unknown = &core.context.metrics.transactions.modes_unknown;
    if unknown.get() == 0 {
        unknown.set(1);
        tracing::warn!(
            core = core.context.index,
            "tables' modes and rules could not be read after this process was paused: statements on keyspaces in which a table has a \
             mode or a rule are refused until they can be read"
        );
    }
}

/// Serves clients again if modes and rules are both known as they were after this process went on,
/// and both still count. If its role may not read them, and never could, no wait would end: once
/// every node of the local datacentre says so, the core goes on without them.
pub(super) fn end_finished_wait(core: &mut Core, now_ns: u64) {
    let keeper = &core.fleet.transactions;
    let is_told = |polling: &Polling| match polling.known_ns {
        Some(known_ns) => {
            known_ns >= keeper.modes.woke_ns && now_ns.saturating_sub(known_ns) <= MODES_TRUSTED_NS
        }
        None => polling.is_forbidden,
    };
    if core.router.modes.are_in_doubt()
        && is_told(&keeper.modes.polling)
        && is_told(&keeper.rules_polling.polling)
    {
        if core.context.metrics.transactions.modes_unknown.get() > 0 {
            let index = core.context.index;
            tracing::info!(core = index, "statements no longer wait for tables' modes and rules");
        }
        end_doubt(core);
        core.fleet.transactions.modes.has_known = true;
        resume_clients(core);
    }
}

fn end_doubt(core: &mut Core) {
    core.router.modes.trust = Trust::Full;
    core.fleet.transactions.modes.refuses = false;
    core.context.metrics.modes_in_doubt.set(0);
    core.context.metrics.transactions.modes_unknown.set(0);
}

/// True if one node's denial of a table that this core has never read is no news: the core knew of
/// none before, and does not wait. Otherwise an older fleet without the table of rules could serve
/// nothing while a node is down.
pub(super) fn is_settled(core: &Core) -> bool {
    core.fleet.transactions.modes.has_known && (!core.router.modes.are_in_doubt() || refuses(core))
}

fn refuses(core: &Core) -> bool {
    core.router.modes.are_in_doubt() && core.fleet.transactions.modes.refuses
}

/// The error to statements on tables once the wait for modes and rules is over without them. What
/// another proxy has forwarded is [checked](check) when it begins.
pub(super) fn refusal(core: &Core, header: &Header, body: &[u8]) -> Option<Fault> {
    let is_refused = refuses(core) && !forwarding::has_transaction(header, body);
    let keeper = &core.fleet.transactions;
    let has_other_layout =
        keeper.modes.polling.has_other_layout || keeper.rules_polling.polling.has_other_layout;
    is_refused.then(|| {
        Fault::overloaded(match keeper.modes.has_known {
            _ if has_other_layout => {
                "Shunt: shunt_meta.transactional or shunt.guards has a layout that this version does not know, so this proxy cannot read \
                 modes and rules; nothing was written. Run shunt doctor, and do what it says"
            }
            true => {
                "Shunt: this proxy could not read the tables' modes and rules lately; nothing was written. Ask another proxy, or find \
                 out why too few replicas of shunt_meta answer"
            }
            false => {
                "Shunt: this proxy could not read the tables' modes and rules since it began; nothing was written. Ask \
                 another proxy, or see why too few replicas of shunt_meta answer; if the fleet does not exist yet, run shunt fleet init"
            }
        })
    })
}

/// Makes a statement on a table wait while modes or rules are in doubt. Returns true if it waits. A
/// transaction from another proxy does not wait, because its connection carries other requests too,
/// such as renewals of locks.
pub(crate) fn stalls_client(
    core: &mut Core,
    io: &mut Io,
    (slot, header, body): (u32, &Header, &[u8]),
) -> bool {
    let waits = core.router.modes.are_in_doubt()
        && !refuses(core)
        && !forwarding::has_transaction(header, body);
    if waits {
        core.clients.stall(&core.context.metrics, io, slot, Stall::MODES);
    }
    waits
}

/// Checks that modes and rules are known, for a statement that cannot wait like a client's: another
/// proxy has sent it, or its plan was made before a pause of this process.
pub(super) fn check(core: &mut Core, io: &mut Io) -> Result<(), Fault> {
    check_for_pause(core, io);
    if core.router.modes.are_in_doubt() {
        let why = "Shunt: this proxy was paused or cannot read the tables' modes and rules; nothing was written. Ask another proxy.";
        return Err(Fault::new(FaultKind::Unserved, why));
    }
    Ok(())
}

/// Ends the wait of all clients.
fn resume_clients(core: &mut Core) {
    for slot in core.clients.slots() {
        core.clients.unstall(&core.context.metrics, slot, Stall::MODES);
    }
}

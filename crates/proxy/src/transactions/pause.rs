//! A process that has stood still does not know what others have done meanwhile: a table may have
//! another mode, or a rule. Until it has read both, its clients' statements wait (`Stall::MODES`),
//! for [`SETTLES_NS`] at most each time.
//!
//! The same holds for a process that begins and finds no quorum: one replica may have missed a
//! mode. It has no modes from before to go by, so after [`SETTLES_NS`] it refuses statements on
//! tables until it has read modes and rules at the fleet's level ([ADR
//! 32](../../../../docs/adr/0032-no-table-is-served-by-one-replicas-word.md)). A core begins in the
//! same doubt if the control plane asked for the modes too long ago: node, process or mailbox may
//! have taken any time since, and a table may have got another mode meanwhile ([ADR
//! 35](../../../../docs/adr/0035-a-core-begins-with-modes-of-known-age.md)).
//!
//! This must never: serve a table by one replica's word, or by modes of unknown age or older than
//! [`INITIAL_AGE_MAX_NS`](shunt_transactions::catalogue::switching::INITIAL_AGE_MAX_NS) when the
//! core begins; send a statement on by the old mode once others go by a new one; end a wait by an
//! answer to a question from before the wait began, or from an earlier wait. A statement that was
//! read before is out of its hands: it may be on its way to a node.

use shunt_reactor::Io;
use shunt_transactions::catalogue::modes::{Doubt, InitialModes};
use shunt_transactions::catalogue::switching::SETTLES_NS;

use crate::client::Stall;
use crate::core::Core;
use crate::fault::{Fault, FaultKind};
use crate::limits::{SECOND_NS, STILL_NS};
use crate::transactions::modes::state::Start;

/// The core begins.
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
    (keeper.modes.next_ns, keeper.rules_polling.next_ns) = (0, 0);
    if let Some(doubt) = doubt.filter(|_| is_of_fleet(core)) {
        begin_in_doubt(core, now_ns, doubt);
    }
}

fn begin_in_doubt(core: &mut Core, now_ns: u64, doubt: Doubt) {
    note_pause(core, now_ns);
    core.fleet.transactions.modes.start = Start::InDoubt;
    core.context.metrics.modes_in_doubt.set(1);
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
    core.router.modes.is_behind = true;
    let keeper = &mut core.fleet.transactions;
    (keeper.modes.woke_ns, keeper.modes.next_ns, keeper.rules_polling.next_ns) = (now_ns, 0, 0);
    keeper.modes.absence.clear();
    keeper.rules_polling.absence.clear();
}

/// Ends a wait after [`SETTLES_NS`]: the core serves by the modes that it knew before. A core that
/// began in doubt knew none, and refuses the statements that wait.
pub(super) fn end_overdue_wait(core: &mut Core, now_ns: u64) {
    let modes = &mut core.fleet.transactions.modes;
    if !core.router.modes.is_behind || now_ns.saturating_sub(modes.woke_ns) <= SETTLES_NS {
        return;
    }
    match modes.start {
        Start::Known => core.router.modes.is_behind = false,
        Start::InDoubt => modes.start = Start::Refuses,
        Start::Refuses => return,
    }
    resume_clients(core);
}

/// Serves clients again if modes and rules are both known as they were after this process went on.
/// If the core began in doubt and its role may not read them, no wait would end: the core goes on
/// without them, as a core that reached a quorum does.
pub(super) fn end_finished_wait(core: &mut Core) {
    let keeper = &core.fleet.transactions;
    let began_in_doubt = keeper.modes.start != Start::Known;
    let is_told = |known_ns: Option<u64>, is_forbidden: bool| {
        known_ns.is_some_and(|known_ns| known_ns >= keeper.modes.woke_ns)
            || is_forbidden && began_in_doubt
    };
    let of_modes = is_told(keeper.modes.known_ns, keeper.modes.is_forbidden);
    if core.router.modes.is_behind
        && of_modes
        && is_told(keeper.rules_polling.known_ns, keeper.rules_polling.is_forbidden)
    {
        core.router.modes.is_behind = false;
        core.fleet.transactions.modes.start = Start::Known;
        core.context.metrics.modes_in_doubt.set(0);
        resume_clients(core);
    }
}

fn refuses(core: &Core) -> bool {
    core.router.modes.is_behind && core.fleet.transactions.modes.start == Start::Refuses
}

/// The error to statements on tables once the wait for modes and rules is over without them.
pub(super) fn refusal(core: &Core) -> Option<Fault> {
    refuses(core).then(|| {
        Fault::overloaded(
            "Shunt: this proxy has not been able to read the tables' modes and rules since it began; nothing was written. Ask \
             another proxy, or see why too few replicas of shunt_meta answer; if the fleet does not exist yet, run shunt fleet init",
        )
    })
}

/// True meanwhile: whoever asks for anything on a table waits.
pub(crate) fn stalls_client(core: &mut Core, io: &mut Io, slot: u32) -> bool {
    let waits = core.router.modes.is_behind && !refuses(core);
    if waits {
        core.clients.stall(&core.context.metrics, io, slot, Stall::MODES);
    }
    waits
}

/// Of what waits for nothing as clients do: others have sent it here, or it was being planned when
/// this process stood still.
pub(super) fn check(core: &mut Core, io: &mut Io) -> Result<(), Fault> {
    check_for_pause(core, io);
    if core.router.modes.is_behind {
        let why = "Shunt: this proxy has stood still and does not know the tables' modes and rules yet; nothing was written, ask the next host";
        return Err(Fault::new(FaultKind::Unserved, why));
    }
    Ok(())
}

/// Those who have waited are read again.
fn resume_clients(core: &mut Core) {
    for slot in core.clients.slots() {
        core.clients.unstall(&core.context.metrics, slot, Stall::MODES);
    }
}

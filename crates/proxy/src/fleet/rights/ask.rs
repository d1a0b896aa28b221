//! Questions to nodes about rights, whose verdicts are kept.

use shunt_reactor::Io;

use super::cache::Verdict;
use super::probe::{self, Reading};
use super::right::{Action, Right};
use crate::core::Core;
use crate::fleet::statements::{self, Heard, Whose};
use crate::ids::PoolId;
use crate::transactions::part::Who;

/// A node's answer to a question about a right, or the reason for its absence.
pub(crate) struct Answer {
    pub(crate) right: Right,
    /// Number of the question.
    pub(crate) number: u64,
    /// Pool over whose link the question went.
    pub(crate) pool: PoolId,
    /// Time at which the question was sent.
    pub(crate) asked_ns: u64,
    pub(crate) reading: Reading,
}

/// Reason why a question was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many questions are in flight, in total or of this role.
    Full,
    /// The pool has no link.
    NoLink,
}

/// Asks a node about a right, over a link of this pool. Returns the number of the question. `who`
/// is the role whose share the question counts against.
pub(crate) fn ask(
    core: &mut Core,
    io: &mut Io,
    pool: PoolId,
    right: &Right,
    who: Who,
) -> Result<u64, NotAsked> {
    let number = core.fleet.rights.inquiries.next_number();
    // Questions about locks are few, and must not wait for the many about tables.
    let who = (!matches!(right.action, Action::UseLocks(_))).then_some(who);
    let whose = Whose::Right { pool, number, who };
    if !core.fleet.statements.has_room(&whose) {
        return Err(NotAsked::Full);
    }
    // The time is taken before the question is sent, so the node checks the right later than that.
    let asked_ns = io.read_clock_ns();
    let text = probe::statement(&right.action);
    if !statements::ask::ask_in(core, io, pool, whose, &text, probe::level(&right.action)) {
        return Err(NotAsked::NoLink);
    }
    core.fleet.rights.inquiries.add(number, right.clone(), asked_ns);
    Ok(number)
}

/// Keeps the verdict in a node's answer. Returns `None` if nobody waits for this answer.
pub(crate) fn take_answer(
    core: &mut Core,
    (pool, number): (PoolId, u64),
    heard: &Heard<'_>,
) -> Option<Answer> {
    let cache_ns = core.context.config.auth_cache_ms * 1_000_000;
    let rights = &mut core.fleet.rights;
    let (right, asked_ns) = rights.inquiries.remove(number)?;
    // The place of the pool may belong to a pool with another login by now.
    let is_same = core.router.pools.get(pool).is_some_and(|pool| pool.login_id == right.login);
    let reading = match is_same {
        true => probe::read_answer(heard, &right.action),
        false => Reading::Unknown("its pool is gone".into()),
    };
    match &reading {
        Reading::Granted => rights.verdicts.keep(&right, Verdict::Granted, asked_ns, cache_ns),
        Reading::Refused(message) => {
            rights.verdicts.keep(&right, Verdict::refused(message), asked_ns, cache_ns);
        }
        Reading::Invalid(_) | Reading::Unknown(_) => {}
    }
    Some(Answer { right, number, pool, asked_ns, reading })
}

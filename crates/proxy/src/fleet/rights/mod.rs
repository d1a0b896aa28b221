//! Rights of clients' roles, which nodes decide. Locks and transactions share them.
//!
//! The proxy answers statements on locks itself, and carries transactions out under its own login,
//! so no node would check the role of the client. The proxy asks a node for each right, over a link
//! of the client's own pool, by a statement that does nothing ([`question`], ADR 16). A node looks
//! at rights before it looks at anything else. One cache keeps the verdicts of a core for
//! `auth_cache_ms`, by login ([`cache`]).
//!
//! ```text
//! request -> verdict --known--> request goes on, or is refused
//!               |
//!            unknown -> ask -> [node] -> answer -> verdict is kept; waiting requests go on
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`cache`] | verdicts of nodes, by login and action |
//! | [`inquiries`] | questions on their way to nodes |
//! | [`question`] | the text of a question, and what a node's answer means |
//! | [`waiting`] | requests that wait for a verdict, limited by number, bytes and role |
//!
//! This must never:
//! - allow a request that was received later than `auth_cache_ms` after the node was asked. A
//!   verdict's age counts from the time at which its question was sent, and is compared with the
//!   time at which the request came;
//! - use the verdict on one login for another. The login is part of the key, and an answer that
//!   comes to a pool with another login is ignored;
//! - let an older answer replace a newer one. Answers may overtake one another;
//! - allow a request whose right no node has confirmed.

pub(crate) mod cache;
pub(crate) mod inquiries;
pub(crate) mod question;
pub(crate) mod waiting;

use shunt_language::facade::Table;
use shunt_reactor::Io;

use self::cache::{Verdict, Verdicts};
use self::inquiries::Inquiries;
use self::question::Reading;
use crate::core::Core;
use crate::fleet::peers::Login;
use crate::fleet::statements::{self, Heard, Whose};
use crate::ids::PoolId;
use crate::transactions::part::Who;

/// A right: that the role of this login may do this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Right {
    pub(crate) login: Login,
    pub(crate) action: Action,
}

/// What a role does with a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Uses the locks of a table: the right to SELECT from the table is the right to its locks.
    UseLocks(Table),
    /// Reads a table, by its qualified name.
    Read(Box<str>),
    /// Writes to a table, by its qualified name.
    Write(Box<str>),
}

/// The owner of the rights that a core knows.
#[derive(Default)]
pub(crate) struct Rights {
    verdicts: Verdicts,
    inquiries: Inquiries,
}

/// A node's answer to a question about a right, or the want of one.
pub(crate) struct Answer {
    pub(crate) right: Right,
    /// Number of the question.
    pub(crate) number: u64,
    /// Pool over whose link the question went.
    pub(crate) pool: PoolId,
    /// When the question was sent.
    pub(crate) asked_ns: u64,
    pub(crate) reading: Reading,
}

/// Why a question was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// Too many questions are on their way, in all or of this role.
    Full,
    /// The pool has no link.
    NoLink,
}

impl Rights {
    /// The verdict for a request that came at this time; none: no node has given one that is young
    /// enough.
    pub(crate) fn verdict(&self, right: &Right, came_ns: u64, cache_ns: u64) -> Option<&Verdict> {
        self.verdicts.verdict(right, came_ns, cache_ns)
    }

    /// True if a request that came at this time should have the right asked about: the verdict is
    /// missing, or older than half of `auth_cache_ms`; and no question is on its way.
    pub(crate) fn needs_question(
        &self,
        right: &Right,
        (came_ns, now_ns): (u64, u64),
        cache_ns: u64,
    ) -> bool {
        self.verdicts.is_aging(right, came_ns, cache_ns)
            && !self.inquiries.is_pending(right, now_ns)
            && !self.inquiries.is_paused(right, now_ns)
    }

    /// The number of a question about this right whose answer a request that came at this time may
    /// share.
    pub(crate) fn shared_question(&self, right: &Right, came_ns: u64) -> Option<u64> {
        self.inquiries.shared(right, came_ns)
    }

    /// No question about this right before this time.
    pub(crate) fn pause(&mut self, right: &Right, until_ns: u64, now_ns: u64) {
        self.inquiries.pause(right, until_ns, now_ns);
    }
}

/// Asks a node about a right, over a link of this pool: the number of the question. `who`: whose
/// share of the questions it counts to.
pub(crate) fn ask(
    core: &mut Core,
    io: &mut Io,
    pool: PoolId,
    right: &Right,
    who: Who,
) -> Result<u64, NotAsked> {
    let number = core.fleet.rights.inquiries.next_number();
    // Few questions are about locks, and they must not wait for the many about tables.
    let who = (!matches!(right.action, Action::UseLocks(_))).then_some(who);
    let whose = Whose::Right { pool, number, who };
    if !core.fleet.statements.has_room(&whose) {
        return Err(NotAsked::Full);
    }
    // Before the question is sent: the node looks at the role's rights later than that.
    let asked_ns = io.read_clock_ns();
    let text = question::text(&right.action);
    if !statements::ask::ask_in(core, io, pool, whose, &text, question::level(&right.action)) {
        return Err(NotAsked::NoLink);
    }
    core.fleet.rights.inquiries.add(number, right.clone(), asked_ns);
    Ok(number)
}

/// Keeps the verdict of a node's answer. `None`: nobody waits for this answer.
pub(crate) fn take_answer(
    core: &mut Core,
    (pool, number): (PoolId, u64),
    heard: &Heard<'_>,
) -> Option<Answer> {
    let rights = &mut core.fleet.rights;
    let (right, asked_ns) = rights.inquiries.remove(number)?;
    // Another pool may have the place of the one that asked, with another login.
    let is_same = core.router.pools.get(pool).is_some_and(|pool| pool.key.login == right.login);
    let reading = match is_same {
        true => question::read(heard, &right.action),
        false => Reading::Unknown("its pool is gone".into()),
    };
    match &reading {
        Reading::Granted => rights.verdicts.keep(&right, Verdict::Granted, asked_ns),
        Reading::Refused(message) => {
            rights.verdicts.keep(&right, Verdict::refused(message), asked_ns);
        }
        Reading::Invalid(_) | Reading::Unknown(_) => {}
    }
    Some(Answer { right, number, pool, asked_ns, reading })
}

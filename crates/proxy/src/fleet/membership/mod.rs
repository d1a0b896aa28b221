//! This proxy's membership of a fleet. Core 0 runs it, as part of its loop, so that it is in the
//! simulation too.
//!
//! [`shunt_fleet::Member`] decides; here its statements are asked, its words brought to the cores,
//! and what it has to say logged. The fleet's row is read first: lease, longest TTL and consistency
//! are the fleet's, not this proxy's, to set. A membership that has ended (others declared this
//! proxy dead, because it stood still) is followed by another.
//!
//! | module | what happens there |
//! |---|---|
//! | [`run`] | time passes, words and answers come in |
//! | [`effects`] | what the member wants done is done |
//! | [`tool`] | what `shunt fleet` does |
//! | [`answer`] | answers of nodes, as the member takes them |
//! | [`state_file`] | what a restarted proxy knows of its former process |

pub(crate) mod answer;
pub(crate) mod effects;
pub(crate) mod run;
pub mod state_file;
pub mod tool;

use shunt_fleet::{Incarnation, Level, Member, Output, Statement, StatementId, Status};
use shunt_reactor::Io;

use crate::fleet::membership::state_file::StateFile;
use crate::wakes::Wakes;

/// Names the statement that reads the fleet's row before there is a member. A member counts from 0.
const FIRST_READ: StatementId = StatementId(u64::MAX);

/// State of the membership.
#[derive(Default)]
enum Stage {
    /// Idle; the next attempt begins at this time.
    #[default]
    Idle,
    /// The fleet's row is being read.
    Reading { until_ns: u64 },
    /// Running.
    Member(Box<Member>),
}

/// The owner of the membership.
#[derive(Default)]
pub(crate) struct Membership {
    stage: Stage,
    /// Time of the next attempt.
    not_before_ns: u64,
    /// Statements that were sent, to read their answers by; the member has three in flight at most.
    asked: Vec<(StatementId, Statement)>,
    /// Effects of the member that are not performed yet.
    outputs: Vec<Output>,
    /// Times for which the timer is set.
    wakes: Wakes,
    /// The member's name.
    incarnation: Option<Incarnation>,
    /// Serial level of the fleet.
    level: Option<Level>,
    /// Earlier incarnations of this process, whose end all its cores know of, and those of former
    /// processes.
    own_dead: Vec<Incarnation>,
    /// The file in which the next process finds the names of this one.
    state_file: Option<StateFile>,
    /// The last thing that was said of why there is no member.
    told: String,
    /// The fleet's row was asked for before; at the first time the links are being opened.
    has_tried: bool,
    /// The process is to end: the member leaves, and no other follows.
    leaving: bool,
    /// A step that a test leaves out.
    #[cfg(feature = "weakened")]
    pub(crate) left_out: Option<shunt_fleet::Step>,
}

/// The time, read anew. By that at which the turn began, an answer that came while this process
/// stood still would be older than it is: a member that has just renewed its lease would be silent
/// for too long soon, and the grace of a shard over too early.
fn now_ns(io: &Io) -> u64 {
    io.read_clock_ns()
}

/// Statements whose answers may still come.
const ASKED_MAX: usize = 64;

impl Membership {
    /// One that has not begun.
    pub(crate) fn new(state_file: Option<StateFile>) -> Self {
        let own_dead = state_file.as_ref().map_or_else(Vec::new, |file| file.ended().to_vec());
        Self { own_dead, state_file, ..Self::default() }
    }

    /// The member as `/status` shows it.
    pub(crate) fn status(&self) -> Option<Status> {
        self.member().map(Member::status)
    }

    /// Why this proxy is no member, as far as that was told.
    pub(crate) fn not_a_member(&self) -> Option<&str> {
        (self.member().is_none() && !self.told.is_empty()).then_some(&self.told)
    }

    /// The member, while there is one.
    pub(crate) fn member(&self) -> Option<&Member> {
        match &self.stage {
            Stage::Member(member) => Some(member),
            Stage::Idle | Stage::Reading { .. } => None,
        }
    }

    fn remember(&mut self, id: StatementId, statement: Statement) {
        if self.asked.len() >= ASKED_MAX {
            self.asked.remove(0);
        }
        self.asked.push((id, statement));
    }

    fn take_asked(&mut self, id: StatementId) -> Option<Statement> {
        let place = self.asked.iter().position(|(asked, _)| *asked == id)?;
        Some(self.asked.swap_remove(place).1)
    }
}

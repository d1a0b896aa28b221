//! This proxy's membership of a fleet. Core 0 runs it as a part of its loop, so that simulations
//! have it too.
//!
//! [`shunt_fleet::Member`] decides. This module sends its statements, brings its notices to the
//! cores, and logs what it reports. It reads the fleet's row first, because lease, longest TTL and
//! consistency are the fleet's to set. When a membership ends, because others declared this paused
//! proxy dead, another one follows.
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

/// Id of the statement that reads the fleet's row, before there is a member. The ids of a member
/// begin at 0.
const FIRST_READ: StatementId = StatementId(u64::MAX);

/// Stage of the membership.
#[derive(Default)]
enum Stage {
    /// Idle until the next attempt, at this time.
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
    /// Statements in flight, to match their answers. The member has three at most.
    asked: Vec<(StatementId, Statement)>,
    /// Effects of the member that are not performed yet.
    outputs: Vec<Output>,
    /// Times for which the timer is set.
    wakes: Wakes,
    /// Name of the member.
    incarnation: Option<Incarnation>,
    /// Serial level of the fleet.
    level: Option<Level>,
    /// Earlier incarnations of this process that all its cores know to be over, and those of former
    /// processes.
    own_dead: Vec<Incarnation>,
    /// File in which the next process finds the incarnations of this one.
    state_file: Option<StateFile>,
    /// The last reason that the log has for the lack of a member.
    told: String,
    /// True once the fleet's row was asked for. At the first attempt the links are still being
    /// opened.
    has_tried: bool,
    /// True if the process will end: the member leaves, and no other follows.
    leaving: bool,
    /// A step that a test leaves out.
    #[cfg(feature = "weakened")]
    pub(crate) left_out: Option<shunt_fleet::Step>,
}

/// Reads the time anew. With the time at the start of the turn, an answer that arrived while the
/// process was paused would seem older than it is. A member that has just renewed its lease would
/// then be silent too soon, and the grace of a shard would end too early.
fn now_ns(io: &Io) -> u64 {
    io.read_clock_ns()
}

/// Statements that may still get answers.
const ASKED_MAX: usize = 64;

impl Membership {
    /// A membership that has not begun.
    pub(crate) fn new(state_file: Option<StateFile>) -> Self {
        let own_dead = state_file.as_ref().map_or_else(Vec::new, |file| file.ended().to_vec());
        Self { own_dead, state_file, ..Self::default() }
    }

    /// The member as `/status` shows it.
    pub(crate) fn status(&self) -> Option<Status> {
        self.member().map(Member::status)
    }

    /// Reason for the lack of a member, as the log has it.
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

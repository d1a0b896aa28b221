//! Transactions: `BEGIN TRANSACTION .. COMMIT TRANSACTION` is carried out by the core that owns its
//! keyspace's shard.
//!
//! ```text
//! decode -> take -> allowed --(lane)--> run -> planning -> [shunt_transactions] -> log, own statements
//!           reply <- answer <-(lane)---------------------------'
//! ```
//!
//! A keyspace belongs to one of the 64 shards that locks belong to as well, and so to one core of
//! one proxy at a time.
//!
//! | module | what happens there |
//! |---|---|
//! | [`take`], [`alone`] | a client's transaction is read, as text or prepared, and sent to the core of its shard |
//! | [`known`] | what its own core knows of it, and what the other is sent |
//! | [`allowed`] | whether the client's role may read and write its tables |
//! | [`besides`], [`in_text`], [`look`], [`guarded`], [`fence`], [`own_rows`] | what a client asks besides: that a lock is held, or that it is carried out once |
//! | [`run`], [`job`] | it is locked, and answered in the end |
//! | [`shares`] | how much of that each client may have |
//! | [`lone`], [`deciding`], [`row`] | single statements on tables with the mode `conditional`, and the rows that are known of these |
//! | [`observe`], [`doubt`] | the same with the mode `observe`, where nodes decide, and their answers are compared |
//! | [`reads`] | it is read and decided, and what it writes is put into a record |
//! | [`names`], [`named`] | which table a name stands for, before anything is decided or written by it |
//! | [`writes`], [`unmade`] | what is committed is made, and what cannot be made is told |
//! | [`planning`], [`plans`] | from its text to a plan: tables are read, statements are prepared |
//! | [`schema`], [`replicas`], [`plan`] | tables, whether enough nodes can have their rows, and plans, without I/O |
//! | [`modes`], [`changes`], [`switching`] | which tables take part in transactions, and how that changes |
//! | [`routed`] | and of which all statements are transactions |
//! | [`rules`], [`ruled`] | of which writes have to name a lock, and which |
//! | [`outbox`], [`carry`] | what [`shunt_transactions`] wants done, until it is; and doing it |
//! | [`part`], [`heard`] | which part one of the proxy's own statements is, and its answer |
//! | [`log`] | statements on the tables of the log |
//! | [`openings`], [`open`] | what former owners of a shard left undone is done before it is served |
//! | [`words`], [`draining`] | the lease, and shards that come and go |
//! | [`confirm`], [`unconfirmed`] | what needs no lease, for Cassandra is asked |
//! | [`answer`], [`failed`], [`asker`] | outcomes, as the results and errors that clients get |
//! | [`levels`], [`timer`] | levels, clocks and what answers say; when the core looks again |
//!
//! A step that wants another to go on says so in the outbox, so that no two files need each other.

pub(crate) mod allowed;
mod alone;
pub(crate) mod answer;
mod asker;
pub(crate) mod carry;
mod changes;
mod confirm;
pub(crate) mod draining;
mod failed;
pub(crate) mod fence;
mod guarded;
pub(crate) mod heard;
mod job;
mod levels;
mod log;
mod lone;
mod look;
pub(crate) mod modes;
mod names;
pub(crate) mod observe;
mod open;
mod openings;
mod outbox;
pub(crate) mod part;
mod planning;
mod plans;
mod reads;
pub(crate) mod ruled;
pub(crate) mod run;
pub(crate) mod still;
pub(crate) mod take;
mod timer;
mod unconfirmed;
pub(crate) mod unmade;
pub(crate) mod words;
mod writes;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use shunt_fleet::{SHARDS, Shard};
use shunt_locks::Ticket;
use shunt_transactions::{Claim, Limits, TransactionId, Transactions};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::encode;

use self::changes::Modes;
use self::draining::Draining;
use self::failed::Failed;
use self::guarded::Guarded;
use self::job::Job;
use self::open::Open;
use self::outbox::{Outbox, Wanted};
use self::part::WaitsForName;
use self::part::{OpeningPart, Parked, Who};
use self::plans::Plannings;
use self::ruled::Looks;
use self::unconfirmed::{Confirming, Unconfirmed};
use self::unmade::{Trials, Unmade};
use crate::fleet::peers::Login;
use crate::wakes::Wakes;
use shunt_transactions::catalogue::table_identity::Names;
use shunt_transactions::conditional::row::Rows;
use shunt_transactions::guard::fences::Fences;
use shunt_transactions::quotas::Shares;
use shunt_transactions::request::{Head, Known};

/// The key of the timer of transactions.
pub(crate) const TIMER: u64 = 7;

/// Version of the protocol in which values and types are kept.
const VERSION: u8 = crate::fleet::statements::VERSION;

/// The owner of all that a core knows of transactions.
pub(crate) struct TransactionKeeper {
    /// Those of this core's shards; none before one was asked for.
    table: Option<Box<Transactions>>,
    outbox: Outbox,
    /// What is asked, by its number.
    jobs: HashMap<u64, Job>,
    shares: Shares,
    by_ticket: HashMap<u64, u64>,
    of_id: HashMap<TransactionId, u64>,
    /// Of the last that was asked.
    number: u64,
    plannings: Plannings,
    names: Names<WaitsForName>,
    /// Rows of tables with the mode `conditional`.
    rows: Rows,
    fences: Fences,
    /// Writes that were tried and are not made yet.
    trials: Trials,
    /// What is to be sent and for which there was no room among the proxy's own statements, by
    /// whose they are.
    parked: BTreeMap<Who, VecDeque<Parked>>,
    undecided: allowed::Waiting,
    modes: Modes,
    /// At rules.
    looks: Looks,
    confirming: Confirming,
    /// Shards of this core whose logs are not opened yet: by whom they will be.
    claims: [Option<Claim>; SHARDS],
    /// In one order, so that a simulation is the same each time.
    openings: BTreeMap<u128, Open>,
    /// Steps of openings that could not be sent.
    unsent: Vec<(Claim, OpeningPart)>,
    draining: Vec<Draining>,
    /// Requests of clients of this core that are asked again, in the order of their times.
    again: VecDeque<(u64, Ticket, usize)>,
    again_bytes: usize,
    /// Requests that wait to hear if their locks are held, by their tickets.
    guarded: HashMap<u64, Guarded>,
    guarded_bytes: usize,
    /// When the timer is set to go off.
    wakes: Wakes,
    /// A step of openings that a test leaves out.
    #[cfg(feature = "weakened")]
    left_out: Option<shunt_transactions::OpeningStep>,
}

impl Default for TransactionKeeper {
    fn default() -> Self {
        Self {
            table: None,
            outbox: Outbox::default(),
            jobs: HashMap::new(),
            shares: Shares::default(),
            by_ticket: HashMap::new(),
            of_id: HashMap::new(),
            number: 0,
            plannings: Plannings::default(),
            names: Names::default(),
            rows: Rows::default(),
            fences: Fences::default(),
            trials: Trials::default(),
            parked: BTreeMap::new(),
            undecided: allowed::Waiting::default(),
            modes: Modes::default(),
            looks: Looks::default(),
            confirming: Confirming::default(),
            claims: [None; SHARDS],
            openings: BTreeMap::new(),
            unsent: Vec::new(),
            draining: Vec::new(),
            again: VecDeque::new(),
            again_bytes: 0,
            guarded: HashMap::new(),
            guarded_bytes: 0,
            wakes: Wakes::default(),
            #[cfg(feature = "weakened")]
            left_out: None,
        }
    }
}

impl TransactionKeeper {
    /// The transactions, made when one is asked for, and where their wishes go.
    fn table(&mut self) -> (&mut Transactions, &mut Outbox) {
        let table =
            self.table.get_or_insert_with(|| Box::new(Transactions::new(Limits::default())));
        (table, &mut self.outbox)
    }

    /// Leaves steps out.
    #[cfg(feature = "weakened")]
    pub(crate) fn leave_out(
        &mut self,
        without: Option<shunt_transactions::Without>,
        opening: Option<shunt_transactions::OpeningStep>,
    ) {
        self.table().0.leave_out(without);
        self.left_out = opening;
    }

    /// No table's mode is ever changed: all proxies know it from the first look on.
    #[cfg(feature = "weakened")]
    pub(crate) fn trust_modes(&mut self) {
        self.modes.full.settles_ns = 0;
    }

    /// A test leaves out that a row is made anew before it is known.
    fn leaves_row_as_read(&mut self) -> bool {
        #[cfg(feature = "weakened")]
        return self.table().0.leaves_out(shunt_transactions::Without::RowMadeAnew);
        #[cfg(not(feature = "weakened"))]
        false
    }

    /// A test leaves out that a row is forgotten of which nobody knows what was written.
    fn keeps_row_in_doubt(&mut self) -> bool {
        #[cfg(feature = "weakened")]
        return self.table().0.leaves_out(shunt_transactions::Without::RowForgotten);
        #[cfg(not(feature = "weakened"))]
        false
    }

    /// The schema is another: a column may have been dropped with its values and added again, or
    /// values have a life of their own now.
    pub(crate) fn schema_changed(&mut self) {
        self.rows.read_all_anew();
        self.names.forget_answers();
        self.plannings.plans.forget_all();
    }

    /// It is known of these if this proxy was alive when it heard them.
    fn confirmed(&mut self, asked: Vec<Unconfirmed>, is_alive: bool) {
        self.outbox
            .wanted
            .extend(asked.into_iter().map(|heard| Wanted::Confirmed(heard, is_alive)));
    }

    /// Answers whoever asked, on this core or another.
    pub(crate) fn tell(&mut self, ticket: Ticket, head: Head, body: Vec<u8>) {
        self.outbox.wanted.push(Wanted::Tell(ticket, head, body));
    }

    /// Answers with an error. Nothing was written.
    fn fail(&mut self, ticket: Ticket, failed: &Failed) {
        let mut body = Vec::new();
        match failed {
            Failed::Fault(fault) | Failed::NoMode(fault) => {
                encode::error(&mut body, fault.kind.code(), &fault.why)
            }
            Failed::Node { code, message } => encode::error(&mut body, *code, message),
        }
        self.tell(ticket, (opcode::ERROR, 0), body);
    }

    /// A client may do what its transaction does.
    fn allow(
        &mut self,
        ticket: (Ticket, bool),
        login: Login,
        known: &Arc<Known>,
        message: Vec<u8>,
    ) {
        let known = Arc::clone(known);
        self.outbox.wanted.push(Wanted::Allowed { ticket, login, known, message });
    }

    /// Something that shards which are handed over may wait for has ended.
    fn look_at_draining(&mut self) {
        if !self.draining.is_empty() {
            self.outbox.wanted.push(Wanted::LookAtDraining);
        }
    }

    /// Tables with writes of committed transactions that have been tried for long.
    pub(crate) fn unmade(&self, now_ns: u64) -> Vec<Unmade> {
        self.trials.shown(now_ns)
    }

    /// A node came up, or there is a lease again: what failed for want of it is tried again now,
    /// and not when its pause is over.
    pub(crate) fn hurry(&mut self) {
        if self.table.is_some()
            && !self.outbox.wanted.iter().any(|wanted| matches!(wanted, Wanted::Hurry))
        {
            self.outbox.wanted.push(Wanted::Hurry);
        }
    }

    /// True if something may be under way that writes to a table of a keyspace of this shard, or
    /// may be left of a former owner's. It looks at all that is. What is not planned yet will be
    /// refused for the table's mode.
    fn may_write(&self, shard: Shard, keyspace: &str, table: &str) -> bool {
        let writes = |job: &Job| {
            job.plan.as_ref().is_some_and(|plan| {
                plan.draft.outline.domain == keyspace && plan.written().any(|of| of.name == table)
            })
        };
        let is_open = self.claims[usize::from(shard)].is_none()
            && !self.openings.values().any(|open| open.shard == shard);
        !is_open || self.jobs.values().any(writes)
    }

    /// True if somebody may ask for transactions of this shard.
    fn is_wanted(&self, shard: u8) -> bool {
        self.modes.shards.contains(&shard)
    }

    /// True if something is to be done.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.outbox.wanted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_former_owner_may_have_left_is_under_way_until_its_shard_is_open() {
        let mut keeper = TransactionKeeper::default();
        assert!(!keeper.may_write(3, "ks", "t"));
        keeper.claims[3] = Some(Claim(1));
        assert!(keeper.may_write(3, "ks", "t") && !keeper.may_write(4, "ks", "t"));
    }
}

//! Transactions: `BEGIN TRANSACTION .. COMMIT TRANSACTION`, and single statements that proxies
//! decide, are carried out by the core that owns the shard of their keyspace. A keyspace belongs to
//! one of the 64 shards that locks use as well, and so to one core of one proxy at a time.
//!
//! ```text
//! decode -> intake -> permission -> owner --(lane)--> execute -> planning -> [shunt_transactions]
//!        -> evaluation -> log -> writes
//!           reply <- owner <--------(lane)---------- answer <-----------------------'
//! ```
//!
//! A transaction's walk:
//!
//! | step | module | what happens |
//! |---|---|---|
//! | 1 | [`intake`], `intake::single` | a request is read, as text, prepared or batch, with its guard and key |
//! | 2 | [`permission`] | a node says whether the client's role may read and write the tables |
//! | 3 | `intake::guard` | the owner of the lock says whether it is held, if the request relies on one |
//! | 4 | `intake::owner` | the request goes to the core, or the proxy, that owns the shard |
//! | 5 | [`execute`], [`job`] | the transaction is accepted |
//! | 6 | [`planning`] | tables are looked up and statements prepared, unless the plan is kept |
//! | 7 | [`execute`] | partitions are locked by [`shunt_transactions::Transactions`] |
//! | 8 | [`evaluation`], [`table_identity`] | rows are read, and tables are checked against the plan; then the transaction is decided |
//! | 9 | [`log`] | its record is written |
//! | 10 | [`writes`] | its writes are made, and repeated until nodes have acknowledged them |
//! | 11 | [`execute`], [`answer`] | the outcome is encoded, and sent to the client's core |
//!
//! A single statement on a table with the mode `conditional` or `observe` takes [`conditional`] and
//! [`observation`] in the place of 8 to 10.
//!
//! | beside the walk | what happens |
//! |---|---|
//! | [`effects`] | what a step wants done by another is queued, and performed at the end of the event: steps do not call each other in circles |
//! | [`part`], [`results`] | each of the proxy's own statements has a part of a transaction as its purpose, which gets the result |
//! | [`confirmation`] | with `--transaction-commit lwt`, Cassandra confirms what a lease would |
//! | [`recovery`], [`ownership`], [`shards`] | shards are gained, opened, handed over and lost |
//! | [`modes`], [`pause`] | modes and rules of tables are read, changed, and in doubt after a pause |
//! | [`time`], [`timer`], [`levels`] | deadlines and retries; consistency levels and clocks |

pub(crate) mod permission;
pub(crate) mod answer;
mod conditional;
mod confirmation;
pub(crate) mod effects;
pub(crate) mod execute;
mod table_identity;
pub(crate) mod intake;
mod job;
mod levels;
mod log;
pub(crate) mod modes;
pub(crate) mod observation;
pub(crate) mod ownership;
pub(crate) mod part;
mod planning;
mod evaluation;
mod recovery;
pub(crate) mod results;
pub(crate) mod shards;
pub(crate) mod pause;
pub(crate) mod time;
mod timer;
pub(crate) mod writes;

use std::collections::{BTreeMap, HashMap, VecDeque};

use shunt_fleet::{SHARDS, Shard};
use shunt_locks::Ticket;
use shunt_transactions::catalogue::table_identity::{Names, SchemaVersions};
use shunt_transactions::conditional::row::Rows;
use shunt_transactions::guard::fences::Fences;
use shunt_transactions::quotas::Shares;
use shunt_transactions::request::Head;
use shunt_transactions::{Claim, Limits, TransactionId, Transactions};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::encode;

use crate::fleet::requests::retry::TransactionRetries;
use crate::transactions::effects::{Effect, EffectQueue};
use crate::transactions::job::{Failure, GuardedRequests, Job, UndecidedRights};
use crate::transactions::modes::state::{Modes, RulesPolling};
use crate::transactions::ownership::{Confirming, Draining, Open, Unconfirmed};
use crate::transactions::part::{IdentityWaiter, OpeningPart, Parked, Who};
use crate::transactions::planning::texts::Plannings;
use crate::transactions::writes::attempts::{Trials, Unmade};
use crate::wakes::Wakes;

/// The key of the timer of transactions.
pub(crate) const TIMER: u64 = 7;

/// Protocol version in which values and types are kept.
const VERSION: u8 = crate::fleet::statements::VERSION;

/// The owner of a core's state of transactions.
pub(crate) struct TransactionKeeper {
    /// The transactions of this core's shards; none before the first.
    table: Option<Box<Transactions>>,
    /// Effects that are not performed yet.
    effects: EffectQueue,
    /// Transactions under way, by number.
    jobs: HashMap<u64, Job>,
    shares: Shares,
    by_ticket: HashMap<u64, u64>,
    /// Numbers of transactions by the id of [`shunt_transactions`].
    of_id: HashMap<TransactionId, u64>,
    /// Number of the last transaction.
    number: u64,
    plannings: Plannings,
    names: Names<IdentityWaiter>,
    /// Rows of tables with the mode `conditional`.
    rows: Rows,
    schema_versions: SchemaVersions,
    fences: Fences,
    /// Writes that were tried and are not made yet.
    trials: Trials,
    /// Statements that wait for room among the proxy's own statements, by client.
    parked: BTreeMap<Who, VecDeque<Parked>>,
    /// Transactions that wait for a verdict on rights.
    undecided: UndecidedRights,
    modes: Modes,
    /// Polling state of the rules table.
    rules_polling: RulesPolling,
    confirming: Confirming,
    /// Shards of this core whose logs are not opened yet, with the claim to open them by.
    claims: [Option<Claim>; SHARDS],
    /// Shards that are being opened, in a fixed order, so that simulations repeat exactly.
    openings: BTreeMap<u128, Open>,
    /// Steps of openings that could not be sent.
    unsent: Vec<(Claim, OpeningPart)>,
    draining: Vec<Draining>,
    /// Requests of clients of this core that are sent again after a take-over.
    retries: TransactionRetries,
    /// Requests that wait for an answer about their lock.
    guarded: GuardedRequests,
    /// Time for which the timer is set.
    wakes: Wakes,
    /// A step of openings that a test leaves out.
    #[cfg(feature = "weakened")]
    left_out: Option<shunt_transactions::OpeningStep>,
}

impl Default for TransactionKeeper {
    fn default() -> Self {
        Self {
            table: None,
            effects: EffectQueue::default(),
            jobs: HashMap::new(),
            shares: Shares::default(),
            by_ticket: HashMap::new(),
            of_id: HashMap::new(),
            number: 0,
            plannings: Plannings::default(),
            names: Names::default(),
            rows: Rows::default(),
            schema_versions: SchemaVersions::default(),
            fences: Fences::default(),
            trials: Trials::default(),
            parked: BTreeMap::new(),
            undecided: UndecidedRights::default(),
            modes: Modes::default(),
            rules_polling: RulesPolling::default(),
            confirming: Confirming::default(),
            claims: [None; SHARDS],
            openings: BTreeMap::new(),
            unsent: Vec::new(),
            draining: Vec::new(),
            retries: TransactionRetries::default(),
            guarded: GuardedRequests::default(),
            wakes: Wakes::default(),
            #[cfg(feature = "weakened")]
            left_out: None,
        }
    }
}

impl TransactionKeeper {
    /// The transactions, created on first use, and the queue for their effects.
    fn table(&mut self) -> (&mut Transactions, &mut EffectQueue) {
        let table =
            self.table.get_or_insert_with(|| Box::new(Transactions::new(Limits::default())));
        (table, &mut self.effects)
    }

    /// Leaves out steps, for a test.
    #[cfg(feature = "weakened")]
    pub(crate) fn leave_out(
        &mut self,
        without: Option<shunt_transactions::Without>,
        opening: Option<shunt_transactions::OpeningStep>,
    ) {
        self.table().0.leave_out(without);
        self.left_out = opening;
    }

    /// Assumes that no table's mode ever changes: every proxy knows it from the first read.
    #[cfg(feature = "weakened")]
    pub(crate) fn trust_modes(&mut self) {
        self.modes.full.settles_ns = 0;
    }

    /// True if a test leaves out that a row is rewritten before it is known.
    fn leaves_row_as_read(&mut self) -> bool {
        #[cfg(feature = "weakened")]
        return self.table().0.leaves_out(shunt_transactions::Without::RowMadeAnew);
        #[cfg(not(feature = "weakened"))]
        false
    }

    /// True if a test leaves out that a row is dropped after a write of unknown outcome.
    fn keeps_row_in_doubt(&mut self) -> bool {
        #[cfg(feature = "weakened")]
        return self.table().0.leaves_out(shunt_transactions::Without::RowForgotten);
        #[cfg(not(feature = "weakened"))]
        false
    }

    /// Notes a change of the schema: a column may have been dropped with its values and added
    /// again, or have another default TTL.
    pub(crate) fn schema_changed(&mut self) {
        self.rows.read_all_anew();
        self.names.forget_answers();
        self.plannings.plans.forget_all();
    }

    /// Notes that nodes have changed the schema just now: before a statement is decided by a row in
    /// memory, a node is asked for the version again.
    pub(crate) fn note_schema_change(&mut self, now_ns: u64) {
        self.schema_versions.note_change(now_ns);
    }

    /// Queues the outcome of a confirmation.
    fn confirmed(&mut self, asked: Vec<Unconfirmed>, is_alive: bool) {
        self.effects.list.extend(asked.into_iter().map(|heard| Effect::Confirmed(heard, is_alive)));
    }

    /// Answers the client, on this core or another.
    pub(crate) fn tell(&mut self, ticket: Ticket, head: Head, body: Vec<u8>) {
        self.effects.list.push(Effect::Deliver(ticket, head, body));
    }

    /// Answers with an error. Nothing was written.
    fn fail(&mut self, ticket: Ticket, failed: &Failure) {
        let mut body = Vec::new();
        match failed {
            Failure::Fault(fault) | Failure::NoMode(fault) => {
                encode::error(&mut body, fault.kind.code(), &fault.why)
            }
            Failure::Node { code, message } => encode::error(&mut body, *code, message),
        }
        self.tell(ticket, (opcode::ERROR, 0), body);
    }

    /// Notes that a shard which is being handed over may be idle now.
    fn check_draining(&mut self) {
        if !self.draining.is_empty() {
            self.effects.list.push(Effect::ReportDrained);
        }
    }

    /// Tables with writes of committed transactions that have failed for long.
    pub(crate) fn unmade(&self, now_ns: u64) -> Vec<Unmade> {
        self.trials.outstanding(now_ns)
    }

    /// Repeats failed attempts now: a node came up, or there is a lease again.
    pub(crate) fn hurry(&mut self) {
        if self.table.is_some()
            && !self.effects.list.iter().any(|wanted| matches!(wanted, Effect::Retry))
        {
            self.effects.list.push(Effect::Retry);
        }
    }

    /// True if a transaction that is under way, or left by a former owner, may still write to a
    /// table of this shard's keyspace. Visits all transactions. One without a plan does not count:
    /// the table's mode will refuse it.
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

    /// True if a keyspace of this shard has a table with a mode.
    fn is_wanted(&self, shard: u8) -> bool {
        self.modes.shards.contains(&shard)
    }

    /// True if effects are queued.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.effects.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_a_former_owner_are_possible_until_the_shard_is_open() {
        let mut keeper = TransactionKeeper::default();
        assert!(!keeper.may_write(3, "ks", "t"));
        keeper.claims[3] = Some(Claim(1));
        assert!(keeper.may_write(3, "ks", "t") && !keeper.may_write(4, "ks", "t"));
    }
}

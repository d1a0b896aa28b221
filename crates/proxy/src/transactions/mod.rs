//! Transactions: `BEGIN TRANSACTION .. COMMIT TRANSACTION` is carried out by the core that owns its keyspace's shard.
//!
//! ```text
//! decode -> take -> allowed --(lane)--> run -> planning -> [shunt_transactions] -> log, own statements
//!           reply <- answer <-(lane)---------------------------'
//! ```
//!
//! A keyspace belongs to one of the 64 shards that locks belong to as well, and so to one core of one proxy at a time.
//!
//! | module | what happens there |
//! |---|---|
//! | [`take`] | a client's transaction is read, as text or prepared, and sent to the core of its shard |
//! | [`known`] | what its own core knows of it, and what the other is sent |
//! | [`allowed`] | whether the client's role may read and write its tables |
//! | [`run`] | it is locked, read, decided and written |
//! | [`planning`] | from its text to a plan: tables are read, statements are prepared |
//! | [`schema`], [`plan`] | tables, and plans, without I/O |
//! | [`modes`] | which tables take part in transactions |
//! | [`outbox`], [`carry`] | what [`shunt_transactions`] wants done, until it is; and doing it |
//! | [`part`], [`heard`] | which part one of the proxy's own statements is, and its answer |
//! | [`log`] | statements on the tables of the log |
//! | [`openings`] | what former owners of a shard left undone is done before it is served |
//! | [`words`] | the lease, and shards that come and go |
//! | [`answer`] | outcomes, as the results and errors that clients get |

mod allowed;
pub(crate) mod answer;
pub(crate) mod carry;
pub(crate) mod heard;
pub(crate) mod known;
mod log;
pub(crate) mod modes;
mod openings;
mod outbox;
pub(crate) mod part;
mod plan;
mod planning;
pub(crate) mod run;
mod schema;
pub(crate) mod take;
pub(crate) mod words;

use std::collections::{HashMap, VecDeque};

use shunt_fleet::SHARDS;
use shunt_locks::Ticket;
use shunt_transactions::{Claim, TransactionId, Transactions};

use self::allowed::Allowed;
use self::modes::Modes;
use self::openings::Open;
use self::outbox::Outbox;
use self::part::OpeningPart;
use self::planning::Plans;
use self::run::Job;
use self::words::Draining;
use crate::wakes::Wakes;

/// The key of the timer of transactions.
pub(crate) const TIMER: u64 = 7;

/// Version of the protocol in which values and types are kept.
const VERSION: u8 = crate::own::VERSION;

/// The owner of all that a core knows of transactions.
pub(crate) struct TransactionKeeper {
    /// Those of this core's shards; none before one was asked for.
    table: Option<Box<Transactions>>,
    outbox: Outbox,
    /// What is asked, by its number.
    jobs: HashMap<u64, Job>,
    jobs_bytes: usize,
    by_ticket: HashMap<u64, u64>,
    of_id: HashMap<TransactionId, u64>,
    /// Of the last that was asked.
    number: u64,
    plans: Plans,
    allowed: Allowed,
    modes: Modes,
    /// Shards of this core whose logs are not opened yet: by whom they will be.
    claims: [Option<Claim>; SHARDS],
    openings: HashMap<u128, Open>,
    /// Steps of openings that could not be sent.
    unsent: Vec<(Claim, OpeningPart)>,
    draining: Vec<Draining>,
    /// Requests of clients of this core that are asked again, in the order of their times.
    again: VecDeque<(u64, Ticket, usize)>,
    again_bytes: usize,
    /// When the timer is set to go off.
    wakes: Wakes,
}

impl Default for TransactionKeeper {
    fn default() -> Self {
        Self {
            table: None,
            outbox: Outbox::default(),
            jobs: HashMap::new(),
            jobs_bytes: 0,
            by_ticket: HashMap::new(),
            of_id: HashMap::new(),
            number: 0,
            plans: Plans::default(),
            allowed: Allowed::default(),
            modes: Modes::default(),
            claims: [None; SHARDS],
            openings: HashMap::new(),
            unsent: Vec::new(),
            draining: Vec::new(),
            again: VecDeque::new(),
            again_bytes: 0,
            wakes: Wakes::default(),
        }
    }
}

impl TransactionKeeper {
    /// True if something is to be done.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.outbox.wanted.is_empty()
    }
}

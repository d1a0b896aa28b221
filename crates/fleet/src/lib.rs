//! Ownership of locks among the proxies of a fleet, decided by conditional statements in Cassandra:
//! leases, views, take-over.
//!
//! The crate has no I/O, clock or threads: times and outcomes of statements come in, statements to
//! be sent go out. [`Member`] is one proxy's part; it runs on one core, over a CQL link of its own,
//! and posts its lease and its shards to all cores.
//!
//! | module | content |
//! |---|---|
//! | `ids` | incarnations, shards, views |
//! | `schema` | the tables |
//! | `statement`, `answer`, `columns` | statements on them, and nodes' answers |
//! | `config`, `refusal` | settings that must agree before a proxy may join |
//! | `plan` | distribution of shards |
//! | `others` | observations of all members |
//! | `lane` | one statement in flight at a time |
//! | `member` | the state machine |
//! | `output` | its outputs |
//! | `weakened` | steps that tests may leave out |

mod answer;
mod columns;
mod config;
mod ids;
mod lane;
mod member;
mod observations;
mod output;
mod plan;
mod refusal;
pub mod schema;
mod statement;
mod weakened;

pub use answer::{ADDRESS_BYTES_MAX, FleetRow, MEMBER_ROWS_MAX, MemberRow, Outcome, State};
pub use columns::{BadRow, Column, TIMESTAMP_MAX_US};
pub use config::{CLOCK_OFFSET_MAX_US, Config, LEASE_MS, LEASE_MS_DEFAULT};
pub use ids::{Incarnation, SHARDS, Shard, Shards, View};
pub use member::{Member, Phase, Shown, Status};
pub use output::{Alarm, End, Event, Gain, LeasePost, Output, Peer, Sink, StatementId};
pub use refusal::Refusal;
pub use statement::{Consistencies, Consistency, Level, NewFleet, Statement, Value, ViewChange};
#[cfg(feature = "weakened")]
pub use weakened::Step;

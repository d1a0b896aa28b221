//! The proxy: CQL clients in front, nodes behind.
//!
//! ```text
//! client bytes -> accept -> decode -> route -> aggregate -> flush -> [storage node]
//! client bytes <- reply  <- disaggregate    <----------------------- [storage node]
//! ```
//!
//! Each step is the module of that name; in this order they follow one query. Events of the loop
//! enter through [`service`]. One [`core::Core`] per event loop owns all state that a query
//! touches, split among owners ([`client::clients`], [`router`], [`link::links`], [`retained`],
//! [`retry`]): a step is a function that takes the owners it needs. The cores share nothing on the
//! data path.
//!
//! The cold parts lie beside it: who a connection belongs to ([`admission`]), whether it has TLS
//! ([`tls`]), how clients log in and leave ([`client`]), how links are opened and kept ([`link`]),
//! second attempts by their cause ([`retry`]), answers that the proxy inspects ([`answers`]). The
//! control plane ([`control`]) watches the ring and posts changes; [`fleet`] holds what the proxies
//! of a fleet share.

mod service;

mod accept;
mod decode;
mod route;
mod aggregate;
mod flush;
mod disaggregate;
mod reply;

mod answers;
mod client;
mod link;
pub mod fleet;
pub mod handover;
mod locks;
mod multiget;
mod retry;
mod transactions;

mod context;
pub mod digests;
mod drain;
mod fault;
mod host_quota;
pub mod hot_keys;
mod ids;
mod intake;
mod overload;
mod plan;
pub mod query_end;
mod retained;
mod router;
mod tenants;
mod rules;
pub mod slow_queries;
pub mod connection_list;
mod time_buckets;
pub mod traces;
mod wakes;
mod window;

pub mod admission;
pub mod core;
pub mod limits;
pub mod log_limits;
pub mod prepared;
pub mod tls;

pub mod admin;
pub mod config;
pub mod control;
pub mod metrics;
#[cfg(feature = "weakened")]
pub mod weakened;

pub use client::census;
pub use client::refused_logins;
pub use client::selection;

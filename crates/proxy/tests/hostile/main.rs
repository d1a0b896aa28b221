//! Clients and nodes that break the protocol, lie, dawdle or vanish. An offender gets the error or
//! the end that the protocol has for it; bystanders get right answers all along; nothing is left in
//! flight and memory stays bounded.
//!
//! They are simulated, because deadlines of seconds then cost nothing and every run is the same.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test may say what it expects and stop there"
)]

#[path = "../support/mod.rs"]
mod support;

mod amplified_answers;
mod lock_departures;
mod lock_hop_bytes;
mod lock_permissions;
mod lock_prepared;
mod lock_ring;
mod lock_rows;
mod lock_withdrawals;
mod locks;
mod identities;
mod identity_certificates;
mod logins;
mod multigets;
mod lost_requests;
mod no_fleet;
mod node_answers;
mod node_pace;
mod own_statements;
mod pages;
mod pool_shares;
mod away;
mod away_cql;
mod shares;
mod digests;
mod evictions;
mod foreign_ids;
mod guesses;
mod hot_keys;
mod heavy;
mod hedges;
mod handshake_node;
mod handshake_testbed;
mod late;
mod storm;
mod stranded;
mod strangers;
mod statements;
mod slow_queries;
mod swarm;
mod tenants;
mod rules;
mod testbed;
mod unprepared;

mod client_framing;
mod client_pace;
mod client_protocol;

mod told;
mod traces;
mod turned_away;
mod transaction_alterations;
mod transaction_denials;
mod transaction_doubt;
mod transaction_expiry;
mod transaction_future;
mod transaction_log;
mod transaction_replicas;
mod transaction_ring;
mod transaction_rows;
mod transaction_schema;
mod transaction_shares;
mod transaction_stills;

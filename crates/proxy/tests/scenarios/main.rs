//! Each test is one simulated scenario and states what clients notice, and what they must not
//! notice, when nodes, links, ring and proxy change under them. `sim_proxy` mixes all of this by
//! seed; here each event happens alone, and exactly.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test may say what it expects and stop there"
)]

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod departures;
mod drain;
mod fleet;
mod hedges;
mod layouts;
mod lifecycle;
mod losses;
mod outliers;
mod overwrites;
mod renewal;
mod repairs;
mod upgrade;

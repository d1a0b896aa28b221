//! Queries that took long, or that no node carried out in time: a line of the log for each, up to a
//! rate, and the last of them for the admin pages.
//!
//! The path of a query only compares its time with `slow_query_ms`; all else here is cold. A record
//! shows no value of a query unless `log_values` says so, and never may:
//!
//! - cost the core more than a bound in each second, however many queries are slow, because a dead
//!   node makes all of them slow at once;
//! - let the queries of one client's host take the records of a second from all others;
//! - keep memory beyond a bound.

pub(crate) mod capture;
pub mod records;

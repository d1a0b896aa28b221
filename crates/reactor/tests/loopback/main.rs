//! The loop over real sockets, each scenario with each driver.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and wait")]

mod accepting;
mod bytes;
mod closing;
mod connecting;
mod flow;
mod headers;
mod sent_log;
mod sessions;
mod support;
mod unix;
mod waking;

//! The loop over real sockets, each scenario with each driver.

mod accepting;
mod bytes;
mod closing;
mod connecting;
mod flow;
mod sent_log;
mod support;
mod waking;

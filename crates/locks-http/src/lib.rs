//! Locks over HTTP, for whoever has no driver: a listener beside the data path, off unless it is
//! given an address.
//!
//! ```text
//! server: accept -> room (how many, of whom) -> request, login (read) -> locks (statements) -> reply
//!                                                                          |  a connection out of the pool
//!                                                                          v
//!                                                       the proxy's own listener, as any client
//! ```
//! A request is carried out by a CQL client that connects to the same proxy with the login that the
//! request has. So there is no second way to a lock: permissions, quotas, forwarding to the lock's
//! owner, and errors are those of CQL, and this crate knows neither locks nor roles.
//! `docs/adr/0017-locks-over-http.md` says what it may never do.
//!
//! Each request has a connection of its own, to here and to the proxy, while it is carried out. Who
//! disconnects takes the second with the first, and so leaves the queue.

mod limits;
mod locks;
mod login;
mod part;
mod pool;
mod reply;
mod request;
mod room;
mod server;
mod stream;
#[cfg(test)]
mod tests;

pub use server::{LocksHttp, Order};

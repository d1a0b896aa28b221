//! Locks over HTTP, for clients without a driver: a listener beside the data path, off unless an
//! address is configured.
//!
//! ```text
//! server: accept -> room (total, by address) -> request, login (read) -> locks (statements) -> reply
//!                                                                          |  a connection out of the pool
//!                                                                          v
//!                                                       the proxy's own listener, as any client
//! ```
//! A CQL client carries a request out: it connects to the same proxy with the request's login. So
//! there is no second way to a lock: permissions, quotas, forwarding to the lock's owner, and
//! errors are those of CQL, and this crate knows neither locks nor roles.
//! `docs/adr/0017-locks-over-http.md` says what it must never do.
//!
//! Each request has a connection of its own, to here and to the proxy, while it is carried out. A
//! client that disconnects ends both, and so leaves the queue.

mod concurrency_limit;
mod limits;
mod locks;
mod login;
mod part;
mod pool;
mod reply;
mod request;
mod server;
mod stream;
#[cfg(test)]
mod tests;

pub use server::{LocksHttp, Order};

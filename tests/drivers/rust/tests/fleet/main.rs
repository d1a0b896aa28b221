//! Locks and transactions through a fleet of proxies, with the Rust driver, unmodified, which
//! speaks protocol v4 only.
//!
//! Environment: `SHUNT_FLEET`, the addresses of the proxies, of which the first is the only one
//! that the driver is given, and `SHUNT_FLEET_VICTIM`, the process of the first, which is killed.

mod client;
mod held;
mod killed;
mod refused;
mod seen;
mod transactions;

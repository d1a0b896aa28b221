//! Shunt as a service of systemd: messages to the service manager, sockets that it has opened, and
//! log entries with fields.
//!
//! Each of them depends on an environment variable that systemd sets for the service's main process
//! only. Without the variable, they do nothing.

pub(crate) mod journal;
pub(crate) mod manager;
pub(crate) mod sockets;

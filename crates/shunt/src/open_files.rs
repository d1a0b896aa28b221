//! The limit of open files: each client needs one, and the proxy and the embedded node must know
//! how many are available.

use shunt_reactor::raise_fd_limit;
use tracing::warn;

/// Open files besides the clients: links to nodes, listeners, the control plane, files of a store.
pub(crate) const BESIDE_CLIENTS: u64 = 4096;

/// Connections among them that are no clients any more, and close: a new client takes the place of
/// the oldest one beyond this number.
pub(crate) const CLOSING_MAX: u64 = BESIDE_CLIENTS / 2;

/// Raises the limit; warns if it is still too low for the clients and for `others`, connections
/// that are no clients yet.
pub(crate) fn allow_clients(clients_max: usize, others: usize) {
    let beside = BESIDE_CLIENTS + others as u64;
    let wanted = clients_max as u64 + beside;
    let (soft, hard) = raise_fd_limit(wanted);
    if soft < wanted {
        let clients = soft.saturating_sub(beside);
        warn!(
            soft,
            hard,
            clients_max,
            "the limit of open files allows about {clients} clients; raise it (`ulimit -Hn`, LimitNOFILE) or lower clients_max"
        );
    }
}

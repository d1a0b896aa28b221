//! Health of servers, as commands over TCP show it: a line of the log when a server stops answering
//! or answers again, and the states for the admin pages.

use std::net::SocketAddr;
use std::sync::Arc;

use shunt_admin::Histogram;

use super::log_limit::LogLimit;
use crate::limits;
use crate::metrics::{ServerState, SidecarMetrics};

/// Health of all servers, by index.
#[derive(Debug)]
pub(super) struct HealthTable {
    servers: Vec<Option<Health>>,
    metrics: Arc<SidecarMetrics>,
}

/// Health of a server that has answered or failed.
#[derive(Debug)]
struct Health {
    address: SocketAddr,
    state: ServerState,
    /// True from a failure to the next answer.
    has_failed: bool,
    /// Time of the last failure.
    failed_ns: u64,
    lines: LogLimit,
    /// Times from commands to answers.
    times: Arc<Histogram>,
}

impl HealthTable {
    /// A table of servers that have neither answered nor failed.
    pub(super) fn new(metrics: Arc<SidecarMetrics>) -> Self {
        Self { servers: Vec::new(), metrics }
    }

    /// Notes that a server has answered a command of the time `sent_ns`.
    #[inline]
    pub(super) fn note_answer(
        &mut self,
        (server, address): (usize, SocketAddr),
        sent_ns: u64,
        now_ns: u64,
    ) {
        let known = self.servers.get(server).and_then(Option::as_ref);
        if known.is_none_or(|known| known.state != ServerState::Up) {
            self.note_change(server, address, now_ns);
        }
        if let Some(known) = self.servers.get(server).and_then(Option::as_ref) {
            known.times.record(now_ns.saturating_sub(sent_ns));
        }
    }

    #[cold]
    fn note_change(&mut self, server: usize, address: SocketAddr, now_ns: u64) {
        let health = self.health(server, address);
        health.state = ServerState::Up;
        let is_back = std::mem::take(&mut health.has_failed);
        if let Some(suppressed) = is_back.then(|| health.lines.admit(now_ns)).flatten() {
            tracing::info!(server = %address, suppressed, "a server answers again");
        }
        let times = Arc::clone(&health.times);
        self.metrics.servers.set(address, ServerState::Up, &times);
    }

    /// Notes that a server refuses connections or commands, or is silent.
    pub(super) fn note_failure(
        &mut self,
        server: usize,
        address: SocketAddr,
        why: &str,
        now_ns: u64,
    ) {
        let health = self.health(server, address);
        health.state = ServerState::Down;
        health.failed_ns = now_ns;
        let is_news = !std::mem::replace(&mut health.has_failed, true);
        if is_news && let Some(suppressed) = health.lines.admit(now_ns) {
            tracing::warn!(server = %address, why, suppressed, "a server has failed");
        }
        let times = Arc::clone(&health.times);
        self.metrics.servers.set(address, ServerState::Down, &times);
    }

    /// Notes that the last connection to a server has ended. The next command tells whether the
    /// server is there.
    pub(super) fn note_end(&mut self, server: usize) {
        let known = self.servers.get_mut(server).and_then(Option::as_mut);
        if let Some(health) = known.filter(|health| health.state == ServerState::Up) {
            health.state = ServerState::Closed;
            self.metrics.servers.set(health.address, ServerState::Closed, &health.times);
        }
    }

    /// The health of a server.
    fn health(&mut self, server: usize, address: SocketAddr) -> &mut Health {
        if self.servers.len() <= server {
            self.servers.resize_with(server + 1, || None);
        }
        let new = || Health {
            address,
            state: ServerState::Unknown,
            has_failed: false,
            failed_ns: 0,
            lines: LogLimit::default(),
            times: Arc::default(),
        };
        self.servers[server].get_or_insert_with(new)
    }

    /// Forgets failures that are long ago: the next command tells whether the server is back. Says
    /// which servers have changed without a line.
    pub(super) fn tick(&mut self, now_ns: u64) {
        for health in self.servers.iter_mut().flatten() {
            let Health { address, state, .. } = *health;
            if let Some(suppressed) = health.lines.overdue(now_ns) {
                let is_up = state == ServerState::Up;
                tracing::info!(server = %address, is_up, suppressed, "a server failed and came back");
            }
            let is_old = now_ns >= health.failed_ns + limits::FAILURE_NS;
            if state == ServerState::Down && is_old {
                health.state = ServerState::Unknown;
                self.metrics.servers.set(address, ServerState::Unknown, &health.times);
            }
        }
    }
}

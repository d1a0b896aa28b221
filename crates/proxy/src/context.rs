//! The surroundings of a core, which every step may read: settings, counters, the channel to the
//! control plane.

use std::fmt::Display;
use std::sync::Arc;

use shunt_reactor::{CloseReason, ConnId, Io};
use tokio::sync::mpsc;
use tracing::warn;

use crate::config::Config;
use crate::control::state::ControlRequest;
use crate::limits;
use crate::log_limits::{LogLimits, Logged};
use crate::metrics::{CoreMetrics, HandshakeResult};
use crate::plan::{Plan, Work};
use crate::tls::{Outgoing, OutgoingTls};

/// One core's settings and surroundings.
pub(crate) struct Context {
    /// Number of the core, from 0.
    pub(crate) index: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Arc<CoreMetrics>,
    pub(crate) log_limits: Arc<LogLimits>,
    pub(crate) control: mpsc::Sender<ControlRequest>,
    pub(crate) outgoing: Outgoing,
    /// Time from which a query is slow, nanoseconds: `slow_query_ms` of the options, or never.
    pub(crate) slow_query_ns: u64,
    /// True while the proxy shuts down.
    pub(crate) draining: bool,
    /// Number of ticks so far.
    pub(crate) ticks: u64,
    /// State of the generator of jitter; never 0.
    pub(crate) seed: u64,
}

impl Context {
    /// Returns a random number for jitter. The generator (xorshift) has a seed, so that a simulated
    /// run can be replayed.
    pub(crate) fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Takes new options; returns the former ones.
    pub(crate) fn set_config(&mut self, config: Arc<Config>) -> Arc<Config> {
        self.slow_query_ns = slow_query_ns(&config);
        std::mem::replace(&mut self.config, config)
    }

    /// Deadline of a request, from its arrival, in nanoseconds.
    pub(crate) fn timeout_ns(&self, plan: &Plan) -> u64 {
        let timeout_ms = match plan.timeout_ms {
            0 => self.config.query_timeout_ms,
            by_rule => by_rule.into(),
        };
        let timeout_ns = timeout_ms * 1_000_000;
        match plan.work {
            Work::Schema => timeout_ns.max(limits::SCHEMA_TIMEOUT_NS),
            Work::Read | Work::Write | Work::Other => timeout_ns,
        }
    }

    /// Counts the handshake of a connection at its server's first answer.
    pub(crate) fn count_handshake(&self, io: &Io, tls: Option<&OutgoingTls>, conn: ConnId) {
        if let (Some(tls), Some(session)) = (tls, io.session_info(conn)) {
            tls.count_session(session);
        }
    }

    /// Notes the end of a connection to a server; `is_unanswered` if the server has sent nothing
    /// on it. Counts a handshake that failed, and logs a fault of TLS. Returns true if the
    /// handshake failed.
    pub(crate) fn note_tls_end(
        &self,
        io: &Io,
        (tls, is_unanswered): (Option<&OutgoingTls>, bool),
        server: &dyn Display,
        reason: CloseReason,
    ) -> bool {
        let failed = tls.filter(|_| is_unanswered && ends_handshake(reason));
        if let Some(tls) = failed {
            tls.count_handshake(HandshakeResult::Failed);
        }
        if let CloseReason::Session(fault) = reason
            && let Some(suppressed) = self.log_limits.admit(Logged::Tls, io.now_ns())
        {
            warn!(core = self.index, %server, why = %fault, suppressed, "TLS with a server failed");
        }
        failed.is_some()
    }

    /// True if the client must have given up this request by now. Reads the clock anew: this
    /// process may have been paused since the turn began, and what it knew when the request came
    /// may no longer hold.
    pub(crate) fn is_too_late(&self, io: &mut Io, plan: &Plan, received_ns: u64) -> bool {
        io.read_clock_ns().saturating_sub(received_ns) > self.timeout_ns(plan)
    }
}

/// Time from which a query is slow, nanoseconds; the largest number if none is.
pub(crate) fn slow_query_ns(config: &Config) -> u64 {
    match config.slow_query_ms {
        0 => u64::MAX,
        slow_query_ms => slow_query_ms * 1_000_000,
    }
}

/// True if a server that ends a connection in this way has seen a handshake. Without a connection,
/// or in time, there may have been none.
fn ends_handshake(reason: CloseReason) -> bool {
    match reason {
        CloseReason::Session(_)
        | CloseReason::HandshakeEnded
        | CloseReason::Peer
        | CloseReason::Reset => true,
        CloseReason::ConnectFailed(_) | CloseReason::ConnectTimedOut | CloseReason::Error(_) => {
            false
        }
    }
}

//! Metrics of a shim and a sidecar since their start. Each event loop writes its own; the admin
//! thread reads them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use shunt_admin::{Counter, Family, Gauge, Histogram, Hosts, labels};

use crate::client::Counts;
use crate::shim::Rejected;

labels! {
    /// Reason why a shim dropped a datagram.
    pub enum Why = "reason" {
        /// Not a valid request of NetMC.
        Malformed = "malformed",
        /// No switch has split it, and the shim does not coordinate.
        NotSplit = "not_split",
        /// By the shim's `--peer` list, the request is for another server, or its keys have other
        /// servers.
        Elsewhere = "elsewhere",
        /// The source is not in `--allow`.
        Source = "source",
        /// The source exceeds its rate.
        Rate = "rate",
        /// Too many requests wait for the server.
        Busy = "busy",
    }
}

impl Why {
    pub(crate) fn of(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Malformed(_) => Self::Malformed,
            Rejected::NotSplit => Self::NotSplit,
            Rejected::Elsewhere => Self::Elsewhere,
            Rejected::Source => Self::Source,
            Rejected::Rate => Self::Rate,
        }
    }
}

/// Metrics of a shim's event loop.
#[derive(Debug, Default)]
pub struct ShimMetrics {
    /// Turns of the loop; liveness is judged by this counter.
    pub turns: Counter,
    /// Requests admitted.
    pub requests: Counter,
    /// Keys in these.
    pub keys: Counter,
    /// Requests for several servers that the shim coordinates.
    pub coordinated: Counter,
    /// Datagrams dropped.
    pub rejected: Family<Why, { Why::COUNT }>,
    /// Replies sent.
    pub replies: Counter,
    /// Requests answered without the server, which was absent or silent.
    pub unserved: Counter,
    /// Requests that wait for the server.
    pub waiting: Gauge,
    /// Requests that wait for several servers.
    pub coordinating: Gauge,
    /// 1 if the server is connected.
    pub up: Gauge,
    /// Datagrams that the kernel did not take.
    pub unsent: Gauge,
}

/// State of a server, as the commands of one event loop show it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ServerState {
    /// The server has failed a moment ago.
    Down,
    /// The server has failed, and no command has been sent since.
    Unknown,
    /// The server has answered the last command, and has closed its connections since, as a server
    /// does with idle ones. The next command tells whether it is there.
    Closed,
    /// The server has answered the last command, and a connection to it is open.
    Up,
}

impl ServerState {
    /// Whether the server answers commands, as far as is known.
    pub(crate) fn is_up(self) -> Option<bool> {
        match self {
            ServerState::Down | ServerState::Unknown => Some(false),
            ServerState::Closed => None,
            ServerState::Up => Some(true),
        }
    }
}

/// States of the servers that have answered or failed. Locked when one changes, and when they are
/// shown.
#[derive(Debug, Default)]
pub struct ServerStates(Mutex<Vec<KnownServer>>);

/// A server that has answered or failed.
#[derive(Clone, Debug)]
pub struct KnownServer {
    /// Its address.
    pub address: SocketAddr,
    /// Its state.
    pub state: ServerState,
    /// Times from commands over TCP to their answers.
    pub times: Arc<Histogram>,
}

impl ServerStates {
    /// Sets the state of a server, whose answers are counted in `times`.
    pub(crate) fn set(&self, address: SocketAddr, state: ServerState, times: &Arc<Histogram>) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match states.iter_mut().find(|known| known.address == address) {
            Some(known) => (known.state, known.times) = (state, Arc::clone(times)),
            None => states.push(KnownServer { address, state, times: Arc::clone(times) }),
        }
    }

    /// The servers and their states.
    pub fn all(&self) -> Vec<KnownServer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Metrics of a sidecar's event loop.
#[derive(Debug, Default)]
pub struct SidecarMetrics {
    /// Turns of the loop; liveness is judged by this counter.
    pub turns: Counter,
    /// Connected applications.
    pub clients: Gauge,
    /// Applications closed because of their memory.
    pub clients_closed: Counter,
    /// Commands passed on to a server over TCP.
    pub passed: Counter,
    /// Commands split, except GET and MGET.
    pub split: Counter,
    /// Split commands that were answered with an error.
    pub split_failed: Counter,
    /// Commands answered with an error by the sidecar itself.
    pub errors: Counter,
    /// Connections to servers that were lost or failed.
    pub links_lost: Counter,
    /// Multigets under way.
    pub under_way: Gauge,
    /// Split commands under way.
    pub splits: Gauge,
    /// Groups of keys under way.
    pub groups: Gauge,
    /// Servers that do not answer datagrams.
    pub silent: Gauge,
    /// Datagrams that the kernel did not take.
    pub unsent: Gauge,
    /// Time from a GET or MGET to its answer.
    pub times: Histogram,
    /// Current counts of the client.
    pub counts: ClientGauges,
    /// States of servers.
    pub servers: ServerStates,
    /// Hosts of the applications.
    pub hosts: Hosts,
}

/// [`Counts`] for another thread to read.
#[derive(Debug, Default)]
pub struct ClientGauges {
    /// In the order of [`ClientGauges::NAMES`].
    numbers: [Gauge; 17],
}

impl ClientGauges {
    /// Metric name and help text of each number.
    pub const NAMES: [(&str, &str); 17] = [
        ("begun", "Multigets started."),
        ("done", "Multigets with an answer for each key."),
        ("failed", "Multigets that failed."),
        ("refused", "Multigets refused for too many keys."),
        ("abandoned", "Multigets whose application left before the answer."),
        ("datagrams_sent", "Datagrams sent."),
        ("repeated", "Groups of keys requested again."),
        ("keys_fallen_back", "Keys requested over TCP because a shim did not answer."),
        (
            "keys_over_tcp",
            "Keys requested over TCP because of their size or at a shim's word; all of them without shims.",
        ),
        ("duplicates", "Items for keys that already had an answer."),
        ("malformed", "Malformed datagrams."),
        ("late", "Replies without a pending request."),
        (
            "foreign",
            "Replies from a wrong address, with other keys, or from a coordinator with another list of servers.",
        ),
        ("coordinated", "Requests sent to a coordinator."),
        ("uncoordinated", "Requests that a coordinator did not answer in time."),
        ("switched", "Requests sent to a switch."),
        ("unswitched", "Parts of requests to a switch without an answer in time."),
    ];

    pub(crate) fn show(&self, counts: &Counts) {
        let numbers = [
            counts.begun,
            counts.done,
            counts.failed,
            counts.refused,
            counts.abandoned,
            counts.sent,
            counts.repeated,
            counts.fell_back,
            counts.over_tcp,
            counts.duplicates,
            counts.malformed,
            counts.late,
            counts.foreign,
            counts.coordinated,
            counts.uncoordinated,
            counts.switched,
            counts.unswitched,
        ];
        self.numbers.iter().zip(numbers).for_each(|(gauge, number)| gauge.set(number));
    }

    /// Value of one number.
    pub fn get(&self, index: usize) -> u64 {
        self.numbers[index].get()
    }
}

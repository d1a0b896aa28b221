//! Values of options beyond numbers and text.

use std::fmt;

use shunt_reactor::IoChoice;
use shunt_tls::{ClientAuth, Verify};

use super::kinds::{Kind, Micros, Millis};

/// Delay of a turn of the event loop that gathers more work (`docs/internals/reactor.md`, "the
/// window").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Follows the load.
    Auto,
    /// Always this long; 0 switches the delay off.
    Fixed {
        /// Microseconds.
        us: u64,
    },
}

impl Kind for Window {
    const EXPECTED: &'static str =
        "\"auto\", a time such as \"100us\", or a number of microseconds";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Micros::from_text(text).map(|us| Self::Fixed { us: us.0 }),
        }
    }

    fn from_number(number: i64) -> Option<Self> {
        Micros::from_number(number).map(|us| Self::Fixed { us: us.0 })
    }
}

/// Time after which a read is late and goes to another node too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hedge {
    /// No read goes to two nodes.
    Off,
    /// The time that one read in a hundred exceeds.
    P99,
    /// Always this long.
    After {
        /// Milliseconds; at least 1.
        ms: u64,
    },
}

impl Hedge {
    fn after(ms: u64) -> Option<Self> {
        (1..=60_000).contains(&ms).then_some(Self::After { ms })
    }
}

impl Kind for Hedge {
    const EXPECTED: &'static str = "\"off\", \"p99\", or a time from 1ms to 1m such as \"20ms\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "p99" => Ok(Self::P99),
            _ => Self::after(Millis::from_text(text)?.0).ok_or_else(String::new),
        }
    }

    fn from_number(number: i64) -> Option<Self> {
        Self::after(u64::try_from(number).ok()?)
    }
}

/// Use of aggregated frames (opcode 0x64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// With nodes whose SUPPORTED offers them.
    Auto,
    /// Never.
    Off,
}

impl Kind for Aggregate {
    const EXPECTED: &'static str = "\"auto\" or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => Err(String::new()),
        }
    }
}

/// Use of clients' own connections for large answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Never.
    Off,
    /// If the node's agent and this host both support it.
    Auto,
}

impl Kind for Handover {
    const EXPECTED: &'static str = "\"off\" or \"auto\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ => Err(String::new()),
        }
    }
}

/// TLS with clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// No client has TLS.
    Off,
    /// Clients have TLS or not, on the same port.
    Optional,
    /// Every client has TLS.
    Required,
}

impl Kind for Tls {
    const EXPECTED: &'static str = "\"off\", \"optional\" or \"required\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err(String::new()),
        }
    }
}

impl Kind for ClientAuth {
    const EXPECTED: &'static str = "\"none\", \"optional\" or \"required\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| String::new())
    }
}

/// A part of the proxy that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The part is off.
    Off,
    /// The part is on.
    On,
}

impl Kind for Switch {
    const EXPECTED: &'static str = "\"off\" or \"on\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::On),
            _ => Err(String::new()),
        }
    }
}

impl Kind for Verify {
    const EXPECTED: &'static str = "\"full\", \"ca\" or \"none\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| String::new())
    }
}

/// Treatment of reads of several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiget {
    /// Whole, to one node.
    Off,
    /// In parts, to the nodes that have the keys.
    Split,
}

impl Kind for Multiget {
    const EXPECTED: &'static str = "\"off\" or \"split\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "split" => Ok(Self::Split),
            _ => Err(String::new()),
        }
    }
}

/// Proof that a proxy still owned a shard when it decided a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The lease, and so the rate of the clock.
    Lease,
    /// A SERIAL read of its row among the members of the fleet.
    Lwt,
}

impl Kind for Commit {
    const EXPECTED: &'static str = "\"lease\" or \"lwt\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "lease" => Ok(Self::Lease),
            "lwt" => Ok(Self::Lwt),
            _ => Err(String::new()),
        }
    }
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One readable line per event.
    Text,
    /// One JSON object per event.
    Json,
}

impl Kind for LogFormat {
    const EXPECTED: &'static str = "\"text\" or \"json\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(String::new()),
        }
    }
}

impl Kind for IoChoice {
    const EXPECTED: &'static str = "\"auto\", \"epoll\" or \"uring\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| String::new())
    }
}

/// A login, for SASL PLAIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Role name.
    pub username: String,
    /// Password of the role.
    pub password: Secret,
}

/// A string that never shows in logs or dumps.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"***\"")
    }
}

impl Kind for Secret {
    const EXPECTED: &'static str = "text in quotes";
    const SECRET: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self::new(text))
    }
}

/// Fewer, busier loops aggregate better, and the nodes need CPUs as well.
pub fn default_cores() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).clamp(1, 8)
}

//! Errors between the control plane and a node.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use shunt_reactor::SessionFault;
use shunt_wire::cql::frame_v5::FrameError;
use shunt_wire::cql::message::error_code;
use shunt_wire::error::DecodeError;

/// The outcome of one step on a control connection.
pub(super) type Step = Result<(), ControlError>;

/// The reason why a control connection failed or was lost.
#[derive(Debug)]
pub(super) enum ControlError {
    /// The network failed, or the node closed the connection.
    Io(io::Error),
    /// The TLS handshake failed, or the session did later.
    Tls(SessionFault),
    /// The node has TLS only, and this connection has none.
    WantsTls,
    /// The node did not answer in time.
    TimedOut(&'static str),
    /// The node sent unreadable bytes.
    Garbage(String),
    /// The node sent an answer of the wrong kind.
    Unexpected { asked: &'static str, opcode: u8 },
    /// The node answered with ERROR.
    Node { code: i32, message: String },
    /// The node speaks none of our versions.
    NoCommonVersion(String),
    /// The node asks for a login, and none is configured.
    LoginNeeded { class: String },
    /// The node refused the login, or wants more than a password.
    LoginRefused { class: String, code: i32, message: String },
    /// A row of a system table lacks a required value.
    Incomplete(&'static str),
    /// The node belongs to another ring than the known one.
    Stranger(String),
    /// The ring contradicts the configuration.
    Unfit(String),
    /// An operator has drained the node, and another one has a control connection.
    Drained,
}

impl ControlError {
    /// The code of the node's error. A missing login counts as a wrong one.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Node { code, .. } | Self::LoginRefused { code, .. } => Some(*code),
            Self::LoginNeeded { .. } => Some(error_code::BAD_CREDENTIALS),
            _ => None,
        }
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the node closed the connection")
            }
            Self::Io(error) => error.fmt(f),
            Self::Tls(fault) => write!(f, "TLS failed: {fault}"),
            Self::WantsTls => f.write_str("the node requires TLS, which is not switched on here"),
            Self::TimedOut(what) => write!(f, "no answer to {what} in time"),
            Self::Garbage(what) => write!(f, "the node broke the protocol: {what}"),
            Self::Unexpected { asked, opcode } => {
                write!(f, "the node answered {asked} with opcode {opcode:#04x}")
            }
            Self::Node { code, message } => {
                write!(f, "the node answered with error {code:#06x}: {message}")
            }
            Self::NoCommonVersion(message) => {
                write!(f, "no common protocol version (ours are 3 to 5): {message}")
            }
            Self::LoginNeeded { class } => {
                write!(f, "the node wants a login ({class}): set `username` and `password_file`")
            }
            Self::LoginRefused { class, message, .. } => {
                write!(f, "login refused ({class}): {message}")
            }
            Self::Incomplete(what) => write!(f, "the node's system tables lack {what}"),
            Self::Stranger(why) | Self::Unfit(why) => f.write_str(why),
            Self::Drained => f.write_str("the node is drained"),
        }
    }
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<SessionFault> for ControlError {
    fn from(fault: SessionFault) -> Self {
        Self::Tls(fault)
    }
}

impl From<DecodeError> for ControlError {
    fn from(error: DecodeError) -> Self {
        Self::Garbage(error.to_string())
    }
}

impl From<FrameError> for ControlError {
    fn from(error: FrameError) -> Self {
        Self::Garbage(error.to_string())
    }
}

/// A failed attempt at one address, for the log.
pub(super) struct Attempt {
    pub(super) address: SocketAddr,
    pub(super) error: ControlError,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.error)
    }
}

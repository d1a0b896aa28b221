//! Errors: who caused them, and whether a retry helps.

use std::borrow::Cow;

use shunt_language::{InvalidRequest, Refusal, SyntaxError};
use shunt_transactions::rejection::{self, Rejection};
use shunt_wire::cql::message::error_code;
use shunt_wire::error::DecodeError;

/// True if a refusal begins with one of these words, or with the error of a node's own read of
/// roles and rights (that of Cassandra before 4.0, or of ScyllaDB): the node could not look them
/// up. Only the start counts, because later parts may quote the name of a role.
pub(crate) fn is_not_looked_up(message: &[u8], words: &[&str]) -> bool {
    const OF_THE_READ: [&str; 4] = [
        "org.apache.cassandra.exceptions.",
        "Cannot achieve consistency level",
        "Operation timed out",
        "Operation failed",
    ];
    words.iter().chain(&OF_THE_READ).any(|words| message.starts_with(words.as_bytes()))
}

/// True for a node's error that says that a role lacks a right. A node that could not read the
/// rights, because replicas of `system_auth` are down, answers with the same code.
pub(crate) fn is_right_missing(code: i32, message: &str) -> bool {
    code == error_code::UNAUTHORIZED
        && !is_not_looked_up(message.as_bytes(), &["Unable to perform authorization"])
}

/// The party that caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// The client: its request is wrong and would be wrong again.
    Client,
    /// The node, whatever the request.
    Node,
    /// The proxy or its environment: bounds, time limits, an unreachable ring.
    Proxy,
}

/// Kinds of errors that the proxy itself sends to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The request breaks the protocol.
    Protocol,
    /// The request can be read, but is not allowed.
    Invalid,
    /// The text is not CQL.
    Syntax,
    /// The role lacks the right.
    Unauthorized,
    /// A bound is reached.
    Overloaded,
    /// The deadline passed, or the ring is not known yet.
    Late,
    /// This proxy cannot serve the request now and has not begun; another may.
    Unserved,
}

impl FaultKind {
    /// The protocol's code for the error.
    pub(crate) fn code(self) -> i32 {
        match self {
            FaultKind::Protocol => error_code::PROTOCOL_ERROR,
            FaultKind::Invalid => error_code::INVALID,
            FaultKind::Syntax => error_code::SYNTAX_ERROR,
            FaultKind::Unauthorized => error_code::UNAUTHORIZED,
            FaultKind::Overloaded => error_code::OVERLOADED,
            FaultKind::Late => error_code::SERVER_ERROR,
            FaultKind::Unserved => error_code::IS_BOOTSTRAPPING,
        }
    }

    /// The party that caused the error. A retry of a client's error fails again; for the others a
    /// later retry may help.
    pub(crate) fn party(self) -> Party {
        match self {
            FaultKind::Protocol
            | FaultKind::Invalid
            | FaultKind::Syntax
            | FaultKind::Unauthorized => Party::Client,
            FaultKind::Overloaded | FaultKind::Late | FaultKind::Unserved => Party::Proxy,
        }
    }
}

/// An error that the proxy itself sends to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// The fault and its remedy.
    pub(crate) why: Cow<'static, str>,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, why: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, why: why.into() }
    }

    /// A client's breach of the protocol.
    pub(crate) fn protocol(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Protocol, why)
    }

    /// A request that is not allowed.
    pub(crate) fn invalid(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Invalid, why)
    }

    /// A bound is reached.
    pub(crate) fn overloaded(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Overloaded, why)
    }
}

impl From<InvalidRequest> for Fault {
    fn from(error: InvalidRequest) -> Self {
        Fault::invalid(format!("Shunt: {}", error.message))
    }
}

impl From<SyntaxError> for Fault {
    fn from(error: SyntaxError) -> Self {
        Fault::new(FaultKind::Syntax, error.message)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Syntax(error) => error.into(),
            Refusal::Invalid(error) => error.into(),
        }
    }
}

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Self {
        let kind = match rejection.kind {
            rejection::Kind::Invalid => FaultKind::Invalid,
            rejection::Kind::Syntax => FaultKind::Syntax,
            rejection::Kind::Overloaded => FaultKind::Overloaded,
        };
        Fault::new(kind, rejection.why)
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::protocol(error.to_string())
    }
}

/// The code of a node's ERROR, and what it says about a second attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeError(pub(crate) i32);

impl NodeError {
    /// The party at fault: the node or the request.
    pub(crate) fn party(self) -> Party {
        use error_code::{IS_BOOTSTRAPPING, OVERLOADED, SERVER_ERROR, UNAVAILABLE};
        match self.0 {
            SERVER_ERROR | UNAVAILABLE | OVERLOADED | IS_BOOTSTRAPPING => Party::Node,
            _ => Party::Client,
        }
    }

    /// True if the error says that this very node cannot serve. Clients cause Unavailable at will,
    /// by a consistency level that the replicas cannot reach.
    pub(crate) fn is_of_this_node(self) -> bool {
        self.party() == Party::Node && self.0 != error_code::UNAVAILABLE
    }

    /// True if another node may help: this one did not get far, for a reason that concerns only
    /// itself.
    pub(crate) fn another_may_help(self) -> bool {
        matches!(self.0, error_code::OVERLOADED | error_code::IS_BOOTSTRAPPING)
    }

    /// False if the error leaves open whether the node executed the request. If the node did not,
    /// drivers send the request to another node, or tell the application that nothing was written.
    pub(crate) fn says_not_carried_out(self) -> bool {
        use error_code::{
            CAS_WRITE_UNKNOWN, CDC_WRITE_FAILURE, SERVER_ERROR, TRUNCATE_ERROR, WRITE_FAILURE,
            WRITE_TIMEOUT,
        };
        let of_unknown_fate = [
            SERVER_ERROR,
            TRUNCATE_ERROR,
            WRITE_TIMEOUT,
            WRITE_FAILURE,
            CDC_WRITE_FAILURE,
            CAS_WRITE_UNKNOWN,
        ];
        !of_unknown_fate.contains(&self.0)
    }

    /// True if the error leaves open whether a login or keyspace is right: the node cannot serve,
    /// or cannot read its own tables.
    pub(crate) fn is_no_verdict(self) -> bool {
        self.party() == Party::Node
            || matches!(self.0, error_code::READ_TIMEOUT | error_code::READ_FAILURE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_could_not_be_looked_up_is_not_missing() {
        let missing = "User ann has no SELECT permission on <table shunt_meta.transactional> or any of its parents";
        assert!(is_right_missing(error_code::UNAUTHORIZED, missing));
        assert!(!is_right_missing(error_code::OVERLOADED, missing));
        for unread in [
            "Unable to perform authorization of permissions: Cannot achieve consistency level LOCAL_ONE",
            "org.apache.cassandra.exceptions.UnavailableException: Cannot achieve consistency level ONE",
        ] {
            assert!(!is_right_missing(error_code::UNAUTHORIZED, unread), "{unread}");
        }
    }

    #[test]
    fn errors_that_clients_cause_at_will_are_no_faults_of_a_node() {
        use error_code::{
            ALREADY_EXISTS, INVALID, IS_BOOTSTRAPPING, OVERLOADED, READ_FAILURE, READ_TIMEOUT,
            SERVER_ERROR, SYNTAX_ERROR, UNAUTHORIZED, UNAVAILABLE, UNPREPARED, WRITE_TIMEOUT,
        };
        let of_clients = [
            INVALID,
            SYNTAX_ERROR,
            UNAUTHORIZED,
            ALREADY_EXISTS,
            UNPREPARED,
            UNAVAILABLE,
            READ_TIMEOUT,
            READ_FAILURE,
            WRITE_TIMEOUT,
        ];
        assert!(of_clients.into_iter().all(|code| !NodeError(code).is_of_this_node()));
        let of_nodes = [SERVER_ERROR, OVERLOADED, IS_BOOTSTRAPPING];
        assert!(of_nodes.into_iter().all(|code| NodeError(code).is_of_this_node()));
    }

    #[test]
    fn a_clients_fault_has_no_code_that_drivers_retry() {
        use FaultKind::{Invalid, Late, Overloaded, Protocol, Syntax, Unauthorized, Unserved};
        for kind in [Protocol, Invalid, Syntax, Unauthorized, Overloaded, Late, Unserved] {
            let repeated = NodeError(kind.code()).party() == Party::Node;
            assert_eq!(repeated, kind.party() != Party::Client, "{kind:?}");
        }
    }

    #[test]
    fn faults_of_a_request_say_that_it_was_not_carried_out() {
        use error_code::{
            INVALID, OVERLOADED, SERVER_ERROR, SYNTAX_ERROR, UNAUTHORIZED, WRITE_TIMEOUT,
        };
        for code in [INVALID, SYNTAX_ERROR, UNAUTHORIZED, OVERLOADED, 0x7777] {
            assert!(NodeError(code).says_not_carried_out(), "{code:#x}");
        }
        for code in [SERVER_ERROR, WRITE_TIMEOUT] {
            assert!(!NodeError(code).says_not_carried_out(), "{code:#x}");
        }
    }
}

//! Verdicts of nodes on the properties that the links of a pool open with.

use shunt_wire::cql::message::{encode, error_code};

/// Error text for clients of nodes that would accept the proxy's own certificate as their login.
pub(crate) const NODES_TAKE_CERTIFICATES: &str = "Shunt: the nodes accept a certificate as the \
    login (MutualTlsAuthenticator), and would accept the proxy's (node_tls_certificate) as yours: \
    give this client an [[identity]] with a certificate and key of its own, or use \
    PasswordAuthenticator";

/// A refusal of the properties that a pool's links open with: its login, its keyspace or its
/// options.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Body of the ERROR for clients.
    pub(crate) words: Vec<u8>,
    /// True if it concerns the login.
    pub(crate) of_login: bool,
    /// Class of the authenticator that asks for a login where none was needed before.
    pub(crate) asks: Option<String>,
}

impl Verdict {
    /// A node's own words on a login, or else on a keyspace.
    pub(crate) fn of_node(words: &[u8], of_login: bool) -> Self {
        Self { words: words.to_vec(), of_login, asks: None }
    }

    /// A verdict that the pool lacks a login.
    pub(crate) fn asks_for_login(class: &str) -> Self {
        let mut words = Vec::new();
        let why =
            "the nodes ask for a login, but did not when this client connected: connect again";
        encode::error(&mut words, error_code::BAD_CREDENTIALS, why);
        Self { words, of_login: true, asks: Some(class.to_owned()) }
    }

    /// A verdict that the node would let the clients in as the proxy itself.
    pub(crate) fn of_lent_certificate() -> Self {
        let mut words = Vec::new();
        encode::error(&mut words, error_code::BAD_CREDENTIALS, NODES_TAKE_CERTIFICATES);
        Self { words, of_login: true, asks: None }
    }

    /// A verdict on the clients' STARTUP options.
    pub(crate) fn of_options() -> Self {
        let mut words = Vec::new();
        let why = "the nodes no longer accept this client's version of the protocol, compression \
        or options: connect again";
        encode::error(&mut words, error_code::SERVER_ERROR, why);
        Self { words, of_login: false, asks: None }
    }
}

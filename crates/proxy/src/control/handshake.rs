//! From an address to a connection that can be queried: protocol step-down, STARTUP, login.

use std::net::SocketAddr;

use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{Authenticate, ErrorMessage, Supported, encode, error_code};
use tokio::time::Instant;

use super::access::Access;
use super::client::{LOCKS_KEY, LOGIN_KEY, LOGIN_PASSWORD, PROXY_KEY};
use super::connection::{Connection, Message};
use super::error::ControlError;
use crate::config::takes_certificates;

/// Versions tried, best first.
const VERSIONS: [u8; 3] = [5, 4, 3];

/// A connection after its handshake, with the node's properties.
#[derive(Debug)]
pub(super) struct Session {
    /// The connection.
    pub(super) connection: Connection,
    /// COMPRESSION values of SUPPORTED.
    pub(super) compressions: Vec<String>,
    /// True if the peer is a proxy.
    pub(super) is_proxy: bool,
    /// True if the peer is a proxy of a fleet.
    pub(super) keeps_locks: bool,
    /// Class of the authenticator that asked for a login.
    pub(super) authenticator: Option<String>,
}

/// A session that takes the place of the present control connection.
#[derive(Debug)]
pub(super) struct Substitute {
    pub(super) session: Session,
    /// The node that the session leads to.
    pub(super) host_id: u128,
    /// Time at which it was opened.
    pub(super) since: Instant,
}

/// Connects and logs in, in the highest version common to both.
pub(super) async fn connect(address: SocketAddr, access: &Access) -> Result<Session, ControlError> {
    let mut refused = String::new();
    for version in VERSIONS {
        match connect_with(address, version, access).await {
            // A node that does not know the version says so and closes the connection (v5, section
            // 2.2).
            Err(ControlError::Node { code: error_code::PROTOCOL_ERROR, message }) => {
                refused = message
            }
            outcome => return outcome,
        }
    }
    Err(ControlError::NoCommonVersion(refused))
}

/// Finds out whether a node answers CQL at all, by OPTIONS in the oldest version, which needs no
/// login. A refusal of that version is an answer too.
pub(super) async fn probe(address: SocketAddr, access: &Access) -> Result<(), ControlError> {
    let mut connection = Connection::open(address, VERSIONS[VERSIONS.len() - 1], access).await?;
    connection.request(opcode::OPTIONS, &[], "OPTIONS", access.limit).await.map(|_| ())
}

async fn connect_with(
    address: SocketAddr,
    version: u8,
    access: &Access,
) -> Result<Session, ControlError> {
    let limit = access.limit;
    let mut connection = Connection::open(address, version, access).await?;
    let supported = connection.request(opcode::OPTIONS, &[], "OPTIONS", limit).await?;
    if supported.opcode != opcode::SUPPORTED {
        return Err(supported.refusal("OPTIONS"));
    }
    let Offer { compressions, is_proxy, keeps_locks } = options(&supported)?;
    let mut body = Vec::new();
    let driver = [
        ("CQL_VERSION", "3.0.0"),
        ("DRIVER_NAME", "shunt"),
        ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
    ];
    let by_password = is_proxy && (access.by_password || access.credentials.is_some());
    let login = by_password.then_some((LOGIN_KEY, LOGIN_PASSWORD));
    encode::startup(&mut body, driver.into_iter().chain(login));
    let answer = connection.request(opcode::STARTUP, &body, "STARTUP", limit).await?;
    connection.start_framing();
    let authenticator = match answer.opcode {
        opcode::READY => None,
        opcode::AUTHENTICATE => Some(log_in(&mut connection, &answer, access).await?),
        _ => return Err(answer.refusal("STARTUP")),
    };
    Ok(Session { connection, compressions, is_proxy, keeps_locks, authenticator })
}

/// The contents of SUPPORTED: the compressions offered, and whether the peer is a proxy.
struct Offer {
    compressions: Vec<String>,
    is_proxy: bool,
    keeps_locks: bool,
}

fn options(supported: &Message) -> Result<Offer, ControlError> {
    let options = Supported::decode(&supported.body)?.options;
    let compressions =
        options.get("COMPRESSION").map(|list| list.iter().map(str::to_owned).collect());
    let has = |key| options.get(key).is_some();
    Ok(Offer {
        compressions: compressions.unwrap_or_default(),
        is_proxy: has(PROXY_KEY),
        keeps_locks: has(LOCKS_KEY),
    })
}

/// Sends user and password as SASL PLAIN (RFC 4616), which PasswordAuthenticator takes as the first
/// answer, or nothing to a node that takes the certificate of the connection. Returns the class of
/// the authenticator.
async fn log_in(
    connection: &mut Connection,
    authenticate: &Message,
    access: &Access,
) -> Result<String, ControlError> {
    let class = Authenticate::decode(&authenticate.body)?.class.to_owned();
    let token = match &access.credentials {
        Some(login) => format!("\0{}\0{}", login.username, login.password.reveal()),
        None if access.shows_certificate() && takes_certificates(&class) => String::new(),
        None => return Err(ControlError::LoginNeeded { class }),
    };
    let mut body = Vec::new();
    encode::auth_response(&mut body, Some(token.as_bytes()));
    let answer =
        connection.request(opcode::AUTH_RESPONSE, &body, "AUTH_RESPONSE", access.limit).await?;
    match answer.opcode {
        opcode::AUTH_SUCCESS => Ok(class),
        opcode::AUTH_CHALLENGE => {
            let message = "it wants more than a password, which is not supported".to_owned();
            Err(ControlError::LoginRefused { class, code: error_code::BAD_CREDENTIALS, message })
        }
        opcode::ERROR => {
            let ErrorMessage { code, message, .. } =
                ErrorMessage::decode(answer.version, &answer.body)?;
            Err(ControlError::LoginRefused { class, code, message: message.to_owned() })
        }
        _ => Err(answer.refusal("AUTH_RESPONSE")),
    }
}

//! Clients that log in by their certificate (`[[identity]]` of the configuration).
//!
//! The TLS session has verified the certificate, in this handshake or in the one that it resumes,
//! and has its names. STARTUP finds the identity that has one of them. A node then accepts the
//! identity's own login, as it would a client's, and READY answers STARTUP. That login is a role's
//! password, or the identity's own certificate, which its links show to nodes
//! ([`crate::config::IdentityLogin`]).
//!
//! The following must never happen:
//! - *A client uses a pool of another identity, or of a password.* The key of a pool has the
//!   identity beside the login, and a client gets an identity by the names of its own session
//!   alone, by those of the present configuration.
//! - *A client keeps the rights of an identity that a reload took from it.* The
//!   [review](crate::client::review) closes each client that its names would not give the same
//!   identity and role today. A new password of the same role closes no client, nor does a new
//!   certificate with the same names for nodes.
//! - *A certificate that no identity has gets in where each client must have one.* Members of a
//!   fleet are the exception: they bring the logins of their clients, so they ask for a password
//!   login ([`LOGIN_KEY`](crate::control::client::LOGIN_KEY)). Such a connection gets no identity,
//!   whatever its certificate.
//! - *A client gets the role of the proxy's own certificate.* Where nodes would accept it as a
//!   login, only clients of identities with certificates get in. Links of such an identity show its
//!   own certificate or do not open.
//! - *A login that fails keeps others out.* Verdicts of nodes belong to a pool, and so does the
//!   refusal of an identity's certificate in the handshake of TLS.

use std::sync::Arc;

use shunt_reactor::{Io, PeerName, SessionInfo};
use shunt_tls::ClientAuth;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::{encode, error_code};
use shunt_wire::printable::printable_to;

use crate::client::account::LoginToken;
use crate::client::{Phase, closing, login};
use crate::config::{Config, Identity, IdentityLogin};
use crate::core::Core;
use crate::limits;
use crate::link::verdict::NODES_TAKE_CERTIFICATES;
use crate::link::{PoolKey, pools};
use crate::metrics::{Closing, Refusal};
use crate::reply;

/// Most names of a certificate that a refusal quotes.
const NAMES_SHOWN_MAX: usize = 4;

/// The login of a client that has sent STARTUP.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// A password, if the ring asks for one.
    Password,
    /// The login of this identity.
    Identity(Arc<Identity>),
    /// Refused, for this reason.
    Refused(String),
}

impl Way {
    /// True if the client's links show a certificate of its own.
    fn has_certificate(&self) -> bool {
        matches!(self, Way::Identity(identity) if identity.login.certificate().is_some())
    }
}

/// The login of a client with this session. A session has no names without a certificate, and with
/// one that has none that could be read.
fn way(config: &Config, session: Option<&SessionInfo>, asks_for_password: bool) -> Way {
    let is_member = asks_for_password && config.fleet.is_some();
    let Some(session) = session.filter(|_| !config.identity.0.is_empty() && !is_member) else {
        return Way::Password;
    };
    let names = &session.peer_names;
    match config.identity.of(names) {
        Some(identity) => Way::Identity(Arc::clone(identity)),
        None if config.tls_client_auth == ClientAuth::Required => Way::Refused(refusal(names)),
        None => Way::Password,
    }
}

/// The reason to refuse a certificate with these names.
fn refusal(names: &[PeerName]) -> String {
    let shown = |name: &PeerName| printable_to(&name.to_string(), limits::NAME_SHOWN_BYTES_MAX);
    let quoted: Vec<String> = names.iter().take(NAMES_SHOWN_MAX).map(shown).collect();
    let quoted = match quoted.as_slice() {
        [] => "none that this proxy reads".to_owned(),
        quoted => quoted.join(", "),
    };
    let more = match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "Shunt: no identity of this proxy matches the client's certificate, whose names are \
        {quoted}{more}: add an [[identity]] with one of them to the proxy's configuration, or give \
        the client another certificate"
    )
}

/// Answers the STARTUP of a client by its certificate, now or when a node has accepted the login.
/// `false`: the certificate decides nothing.
pub(crate) fn take_startup(
    core: &mut Core,
    io: &mut Io,
    slot: u32,
    stream: i16,
    asks_for_password: bool,
) -> bool {
    let cluster = core.router.cluster.clone();
    let asked = cluster.as_ref().and_then(|cluster| cluster.authenticator.as_deref());
    let asked = asked.or(core.router.login_asked.as_deref());
    let is_lent = core.context.config.lends_certificate(asked);
    // Without logins, members of a fleet know no role.
    let is_asked = asked.is_some();
    let session = core.clients.get(slot).and_then(|client| io.session_info(client.conn));
    let way = way(&core.context.config, session, asks_for_password);
    if is_lent && !way.has_certificate() {
        refuse(core, io, slot, stream, NODES_TAKE_CERTIFICATES);
        return true;
    }
    match way {
        Way::Password => return false,
        Way::Refused(why) => refuse(core, io, slot, stream, &why),
        Way::Identity(identity) => {
            let Some(client) = core.clients.get_mut(slot) else { return true };
            let name = identity.name.to_string();
            let certificate = identity.login.certificate().and_then(|shown| shown.subject());
            let login = match (&identity.login, certificate) {
                (IdentityLogin::Password(role), _) => {
                    is_asked.then(|| LoginToken::new(role.token()))
                }
                (IdentityLogin::Certificate(_), Some(subject)) => {
                    Some(LoginToken::of_certificate(subject, &name))
                }
                (IdentityLogin::Certificate(_), None) => {
                    let why =
                        "Shunt: the proxy has not read this identity's certificate; see its log";
                    refuse(core, io, slot, stream, why);
                    return true;
                }
            };
            let key = PoolKey {
                login,
                identity: Some(name.into()),
                certificate,
                version: client.version,
                keyspace: None,
                compression: client.compression,
                no_compact: client.no_compact,
                is_own: false,
            };
            client.phase = Phase::Authenticating;
            client.identity = Some(identity);
            match pools::for_key(core, io, &key, 0) {
                Ok(id) => login::start_switch(core, io, slot, stream, id, true),
                Err(shortage) => closing::refuse_pool(core, io, slot, stream, shortage),
            }
        }
    }
    true
}

fn refuse(core: &mut Core, io: &mut Io, slot: u32, stream: i16, why: &str) {
    core.context.metrics.clients_refused.of(Refusal::NoIdentity).add(1);
    let mut body = Vec::new();
    encode::error(&mut body, error_code::BAD_CREDENTIALS, why);
    reply::message(core, io, slot, opcode::ERROR, stream, &body);
    closing::close(core, io, slot, Closing::NoIdentity, why);
}

#[cfg(test)]
mod tests {
    use shunt_reactor::NameKind;

    use super::*;
    use crate::config::{Identities, RolePassword, Secret};

    fn uri(text: &str) -> PeerName {
        PeerName::new(NameKind::Uri, text)
    }

    fn with(names: &[PeerName]) -> Option<SessionInfo> {
        Some(SessionInfo { peer_names: names.to_vec(), ..SessionInfo::default() })
    }

    fn config(auth: ClientAuth, names: &[&str]) -> Config {
        let identity = |name: &&str| {
            let username = format!("role of {name}");
            let role =
                RolePassword { username, file: "file".into(), password: Secret::new("secret") };
            Arc::new(Identity { name: uri(name), login: IdentityLogin::Password(role) })
        };
        let identity = Identities(names.iter().map(identity).collect());
        Config { tls_client_auth: auth, identity, ..Config::default() }
    }

    #[test]
    fn without_identities_everything_is_as_before() {
        for auth in [ClientAuth::None, ClientAuth::Optional, ClientAuth::Required] {
            assert_eq!(way(&config(auth, &[]), with(&[uri("a:1")]).as_ref(), false), Way::Password);
        }
    }

    #[test]
    fn a_certificate_that_none_matches_falls_back_only_where_it_is_optional() {
        let names = [uri("a:1"), uri("a:2")];
        let way_of = |auth| way(&config(auth, &["b:1"]), with(&names).as_ref(), false);
        assert_eq!(way_of(ClientAuth::Optional), Way::Password);
        let Way::Refused(why) = way_of(ClientAuth::Required) else { panic!("it is not refused") };
        assert!(why.contains("URI:a:1, URI:a:2") && why.contains("add an [[identity]]"), "{why}");
    }

    #[test]
    fn a_client_without_a_certificate_has_a_password() {
        let way_of = |auth, session: Option<SessionInfo>| {
            way(&config(auth, &["a:1"]), session.as_ref(), false)
        };
        assert_eq!(way_of(ClientAuth::Required, None), Way::Password, "clear text");
        assert_eq!(way_of(ClientAuth::Optional, with(&[])), Way::Password);
        // A client that must have a certificate has one, whose names cannot be read.
        let Way::Refused(why) = way_of(ClientAuth::Required, with(&[])) else {
            panic!("it is not refused")
        };
        assert!(why.contains("none that this proxy reads"), "{why}");
    }

    /// A member's own certificate must give the clients that it speaks for no role.
    #[test]
    fn a_member_of_a_fleet_has_its_clients_logins_whatever_its_certificate() {
        let of_fleet =
            Config { fleet: Some("main".to_owned()), ..config(ClientAuth::Required, &["a:1"]) };
        for names in [[uri("a:1")], [uri("stranger:1")]] {
            assert_eq!(way(&of_fleet, with(&names).as_ref(), true), Way::Password);
        }
        let known = with(&[uri("a:1")]);
        assert!(matches!(way(&of_fleet, known.as_ref(), false), Way::Identity(_)));
        let alone = config(ClientAuth::Required, &["a:1"]);
        let stranger = with(&[uri("b:1")]);
        assert!(matches!(way(&alone, stranger.as_ref(), true), Way::Refused(_)));
    }

    #[test]
    fn a_refusal_is_short_and_printable() {
        let names: Vec<PeerName> = (0..60).map(|_| uri(&"\u{202e}x".repeat(400))).collect();
        let why = refusal(&names);
        assert!(why.len() < 1_000 && why.contains("and 56 more"), "{why}");
        assert!(!why.contains('\u{202e}'));
    }
}

//! Identities whose own certificates are their logins with nodes: a client's queries travel under
//! the certificate of its identity and under no other, the proxy's own least of all, and a
//! certificate that nodes refuse harms its own clients alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use shunt_proxy::config::{
    Config, Identities, Identity, IdentityLogin, NodeCertificate, NodeSessions,
};
use shunt_reactor::sim::{HostId, Random, SECOND, TornSession, World};
use shunt_reactor::{NameKind, Opened, PeerName, Session, SessionFault, SessionInfo};
use shunt_testing::{bytes, simulated};
use shunt_tls::{ClientAuth, ClientOptions, Renewed, SubjectDigest, TlsError};
use shunt_topology::NodeId;
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{BAD_CREDENTIALS, OVERLOADED};

use super::handshake_node::{Reaction, select};
use super::handshake_testbed::{HandshakeTestbed, TOKEN};
use super::identities::{BILLING, SHOP};

const MUTUAL: &str = "org.apache.cassandra.auth.MutualTlsAuthenticator";
const FALLBACK: &str = "org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator";
const UNKNOWN_CA: &str = "the peer does not know the CA of our certificate";
/// The alert of Cassandra with its native library of TLS, whatever is wrong with the certificate.
const INTERNAL_ERROR: &str = "the peer reports an internal error";

type Client = HostId<simulated::Client>;

/// A certificate of a role. Nodes see the URI; they may refuse it.
#[derive(Clone, Copy)]
struct Certificate {
    role: &'static str,
    uri: &'static str,
    refusal: Option<Refusal>,
}

/// The way in which nodes refuse a certificate ([`HandshakeTestbed::refuse`]).
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// True if they judge it before the handshake of the proxy is over, as with TLS 1.2, and not
    /// after it, as with TLS 1.3.
    is_early: bool,
    /// The alert with which they end the connection.
    alert: Option<&'static str>,
    /// True if they reset the connection.
    is_reset: bool,
}

/// Sessions that show it.
struct Sessions(Certificate, AtomicU64);

impl NodeSessions for Sessions {
    fn session(&self, _host: &str) -> Box<dyn Session> {
        let Certificate { uri, refusal, .. } = self.0;
        let session =
            TornSession::showing(Random::new(self.1.fetch_add(1, Ordering::Relaxed)), uri);
        match refusal {
            Some(refusal) => Box::new(Refused(session, refusal)),
            None => Box::new(session),
        }
    }

    fn subject(&self) -> Option<SubjectDigest> {
        Some(SubjectDigest(padded(self.0.role)))
    }

    fn content(&self) -> [u8; 32] {
        // The start of a digest differs.
        padded(&self.0.uri.chars().rev().collect::<String>())
    }

    fn renewed(
        &self,
        _: &ClientOptions,
        _: SystemTime,
    ) -> Result<Renewed<Arc<dyn NodeSessions>>, TlsError> {
        Ok(Renewed::Unchanged)
    }
}

fn padded(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    text.bytes().zip(&mut bytes).for_each(|(byte, place)| *place = byte);
    bytes
}

/// A session whose peer refuses the certificate.
struct Refused(TornSession, Refusal);

impl Session for Refused {
    fn open(&mut self, received: &mut [u8], plain: &mut Vec<u8>) -> Result<Opened, SessionFault> {
        let opened = self.0.open(received, plain)?;
        match self.1.alert.filter(|_| opened.ended) {
            Some(alert) => Err(SessionFault(alert)),
            None => Ok(opened),
        }
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SessionFault> {
        self.0.seal(plain, out)
    }

    fn has_pending(&self) -> bool {
        self.0.has_pending()
    }

    fn take_pending(&mut self, out: &mut Vec<u8>) {
        self.0.take_pending(out);
    }

    /// With TLS 1.2 the last flight of the peer never comes.
    fn is_handshaking(&self) -> bool {
        self.1.is_early || self.0.is_handshaking()
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.0.end(out);
    }

    fn info(&self) -> &SessionInfo {
        self.0.info()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

const OF_SHOP: Certificate = Certificate { role: "shop", uri: "node://shop", refusal: None };
const OF_BILLING: Certificate =
    Certificate { role: "billing", uri: "node://billing", refusal: None };

fn identity(uri: &str, shown: Certificate) -> Arc<Identity> {
    let sessions: Arc<dyn NodeSessions> = Arc::new(Sessions(shown, AtomicU64::new(1)));
    let login = IdentityLogin::Certificate(NodeCertificate {
        certificate: "file".into(),
        key: "file".into(),
        sessions: Some(sessions),
    });
    Arc::new(Identity { name: PeerName::new(NameKind::Uri, uri), login })
}

fn both() -> Identities {
    Identities(vec![identity(SHOP, OF_SHOP), identity(BILLING, OF_BILLING)])
}

fn with(nodes: usize, asks: bool, change: impl FnOnce(&mut Config)) -> HandshakeTestbed {
    let mut setup = HandshakeTestbed::with_options(nodes, asks, |options| {
        options.network.sealed = true;
        options.authenticator = FALLBACK;
        options.config.tls_client_auth = ClientAuth::Optional;
        options.config.identity = both();
        change(&mut options.config);
    });
    setup.all(|node| node.authenticator = FALLBACK);
    setup
}

impl HandshakeTestbed {
    /// The certificates under which the nodes got their queries since the last call.
    fn shown(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        self.all(|node| shown.append(&mut node.uris));
        shown
    }

    fn asks_under(&mut self, client: Client, uri: &str) {
        self.shown();
        self.testbed.send(client, &select(1));
        assert_eq!(self.next_opcode(client), opcode::RESULT);
        assert_eq!(self.shown(), [uri]);
    }

    /// Has all nodes refuse this certificate.
    fn refuse(&mut self, certificate: Certificate) {
        let is_reset = certificate.refusal.is_some_and(|refusal| refusal.is_reset);
        self.all(|node| {
            node.refused_uri = Some(certificate.uri);
            node.refuses_by_reset = is_reset;
        });
    }

    /// The result of a call, and the time that passed until then.
    fn timed<R>(&mut self, call: impl FnOnce(&mut HandshakeTestbed) -> R) -> (R, u64) {
        let start_ns = self.testbed.scene.world.now_ns();
        let result = call(self);
        (result, self.testbed.scene.world.now_ns() - start_ns)
    }

    fn refusal(&mut self, client: Client) -> String {
        self.testbed.closed(client);
        let (code, text) = self.testbed.scene.world.host(client).last().error();
        assert_eq!(code, BAD_CREDENTIALS, "{text}");
        text
    }

    fn with_password(&mut self) -> Client {
        let client = self.certified(&[]);
        assert_eq!(self.next_opcode(client), opcode::AUTHENTICATE);
        self.testbed.send(client, &bytes::auth_response(4, TOKEN));
        assert_eq!(self.next_opcode(client), opcode::AUTH_SUCCESS);
        client
    }
}

/// Nodes ask for a login that needs no word, or take the certificate without asking.
#[test]
fn each_client_has_links_with_the_certificate_of_its_identity() {
    for at_once in [false, true] {
        let mut setup = with(1, true, |_| {});
        setup.all(|node| node.takes_certificates_at_once = at_once);
        let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
        let password = setup.with_password();
        for _ in 0..3 {
            setup.asks_under(shop, OF_SHOP.uri);
            setup.asks_under(billing, OF_BILLING.uri);
            setup.asks_under(password, "");
        }
        let second = setup.identified(SHOP);
        setup.asks_under(second, OF_SHOP.uri);
        setup.testbed.run_for(SECOND);
        assert_eq!(setup.node(0).connections(), 3, "a link for each, shared by its clients");
        let mut tokens = Vec::new();
        setup.all(|node| tokens.append(&mut node.shown_tokens));
        tokens.retain(|token| token != TOKEN);
        assert!(tokens.iter().all(Vec::is_empty), "a certificate needs no token: {tokens:?}");
        for client in [shop, billing] {
            assert_eq!(setup.ask(client, "USE bench"), opcode::RESULT);
        }
        setup.asks_under(shop, OF_SHOP.uri);
        setup.asks_under(billing, OF_BILLING.uri);
    }
}

/// READY must not come before a node has accepted the certificate.
#[test]
fn a_client_waits_for_a_node_that_takes_the_certificate() {
    let mut setup = with(1, true, |_| {});
    setup.all(|node| node.login = Reaction::Ignore);
    let shop = setup.certified(&[SHOP]);
    setup.testbed.run_for(SECOND / 2);
    assert_eq!(setup.testbed.take_answers(shop).len(), 0);
    setup.testbed.closed(shop);
    let code = setup.testbed.scene.world.host(shop).last().error().0;
    assert_eq!(code, OVERLOADED, "nobody has judged");
    setup.all(|node| node.login = Reaction::Refuse(BAD_CREDENTIALS));
    let shop = setup.certified(&[SHOP]);
    assert_eq!(setup.refusal(shop), "the node says no");
}

/// Nodes may refuse a certificate by an alert, an end or a reset, before or after the handshake of
/// the proxy is over.
#[test]
fn a_certificate_that_nodes_refuse_harms_no_other_identity() {
    for is_early in [true, false] {
        for (alert, is_reset) in
            [(Some(UNKNOWN_CA), false), (Some(INTERNAL_ERROR), false), (None, false), (None, true)]
        {
            let refusal = Refusal { is_early, alert, is_reset };
            let refused = Certificate { refusal: Some(refusal), ..OF_SHOP };
            let mut setup = with(2, true, |config| {
                let identities = vec![identity(SHOP, refused), identity(BILLING, OF_BILLING)];
                config.identity = Identities(identities);
            });
            setup.refuse(refused);
            let billing = setup.identified(BILLING);
            for keyspace in 0..10 {
                let shop = setup.certified(&[SHOP]);
                let (text, waited_ns) = setup.timed(|setup| setup.refusal(shop));
                assert!(text.contains("certificate of this client's identity"), "{text}");
                assert!(text.contains(alert.unwrap_or("no alert")), "{text}");
                assert!(waited_ns < SECOND, "{refusal:?}: {waited_ns} ns for the refusal");
                // A link that opens now does not wait for a node either.
                let text = format!("USE k{keyspace}");
                let (opcode, waited_ns) = setup.timed(|setup| setup.ask(billing, &text));
                assert_eq!(opcode, opcode::RESULT);
                assert!(
                    waited_ns < SECOND / 10,
                    "{refusal:?}: {waited_ns} ns for another identity"
                );
                setup.asks_under(billing, OF_BILLING.uri);
            }
            setup.reload(ClientAuth::Optional, both());
            setup.all(|node| node.refused_uri = None);
            let shop = setup.identified(SHOP);
            setup.asks_under(shop, OF_SHOP.uri);
        }
    }
}

/// A tunnel that leads nowhere, or a node alone that lacks the CA, ends each connection. Two nodes
/// have open links with the certificate, and take new clients.
#[test]
fn one_node_that_ends_each_connection_keeps_nobody_out() {
    for (alert, is_reset) in
        [(None, true), (None, false), (Some(INTERNAL_ERROR), false), (Some(UNKNOWN_CA), false)]
    {
        let refusal = Refusal { is_early: false, alert, is_reset };
        let shown = Certificate { refusal: Some(refusal), ..OF_SHOP };
        let mut setup = with(3, true, |config| {
            config.identity = Identities(vec![identity(SHOP, shown)]);
        });
        let first = setup.identified(SHOP);
        setup.testbed.run_for(SECOND);
        let before = setup.node(2).accepted;
        setup.with_node(2, |node, io| {
            (node.refused_uri, node.refuses_by_reset) = (Some(OF_SHOP.uri), is_reset);
            node.reset_connections(io, None);
        });
        for _ in 0..5 {
            setup.testbed.run_for(4 * SECOND);
            // The login is older than `auth_cache_ms`, so a node must verify it.
            let next = setup.identified(SHOP);
            setup.asks_under(next, OF_SHOP.uri);
        }
        setup.asks_under(first, OF_SHOP.uri);
        let ended = setup.node(2).accepted - before;
        assert!(ended >= 5, "{refusal:?}: only {ended} connections ended");
        // If the others refuse it as well, new clients are told so.
        setup.refuse(shown);
        for node in 0..2 {
            setup.with_node(node, |node, io| node.reset_connections(io, None));
        }
        setup.testbed.run_for(10 * SECOND);
        let late = setup.certified(&[SHOP]);
        let text = setup.refusal(late);
        assert!(text.contains("certificate of this client's identity"), "{text}");
    }
}

/// A node may end a connection for another reason, for example because it stops.
#[test]
fn a_connection_that_ends_is_no_verdict_on_its_certificate() {
    for is_reset in [false, true] {
        let refusal = Refusal { is_early: true, alert: None, is_reset };
        let mut setup = with(1, true, |config| {
            let refused = Certificate { refusal: Some(refusal), ..OF_SHOP };
            config.identity = Identities(vec![identity(SHOP, refused)]);
        });
        setup.refuse(Certificate { refusal: Some(refusal), ..OF_SHOP });
        let shop = setup.certified(&[SHOP]);
        let node = setup.nodes[0];
        let is_ended = |world: &mut World| world.host(node).accepted > 0;
        assert!(setup.testbed.scene.world.run_until(SECOND, is_ended));
        setup.all(|node| node.refused_uri = None);
        let config = setup.testbed.scene.options.config.clone();
        setup.testbed.scene.reload_as(Config { identity: both(), ..config });
        assert_eq!(setup.next_opcode(shop), opcode::READY);
        setup.asks_under(shop, OF_SHOP.uri);
    }
}

#[test]
fn a_certificate_with_other_names_closes_the_clients_of_its_identity() {
    let mut setup = with(1, true, |_| {});
    let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
    let other = Certificate { role: "other", uri: "node://other", refusal: None };
    let changed = Identities(vec![identity(SHOP, other), identity(BILLING, OF_BILLING)]);
    setup.reload(ClientAuth::Optional, changed);
    assert!(setup.is_closed(shop) && !setup.is_closed(billing));
    setup.asks_under(billing, OF_BILLING.uri);
    let again = setup.identified(SHOP);
    setup.asks_under(again, other.uri);
}

/// The links of a client that waits for its login must not open with the new certificate.
#[test]
fn a_client_that_waits_for_its_login_is_closed_too() {
    let mut setup = with(1, true, |_| {});
    setup.all(|node| node.login = Reaction::Ignore);
    let shop = setup.certified(&[SHOP]);
    setup.testbed.run_for(SECOND / 10);
    let other = Certificate { role: "other", uri: "node://other", refusal: None };
    setup.reload(ClientAuth::Optional, Identities(vec![identity(SHOP, other)]));
    assert!(setup.is_closed(shop));
}

#[test]
fn a_renewed_certificate_closes_nobody_and_links_are_renewed_with_it() {
    let mut setup = with(1, true, |_| {});
    let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
    setup.asks_under(shop, OF_SHOP.uri);
    let renewed = Certificate { uri: "node://shop/renewed", ..OF_SHOP };
    let identities = Identities(vec![identity(SHOP, renewed), identity(BILLING, OF_BILLING)]);
    setup.reload(ClientAuth::Optional, identities);
    assert!(!setup.is_closed(shop));
    setup.testbed.run_for(5 * SECOND);
    setup.asks_under(shop, renewed.uri);
    setup.asks_under(billing, OF_BILLING.uri);
    let metrics = &setup.testbed.scene.metrics[0];
    assert_eq!(metrics.nodes.node(NodeId(0)).links_renewed.get(), 1, "that of the other stays");
    assert_eq!(setup.ask(shop, "USE bench"), opcode::RESULT);
    setup.asks_under(shop, renewed.uri);
}

#[test]
fn an_identity_that_is_removed_or_gets_a_password_loses_its_clients() {
    let removed = Identities(vec![identity(BILLING, OF_BILLING)]);
    let by_password = Identities(vec![
        super::identities::identity(SHOP, "shop", "one"),
        identity(BILLING, OF_BILLING),
    ]);
    for (identities, next) in [(removed, opcode::AUTHENTICATE), (by_password, opcode::READY)] {
        let mut setup = with(1, true, |_| {});
        let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
        setup.reload(ClientAuth::Optional, identities);
        assert!(setup.is_closed(shop) && !setup.is_closed(billing));
        setup.asks_under(billing, OF_BILLING.uri);
        let again = setup.certified(&[SHOP]);
        assert_eq!(setup.next_opcode(again), next);
        if next == opcode::READY {
            setup.asks_under(again, "");
        }
    }
}

/// The control connection has the proxy's own certificate for a login, which nodes took after
/// STARTUP or without a word.
#[test]
fn no_client_borrows_the_certificate_of_the_proxy() {
    for asks in [true, false] {
        let mut setup = HandshakeTestbed::with_options(1, asks, |options| {
            options.network.sealed = true;
            options.authenticator = MUTUAL;
            options.config.tls_client_auth = ClientAuth::Optional;
            options.config.node_tls_certificate = Some("proxy.crt".into());
            let mixed = super::identities::identity(BILLING, "billing", "two");
            options.config.identity = Identities(vec![identity(SHOP, OF_SHOP), mixed]);
        });
        setup.all(|node| node.authenticator = MUTUAL);
        for uris in [&[][..], &[BILLING], &["spiffe://example/stranger"]] {
            let client = setup.certified(uris);
            let text = setup.refusal(client);
            assert!(text.contains("node_tls_certificate"), "{text}");
        }
        assert_eq!(setup.count(|node| node.accepted), 0);
        let shop = setup.identified(SHOP);
        setup.asks_under(shop, OF_SHOP.uri);
    }
}

/// Whoever was let in before the first identity had a certificate may have the proxy's role.
#[test]
fn clients_that_may_have_the_proxys_certificate_are_closed_by_a_reload() {
    let mut setup = with(1, false, |config| {
        config.identity = Identities::default();
        config.node_tls_certificate = Some("proxy.crt".into());
    });
    let client = setup.certified(&[]);
    assert_eq!(setup.next_opcode(client), opcode::READY);
    setup.asks_under(client, "");
    setup.reload(ClientAuth::Optional, both());
    assert!(setup.is_closed(client));
    let again = setup.certified(&[]);
    assert!(setup.refusal(again).contains("node_tls_certificate"));
}

/// Nodes have begun to ask for passwords, which the control plane has not heard: STARTUP lets
/// clients with passwords in, and a reload must not close them.
#[test]
fn a_reload_keeps_clients_whose_login_nodes_have_begun_to_ask_for() {
    let mut setup = with(1, false, |config| {
        config.identity = Identities::default();
        config.node_tls_certificate = Some("proxy.crt".into());
    });
    let old = setup.certified(&[]);
    assert_eq!(setup.next_opcode(old), opcode::READY);
    setup.all(|node| {
        node.authenticator = "org.apache.cassandra.auth.PasswordAuthenticator";
        node.asks_for_login = true;
    });
    setup.reset_links(None);
    setup.testbed.closed(old);
    setup.testbed.run_for(SECOND);
    let early = setup.with_password();
    setup.reload(ClientAuth::Optional, both());
    assert!(!setup.is_closed(early));
    let late = setup.with_password();
    setup.reload(ClientAuth::Optional, both());
    for client in [early, late] {
        assert!(!setup.is_closed(client));
        setup.asks_under(client, "");
    }
}

/// A ring that begins to take certificates without a word, which the control plane has not heard.
#[test]
fn no_link_with_the_proxys_certificate_goes_on_without_a_login() {
    let mut setup = HandshakeTestbed::with_options(1, true, |options| {
        options.network.sealed = true;
        options.config.tls_client_auth = ClientAuth::Optional;
        options.config.node_tls_certificate = Some("proxy.crt".into());
        options.config.identity = both();
    });
    setup.all(|node| node.asks_for_login = false);
    let client = setup.certified(&[]);
    assert_eq!(setup.next_opcode(client), opcode::AUTHENTICATE);
    setup.testbed.send(client, &bytes::auth_response(4, TOKEN));
    setup.testbed.run_for(5 * SECOND);
    assert_eq!(setup.testbed.take_answers(client).len(), 0);
    assert_eq!(setup.count(|node| node.identity_queries), 0, "no query travels on such a link");
}

//! Clients that a certificate identifies: each has the rights of its own identity, and no other's,
//! whatever others do and whatever a reload changes.

use std::sync::Arc;

use shunt_proxy::config::{Config, Identities, Identity, IdentityLogin, RolePassword, Secret};
use shunt_proxy::limits::REVIEW_STEP;
use shunt_proxy::metrics::Closing;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_reactor::{NameKind, PeerName};
use shunt_testing::{bytes, simulated};
use shunt_tls::ClientAuth;
use shunt_wire::cql::compression::{Algorithm, Compressor};
use shunt_wire::cql::envelope::opcode;
use shunt_wire::cql::message::error_code::{BAD_CREDENTIALS, OVERLOADED};

use super::handshake_node::{Reaction, select};
use super::handshake_testbed::{HandshakeTestbed, TOKEN};
use super::testbed::Testbed;

pub const SHOP: &str = "spiffe://example/shop";
pub const BILLING: &str = "spiffe://example/billing";
const SHOP_TOKEN: &[u8] = b"\0shop\0one";
const BILLING_TOKEN: &[u8] = b"\0billing\0two";

pub fn identity(uri: &str, username: &str, password: &str) -> Arc<Identity> {
    let role = RolePassword {
        username: username.to_owned(),
        file: "file".into(),
        password: Secret::new(password),
    };
    let name = PeerName::new(NameKind::Uri, uri);
    Arc::new(Identity { name, login: IdentityLogin::Password(role) })
}

fn both() -> Identities {
    Identities(vec![identity(SHOP, "shop", "one"), identity(BILLING, "billing", "two")])
}

fn with(nodes: usize, auth: ClientAuth, identities: Identities) -> HandshakeTestbed {
    HandshakeTestbed::with_options(nodes, true, |options| {
        options.network.sealed = true;
        options.config.tls_client_auth = auth;
        options.config.identity = identities;
    })
}

impl HandshakeTestbed {
    /// A client whose certificate has these URIs, and that has sent STARTUP.
    pub fn certified(&mut self, uris: &[&str]) -> HostId<simulated::Client> {
        let client = self.testbed.offender();
        let names = uris.iter().map(|uri| PeerName::new(NameKind::Uri, uri)).collect();
        self.testbed.scene.world.show_certificate(client, names);
        self.testbed.send(client, &bytes::startup(4, None));
        client
    }

    pub fn identified(&mut self, uri: &str) -> HostId<simulated::Client> {
        let client = self.certified(&[uri]);
        assert_eq!(self.next_opcode(client), opcode::READY);
        client
    }

    /// The tokens under which the nodes got their queries since the last call.
    fn tokens(&mut self) -> Vec<Vec<u8>> {
        let mut tokens = Vec::new();
        self.all(|node| tokens.append(&mut node.tokens));
        tokens
    }

    fn asks_as(&mut self, client: HostId<simulated::Client>, token: &[u8]) {
        self.tokens();
        self.testbed.send(client, &select(1));
        assert_eq!(self.next_opcode(client), opcode::RESULT);
        assert_eq!(self.tokens(), [token]);
    }

    pub fn reload(&mut self, auth: ClientAuth, identity: Identities) {
        let config = self.testbed.scene.options.config.clone();
        let config = Config { tls_client_auth: auth, identity, ..config };
        self.testbed.scene.reload_as(config);
        self.testbed.run_for(SECOND);
    }

    pub fn is_closed(&self, client: HostId<simulated::Client>) -> bool {
        self.testbed.scene.world.host(client).is_closed()
    }
}

#[test]
fn a_certificate_is_a_login_and_identities_never_share_a_link() {
    let mut setup = with(1, ClientAuth::Optional, both());
    let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
    let password = setup.certified(&[]);
    assert_eq!(setup.next_opcode(password), opcode::AUTHENTICATE, "it shows no certificate");
    // The login of the identity, but not its certificate.
    setup.testbed.send(password, &bytes::auth_response(4, SHOP_TOKEN));
    assert_eq!(setup.next_opcode(password), opcode::AUTH_SUCCESS);
    for _ in 0..3 {
        setup.asks_as(shop, SHOP_TOKEN);
        setup.asks_as(billing, BILLING_TOKEN);
        setup.asks_as(password, SHOP_TOKEN);
    }
    setup.testbed.run_for(SECOND);
    let connections = setup.testbed.scene.world.host(setup.nodes[0]).connections();
    assert_eq!(connections, 3, "a link each");
    let second = setup.identified(SHOP);
    setup.asks_as(second, SHOP_TOKEN);
    setup.testbed.run_for(SECOND);
    assert_eq!(setup.node(0).connections(), 3, "clients of one identity share");
}

#[test]
fn a_keyspace_changes_no_identity() {
    let mut setup = with(1, ClientAuth::Required, both());
    let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
    for client in [shop, billing] {
        assert_eq!(setup.ask(client, "USE bench"), opcode::RESULT);
    }
    setup.asks_as(shop, SHOP_TOKEN);
    setup.asks_as(billing, BILLING_TOKEN);
}

#[test]
fn a_certificate_that_no_identity_has_is_refused_by_its_names() {
    let mut setup = with(1, ClientAuth::Required, both());
    let stranger = setup.certified(&["spiffe://example/other", "spiffe://example/shop/x"]);
    setup.testbed.closed(stranger);
    let (code, text) = setup.testbed.scene.world.host(stranger).last().error();
    assert_eq!(code, BAD_CREDENTIALS);
    assert!(
        text.contains("URI:spiffe://example/other, URI:spiffe://example/shop/x")
            && text.contains("[[identity]]"),
        "{text}"
    );
    assert_eq!(setup.count(|node| node.logins), 0, "no node hears of it");
}

/// Each client of this proxy must have a certificate, so this one has one.
#[test]
fn a_certificate_whose_names_cannot_be_read_is_refused_too() {
    let mut setup = with(1, ClientAuth::Required, both());
    let client = setup.certified(&[]);
    setup.testbed.closed(client);
    let (code, text) = setup.testbed.scene.world.host(client).last().error();
    assert!(code == BAD_CREDENTIALS && text.contains("none that this proxy reads"), "{text}");
}

#[test]
fn where_a_certificate_is_optional_one_without_identity_has_a_password() {
    let mut setup = with(1, ClientAuth::Optional, both());
    let client = setup.certified(&["spiffe://example/other"]);
    assert_eq!(setup.next_opcode(client), opcode::AUTHENTICATE);
    setup.testbed.send(client, &bytes::auth_response(4, TOKEN));
    assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
    setup.asks_as(client, TOKEN);
    let shop = setup.identified(SHOP);
    setup.asks_as(shop, SHOP_TOKEN);
}

#[test]
fn without_identities_a_certificate_is_no_login() {
    let mut setup = with(1, ClientAuth::Required, Identities::default());
    let client = setup.certified(&[SHOP]);
    assert_eq!(setup.next_opcode(client), opcode::AUTHENTICATE);
}

#[test]
fn a_wrong_password_of_one_identity_harms_no_other() {
    let mut setup = with(3, ClientAuth::Required, both());
    let billing = setup.identified(BILLING);
    setup.all(|node| node.refused_token = Some(SHOP_TOKEN));
    for _ in 0..20 {
        let shop = setup.certified(&[SHOP]);
        setup.testbed.closed(shop);
        let (code, text) = setup.testbed.scene.world.host(shop).last().error();
        assert_eq!((code, text.as_str()), (BAD_CREDENTIALS, "the node says no"));
        setup.asks_as(billing, BILLING_TOKEN);
    }
    let another = setup.identified(BILLING);
    setup.asks_as(another, BILLING_TOKEN);
    setup.all(|node| node.refused_token = None);
    let shop = setup.identified(SHOP);
    setup.asks_as(shop, SHOP_TOKEN);
}

/// READY must not come before a node has accepted the identity's login.
#[test]
fn a_client_waits_for_the_verdict_of_a_node() {
    let mut setup = with(1, ClientAuth::Required, both());
    setup.all(|node| node.login = Reaction::Ignore);
    let shop = setup.certified(&[SHOP]);
    setup.testbed.run_for(SECOND / 2);
    assert_eq!(setup.testbed.take_answers(shop).len(), 0);
    setup.testbed.closed(shop);
    let code = setup.testbed.scene.world.host(shop).last().error().0;
    assert_eq!(code, OVERLOADED, "no answer means no wrong password");
}

#[test]
fn a_reload_closes_the_clients_that_lose_their_identity_and_no_others() {
    let removed = Identities(vec![identity(BILLING, "billing", "two")]);
    let other_role =
        Identities(vec![identity(SHOP, "another", "one"), identity(BILLING, "billing", "two")]);
    for (identities, token) in [(removed, None), (other_role, Some(&b"\0another\0one"[..]))] {
        let mut setup = with(1, ClientAuth::Required, both());
        let (shop, billing) = (setup.identified(SHOP), setup.identified(BILLING));
        setup.reload(ClientAuth::Required, identities);
        assert!(setup.is_closed(shop) && !setup.is_closed(billing));
        setup.asks_as(billing, BILLING_TOKEN);
        let again = setup.certified(&[SHOP]);
        setup.testbed.answered(again, 1);
        match token {
            Some(token) => {
                assert_eq!(setup.next_opcode(again), opcode::READY);
                setup.asks_as(again, token);
            }
            None => assert_eq!(setup.next_opcode(again), opcode::ERROR),
        }
    }
}

/// A client costs a look-up for each name of its certificate, and an operator's tool may reload as
/// often as it likes: a turn judges few clients.
#[test]
fn a_reload_judges_clients_in_steps() {
    let mut setup = with(1, ClientAuth::Required, both());
    let losers: Vec<_> = (0..2 * REVIEW_STEP + 1).map(|_| setup.identified(SHOP)).collect();
    let billing = setup.identified(BILLING);
    let config = setup.testbed.scene.options.config.clone();
    let identity = Identities(vec![identity(BILLING, "billing", "two")]);
    let with_log = Config { log: "debug".to_owned(), ..config.clone() };
    for _ in 0..50 {
        setup.testbed.scene.reload_as(with_log.clone());
    }
    setup.testbed.scene.reload_as(Config { identity, ..config });
    let metrics = Arc::clone(&setup.testbed.scene.metrics[0]);
    let (mut closed, mut turns) = (0, 0);
    while closed < losers.len() as u64 {
        assert!(setup.testbed.scene.world.step(u64::MAX), "all losers are closed");
        let now = metrics.clients_closed.of(Closing::IdentityChanged).get();
        assert!(now - closed <= REVIEW_STEP as u64, "{} in a turn", now - closed);
        turns += u64::from(now > closed);
        closed = now;
    }
    assert!(turns >= 3, "{turns}");
    setup.testbed.run_for(SECOND);
    assert!(losers.iter().all(|client| setup.is_closed(*client)) && !setup.is_closed(billing));
    setup.asks_as(billing, BILLING_TOKEN);
}

/// The order of the file decides, also after a reload.
#[test]
fn a_client_that_another_identity_would_win_now_is_closed() {
    let mut setup = with(1, ClientAuth::Required, both());
    let client = setup.certified(&[BILLING, SHOP]);
    assert_eq!(setup.next_opcode(client), opcode::READY);
    setup.asks_as(client, SHOP_TOKEN);
    setup.reload(ClientAuth::Required, Identities(both().0.into_iter().rev().collect()));
    assert!(setup.is_closed(client));
    let again = setup.certified(&[BILLING, SHOP]);
    assert_eq!(setup.next_opcode(again), opcode::READY);
    setup.asks_as(again, BILLING_TOKEN);
}

#[test]
fn a_client_that_waits_for_its_login_loses_it_too() {
    let mut setup = with(1, ClientAuth::Required, both());
    setup.all(|node| node.login = Reaction::Ignore);
    let shop = setup.certified(&[SHOP]);
    setup.testbed.run_for(SECOND / 10);
    setup.reload(ClientAuth::Optional, Identities::default());
    assert!(setup.is_closed(shop));
    setup.all(|node| node.login = Reaction::Accept);
    let again = setup.certified(&[SHOP]);
    assert_eq!(setup.next_opcode(again), opcode::AUTHENTICATE);
}

#[test]
fn a_new_password_of_the_same_role_closes_nobody() {
    let mut setup = with(1, ClientAuth::Required, both());
    let before = setup.identified(SHOP);
    setup.asks_as(before, SHOP_TOKEN);
    let renewed =
        Identities(vec![identity(SHOP, "shop", "new"), identity(BILLING, "billing", "two")]);
    setup.reload(ClientAuth::Required, renewed);
    setup.asks_as(before, SHOP_TOKEN);
    let after = setup.identified(SHOP);
    setup.asks_as(after, b"\0shop\0new");
}

/// Nodes with such an authenticator look at the certificate of the link, which is the proxy's own,
/// and at no password.
#[test]
fn no_client_borrows_the_certificate_of_the_proxy() {
    for class in [
        "org.apache.cassandra.auth.MutualTlsAuthenticator",
        "org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator",
    ] {
        for uris in [&[][..], &[SHOP]] {
            let mut setup = HandshakeTestbed::with_options(1, true, |options| {
                options.network.sealed = true;
                options.authenticator = class;
                options.config.tls_client_auth = ClientAuth::Required;
                options.config.node_tls_certificate = Some("proxy.crt".into());
                options.config.identity = both();
            });
            let client = setup.certified(uris);
            setup.testbed.closed(client);
            let (code, text) = setup.testbed.scene.world.host(client).last().error();
            assert_eq!(code, BAD_CREDENTIALS);
            assert!(text.contains("node_tls_certificate"), "{text}");
            assert_eq!(setup.count(|node| node.logins), 0);
        }
    }
}

/// The ring changes its authenticator node by node, and the control connection has not heard of it.
#[test]
fn no_connected_client_borrows_it_when_nodes_change_their_authenticator() {
    let mut setup = HandshakeTestbed::with_options(1, true, |options| {
        options.network.sealed = true;
        options.config.tls_client_auth = ClientAuth::Optional;
        options.config.node_tls_certificate = Some("proxy.crt".into());
        options.config.identity = both();
    });
    let shop = setup.identified(SHOP);
    let password = setup.certified(&[]);
    assert_eq!(setup.next_opcode(password), opcode::AUTHENTICATE);
    setup.testbed.send(password, &bytes::auth_response(4, TOKEN));
    assert_eq!(setup.next_opcode(password), opcode::AUTH_SUCCESS);
    setup.asks_as(shop, SHOP_TOKEN);
    setup.asks_as(password, TOKEN);
    setup.all(|node| {
        node.authenticator = "org.apache.cassandra.auth.MutualTlsAuthenticator";
        node.logins = 0;
    });
    setup.reset_links(None);
    for client in [shop, password] {
        setup.testbed.send(client, &select(1));
    }
    setup.testbed.run_for(30 * SECOND);
    assert_eq!(setup.tokens().len(), 0, "no query travels under the proxy's certificate");
    assert_eq!(setup.count(|node| node.logins), 0, "nor does a login");
}

/// A query in a segment, as STARTUP with this compression agreed.
fn segment(compression: Option<Algorithm>) -> Vec<u8> {
    // Text that gets shorter by compression.
    let text = format!("SELECT v FROM bench.kv WHERE k ={}0x00", " ".repeat(500));
    let plain = bytes::query(5, 1, &text);
    let Some(algorithm) = compression else { return bytes::segment(&plain, true) };
    let mut block = Vec::new();
    assert!(Compressor::new().compress(algorithm, &plain, &mut block));
    // In v4 a length precedes the block.
    bytes::segment_lz4(&block[4..], plain.len())
}

/// READY is the last message without a segment, whether it comes at once or after a node's verdict.
#[test]
fn a_client_of_v5_goes_on_in_segments() {
    for (name, compression) in [(None, None), (Some("lz4"), Some(Algorithm::Lz4))] {
        let mut testbed = Testbed::bare(|options| {
            options.network.sealed = true;
            options.protocol_max = 5;
            options.credentials = vec![("shop".into(), "one".into())];
            options.config.tls_client_auth = ClientAuth::Required;
            options.config.identity = both();
        });
        // The second client finds the login in the cache.
        for _ in 0..2 {
            let client = testbed.offender();
            let names = vec![PeerName::new(NameKind::Uri, SHOP)];
            testbed.scene.world.show_certificate(client, names);
            testbed.scene.world.with(client, |client, _| client.expect_compression(compression));
            testbed.send(client, &bytes::startup(5, name));
            testbed.answered(client, 1);
            assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::READY);
            for _ in 0..2 {
                testbed.send(client, &segment(compression));
                testbed.answered(client, 1);
                assert_eq!(testbed.take_answers(client)[0].header.opcode, opcode::RESULT);
            }
        }
    }
}

//! TLS to nodes: the ring is read through it, and each fault has its words.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, KeyPair};
use shunt_reactor::Session;
use shunt_tls::{Client, ClientAuth, ClientOptions, Server, ServerNames, ServerOptions, Verify};
use shunt_wire::cql::message::Event;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::access::Access;
use super::super::client::AsyncClient;
use super::fake::FakeRing;
use super::*;
use crate::config::Switch;
use crate::tls::Outgoing;

/// A certificate for 127.0.0.1, which is its own authority, and its key.
struct Certificate(TempDir);

impl Certificate {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        // No two authorities have the same name.
        params.distinguished_name.push(DnType::CommonName, directory.path().display().to_string());
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        std::fs::write(directory.path().join("tls.crt"), certificate).expect("written");
        std::fs::write(directory.path().join("tls.key"), key.serialize_pem()).expect("written");
        Self(directory)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn server(&self) -> Server {
        Server::open(ServerOptions {
            names: ServerNames::CLIENTS,
            certificate: self.path("tls.crt"),
            key: self.path("tls.key"),
            client_ca: None,
            client_auth: ClientAuth::None,
            ticket_keys: None,
        })
        .expect("usable files")
    }

    /// Access to servers with this certificate.
    fn access(&self, verify: Verify) -> Access {
        let ca = (verify != Verify::None).then(|| self.path("tls.crt"));
        let client = Client::open(ClientOptions { ca, verify, ..ClientOptions::default() });
        let tls = Some(Arc::new(client.expect("usable files")));
        Access { tls, ..Access::plain(None, GUARD) }
    }
}

/// A port with TLS before a node without.
async fn encrypt(node: SocketAddr, certificate: &Certificate) -> SocketAddr {
    encrypt_with(node, certificate.server().into()).await
}

async fn encrypt_with(node: SocketAddr, server: Arc<Server>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay(client, node, server.session()));
        }
    });
    address
}

async fn relay(mut client: TcpStream, node: SocketAddr, mut session: Box<dyn Session>) {
    let mut node = TcpStream::connect(node).await.expect("the node");
    let (mut records, mut answer, mut out) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        if session.has_pending() {
            session.take_pending(&mut out);
        }
        if client.write_all(&out).await.is_err() {
            return;
        }
        out.clear();
        tokio::select! {
            read = client.read_buf(&mut records) => {
                let mut plain = Vec::new();
                let Ok(1..) = read else { return };
                let Ok(opened) = session.open(&mut records, &mut plain) else { return };
                records.drain(..opened.consumed);
                node.write_all(&plain).await.expect("the node takes requests");
            }
            read = node.read_buf(&mut answer) => {
                let Ok(1..) = read else { return };
                session.seal(&answer, &mut out).expect("after the handshake");
                answer.clear();
            }
        }
    }
}

#[tokio::test]
async fn the_ring_is_read_through_tls() {
    let certificate = Certificate::new();
    let ring = FakeRing::start(1).await;
    let port = encrypt(ring.address(1), &certificate).await;
    let config = Config {
        node_tls: Switch::On,
        node_tls_ca: Some(certificate.path("tls.crt")),
        ..Config::default()
    };
    let tls = Outgoing::open(&config, &Arc::default()).expect("usable files").nodes;
    assert!(tls.is_some());
    let mut bench = Bench::start_with(&[port], tls, |_| {});
    let state = bench.cluster_where(|_| true).await;
    // The node announces its port without TLS, which does not answer this proxy.
    assert_eq!(state.routing.local_nodes().len(), 1);
    assert_eq!(state.routing.nodes()[0].address, port);
}

/// The control connection goes on as it was opened. A new CA counts for the announced address all
/// the same.
#[tokio::test]
async fn an_announced_address_is_probed_by_the_present_options() {
    let (contact, served, renewed) = (Certificate::new(), Certificate::new(), Certificate::new());
    let mut ring = FakeRing::start(1).await;
    let node = ring.address(1);
    let server = Arc::new(served.server());
    let port = encrypt(node, &contact).await;
    let announced = encrypt_with(node, Arc::clone(&server)).await;
    ring.edit(|state| state.nodes[0].address = announced);
    let both = served.path("both.crt");
    let pem = |certificate: &Certificate| {
        std::fs::read_to_string(certificate.path("tls.crt")).expect("readable")
    };
    std::fs::write(&both, [pem(&contact), pem(&served)].concat()).expect("written");
    let with = |ca| Config { node_tls: Switch::On, node_tls_ca: Some(ca), ..Config::default() };
    let outgoing = Outgoing::open(&with(both), &Arc::default()).expect("usable files");
    let mut bench = Bench::start_with(&[port], outgoing.nodes.clone(), |_| {});
    let state = bench.cluster_where(|_| true).await;
    assert_eq!(state.routing.nodes()[0].address, announced);

    for name in ["tls.crt", "tls.key"] {
        std::fs::copy(renewed.path(name), served.path(name)).expect("copied");
    }
    server.reload(SystemTime::now() + Duration::from_secs(60)).expect("usable files");
    let prepared = outgoing.prepare(&with(renewed.path("tls.crt"))).expect("usable files");
    outgoing.apply(prepared);
    let address = ring.add_node(2, "127.0.0.1:0").await;
    ring.event(&Event::TopologyChange { change: "NEW_NODE", address });
    let state = bench.cluster_where(|state| state.routing.nodes().len() == 2).await;
    assert_eq!(state.routing.nodes()[0].address, announced);
}

#[tokio::test]
async fn requests_and_answers_of_many_records_pass() {
    let certificate = Certificate::new();
    let ring = FakeRing::start(1).await;
    let keyspaces = |number: usize| (format!("keyspace_{number}_{}", "x".repeat(200)), Vec::new());
    ring.edit(|state| {
        state.keyspaces = (0..500).map(keyspaces).collect();
        state.page_rows = 1_000;
    });
    let port = encrypt(ring.address(1), &certificate).await;
    let mut client = AsyncClient::connect(port, &certificate.access(Verify::Full)).await.unwrap();
    let level = (shunt_wire::cql::message::Consistency::ONE, None);
    let text = "SELECT * FROM system_schema.keyspaces";
    let table = client.query(text, &[], level, GUARD).await.expect("an answer");
    assert_eq!(table.rows.len(), 500);
}

/// The words in which a connection fails.
async fn failure(address: SocketAddr, access: &Access) -> String {
    AsyncClient::connect(address, access).await.expect_err("it connects").message
}

#[tokio::test]
async fn each_fault_of_a_handshake_has_its_words() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let ring = FakeRing::start(1).await;
    let port = encrypt(ring.address(1), &certificate).await;
    let unknown = failure(port, &other.access(Verify::Full)).await;
    assert_eq!(unknown, "TLS failed: the CA of the peer's certificate is unknown");
    let unknown = failure(port, &other.access(Verify::Ca)).await;
    assert_eq!(unknown, "TLS failed: the CA of the peer's certificate is unknown");
    assert!(AsyncClient::connect(port, &other.access(Verify::None)).await.is_ok());

    let named =
        |name: &str, verify| Access { name: Some(name.into()), ..certificate.access(verify) };
    let elsewhere = failure(port, &named("cassandra.example", Verify::Full)).await;
    assert_eq!(elsewhere, "TLS failed: the peer's certificate is for another name");
    for (name, verify) in [("localhost", Verify::Full), ("cassandra.example", Verify::Ca)] {
        let connected = AsyncClient::connect(port, &named(name, verify)).await;
        assert!(connected.is_ok(), "{name} {verify}");
    }
}

/// A server that answers the first bytes with these and closes.
async fn answering(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut first = vec![0; 16_384];
            let _ = stream.read(&mut first).await;
            let _ = stream.write_all(answer).await;
        }
    });
    address
}

#[tokio::test]
async fn a_side_without_tls_is_told_from_one_with() {
    let access = Certificate::new().access(Verify::Full);
    // ERROR of version 5.
    let plain = failure(answering(&[0x85, 0, 0, 0, 0, 0, 0, 0, 0]).await, &access).await;
    assert_eq!(plain, "TLS failed: the peer does not speak TLS");
    let closed = failure(answering(&[]).await, &access).await;
    assert_eq!(closed, "TLS failed: the node closed the connection during the handshake");
    let encrypted = answering(&[0x15, 3, 3, 0, 2, 2, 50]).await;
    let wanted = failure(encrypted, &Access::plain(None, GUARD)).await;
    assert_eq!(wanted, "the node requires TLS, which is not switched on here");
}

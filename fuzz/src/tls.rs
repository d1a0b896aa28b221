//! Sessions of TLS. The first byte selects who receives the rest, and the size of pieces: a server
//! or a client at the start of its handshake gets it as a stream; a server after its handshake gets
//! it as records, each with its type, the length of its content, and the content, sealed with the
//! right keys.

use std::sync::LazyLock;

use shunt_reactor::Session;
use shunt_tls::forgery::Forger;
use shunt_tls::{Client, ClientAuth, ClientOptions, Server, ServerNames, ServerOptions, Verify};

/// More than any record has.
const RECORD_BYTES_MAX: usize = 5 + 16_384 + 2_048;

/// Bit of a record's type: the server seals something after this record.
const SEALS: u8 = 0x80;

static ENDS: LazyLock<(Server, Client)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a pair");
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let server = ServerOptions {
        names: ServerNames::CLIENTS,
        certificate: write("certificate", pair.cert.pem()),
        key: write("key", pair.signing_key.serialize_pem()),
        client_ca: None,
        client_auth: ClientAuth::None,
        ticket_keys: None,
    };
    let client = ClientOptions { verify: Verify::None, ..ClientOptions::default() };
    (Server::open(server).expect("a server"), Client::open(client).expect("a client"))
});

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    let (server, client) = &*ENDS;
    let piece = usize::from(mode >> 2) + 1;
    match mode & 3 {
        0 => receive(&mut *server.session(), data, piece),
        1 => receive(&mut *client.session("localhost"), data, piece),
        _ => forge(data, piece),
    }
}

/// Has a session take a stream in pieces.
fn receive(session: &mut dyn Session, stream: &[u8], piece: usize) {
    let (mut received, mut plain, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in stream.chunks(piece) {
        if !take(session, &mut received, bytes, &mut plain) {
            assert!(session.seal(b"data", &mut out).is_err());
            return;
        }
        assert!(plain.is_empty(), "content before the end of the handshake");
        session.take_pending(&mut out);
    }
}

/// Opens bytes behind those that are left. Returns false after a fault.
fn take(
    session: &mut dyn Session,
    received: &mut Vec<u8>,
    bytes: &[u8],
    plain: &mut Vec<u8>,
) -> bool {
    received.extend_from_slice(bytes);
    let Ok(opened) = session.open(received, plain) else {
        assert!(session.open(&mut [], plain).is_err());
        return false;
    };
    assert!(opened.consumed <= received.len());
    received.drain(..opened.consumed);
    assert!(received.len() < RECORD_BYTES_MAX);
    assert!(!opened.ended || received.is_empty());
    true
}

/// Has a server take records, each in pieces.
fn forge(mut data: &[u8], piece: usize) {
    let (mut forger, mut session) = Forger::connect(&ENDS.0).expect("a handshake");
    let (mut received, mut plain, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sent, mut failed) = (0, false);
    while let [kind, length, rest @ ..] = data {
        let (content, next) = rest.split_at(rest.len().min(usize::from(*length)));
        data = next;
        sent += content.len();
        for bytes in forger.seal(kind & !SEALS, content).chunks(piece) {
            failed |= !take(&mut *session, &mut received, bytes, &mut plain);
            assert!(plain.len() <= sent);
            if kind & SEALS != 0 {
                assert_eq!(session.seal(b"data", &mut out).is_err(), failed);
            }
        }
    }
    session.end(&mut out);
    assert!(session.bytes() < 512 << 10);
}

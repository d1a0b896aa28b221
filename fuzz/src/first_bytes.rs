//! First bytes of a client's connection, by which a listener decides: a balancer's header of the
//! PROXY protocol, then TLS or CQL. The first byte of an input selects the listener's option `tls`,
//! whether a balancer connects, and the size of the pieces in which the rest arrives.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use shunt_proxy::admission::AdmissionRules;
use shunt_proxy::config::{Config, Kind, Network, Tls};
use shunt_proxy::tls::open_listeners;
use shunt_reactor::{Accepted, Admission, ClientAddress, Security};
use shunt_wire::cql::envelope::{HEADER_BYTES, Header, opcode};

/// Leading bytes that a decision gets at most, as in the reactor.
const HEAD_BYTES: usize = 16;
/// Longest header of a balancer that the reactor reads.
const HEADER_BYTES_MAX: usize = 1 << 10;
/// More bytes than any answer to a refused client has.
const ANSWER_BYTES_MAX: usize = 512;
/// First byte of a TLS handshake.
const TLS: u8 = 0x16;

const BALANCER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 8, 7));
const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// Rules of listeners with `tls` off, optional and required.
static RULES: LazyLock<[(Tls, Arc<dyn Security>); 3]> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a pair");
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        Some(path)
    };
    let certificate = write("certificate", pair.cert.pem());
    let key = write("key", pair.signing_key.serialize_pem());
    [Tls::Off, Tls::Optional, Tls::Required].map(|tls| {
        let config = Config {
            tls,
            tls_certificate: certificate.clone(),
            tls_key: key.clone(),
            proxy_protocol_from: vec![Network::from_text("10.0.8.7").expect("a network")],
            ..Config::default()
        };
        let metrics = Arc::default();
        let listeners = open_listeners(&config, &metrics).expect("listeners");
        (tls, AdmissionRules::of_config(&config, &listeners, metrics).expect("rules"))
    })
});

/// A decision about a connection.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Too little has arrived.
    Open,
    /// The header is refused.
    NoHeader,
    /// The connection is served in clear text, for this client, behind a header of this length.
    Plain(ClientAddress, usize),
    /// The connection gets a TLS session.
    Session(ClientAddress, usize),
    /// The client is refused.
    Refused(ClientAddress, usize),
}

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else { return };
    let Some((tls, rules)) = RULES.get(usize::from(mode & 3)) else { return };
    let from_balancer = mode & 4 != 0;
    let peer = ((if from_balancer { BALANCER } else { CLIENT }), 5).into();
    let origin = Accepted {
        listener: 0,
        peer: ClientAddress::Tcp(peer),
        local: ([10, 0, 0, 1], 9042).into(),
    };
    assert_eq!(rules.expects_header(&origin), from_balancer);
    let whole = decide(&**rules, &origin, data, data.len().max(1));
    let pieces = decide(&**rules, &origin, data, usize::from(mode >> 3) + 1);
    assert_eq!(whole, pieces, "pieces change the decision");
    check(*tls, &origin, from_balancer, data, &whole);
}

/// Receives a stream in pieces, as a thread for handshakes does.
fn decide(rules: &dyn Security, origin: &Accepted, stream: &[u8], piece: usize) -> Decision {
    let (mut origin, mut taken) = (*origin, 0);
    let mut awaits_header = rules.expects_header(&origin);
    for end in (piece..stream.len() + piece).step_by(piece) {
        let arrived = &stream[..end.min(stream.len())];
        if awaits_header {
            let header = &arrived[..arrived.len().min(HEADER_BYTES_MAX)];
            match rules.read_header(&origin, header) {
                Ok(None) if header.len() == HEADER_BYTES_MAX => panic!("an endless header"),
                Ok(None) => continue,
                Ok(Some((bytes, client))) => (taken, origin.peer) = (bytes, client),
                Err(fault) => {
                    check_answer(&rules.refuse_header(&origin, fault, header), header);
                    return Decision::NoHeader;
                }
            }
            assert!((1..=arrived.len()).contains(&taken), "{taken} bytes of a header");
            awaits_header = false;
        }
        let head = &arrived[taken..];
        let head = &head[..head.len().min(HEAD_BYTES)];
        if head.is_empty() {
            continue;
        }
        return match rules.admit(&origin, head) {
            Admission::Plain => Decision::Plain(origin.peer, taken),
            Admission::Session(session) => {
                assert!(session.is_handshaking());
                Decision::Session(origin.peer, taken)
            }
            Admission::Refused(answer) => {
                check_answer(&answer, head);
                Decision::Refused(origin.peer, taken)
            }
        };
    }
    Decision::Open
}

/// An answer to a refused client is empty, or one ERROR with the version of the request.
fn check_answer(answer: &[u8], head: &[u8]) {
    assert!(answer.len() <= ANSWER_BYTES_MAX, "{} bytes", answer.len());
    let Some(header) = Header::decode(answer) else { return assert!(answer.is_empty()) };
    assert_eq!(
        (header.opcode, answer.len()),
        (opcode::ERROR, HEADER_BYTES + header.length as usize)
    );
    match head {
        [version @ 3..=5, ..] => assert_eq!(header.version, *version),
        _ => assert_eq!(header.version, 4),
    }
}

/// Checks a decision against the rules in words.
fn check(tls: Tls, origin: &Accepted, from_balancer: bool, data: &[u8], decision: &Decision) {
    let (client, header, is_session) = match decision {
        Decision::Open | Decision::NoHeader => {
            return assert!(from_balancer || data.is_empty(), "a client without a decision");
        }
        Decision::Plain(client, header) => {
            assert!(tls == Tls::Off || tls == Tls::Optional && data[*header] != TLS);
            (client, *header, false)
        }
        Decision::Session(client, header) => (client, *header, true),
        Decision::Refused(client, header) => {
            assert!(tls == Tls::Required && data[*header] != TLS);
            (client, *header, false)
        }
    };
    assert_eq!(is_session, tls != Tls::Off && data[header] == TLS);
    if !from_balancer {
        // A header from anyone else is not read, and names no client.
        assert_eq!((*client, header), (origin.peer, 0));
    }
}

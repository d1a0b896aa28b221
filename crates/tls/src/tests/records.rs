//! Records: in pieces, together, of all sizes, and the end of a stream.

use rustls::version::{TLS12, TLS13};

use super::authority::{Authority, client, server};
use super::link::{End, Peer, Plain, client_config, deliver, pair, shake, shake_in_pieces};
use crate::{Client, ClientAuth, Server};

/// A client and a server that verify each other.
fn mutual() -> (Client, Server) {
    let ca = Authority::new("CA");
    (client(&ca, Some(&ca.client())), server(&ca, ClientAuth::Required))
}

/// Cuts a stream after `cut` bytes of it.
fn cut(cut: usize) -> impl FnMut(&[u8]) -> Vec<usize> {
    let mut passed = 0;
    move |bytes| {
        let first = cut.saturating_sub(passed).min(bytes.len());
        passed += bytes.len();
        vec![first, bytes.len() - first]
    }
}

/// A handshake, two records each way and the ends, both streams cut after `position` bytes. The
/// result is the length of the longer stream.
fn converse(client: &Client, server: &Server, position: usize) -> usize {
    let (mut near, mut far) = (End::new(client.session("localhost")), End::new(server.session()));
    let (mut forth, mut back) = (0, 0);
    let (mut cut_forth, mut cut_back) = (cut(position), cut(position));
    let mut to_server = |bytes: &[u8]| {
        forth += bytes.len();
        cut_forth(bytes)
    };
    let mut to_client = |bytes: &[u8]| {
        back += bytes.len();
        cut_back(bytes)
    };
    shake_in_pieces(&mut near, &mut far, &mut to_server, &mut to_client);
    let asked = [near.seal(b"one"), near.seal(b"two"), near.end()].concat();
    let answered = [far.seal(b"three"), far.seal(b"four"), far.end()].concat();
    deliver(&asked, to_server(&asked), &mut far);
    deliver(&answered, to_client(&answered), &mut near);
    assert_eq!(far.plain, b"onetwo");
    assert_eq!(near.plain, b"threefour");
    assert!(near.ended && far.ended);
    assert_eq!((near.fault(), far.fault()), ("none", "none"));
    forth.max(back)
}

#[test]
fn a_stream_may_be_cut_at_every_byte() {
    let (client, server) = mutual();
    // Signatures differ in length by a few bytes.
    let length = converse(&client, &server, usize::MAX) + 16;
    for position in 1..length {
        converse(&client, &server, position);
    }
}

#[test]
fn a_stream_may_come_byte_by_byte() {
    let (client, server) = mutual();
    let mut near = End::new(client.session("localhost"));
    let mut far = End::new(server.session());
    let each = |bytes: &[u8]| vec![1; bytes.len()];
    shake_in_pieces(&mut near, &mut far, &mut { each }, &mut { each });
    for byte in near.seal(b"question") {
        far.take(&[byte]);
    }
    assert_eq!(far.plain, b"question");
    assert_eq!(far.names().len(), 3);
}

#[test]
fn plain_clients_may_be_cut_too() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::Required);
    let own = ca.client();
    for version in [&TLS12, &TLS13] {
        let config = std::sync::Arc::new(client_config(&ca, Some(&own), &[version]));
        for position in (1..1_400).step_by(7) {
            let mut plain = Plain::shared(&config);
            let mut end = End::new(server.session());
            let mut to_server = cut(position);
            let whole = &mut |bytes: &[u8]| vec![bytes.len()];
            shake_in_pieces(&mut plain, &mut end, &mut to_server, whole);
            end.take(&plain.send(b"question"));
            assert_eq!((end.fault(), &*end.plain), ("none", &b"question"[..]));
        }
    }
}

#[test]
fn records_may_come_with_the_end_of_the_handshake() {
    let (client, server) = mutual();
    let mut near = End::new(client.session("localhost"));
    let mut far = End::new(server.session());
    far.take(&near.output());
    near.take(&far.output());
    assert!(!near.session.is_handshaking());
    // The first bytes that are sealed follow the rest of the handshake.
    let all = [near.seal(b"one"), near.seal(b"two"), near.end()].concat();
    far.take(&all);
    assert!(!far.session.is_handshaking());
    assert_eq!(far.plain, b"onetwo");
    assert!(far.ended);
}

#[test]
fn any_length_is_carried_in_records_of_the_largest_size() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    for version in [&TLS12, &TLS13] {
        let mut plain = Plain::client(client_config(&ca, None, &[version]));
        let mut end = End::new(server.session());
        shake(&mut plain, &mut end);
        for length in [1_usize, 16_383, 16_384, 16_385, 300_000, 1 << 20] {
            let text: Vec<u8> = (0..length).map(|index| index as u8).collect();
            end.plain.clear();
            end.take(&plain.send(&text));
            assert!(end.plain == text, "{length} bytes to the server");
            plain.plain.clear();
            let sealed = end.seal(&text);
            assert!(sealed.len() <= length + length.div_ceil(16_384) * 29);
            plain.take(&sealed);
            assert!(plain.plain == text, "{length} bytes to the client");
        }
    }
}

#[test]
fn empty_input_seals_to_empty_output() {
    let (client, server) = mutual();
    let (mut near, _) = pair(client.session("localhost"), server.session());
    assert!(near.seal(b"").is_empty());
}

#[test]
fn output_goes_behind_what_the_buffer_has() {
    let (client, server) = mutual();
    let (mut near, mut far) = pair(client.session("localhost"), server.session());
    let mut out = b"before".to_vec();
    near.session.seal(b"question", &mut out).expect("records");
    far.take(out.strip_prefix(b"before").expect("the content of before"));
    assert_eq!(far.plain, b"question");
}

#[test]
fn nothing_is_sealed_during_the_handshake_or_after_the_end() {
    let (client, server) = mutual();
    let mut session = client.session("localhost");
    let fault = session.seal(b"early", &mut Vec::new()).expect_err("a fault");
    assert_eq!(fault.0, "the handshake is not over");
    let (mut near, _) = pair(client.session("localhost"), server.session());
    assert!(!near.end().is_empty());
    assert!(near.end().is_empty());
    let fault = near.session.seal(b"late", &mut Vec::new()).expect_err("a fault");
    assert_eq!(fault.0, "the session has ended");
}

#[test]
fn one_side_may_end_before_the_other() {
    let (client, server) = mutual();
    let (mut near, mut far) = pair(client.session("localhost"), server.session());
    let mut last = near.end();
    last.extend_from_slice(b"bytes behind the end are ignored");
    far.take(&last);
    assert!(far.ended);
    far.take(b"and these");
    assert!(far.received.is_empty() && far.plain.is_empty());
    near.take(&far.seal(b"answer"));
    near.take(&far.end());
    assert_eq!(near.plain, b"answer");
    assert!(near.ended);
    assert_eq!((near.fault(), far.fault()), ("none", "none"));
}

#[test]
fn an_end_before_the_handshake_is_over_says_nothing() {
    let (client, _) = mutual();
    let mut near = End::new(client.session("localhost"));
    assert!(!near.output().is_empty());
    assert!(near.end().is_empty());
}

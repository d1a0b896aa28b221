//! Peers that break the protocol: before, during and after the handshake.

use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};

use super::authority::{Authority, client, server};
use super::link::{End, Peer, Plain, client_config, pair, shake};
use crate::ClientAuth;
use crate::forgery::{DATA, Forger, HANDSHAKE};

/// The type of records with alerts (RFC 8446, B.1).
const ALERT: u8 = 21;
/// More than a session takes that holds nothing.
const REST_BYTES_MAX: usize = 8 << 10;

fn forged() -> (Forger, End) {
    let server = server(&Authority::new("CA"), ClientAuth::None);
    let (forger, session) = Forger::connect(&server).expect("a handshake");
    assert!(!session.is_handshaking());
    (forger, End::new(session))
}

/// A server at the start of its handshake.
fn new_server() -> End {
    End::new(server(&Authority::new("CA"), ClientAuth::None).session())
}

/// Type and description of the alert in a plaintext record.
fn alert(end: &mut End) -> Option<[u8; 2]> {
    match *end.output() {
        [21, 3, _, 0, 2, level, description] => Some([level, description]),
        _ => None,
    }
}

#[test]
fn plaintext_is_no_record() {
    // A STARTUP of CQL, a request of HTTP, and zeros.
    let starts: [&[u8]; 3] =
        [&[4, 0, 0, 0, 1, 0, 0, 0, 22, 0, 1], b"GET / HTTP/1.1\r\n\r\n", &[0; 9]];
    for bytes in starts {
        let mut end = new_server();
        end.take(bytes);
        assert_eq!(end.fault(), "the peer does not speak TLS");
        assert_eq!(alert(&mut end), Some([2, 50]));
        // A session that has failed stays so.
        let again = end.session.open(&mut [22, 3, 1], &mut Vec::new());
        assert_eq!(again.expect_err("a fault").0, "the peer does not speak TLS");
        assert!(end.session.seal(b"data", &mut Vec::new()).is_err());
        assert!(end.end().is_empty());
    }
}

#[test]
fn plaintext_after_the_handshake_is_a_fault() {
    let (_, mut end) = forged();
    end.take(&[4, 0, 0, 0, 7, 0, 0, 0, 0]);
    assert_eq!(end.fault(), "the peer does not speak TLS");
    assert!(!end.output().is_empty());
    let (_, mut end) = forged();
    end.take(&[DATA, 3, 3, 0, 5, 1, 2, 3, 4, 5]);
    assert_ne!(end.fault(), "none");
}

#[test]
fn plaintext_after_a_client_hello_is_a_fault() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let startup = [4, 0, 0, 0, 1, 0, 0, 0, 22, 0, 1];
    for version in [&TLS12, &TLS13] {
        let hello = Plain::client(client_config(&ca, None, &[version])).output();
        let mut end = End::new(server.session());
        end.take(&hello);
        assert_eq!(end.fault(), "none");
        assert!(!end.output().is_empty(), "the server has answered");
        end.take(&startup);
        assert_eq!(end.fault(), "the peer does not speak TLS");
        assert!(end.session.is_handshaking() && end.plain.is_empty());
        let mut end = End::new(server.session());
        end.take(&[&hello[..], &startup].concat());
        assert_ne!(end.fault(), "none");
        assert!(end.session.is_handshaking() && end.plain.is_empty());
    }
}

#[test]
fn padding_is_no_content() {
    let (mut forger, mut end) = forged();
    for padding in [1, 100, 16_384 - b"data".len()] {
        end.take(&forger.seal_padded(DATA, b"data", padding));
        assert_eq!((end.fault(), &end.plain[..]), ("none", &b"data"[..]), "{padding}");
        end.plain.clear();
    }
    // A record with nothing else has no type.
    end.take(&forger.seal_padded(0, b"", 100));
    assert_ne!(end.fault(), "none");
    let (mut forger, mut end) = forged();
    end.take(&forger.seal_padded(DATA, b"data", 16_384));
    assert_eq!(end.fault(), "the peer sent a record that is too large");
    assert!(end.plain.is_empty());
}

#[test]
fn a_record_that_is_too_large_is_not_waited_for() {
    let mut end = new_server();
    end.take(&[HANDSHAKE, 3, 1, 0x48, 1]);
    assert_eq!(end.fault(), "the peer sent a record that is too large");
    let (_, mut end) = forged();
    end.take(&[DATA, 3, 3, 0xFF, 0xFF]);
    assert_eq!(end.fault(), "the peer sent a record that is too large");
}

#[test]
fn a_record_with_too_much_content_is_a_fault() {
    let (mut forger, mut end) = forged();
    end.take(&forger.seal(DATA, &[7; 16_384]));
    assert_eq!((end.fault(), end.plain.len()), ("none", 16_384));
    end.take(&forger.seal(DATA, &[7; 16_385]));
    assert_eq!(end.fault(), "the peer sent a record that is too large");
}

#[test]
fn a_flipped_bit_is_a_fault_wherever_it_is() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let client = client(&ca, None);
    let length = {
        let (mut near, _) = pair(client.session("localhost"), server.session());
        near.seal(b"question").len()
    };
    for position in 5..length {
        let (mut near, mut far) = pair(client.session("localhost"), server.session());
        let mut record = near.seal(b"question");
        record[position] ^= 1;
        far.take(&record);
        assert_eq!(far.fault(), "a record is damaged or forged (bad MAC)");
        assert!(far.plain.is_empty());
        near.take(&far.output());
        assert_eq!(near.fault(), "the peer could not verify what we sent (bad MAC or signature)");
    }
}

#[test]
fn content_before_a_fault_is_opened() {
    let (mut forger, mut end) = forged();
    let mut bytes = forger.seal(DATA, b"good");
    bytes.extend_from_slice(&[DATA, 3, 3, 0, 32]);
    bytes.extend_from_slice(&[0; 32]);
    end.take(&bytes);
    assert_eq!(end.plain, b"good");
    assert_eq!(end.fault(), "a record is damaged or forged (bad MAC)");
}

#[test]
fn this_side_seals_while_half_a_message_has_come() {
    // An update of keys, which asks for another, with a cut at each byte and data in between.
    let update = [24, 0, 0, 1, 1];
    for cut in 1..update.len() {
        let (mut forger, mut end) = forged();
        end.take(&forger.seal(HANDSHAKE, &update[..cut]));
        assert_eq!(end.fault(), "none");
        assert!(!end.seal(b"meanwhile").is_empty());
        let rest = forger.seal(HANDSHAKE, &update[cut..]);
        let (first, second) = rest.split_at(7);
        end.take(first);
        assert!(!end.seal(b"meanwhile").is_empty());
        end.take(second);
        assert_eq!(end.fault(), "none");
        let answer = end.seal(b"answer");
        assert!(answer.len() > 2 * (5 + 16) + 6, "the update is not answered");
        // The old keys are good for nothing any more.
        end.take(&forger.seal(DATA, b"data"));
        assert_eq!(end.fault(), "a record is damaged or forged (bad MAC)");
    }
}

#[test]
fn this_side_ends_while_half_a_message_has_come() {
    let (mut forger, mut end) = forged();
    end.take(&forger.seal(HANDSHAKE, &[24, 0]));
    assert!(!end.end().is_empty());
}

#[test]
fn data_in_the_midst_of_a_message_is_a_fault() {
    let (mut forger, mut end) = forged();
    end.take(&forger.seal(HANDSHAKE, &[24, 0]));
    end.take(&forger.seal(DATA, b"data"));
    assert_eq!(end.fault(), "the peer broke the TLS protocol");
}

#[test]
fn empty_records_of_the_handshake_do_no_harm() {
    for pieces in [1, 7] {
        let (mut forger, mut end) = forged();
        for round in 0..20 {
            let records = [forger.seal(HANDSHAKE, b""), forger.seal(DATA, b"data")];
            for record in records {
                for piece in record.chunks(record.len().div_ceil(pieces)) {
                    end.take(piece);
                    if end.fault.is_none() {
                        end.seal(b"meanwhile");
                    }
                }
            }
            if end.fault.is_none() {
                assert_eq!(end.plain.len(), 4 * (round + 1));
            }
        }
    }
}

#[test]
fn this_side_seals_after_an_empty_record_of_the_handshake_and_data() {
    let (mut forger, mut end) = forged();
    for _ in 0..20 {
        let records = [forger.seal(HANDSHAKE, b""), forger.seal(DATA, b"data")];
        end.take(&records.concat());
        if end.fault.is_some() {
            return;
        }
        end.seal(b"meanwhile");
    }
}

#[test]
fn empty_records_have_an_end() {
    let (mut forger, mut end) = forged();
    for _ in 0..100 {
        end.take(&forger.seal(DATA, b""));
    }
    assert_eq!(end.fault(), "the peer broke the TLS protocol");
}

#[test]
fn a_long_message_in_small_pieces_is_bounded() {
    let (mut forger, mut end) = forged();
    // A message of 65,535 bytes, a byte at a time.
    end.take(&forger.seal(HANDSHAKE, &[24, 0, 0xFF, 0xFF]));
    let mut most = 0;
    for _ in 0..65_535 {
        end.take(&forger.seal(HANDSHAKE, &[0]));
        most = most.max(end.session.bytes());
        if end.fault.is_some() {
            break;
        }
    }
    assert_eq!(end.fault(), "the peer sent a handshake message that is too long");
    assert!(most < REST_BYTES_MAX + (1 << 10), "{most} bytes");
    assert!(end.session.bytes() < 10_000, "{} bytes", end.session.bytes());
}

#[test]
fn a_long_message_of_the_handshake_is_bounded() {
    // A ClientHello of 60,000 bytes, in records of one size.
    for size in [1, 1_000, 16_000] {
        let mut end = new_server();
        let mut message = vec![0; 60_000];
        message[..4].copy_from_slice(&[1, 0, 0xEA, 0x5C]);
        let (mut most, mut taken) = (0, 0);
        for piece in message.chunks(size) {
            let [.., high, low] = piece.len().to_be_bytes();
            end.take(&[&[HANDSHAKE, 3, 1, high, low], piece].concat());
            most = most.max(end.session.bytes());
            if end.fault.is_some() {
                break;
            }
            taken += piece.len();
        }
        assert_eq!(end.fault(), "the peer sent a handshake message that is too long");
        assert!(taken <= 32 << 10, "{taken} bytes are held");
        assert!(most < REST_BYTES_MAX + (32 << 10), "{most} bytes");
        assert!(end.session.bytes() < REST_BYTES_MAX);
    }
    // The same bytes at once.
    let mut end = new_server();
    let pieces = (0..4).map(|number| {
        let start: &[u8] = if number == 0 { &[1, 0, 0xEA, 0x5C] } else { &[0; 4] };
        [&[HANDSHAKE, 3, 1, 0x27, 0x10], start, &[0; 9_996]].concat()
    });
    end.take(&pieces.collect::<Vec<_>>().concat());
    assert_eq!(end.fault(), "the peer sent a handshake message that is too long");
}

#[test]
fn a_record_behind_a_message_in_pieces_is_not_held() {
    let (mut forger, mut end) = forged();
    end.take(&forger.seal(HANDSHAKE, &[24, 0]));
    let rest = forger.seal(HANDSHAKE, &[0, 1, 0]);
    // The first part of a record that would be larger than what a session may hold.
    end.take(&[&rest[..], &[DATA, 3, 3, 0x40, 0], &[7; 10_000]].concat());
    assert_eq!(end.fault(), "none");
    assert_eq!(end.received.len(), 10_005);
    assert!(end.session.bytes() < REST_BYTES_MAX + (1 << 10));
}

#[test]
fn a_message_of_any_length_is_not_waited_for() {
    let (mut forger, mut end) = forged();
    end.take(&forger.seal(HANDSHAKE, &[24, 0xFF, 0xFF, 0xFF]));
    assert_eq!(end.fault(), "the peer sent a handshake message that is too long");
}

#[test]
fn messages_of_the_handshake_after_it_are_faults() {
    for message in [[1_u8, 0, 0, 0], [11, 0, 0, 0], [20, 0, 0, 0], [0, 0, 0, 0]] {
        let (mut forger, mut end) = forged();
        end.take(&forger.seal(HANDSHAKE, &message));
        assert_ne!(end.fault(), "none", "{message:?}");
    }
}

#[test]
fn a_content_type_that_is_none_is_a_fault() {
    for kind in [0, 20, 25, 255] {
        let (mut forger, mut end) = forged();
        end.take(&forger.seal(kind, b"data"));
        assert_ne!(end.fault(), "none", "{kind}");
        assert!(end.plain.is_empty());
    }
}

#[test]
fn renegotiation_is_refused() {
    let ca = Authority::new("CA");
    let server = server(&ca, ClientAuth::None);
    let mut plain = Plain::client(client_config(&ca, None, &[&TLS12]));
    let mut end = End::new(server.session());
    shake(&mut plain, &mut end);
    assert_eq!(plain.connection.protocol_version(), Some(ProtocolVersion::TLSv1_2));
    // A ClientHello in clear cannot be opened with the keys of the session.
    let hello = Plain::client(client_config(&ca, None, &[&TLS12])).output();
    end.take(&hello);
    assert_eq!(end.fault(), "a record is damaged or forged (bad MAC)");
}

#[test]
fn versions_before_tls_1_2_are_refused() {
    // A ClientHello of TLS 1.0 with one cipher suite, and one that has signature algorithms.
    let extension = [0, 8, 0, 13, 0, 4, 0, 2, 4, 3];
    for (extensions, alerts) in [(&[][..], [2, 40]), (&extension[..], [2, 70])] {
        let mut hello = vec![3, 1];
        hello.extend_from_slice(&[7; 32]);
        hello.extend_from_slice(&[0, 0, 2, 0xC0, 0x13, 1, 0]);
        hello.extend_from_slice(extensions);
        let length = hello.len() as u8;
        let mut end = new_server();
        end.take(&[&[HANDSHAKE, 3, 1, 0, length + 4, 1, 0, 0, length], &hello[..]].concat());
        assert_eq!(end.fault(), "the peer has neither TLS 1.2 nor TLS 1.3");
        assert_eq!(alert(&mut end), Some(alerts));
    }
}

#[test]
fn an_alert_ends_the_handshake() {
    for (description, phrase) in [
        (48, "the peer does not know the CA of our certificate"),
        (45, "the peer says that our certificate has expired"),
        (0, "the peer gave up the handshake"),
    ] {
        let mut end = new_server();
        end.take(&[21, 3, 3, 0, 2, 2, description]);
        assert_eq!(end.fault(), phrase);
    }
}

#[test]
fn an_alert_after_the_handshake_ends_the_session() {
    let (mut forger, mut end) = forged();
    end.take(&[forger.seal(DATA, b"data"), forger.seal(ALERT, &[2, 20])].concat());
    assert_eq!(end.fault(), "the peer could not verify what we sent (bad MAC or signature)");
    assert_eq!(end.plain, b"data");
    assert!(end.session.seal(b"answer", &mut Vec::new()).is_err());
    // The alert that says nothing but that the peer has sent all.
    let (mut forger, mut end) = forged();
    end.take(&[forger.seal(DATA, b"data"), forger.seal(ALERT, &[1, 0])].concat());
    assert_eq!((end.fault(), end.ended, &end.plain[..]), ("none", true, &b"data"[..]));
    assert!(!end.seal(b"answer").is_empty());
    // Half an alert, and one in clear text.
    let (mut forger, mut end) = forged();
    end.take(&forger.seal(ALERT, &[2]));
    assert_ne!(end.fault(), "none");
    let (_, mut end) = forged();
    end.take(&[ALERT, 3, 3, 0, 2, 1, 0]);
    assert_ne!(end.fault(), "none");
    assert!(!end.ended);
}

#[test]
fn records_of_any_kind_in_any_pieces_end_in_content_or_a_fault() {
    let update: [u8; 5] = [24, 0, 0, 1, 0];
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let server = server(&Authority::new("CA"), ClientAuth::None);
    for _ in 0..300 {
        let (mut forger, session) = Forger::connect(&server).expect("a handshake");
        let mut end = End::new(session);
        let mut bytes = Vec::new();
        for _ in 0..1 + below(8) {
            let record = match below(4) {
                0 => forger.seal(HANDSHAKE, b""),
                1 => forger.seal(DATA, b""),
                2 => forger.seal(HANDSHAKE, &update[..1 + below(4)]),
                _ => forger.seal(DATA, &[7; 100][..below(100)]),
            };
            bytes.extend_from_slice(&record);
        }
        while !bytes.is_empty() && end.fault.is_none() {
            let piece: Vec<u8> = bytes.drain(..1 + below(bytes.len())).collect();
            end.take(&piece);
            if end.fault.is_none() && below(2) == 0 {
                end.seal(b"meanwhile");
            }
        }
        end.end();
    }
}

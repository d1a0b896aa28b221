//! Round trips of each message, and the inputs that a decoder refuses.

use super::kinds::kind;
use super::*;
use crate::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX, REASON_BYTES_MAX, UNREAD_BYTES_MAX};
use crate::session::{Instance, SessionKey};
use shunt_reactor::moving::{Frozen, TcpState, Window};

const T: Ticket = Ticket(0x0102_0304_0506_0708);

fn key() -> SessionKey {
    SessionKey::new([7; 32])
}

fn frozen(local: &str, peer: &str) -> Frozen {
    Frozen {
        state: TcpState {
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
            send_sequence: 0xFFFF_FFF0,
            receive_sequence: 17,
            mss: 1448,
            timestamp: Some(99),
            sack: true,
            window_scales: Some((7, 14)),
            window: Window { send_update: 1, send: 2, largest: 3, receive: 4, receive_update: 5 },
        },
        unacknowledged: b"sent".to_vec(),
        unsent: Vec::new(),
        unread: b"GET /next".to_vec(),
    }
}

fn v4() -> Frozen {
    frozen("192.0.2.1:80", "198.51.100.7:40000")
}

fn owners() -> Vec<Message<'static>> {
    vec![
        Message::Request { head: b"GET / HTTP/1.1\r\n\r\n", has_body: false, is_idempotent: true },
        Message::Request { head: b"x", has_body: true, is_idempotent: false },
        Message::Cancel,
        Message::Fetch,
        Message::Take { connection: v4(), answer_sent: 0 },
        Message::Take {
            connection: frozen("[2001:db8::1]:80", "[2001:db8::2]:9"),
            answer_sent: u64::MAX,
        },
        Message::Recall,
        Message::HeldAck,
        Message::Settled,
        Message::Release,
        Message::Ping,
        Message::Credit { bytes: 1 },
        Message::End,
    ]
}

fn agents() -> Vec<Message<'static>> {
    let mut messages = vec![
        Message::Credit { bytes: u32::MAX },
        Message::End,
        Message::Failed {
            status: 502,
            reason: "the server at 127.0.0.1:8080 refused the connection",
        },
        Message::Offer {
            head: b"HTTP/1.1 200 OK\r\n\r\n",
            framing: Framing::Chunked,
            etag: b"\"a\"",
        },
        Message::Offer { head: b"x", framing: Framing::Length(1 << 40), etag: b"" },
        Message::Taken,
        Message::Return { connection: v4(), answer_sent: 5, is_complete: true },
        Message::Held {
            local: "[::1]:80".parse().unwrap(),
            peer: "[::2]:81".parse().unwrap(),
            from: Instance(4),
        },
        Message::HeldEnd { is_complete: false },
        Message::Pong,
    ];
    for framing in [Framing::None, Framing::Length(0), Framing::Chunked, Framing::UntilClose] {
        messages.push(Message::Response { head: b"HTTP/1.1 204 \r\n\r\n", framing });
    }
    use Refusal::{ForeignAddress, Full, NotRestored, Occupied, UnknownTicket};
    for reason in [UnknownTicket, ForeignAddress, Occupied, Full, NotRestored] {
        messages.push(Message::Refused { reason });
    }
    use Ending::{Client, NotFrozen, Released, Reset, TimedOut};
    for reason in [Client, Reset, TimedOut, NotFrozen, Released] {
        messages.push(Message::Closed { reason, answer_sent: 7, is_complete: reason == Client });
    }
    messages
}

#[test]
fn every_message_is_read_as_it_was_written_and_from_its_side_only() {
    for (side, other, messages) in
        [(Side::Owner, Side::Agent, owners()), (Side::Agent, Side::Owner, agents())]
    {
        let (mut encoder, mut decoder) = (Encoder::new(key()), Decoder::new(side, key()));
        for message in &messages {
            let mut bytes = Vec::new();
            encoder.message(T, message, &mut bytes).unwrap();
            let mut wrong = decoder.clone().of(other);
            let both = matches!(message, Message::End | Message::Credit { .. });
            assert_eq!(wrong.next(&bytes).is_ok(), both, "{message:?}");
            for end in 0..bytes.len() {
                assert_eq!(decoder.next(&bytes[..end]), Ok(None), "{message:?}");
            }
            let length = bytes.len();
            bytes.extend(b"behind");
            assert_eq!(decoder.next(&bytes), Ok(Some((length, Read::Message(T, message.clone())))));
        }
    }
}

#[test]
fn a_body_passes_in_pieces_as_they_come_between_messages() {
    let (mut encoder, mut decoder) = (Encoder::new(key()), Decoder::new(Side::Agent, key()));
    let body: Vec<u8> = (0..BODY_BYTES_MAX + 10).map(|at| (at % 251) as u8).collect();
    let mut bytes = Vec::new();
    encoder
        .message(T, &Message::Response { head: b"h", framing: Framing::Chunked }, &mut bytes)
        .unwrap();
    encoder.body(T, &body, &mut bytes);
    encoder.message(T, &Message::End, &mut bytes).unwrap();
    let (mut found, mut messages, mut at, mut there) = (Vec::<u8>::new(), 0, 0, 0);
    while at < bytes.len() {
        match decoder.next(&bytes[at..there]).unwrap() {
            Some((read, Read::Body(T, piece))) => {
                found.extend(piece);
                at += read;
            }
            Some((read, Read::Message(..))) => {
                messages += 1;
                at += read;
            }
            Some(other) => panic!("{other:?}"),
            None => there = (there + 997).min(bytes.len()),
        }
    }
    assert!(found == body && messages == 2);
}

#[test]
fn a_message_that_is_changed_moved_doubled_or_left_out_is_not_authentic() {
    let mut encoder = Encoder::new(key());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    encoder.message(T, &Message::Take { connection: v4(), answer_sent: 0 }, &mut first).unwrap();
    encoder.message(T, &Message::Recall, &mut second).unwrap();
    let decoder = Decoder::new(Side::Owner, key());
    assert_eq!(decoder.clone().next(&second), Err(Error::Mac));
    let mut twice = decoder.clone();
    twice.next(&first).unwrap().unwrap();
    assert_eq!(twice.next(&first), Err(Error::Mac));
    for at in 4..first.len() {
        let mut changed = first.clone();
        changed[at] ^= 0x40;
        assert!(!matches!(decoder.clone().next(&changed), Ok(Some(_))), "byte {at}");
    }
    // An inserted body changes the sequence number of the messages behind it.
    let mut behind_body = decoder.clone();
    let mut body = Vec::new();
    encoder.body(T, b"b", &mut body);
    behind_body.next(&body).unwrap().unwrap();
    assert_eq!(behind_body.next(&first), Err(Error::Mac));
}

#[test]
fn lengths_are_refused_before_there_is_what_they_count() {
    let mut decoder = Decoder::new(Side::Owner, key());
    for length in [0, 8, 1 << 30, u32::MAX] {
        assert_eq!(decoder.next(&length.to_be_bytes()), Err(Error::Length(length)));
    }
    let header = |length: u32, kind: u8| [&length.to_be_bytes()[..], &[kind], &[0; 8]].concat();
    assert_eq!(decoder.next(&header(9, kind::FETCH)), Err(Error::Length(9)));
    assert_eq!(decoder.next(&header(9, kind::BODY)), Err(Error::Length(9)));
    let over = (BODY_BYTES_MAX + 10) as u32;
    assert_eq!(decoder.next(&header(over, kind::BODY)), Err(Error::Length(over)));
    assert_eq!(decoder.next(&header(25, 99)), Err(Error::Kind(99)));
    assert_eq!(decoder.next(&header(25, kind::HELLO)), Err(Error::Kind(kind::HELLO)));
}

/// The decoder's error for an authentic payload.
fn refused(from: Side, kind: u8, payload: &[u8]) -> Error {
    let mut bytes = Vec::new();
    encode::put_header(kind, T, payload.len() + MAC_BYTES, &mut bytes);
    bytes.extend(payload);
    let mac = key().mac(0, &bytes);
    bytes.extend(mac);
    Decoder::new(from, key()).next(&bytes).unwrap_err()
}

#[test]
fn fields_that_mean_nothing_are_refused_by_name() {
    use Side::{Agent, Owner};
    let long = vec![b'x'; HEAD_BYTES_MAX + 2];
    for (from, kind, payload, error) in [
        (Owner, kind::REQUEST, &[4, b'x'][..], Error::Field("request flags")),
        (Owner, kind::REQUEST, &[0], Error::Short(kind::REQUEST)),
        (Owner, kind::REQUEST, &[&[0], &long[..]].concat(), Error::Oversized("head")),
        (Owner, kind::FETCH, &[0], Error::Behind(kind::FETCH)),
        (Owner, kind::CREDIT, &[0, 0, 0, 0], Error::Field("credit")),
        (Owner, kind::CREDIT, &[0, 0, 1], Error::Short(kind::CREDIT)),
        (Agent, kind::RESPONSE, &[4, 0, 0, 0, 0, 0, 0, 0, 0, b'x'], Error::Field("framing")),
        (Agent, kind::FAILED, &[1, 0xF6, 0xFF], Error::Field("reason")),
        (Agent, kind::FAILED, &[b'x'; REASON_BYTES_MAX + 3], Error::Oversized("reason")),
        (Agent, kind::REFUSED, &[5], Error::Field("refusal")),
        (Agent, kind::CLOSED, &[6, 0, 0, 0, 0, 0, 0, 0, 0, 0], Error::Field("ending")),
        (Agent, kind::CLOSED, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 2], Error::Field("complete")),
        (Agent, kind::HELD_END, &[7], Error::Field("complete")),
        (Agent, kind::HELD, &[0, 0, 0, 0, 0, 0, 0, 0, 5], Error::Field("address family")),
    ] {
        assert_eq!(refused(from, kind, payload), error, "kind {kind}");
    }
    let length_of_chunks = [2, 0, 0, 0, 0, 0, 0, 0, 1, b'x'];
    assert!(matches!(refused(Agent, kind::RESPONSE, &length_of_chunks), Error::Contradictory(_)));
}

#[test]
fn a_connection_that_contradicts_itself_is_refused_on_both_ends() {
    fn with(change: impl FnOnce(&mut Frozen)) -> Frozen {
        let mut frozen = v4();
        change(&mut frozen);
        frozen
    }
    let cases = [
        (
            with(|f| f.state.peer = "[::1]:5".parse().unwrap()),
            "the addresses of a connection are of two families",
        ),
        (with(|f| f.state.peer = f.state.local), "a connection from an address to itself"),
        (
            with(|f| f.state.local.set_port(0)),
            "the field `local address` has a value that means nothing",
        ),
        (
            with(|f| f.state.peer.set_ip([224, 0, 0, 1].into())),
            "the field `peer address` has a value that means nothing",
        ),
        (with(|f| f.state.mss = 47), "the field `MSS` has a value that means nothing"),
        (
            with(|f| f.state.window_scales = Some((15, 0))),
            "the field `window scale` has a value that means nothing",
        ),
        (
            with(|f| f.state.window.largest = 1),
            "the peer's window is larger than the largest that it has offered",
        ),
        (with(|f| f.unread = vec![0; UNREAD_BYTES_MAX + 1]), "the field `unread` is too long"),
    ];
    for (frozen, said) in cases {
        assert_eq!(encode_frozen(&frozen, &mut Vec::new()).unwrap_err().to_string(), said);
    }
    let mut good = Vec::new();
    encode_frozen(&v4(), &mut good).unwrap();
    assert_eq!(decode_frozen(&good), Ok(v4()));
    // Positions of a v4 state's fields.
    let decoded = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        decode_frozen(&bytes).map_err(|error| error.to_string())
    };
    assert_eq!(
        decoded(0, 5),
        Err("the field `address family` has a value that means nothing".into())
    );
    assert_eq!(
        decoded(23, 8),
        Err("the field `TCP options` has a value that means nothing".into())
    );
    assert_eq!(decoded(23, 6), Err("a timestamp where timestamps were not agreed on".into()));
    assert_eq!(decoded(23, 3), Err("window scales where scaling was not agreed on".into()));
    assert_eq!(
        decoded(28, 15),
        Err("the field `window scale` has a value that means nothing".into())
    );
    assert_eq!(decoded(50, 1), Err("the field `unacknowledged` is too long".into()));
    assert_eq!(decode_frozen(&good[..good.len() - 1]), Err(Error::Short(kind::TAKE)));
    assert_eq!(decode_frozen(&[&good[..], b"x"].concat()), Err(Error::Behind(kind::TAKE)));
}

#[test]
fn messages_that_the_other_side_would_refuse_are_not_written_or_counted() {
    let (mut encoder, mut decoder) = (Encoder::new(key()), Decoder::new(Side::Owner, key()));
    let mut bytes = b"before".to_vec();
    let long = vec![b'x'; HEAD_BYTES_MAX + 1];
    for head in [&long[..], b""] {
        let request = Message::Request { head, has_body: false, is_idempotent: true };
        assert!(encoder.message(T, &request, &mut bytes).is_err());
    }
    assert!(encoder.message(T, &Message::Credit { bytes: 0 }, &mut bytes).is_err());
    assert!(
        encoder.body_header(T, 0).is_err() && encoder.body_header(T, BODY_BYTES_MAX + 1).is_err()
    );
    assert_eq!(bytes, b"before");
    let mut fetch = Vec::new();
    encoder.message(T, &Message::Fetch, &mut fetch).unwrap();
    assert!(decoder.next(&fetch).unwrap().is_some());
}

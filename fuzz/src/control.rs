//! The control protocol of handovers. The first byte selects the meaning of the rest: an
//! authenticated payload of the kind named by the second byte, from either side; a stream of
//! messages, which arrive in pieces; or the other side's part of a handshake.

use shunt_handover::message::{
    Decoder, Encoder, HEADER_BYTES, MAC_BYTES, Read, Side, Ticket, decode_payload,
};
use shunt_handover::session::{
    AgentHandshake, Instance, NONCE_BYTES, OwnerHandshake, OwnerId, Protocol, SessionKey, SharedKey,
};

/// First bytes of inputs.
pub mod part {
    /// A payload from an owner.
    pub const OWNERS: u8 = 0;
    /// A payload from an agent.
    pub const AGENTS: u8 = 1;
    /// Messages of an owner.
    pub const STREAM: u8 = 2;
    /// Bytes received by an agent in a handshake.
    pub const TO_AGENT: u8 = 3;
    /// Bytes received by an owner in a handshake.
    pub const TO_OWNER: u8 = 4;
    /// Number of kinds.
    pub const COUNT: u8 = 5;
}

/// Most memory per byte of a payload.
const BYTES_EACH_MAX: usize = 2;

/// Session key of the streams.
pub fn key() -> SessionKey {
    SessionKey::new([7; 32])
}

/// Tries one input.
pub fn run(data: &[u8]) {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % part::COUNT {
        part::OWNERS => payload(Side::Owner, bytes),
        part::AGENTS => payload(Side::Agent, bytes),
        part::STREAM => stream(bytes),
        part::TO_AGENT => drop(agent().read(bytes, &mut Vec::new())),
        _ => to_owner(bytes),
    }
}

/// Re-encoding a decoded payload gives the same bytes.
fn payload(from: Side, bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let Ok(message) =
        crate::bounded(BYTES_EACH_MAX, bytes.len(), || decode_payload(from, *kind, bytes))
    else {
        return;
    };
    let mut again = Vec::new();
    Encoder::new(key()).message(Ticket(1), &message, &mut again).expect("a message that was read");
    assert_eq!(again[4], *kind);
    assert_eq!(&again[HEADER_BYTES..again.len() - MAC_BYTES], bytes);
}

/// A stream in pieces decodes like one that arrives at once.
fn stream(bytes: &[u8]) {
    let whole = read(bytes, bytes.len().max(1));
    for step in [1, 7] {
        assert_eq!(read(bytes, step), whole);
    }
}

/// Bytes of bodies, kinds of messages, and whether the stream was refused.
fn read(bytes: &[u8], step: usize) -> (Vec<u8>, usize, bool) {
    let mut decoder = Decoder::new(Side::Owner, key());
    let (mut body, mut messages, mut start, mut end) = (Vec::new(), 0, 0, 0);
    loop {
        match decoder.next(&bytes[start..end]) {
            Ok(Some((length, found))) => {
                assert!(length > 0 && length <= end - start);
                start += length;
                match found {
                    Read::Message(..) => messages += 1,
                    Read::Body(_, piece) => body.extend(piece),
                }
            }
            Ok(None) if end == bytes.len() => return (body, messages, false),
            Ok(None) => end = (end + step).min(bytes.len()),
            Err(_) => return (body, messages, true),
        }
    }
}

fn shared() -> SharedKey {
    SharedKey::new(&[9; 32]).expect("a key that is long enough")
}

/// The agent of the seeds' handshakes.
pub fn agent() -> AgentHandshake {
    AgentHandshake::new(shared(), Protocol::Http, Instance(1), [1; NONCE_BYTES])
}

/// The owner of the seeds' handshakes.
pub fn owner() -> OwnerHandshake {
    OwnerHandshake::new(shared(), Protocol::Http, OwnerId(2), Instance(3), [2; NONCE_BYTES])
}

fn to_owner(bytes: &[u8]) {
    let (mut owner, mut rest) = (owner(), bytes);
    while let Ok(Some((length, session))) = owner.read(rest, &mut Vec::new()) {
        rest = &rest[length..];
        if session.is_some() {
            break;
        }
    }
}

//! The handshake, in which both sides prove that they have the key, and the keys of the session.
//!
//! ```text
//! agent -> owner   HELLO    u16 version | u8 protocol | u64 instance | 32 bytes of nonce
//! owner -> agent   HELLO    u16 version | u64 owner | u64 instance | 32 bytes of nonce | 32 bytes of MAC
//! agent -> owner   WELCOME  32 bytes of MAC
//! ```
//!
//! Both MACs and both keys are HMAC-SHA256 under the shared key over a word that names which of the
//! four it is, and all earlier bytes of both sides. So no byte of one session fits another, and no
//! message of one side fits the other: a recorded session cannot be replayed, and a side that is
//! sent its own bytes refuses them. Nonces must come from the operating system's generator; the
//! caller draws them, because it does all I/O.
//!
//! An instance is a number that a process draws when it starts. It tells each side whether the
//! other is still the same process: the memory of an earlier one is gone.

use crate::keys::PROOF_BYTES;
use crate::message::kinds::{AFTER_LENGTH_BYTES, kind};
use crate::message::{Decoder, Encoder, Error, HEADER_BYTES, Side, Ticket};

pub use crate::keys::{KeyLength, SessionKey, SharedKey};
pub use crate::message::kinds::{Instance, VERSION};

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
const AGENT_HELLO_BYTES: usize = 2 + 1 + 8 + NONCE_BYTES;
const OWNER_HELLO_BYTES: usize = 2 + 8 + 8 + NONCE_BYTES + PROOF_BYTES;

/// Protocol between the agents' servers and their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// CQL.
    Cql,
}

impl Protocol {
    fn number(self) -> u8 {
        match self {
            Self::Http => 1,
            Self::Cql => 2,
        }
    }
}

/// Identity of an owner: the same after a restart, and unique at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// A session in which both sides have proved that they have the key.
#[derive(Clone, Debug)]
pub struct Established {
    /// The owner.
    pub owner: OwnerId,
    /// The process of the other side.
    pub instance: Instance,
    /// Encodes this side's messages.
    pub encoder: Encoder,
    /// Decodes the other side's messages.
    pub decoder: Decoder,
}

/// The agent's part of a handshake.
#[derive(Clone, Debug)]
pub struct AgentHandshake {
    key: SharedKey,
    hello: [u8; AGENT_HELLO_BYTES],
}

impl AgentHandshake {
    /// Starts a handshake; send [`AgentHandshake::hello`] first.
    #[must_use]
    pub fn new(
        key: SharedKey,
        protocol: Protocol,
        instance: Instance,
        nonce: [u8; NONCE_BYTES],
    ) -> Self {
        let mut hello = [0; AGENT_HELLO_BYTES];
        hello[..2].copy_from_slice(&VERSION.to_be_bytes());
        hello[2] = protocol.number();
        hello[3..11].copy_from_slice(&instance.0.to_be_bytes());
        hello[11..].copy_from_slice(&nonce);
        Self { key, hello }
    }

    /// Appends the agent's `HELLO`.
    pub fn hello(&self, out: &mut Vec<u8>) {
        put(kind::HELLO, &self.hello, out);
    }

    /// Reads the owner's `HELLO`. Once it has come and is valid, appends `WELCOME` to `out` and
    /// returns the bytes of `input` used, and the session.
    ///
    /// # Errors
    /// The peer lacks the key, or has another version. Close the connection without another
    /// message.
    pub fn read(
        &self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Established)>, Error> {
        let Some(said) = take::<OWNER_HELLO_BYTES>(kind::HELLO, input)? else { return Ok(None) };
        check_version(&said)?;
        let (claim, proof) = said.split_at(OWNER_HELLO_BYTES - PROOF_BYTES);
        let transcript = [&self.hello, claim].concat();
        let nonce = |hello: &[u8]| hello[hello.len() - NONCE_BYTES..].to_vec();
        if !self.key.is_proof(Side::Owner, &transcript, proof) || nonce(&self.hello) == nonce(claim)
        {
            return Err(Error::Mac);
        }
        put(kind::WELCOME, &self.key.proof(Side::Agent, &transcript), out);
        let session = Established {
            owner: OwnerId(number(&claim[2..])),
            instance: Instance(number(&claim[10..])),
            encoder: Encoder::new(self.key.session_key(Side::Agent, &transcript)),
            decoder: Decoder::new(Side::Owner, self.key.session_key(Side::Owner, &transcript)),
        };
        Ok(Some((HEADER_BYTES + OWNER_HELLO_BYTES, session)))
    }
}

/// The owner's part of a handshake.
#[derive(Clone, Debug)]
pub struct OwnerHandshake {
    key: SharedKey,
    protocol: Protocol,
    owner: OwnerId,
    /// Version, owner, instance and nonce.
    claim: [u8; OWNER_HELLO_BYTES - PROOF_BYTES],
    /// Bytes of both sides, once the agent has sent its own.
    transcript: Option<Vec<u8>>,
}

impl OwnerHandshake {
    /// Starts a handshake; the agent sends first.
    #[must_use]
    pub fn new(
        key: SharedKey,
        protocol: Protocol,
        owner: OwnerId,
        instance: Instance,
        nonce: [u8; NONCE_BYTES],
    ) -> Self {
        let mut claim = [0; OWNER_HELLO_BYTES - PROOF_BYTES];
        claim[..2].copy_from_slice(&VERSION.to_be_bytes());
        claim[2..10].copy_from_slice(&owner.0.to_be_bytes());
        claim[10..18].copy_from_slice(&instance.0.to_be_bytes());
        claim[18..].copy_from_slice(&nonce);
        Self { key, protocol, owner, claim, transcript: None }
    }

    /// Reads the agent's messages. For its `HELLO`, appends ours to `out` and returns the bytes
    /// read; for its `WELCOME`, also the session. Call it again with the rest of the input until it
    /// returns a session or `None`.
    ///
    /// # Errors
    /// The agent lacks the key, has another version or serves another protocol. Close the
    /// connection.
    pub fn read(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Option<Established>)>, Error> {
        let Some(transcript) = &self.transcript else {
            let Some(said) = take::<AGENT_HELLO_BYTES>(kind::HELLO, input)? else {
                return Ok(None);
            };
            check_version(&said)?;
            if said[2] != self.protocol.number() {
                return Err(Error::Protocol(said[2]));
            }
            let transcript = [&said[..], &self.claim].concat();
            let proof = self.key.proof(Side::Owner, &transcript);
            put(kind::HELLO, &[&self.claim[..], &proof].concat(), out);
            self.transcript = Some(transcript);
            return Ok(Some((HEADER_BYTES + AGENT_HELLO_BYTES, None)));
        };
        let Some(proof) = take::<PROOF_BYTES>(kind::WELCOME, input)? else { return Ok(None) };
        if !self.key.is_proof(Side::Agent, transcript, &proof) {
            return Err(Error::Mac);
        }
        let session = Established {
            owner: self.owner,
            instance: Instance(number(&transcript[3..])),
            encoder: Encoder::new(self.key.session_key(Side::Owner, transcript)),
            decoder: Decoder::new(Side::Agent, self.key.session_key(Side::Agent, transcript)),
        };
        Ok(Some((HEADER_BYTES + PROOF_BYTES, Some(session))))
    }
}

fn put(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.extend(((AFTER_LENGTH_BYTES + payload.len()) as u32).to_be_bytes());
    out.push(kind);
    out.extend(Ticket(0).0.to_be_bytes());
    out.extend(payload);
}

/// Payload of the one message that may come now. A wrong beginning is refused at once.
fn take<const N: usize>(kind: u8, input: &[u8]) -> Result<Option<[u8; N]>, Error> {
    if let Some(length) = input.first_chunk::<4>() {
        let length = u32::from_be_bytes(*length);
        if length as usize != AFTER_LENGTH_BYTES + N {
            return Err(Error::Length(length));
        }
    }
    if let Some(found) = input.get(4).filter(|found| **found != kind) {
        return Err(Error::Kind(*found));
    }
    let Some(ticket) = input.get(5..HEADER_BYTES) else { return Ok(None) };
    if ticket.iter().any(|byte| *byte != 0) {
        return Err(Error::Field("ticket"));
    }
    Ok(input[HEADER_BYTES..].first_chunk::<N>().copied())
}

fn check_version(hello: &[u8]) -> Result<(), Error> {
    let version = hello.first_chunk::<2>().map_or(0, |bytes| u16::from_be_bytes(*bytes));
    if version == VERSION { Ok(()) } else { Err(Error::Version(version)) }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;

//! Encoding of messages.

use super::connection::{encode_frozen, put_addresses};
use super::error::Error;
use super::kinds::{
    AFTER_LENGTH_BYTES, Ending, Framing, HEADER_BYTES, MAC_BYTES, Message, Refusal, Ticket, kind,
};
use crate::keys::SessionKey;
use crate::limits::{BODY_BYTES_MAX, ETAG_BYTES_MAX, HEAD_BYTES_MAX, REASON_BYTES_MAX};

/// Encoder of one side's messages, in the order in which they are sent.
#[derive(Clone, Debug)]
pub struct Encoder {
    key: SessionKey,
    /// Messages so far.
    sequence: u64,
}

impl Encoder {
    /// Creates the encoder of a new session.
    #[must_use]
    pub fn new(key: SessionKey) -> Self {
        Self { key, sequence: 0 }
    }

    /// Appends a message.
    ///
    /// # Errors
    /// The other side would refuse it. Nothing is appended then, and the session can go on.
    pub fn message(
        &mut self,
        ticket: Ticket,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let start = out.len();
        let (kind, mac) = (kind_of(message), MAC_BYTES);
        put_header(kind, ticket, 0, out);
        if let Err(error) = put_payload(message, out) {
            out.truncate(start);
            return Err(error);
        }
        let length = (out.len() - start - 4 + mac) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        let mac = self.key.mac(self.sequence, &out[start..]);
        out.extend(mac);
        self.sequence += 1;
        Ok(())
    }

    /// Encodes the header of a message with `length` bytes of a body, which must follow at once.
    ///
    /// # Errors
    /// `length` is 0, or more than a message may have.
    pub fn body_header(
        &mut self,
        ticket: Ticket,
        length: usize,
    ) -> Result<[u8; HEADER_BYTES], Error> {
        if length == 0 || length > BODY_BYTES_MAX {
            return Err(Error::Oversized("body"));
        }
        self.sequence += 1;
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&((length + AFTER_LENGTH_BYTES) as u32).to_be_bytes());
        header[4] = kind::BODY;
        header[5..].copy_from_slice(&ticket.0.to_be_bytes());
        Ok(header)
    }

    /// Appends bytes of a body, in as many messages as they need.
    pub fn body(&mut self, ticket: Ticket, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.chunks(BODY_BYTES_MAX) {
            if let Ok(header) = self.body_header(ticket, piece.len()) {
                out.extend(header);
                out.extend(piece);
            }
        }
    }
}

/// Appends only the header, for a payload of this many bytes.
pub(crate) fn put_header(kind: u8, ticket: Ticket, payload: usize, out: &mut Vec<u8>) {
    out.extend(((AFTER_LENGTH_BYTES + payload) as u32).to_be_bytes());
    out.push(kind);
    out.extend(ticket.0.to_be_bytes());
}

pub(super) fn kind_of(message: &Message<'_>) -> u8 {
    match message {
        Message::Request { .. } => kind::REQUEST,
        Message::Cancel => kind::CANCEL,
        Message::Fetch => kind::FETCH,
        Message::Take { .. } => kind::TAKE,
        Message::Recall => kind::RECALL,
        Message::HeldAck => kind::HELD_ACK,
        Message::Settled => kind::SETTLED,
        Message::Release => kind::RELEASE,
        Message::Ping => kind::PING,
        Message::Credit { .. } => kind::CREDIT,
        Message::End => kind::END,
        Message::Response { .. } => kind::RESPONSE,
        Message::Failed { .. } => kind::FAILED,
        Message::Offer { .. } => kind::OFFER,
        Message::Taken => kind::TAKEN,
        Message::Refused { .. } => kind::REFUSED,
        Message::Return { .. } => kind::RETURN,
        Message::Closed { .. } => kind::CLOSED,
        Message::Held { .. } => kind::HELD,
        Message::HeldEnd { .. } => kind::HELD_END,
        Message::Pong => kind::PONG,
    }
}

fn put_payload(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
    match message {
        Message::Request { head, has_body, is_idempotent } => {
            out.push(u8::from(*has_body) | u8::from(*is_idempotent) << 1);
            put_head(head, out)
        }
        Message::Take { connection, answer_sent } => {
            out.extend(answer_sent.to_be_bytes());
            encode_frozen(connection, out)
        }
        Message::Credit { bytes } => {
            if *bytes == 0 {
                return Err(Error::Field("credit"));
            }
            out.extend(bytes.to_be_bytes());
            Ok(())
        }
        Message::Response { head, framing } => {
            put_framing(*framing, out);
            put_head(head, out)
        }
        Message::Failed { status, reason } => {
            if reason.len() > REASON_BYTES_MAX {
                return Err(Error::Oversized("reason"));
            }
            out.extend(status.to_be_bytes());
            out.extend(reason.as_bytes());
            Ok(())
        }
        Message::Offer { head, framing, etag } => {
            if etag.len() > ETAG_BYTES_MAX {
                return Err(Error::Oversized("entity tag"));
            }
            put_framing(*framing, out);
            out.extend((etag.len() as u16).to_be_bytes());
            out.extend(*etag);
            put_head(head, out)
        }
        Message::Refused { reason } => {
            out.push(refusal_number(*reason));
            Ok(())
        }
        Message::Return { connection, answer_sent, is_complete } => {
            out.extend(answer_sent.to_be_bytes());
            out.push(u8::from(*is_complete));
            encode_frozen(connection, out)
        }
        Message::Closed { reason, answer_sent, is_complete } => {
            out.push(ending_number(*reason));
            out.extend(answer_sent.to_be_bytes());
            out.push(u8::from(*is_complete));
            Ok(())
        }
        Message::Held { local, peer, from } => {
            out.extend(from.0.to_be_bytes());
            put_addresses(*local, *peer, out)
        }
        Message::HeldEnd { is_complete } => {
            out.push(u8::from(*is_complete));
            Ok(())
        }
        Message::Cancel
        | Message::Fetch
        | Message::Recall
        | Message::HeldAck
        | Message::Settled
        | Message::Release
        | Message::Ping
        | Message::End
        | Message::Taken
        | Message::Pong => Ok(()),
    }
}

fn put_head(head: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    if head.is_empty() {
        return Err(Error::Field("head"));
    }
    if head.len() > HEAD_BYTES_MAX {
        return Err(Error::Oversized("head"));
    }
    out.extend(head);
    Ok(())
}

fn put_framing(framing: Framing, out: &mut Vec<u8>) {
    let (number, length) = match framing {
        Framing::None => (0_u8, 0),
        Framing::Length(length) => (1, length),
        Framing::Chunked => (2, 0),
        Framing::UntilClose => (3, 0),
    };
    out.push(number);
    out.extend(length.to_be_bytes());
}

fn refusal_number(reason: Refusal) -> u8 {
    match reason {
        Refusal::UnknownTicket => 0,
        Refusal::ForeignAddress => 1,
        Refusal::Occupied => 2,
        Refusal::Full => 3,
        Refusal::NotRestored => 4,
    }
}

fn ending_number(reason: Ending) -> u8 {
    match reason {
        Ending::Client => 0,
        Ending::Reset => 1,
        Ending::TimedOut => 3,
        Ending::NotFrozen => 4,
        Ending::Released => 5,
    }
}

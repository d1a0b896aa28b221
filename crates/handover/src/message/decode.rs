//! Decoding of messages from a stream of bytes.

use super::connection::Fields;
use super::error::Error;
use super::kinds::{
    AFTER_LENGTH_BYTES, Ending, Framing, HEADER_BYTES, Instance, MAC_BYTES, Message, Refusal, Side,
    Ticket, kind,
};
use crate::keys::SessionKey;
use crate::limits::{
    BODY_BYTES_MAX, ETAG_BYTES_MAX, HEAD_BYTES_MAX, MESSAGE_BYTES_MAX, REASON_BYTES_MAX,
};

/// Result of [`Decoder::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<'a> {
    /// A whole, authentic message.
    Message(Ticket, Message<'a>),
    /// Bytes of a body, as many as have come.
    Body(Ticket, &'a [u8]),
}

/// Decoder of one side's messages.
#[derive(Clone, Debug)]
pub struct Decoder {
    from: Side,
    key: SessionKey,
    /// Messages so far.
    sequence: u64,
    /// Ticket of a body that has begun, and its bytes still to come.
    body: Option<(Ticket, usize)>,
}

impl Decoder {
    /// Creates the decoder of a new session.
    #[must_use]
    pub fn new(from: Side, key: SessionKey) -> Self {
        Self { from, key, sequence: 0, body: None }
    }

    /// Turns the decoder into one for the other side's messages.
    #[cfg(test)]
    pub(super) fn of(self, from: Side) -> Self {
        Self { from, ..self }
    }

    /// Decodes the front of `input`; returns the bytes used, or `None` if there are too few.
    ///
    /// # Errors
    /// The bytes are no message of the other side; the session must end.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Option<(usize, Read<'a>)>, Error> {
        if let Some((ticket, left)) = self.body {
            return Ok(self.piece(ticket, left, input, 0));
        }
        let Some((length, kind, ticket)) = header(input)? else { return Ok(None) };
        if kind == kind::BODY {
            // A message's body is never empty, so each call that uses bytes returns some.
            let bytes = length - AFTER_LENGTH_BYTES;
            if bytes == 0 || bytes > BODY_BYTES_MAX {
                return Err(Error::Length(length as u32));
            }
            if input.len() == HEADER_BYTES {
                return Ok(None);
            }
            self.sequence += 1;
            return Ok(self.piece(ticket, bytes, &input[HEADER_BYTES..], HEADER_BYTES));
        }
        if !can_come(kind, self.from) {
            return Err(Error::Kind(kind));
        }
        if !(AFTER_LENGTH_BYTES + MAC_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Error::Length(length as u32));
        }
        let Some(whole) = input.get(..4 + length) else { return Ok(None) };
        let (said, mac) = whole.split_at(whole.len() - MAC_BYTES);
        if !self.key.is_mac(self.sequence, said, mac) {
            return Err(Error::Mac);
        }
        self.sequence += 1;
        let message = payload(kind, &said[HEADER_BYTES..])?;
        Ok(Some((whole.len(), Read::Message(ticket, message))))
    }

    fn piece<'a>(
        &mut self,
        ticket: Ticket,
        left: usize,
        input: &'a [u8],
        before: usize,
    ) -> Option<(usize, Read<'a>)> {
        let taken = left.min(input.len());
        self.body = (taken < left).then_some((ticket, left - taken));
        (taken > 0).then(|| (before + taken, Read::Body(ticket, &input[..taken])))
    }
}

/// Length, kind and ticket of a message, once they have come.
pub(crate) fn header(input: &[u8]) -> Result<Option<(usize, u8, Ticket)>, Error> {
    let Some((length, rest)) = input.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length);
    // Refused before more bytes come, so that the decoder does not wait for ones that never will.
    if (length as usize) < AFTER_LENGTH_BYTES
        || length as usize > MESSAGE_BYTES_MAX.max(BODY_BYTES_MAX + 64)
    {
        return Err(Error::Length(length));
    }
    let Some((kind, rest)) = rest.split_first() else { return Ok(None) };
    let Some(ticket) = rest.first_chunk::<8>() else { return Ok(None) };
    Ok(Some((length as usize, *kind, Ticket(u64::from_be_bytes(*ticket)))))
}

fn can_come(kind: u8, from: Side) -> bool {
    match from {
        Side::Owner => matches!(kind, kind::END | kind::CREDIT | kind::REQUEST..=kind::PING),
        Side::Agent => matches!(kind, kind::END | kind::CREDIT | kind::RESPONSE..=kind::PONG),
    }
}

/// Decodes one side's message from its kind and its authentic payload.
///
/// # Errors
/// The payload is no message, or not of that side.
pub fn decode_payload(from: Side, kind: u8, bytes: &[u8]) -> Result<Message<'_>, Error> {
    if can_come(kind, from) { payload(kind, bytes) } else { Err(Error::Kind(kind)) }
}

fn payload(kind: u8, bytes: &[u8]) -> Result<Message<'_>, Error> {
    let mut fields = Fields { rest: bytes, kind };
    let message = match kind {
        kind::REQUEST => {
            let flags = fields.u8()?;
            if flags > 3 {
                return Err(Error::Field("request flags"));
            }
            Message::Request {
                has_body: flags & 1 != 0,
                is_idempotent: flags & 2 != 0,
                head: head(&mut fields)?,
            }
        }
        kind::CANCEL => Message::Cancel,
        kind::FETCH => Message::Fetch,
        kind::TAKE => Message::Take { answer_sent: fields.u64()?, connection: fields.frozen()? },
        kind::RECALL => Message::Recall,
        kind::HELD_ACK => Message::HeldAck,
        kind::SETTLED => Message::Settled,
        kind::RELEASE => Message::Release,
        kind::PING => Message::Ping,
        kind::CREDIT => match fields.u32()? {
            0 => return Err(Error::Field("credit")),
            bytes => Message::Credit { bytes },
        },
        kind::END => Message::End,
        kind::RESPONSE => {
            Message::Response { framing: framing(&mut fields)?, head: head(&mut fields)? }
        }
        kind::FAILED => {
            let status = fields.u16()?;
            let reason = std::mem::take(&mut fields.rest);
            if reason.len() > REASON_BYTES_MAX {
                return Err(Error::Oversized("reason"));
            }
            Message::Failed {
                status,
                reason: std::str::from_utf8(reason).map_err(|_| Error::Field("reason"))?,
            }
        }
        kind::OFFER => {
            let framing = framing(&mut fields)?;
            let etag = usize::from(fields.u16()?);
            if etag > ETAG_BYTES_MAX {
                return Err(Error::Oversized("entity tag"));
            }
            Message::Offer { framing, etag: fields.bytes(etag)?, head: head(&mut fields)? }
        }
        kind::TAKEN => Message::Taken,
        kind::REFUSED => Message::Refused { reason: refusal(fields.u8()?)? },
        kind::RETURN => Message::Return {
            answer_sent: fields.u64()?,
            is_complete: fields.flag("complete")?,
            connection: fields.frozen()?,
        },
        kind::CLOSED => Message::Closed {
            reason: ending(fields.u8()?)?,
            answer_sent: fields.u64()?,
            is_complete: fields.flag("complete")?,
        },
        kind::HELD => {
            let from = Instance(fields.u64()?);
            let (local, peer) = fields.addresses()?;
            Message::Held { local, peer, from }
        }
        kind::HELD_END => Message::HeldEnd { is_complete: fields.flag("complete")? },
        kind::PONG => Message::Pong,
        _ => return Err(Error::Kind(kind)),
    };
    fields.end()?;
    Ok(message)
}

/// A head takes the rest of its message.
fn head<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], Error> {
    let head = std::mem::take(&mut fields.rest);
    match head.len() {
        0 => Err(Error::Short(fields.kind)),
        1..=HEAD_BYTES_MAX => Ok(head),
        _ => Err(Error::Oversized("head")),
    }
}

fn framing(fields: &mut Fields<'_>) -> Result<Framing, Error> {
    match (fields.u8()?, fields.u64()?) {
        (0, 0) => Ok(Framing::None),
        (1, length) => Ok(Framing::Length(length)),
        (2, 0) => Ok(Framing::Chunked),
        (3, 0) => Ok(Framing::UntilClose),
        (0 | 2 | 3, _) => {
            Err(Error::Contradictory("a length of a body that says otherwise where it ends"))
        }
        _ => Err(Error::Field("framing")),
    }
}

fn refusal(number: u8) -> Result<Refusal, Error> {
    Ok(match number {
        0 => Refusal::UnknownTicket,
        1 => Refusal::ForeignAddress,
        2 => Refusal::Occupied,
        3 => Refusal::Full,
        4 => Refusal::NotRestored,
        _ => return Err(Error::Field("refusal")),
    })
}

fn ending(number: u8) -> Result<Ending, Error> {
    Ok(match number {
        0 => Ending::Client,
        1 => Ending::Reset,
        3 => Ending::TimedOut,
        4 => Ending::NotFrozen,
        5 => Ending::Released,
        _ => return Err(Error::Field("ending")),
    })
}

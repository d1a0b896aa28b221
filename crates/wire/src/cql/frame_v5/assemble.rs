//! Putting a large envelope together from segments that are not self contained.

use super::FrameError;
use crate::cql::envelope::{HEADER_BYTES, Header};

/// Collects the parts of one large envelope (v5, section 1): "expected to be transmitted/received in order, so the
/// receiver can accumulate them as they arrive and process them once all have been received".
///
/// Holds memory only while an envelope is under way, and never more than twice what has arrived of it.
#[derive(Debug, Default)]
pub struct Assembler {
    bytes: Vec<u8>,
}

impl Assembler {
    /// An assembler with nothing under way.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    /// True if no envelope is under way. While one is, a self-contained segment is a fault of the peer.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the payload of the next segment. Returns header and body once the envelope is whole, after which
    /// [`Assembler::clear`] must be called before the next push.
    ///
    /// # Errors
    /// When the envelope's header claims a body of more than `body_max` bytes, or the part is longer than what is
    /// missing. The envelope is lost.
    pub fn push(&mut self, payload: &[u8], body_max: u32) -> Result<Option<(Header, &[u8])>, FrameError> {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        let Some(header) = Header::decode(&self.bytes) else {
            return Ok(None);
        };
        if header.length > body_max {
            self.clear();
            return Err(FrameError::EnvelopeTooLarge { claimed: header.length, max: body_max });
        }
        let whole = HEADER_BYTES + header.length as usize;
        if self.bytes.len() > whole {
            self.clear();
            let missing = whole.saturating_sub(before);
            return Err(FrameError::EnvelopeOverrun { missing, found: payload.len() });
        }
        if self.bytes.len() < whole {
            return Ok(None);
        }
        Ok(self.bytes.get(HEADER_BYTES..).map(|body| (header, body)))
    }

    /// Forgets the envelope and gives its memory back.
    pub fn clear(&mut self) {
        self.bytes = Vec::new();
    }
}

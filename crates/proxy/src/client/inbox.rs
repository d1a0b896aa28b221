//! Answers to the proxy's own statements, and to parts of clients' requests, kept until the event
//! that brought them is over.

use crate::limits;

/// One answer.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    /// Index of the statement among those in flight.
    pub(crate) stream: i16,
    /// True if it answers a part of a client's request; the index is among the parts then.
    pub(crate) is_part: bool,
    pub(crate) flags: u8,
    pub(crate) opcode: u8,
    pub(crate) body: &'a [u8],
}

/// Answers in order of arrival. The buffer keeps its room for the next ones.
#[derive(Default)]
pub(crate) struct Inbox {
    heads: Vec<Head>,
    bodies: Vec<u8>,
}

/// An answer; its body lies between the end of the previous one and `end`.
#[derive(Clone, Copy)]
struct Head {
    stream: i16,
    is_part: bool,
    flags: u8,
    opcode: u8,
    end: usize,
}

impl Inbox {
    /// True if it has no answers.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Keeps an answer.
    pub(crate) fn put(&mut self, answer: &Kept<'_>) {
        let Kept { stream, is_part, flags, opcode, body } = *answer;
        self.bodies.extend_from_slice(body);
        self.heads.push(Head { stream, is_part, flags, opcode, end: self.bodies.len() });
    }

    /// Iterates over the answers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Kept<'_>> {
        let starts = std::iter::once(0).chain(self.heads.iter().map(|head| head.end));
        self.heads.iter().zip(starts).map(|(head, start)| Kept {
            stream: head.stream,
            is_part: head.is_part,
            flags: head.flags,
            opcode: head.opcode,
            body: &self.bodies[start..head.end],
        })
    }

    /// Empties it, and frees the room of a large answer.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.bodies.clear();
        self.bodies.shrink_to(limits::CARRY_KEPT_BYTES);
    }
}

//! The bytes of requests in flight, in case the proxy must send them again.
//!
//! They stay in the buffer from which they were sent (the link's sent log). A request that is not
//! in one piece there, or that has kept its buffer from being freed for too long, has a copy here.

use shunt_reactor::{ConnId, Io};
use slab::Slab;

use crate::ids::LinkRef;
use crate::link::Kept;
use crate::link::Link;
use crate::link::links::Links;

/// The owner of copies of requests.
#[derive(Default)]
pub(crate) struct Retained {
    copies: Slab<Vec<u8>>,
}

impl Retained {
    /// Keeps a copy; its bytes count for the link.
    pub(crate) fn keep_copy(&mut self, link: &mut Link, bytes: Vec<u8>) -> Kept {
        link.copied_bytes += bytes.len();
        Kept::Copy { key: self.copies.insert(bytes) as u32 }
    }

    /// Releases the bytes of a request whose link may be gone.
    pub(crate) fn release(&mut self, links: &mut Links, io: &mut Io, link: LinkRef, kept: Kept) {
        match links.find_mut(link) {
            Some(found) => self.release_on(found, io, kept),
            None => self.forget(kept),
        }
    }

    /// Releases the bytes of a request on its link.
    #[inline]
    pub(crate) fn release_on(&mut self, link: &mut Link, io: &mut Io, kept: Kept) {
        match kept {
            Kept::Nothing => {}
            Kept::Sent { sequence, .. } => io.release(link.conn, sequence),
            Kept::Copy { key } => {
                let bytes = self.copies.try_remove(key as usize).map_or(0, |bytes| bytes.len());
                link.copied_bytes = link.copied_bytes.saturating_sub(bytes);
            }
        }
    }

    /// Drops the copy of a request whose link is gone.
    pub(crate) fn forget(&mut self, kept: Kept) {
        if let Kept::Copy { key } = kept {
            self.copies.try_remove(key as usize);
        }
    }

    /// A copy of the bytes of a request in flight on this connection.
    pub(crate) fn bytes(&self, io: &Io, conn: ConnId, kept: Kept) -> Option<Vec<u8>> {
        self.view(io, conn, kept).map(<[u8]>::to_vec)
    }

    /// The bytes of a request in flight on this connection.
    pub(crate) fn view<'a>(&'a self, io: &'a Io, conn: ConnId, kept: Kept) -> Option<&'a [u8]> {
        match kept {
            Kept::Nothing => None,
            Kept::Sent { sequence, offset, length } => {
                let start = offset as usize;
                io.sent(conn, sequence).get(start..start + length as usize)
            }
            Kept::Copy { key } => self.copies.get(key as usize).map(Vec::as_slice),
        }
    }

    /// Number of bytes of a request.
    pub(crate) fn length(&self, kept: Kept) -> usize {
        match kept {
            Kept::Nothing => 0,
            Kept::Sent { length, .. } => length as usize,
            Kept::Copy { key } => self.copies.get(key as usize).map_or(0, Vec::len),
        }
    }

    /// A copy of a request's bytes, found in `buffer` (of its link's sent log) or among the copies.
    pub(crate) fn bytes_in(&self, buffer: &[u8], kept: Kept) -> Option<Vec<u8>> {
        match kept {
            Kept::Nothing => None,
            Kept::Sent { offset, length, .. } => {
                let start = offset as usize;
                buffer.get(start..start + length as usize).map(<[u8]>::to_vec)
            }
            Kept::Copy { key } => self.copies.get(key as usize).cloned(),
        }
    }
}

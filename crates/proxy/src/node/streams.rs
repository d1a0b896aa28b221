//! Stream ids of one link: which request each belongs to.
//!
//! A table indexed by stream id with a free list through it; giving out and taking back are a few instructions and
//! allocate only while the table grows to its working size. Ids are reused last-in first-out, so that a lightly used
//! link touches few cache lines.

use crate::client::ClientRef;
use crate::limits::STREAMS_PER_CONNECTION_MAX;
use crate::node::PoolId;
use crate::route::Plan;

/// Where the bytes of a request are kept while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retained {
    /// Nothing was kept.
    Nothing,
    /// In the link's sent log.
    Sent { sequence: u32, offset: u32, length: u32 },
    /// In a buffer of its own: key in the core's table of copies.
    Copy { key: u32 },
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client's; the answer goes to it.
    Client,
    /// OPTIONS to see whether the node is alive.
    Heartbeat,
    /// PREPARE on a node that has not seen the statement yet, ahead of need; nobody waits for it.
    Spread,
    /// PREPARE because the node answered UNPREPARED; the key of the request that waits.
    Reprepare { repair: u32 },
    /// Timed out: answered already, the id is held until the node answers too.
    Orphan,
}

/// One request in flight on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: Purpose,
    pub(crate) client: ClientRef,
    /// The pool it was asked in. A client may have moved on by USE before its request is sent a second time.
    pub(crate) pool: PoolId,
    /// The client's own stream id.
    pub(crate) stream: i16,
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    /// Times it was sent before because a link died.
    pub(crate) retries: u8,
    /// Times a statement of it was prepared again.
    pub(crate) reprepares: u8,
    pub(crate) plan: Plan,
    /// When the client's request was decoded.
    pub(crate) received_ns: u64,
    /// When it went to this node.
    pub(crate) sent_ns: u64,
    pub(crate) retained: Retained,
}

#[derive(Clone, Copy)]
enum Slot {
    Free { next: u16 },
    Used(Pending),
}

/// End of the free list.
const NONE: u16 = u16::MAX;

/// The streams of one link.
pub(crate) struct Streams {
    slots: Vec<Slot>,
    free: u16,
    used: usize,
    max: usize,
}

impl Streams {
    /// At most `max` in flight, which must not exceed 32,768.
    pub(crate) fn new(max: usize) -> Self {
        Self { slots: Vec::new(), free: NONE, used: 0, max }
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Most requests in flight.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.max
    }

    /// Gives out a stream id; `None` when all are in flight. A heartbeat may exceed the bound by one, because a link
    /// full of unanswered requests is the one to ask.
    #[inline]
    pub(crate) fn insert(&mut self, pending: Pending) -> Option<u16> {
        let stream = match self.free {
            NONE if self.slots.len() < self.max || self.has_room_for_heartbeat(&pending) => {
                let stream = self.slots.len() as u16;
                self.slots.push(Slot::Used(pending));
                stream
            }
            NONE => return None,
            stream => {
                let slot = &mut self.slots[usize::from(stream)];
                let Slot::Free { next } = *slot else { unreachable!("a stream on the free list is free") };
                self.free = next;
                *slot = Slot::Used(pending);
                stream
            }
        };
        self.used += 1;
        Some(stream)
    }

    fn has_room_for_heartbeat(&self, pending: &Pending) -> bool {
        pending.purpose == Purpose::Heartbeat && self.slots.len() < STREAMS_PER_CONNECTION_MAX
    }

    /// Takes an id back; `None` when it was not given out, which only a misbehaving node causes.
    #[inline]
    pub(crate) fn remove(&mut self, stream: i16) -> Option<Pending> {
        let index = usize::try_from(stream).ok()?;
        let slot = self.slots.get_mut(index)?;
        let Slot::Used(pending) = *slot else { return None };
        *slot = Slot::Free { next: self.free };
        self.free = index as u16;
        self.used -= 1;
        Some(pending)
    }

    pub(crate) fn get_mut(&mut self, stream: u16) -> Option<&mut Pending> {
        match self.slots.get_mut(usize::from(stream)) {
            Some(Slot::Used(pending)) => Some(pending),
            _ => None,
        }
    }

    /// All in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Pending)> {
        self.slots.iter().enumerate().filter_map(|(stream, slot)| match slot {
            Slot::Used(pending) => Some((stream as u16, pending)),
            Slot::Free { .. } => None,
        })
    }

    /// Empties the table, handing out what was in flight.
    pub(crate) fn take_all(&mut self) -> Vec<Pending> {
        let slots = std::mem::take(&mut self.slots);
        self.free = NONE;
        self.used = 0;
        slots
            .into_iter()
            .filter_map(|slot| match slot {
                Slot::Used(pending) => Some(pending),
                Slot::Free { .. } => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(stream: i16) -> Pending {
        Pending {
            purpose: Purpose::Client,
            client: ClientRef { slot: 1, id: 2 },
            pool: PoolId(0),
            stream,
            opcode: 7,
            flags: 0,
            retries: 0,
            reprepares: 0,
            plan: Plan::anywhere(),
            received_ns: 0,
            sent_ns: 0,
            retained: Retained::Nothing,
        }
    }

    #[test]
    fn every_id_is_given_out_once_and_then_none() {
        let mut streams = Streams::new(32_768);
        let mut seen = vec![false; 32_768];
        for i in 0..32_768_usize {
            let id = streams.insert(pending(i as i16)).unwrap();
            assert!(!std::mem::replace(&mut seen[usize::from(id)], true));
        }
        assert!(streams.is_full());
        assert!(streams.insert(pending(0)).is_none());
        for i in 0..32_768_usize {
            assert_eq!(streams.remove(i as i16).unwrap().stream, i as i16);
        }
        assert_eq!(streams.len(), 0);
    }

    #[test]
    fn an_id_nobody_asked_for_is_refused() {
        let mut streams = Streams::new(4);
        let id = streams.insert(pending(9)).unwrap() as i16;
        assert!(streams.remove(-1).is_none());
        assert!(streams.remove(3).is_none());
        assert!(streams.remove(id).is_some());
        assert!(streams.remove(id).is_none(), "answered twice");
    }

    #[test]
    fn the_last_freed_id_is_reused_first() {
        let mut streams = Streams::new(8);
        let ids: Vec<u16> = (0..4).map(|i| streams.insert(pending(i)).unwrap()).collect();
        streams.remove(ids[1] as i16);
        streams.remove(ids[3] as i16);
        assert_eq!(streams.insert(pending(0)), Some(ids[3]));
        assert_eq!(streams.insert(pending(0)), Some(ids[1]));
    }
}

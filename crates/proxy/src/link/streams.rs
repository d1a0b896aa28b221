//! Stream ids of one link, with the request that each belongs to.
//!
//! A table indexed by stream id, and a bit for each free id; taking and freeing an id costs a few
//! instructions and allocates only while the table grows to its working size. The lowest free id
//! goes first: a lightly used link touches few cache lines, and on a busy one the requests of a
//! turn, whose answers come back together, lie side by side.
//!
//! 0 is never given out: Cassandra uses stream 0 for errors about a request whose stream id it has
//! not read.

use crate::ids::{ClientRef, LinkKey, PoolId, TenantKey, Ticket};
use crate::limits::{LINK_RESERVE_PARTS, STREAMS_PER_CONNECTION_MAX};
use crate::plan::Plan;
use crate::traces::key::TraceKey;

/// The place of a request's bytes while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// No bytes are kept.
    Nothing,
    /// In the link's sent log.
    Sent { sequence: u32, offset: u32, length: u32 },
    /// In a separate buffer: key in the core's table of copies.
    Copy { key: u32 },
}

/// The place of one of the two requests of a hedged read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) link: LinkKey,
    pub(crate) stream: u16,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client's request; the answer goes to the client.
    Client,
    /// A client's read that went to another node too ([`crate::retry::hedge`]); the client gets
    /// the first result. The fields name the other request: not a [`Leg`], which would take more
    /// room.
    Hedged { link: LinkKey, stream: u16, is_second: bool },
    /// A hedged read that the other node answered first: the id stays taken until this node answers
    /// too.
    Overtaken,
    /// OPTIONS, to see whether the node is alive.
    Heartbeat,
    /// PREPARE on a node that has not seen the statement yet, ahead of need; no client waits for
    /// it.
    Spread,
    /// PREPARE because the node answered UNPREPARED; the key of the request that waits.
    Reprepare { repair: Ticket },
    /// A client's request whose answer waits at an agent until its route is settled.
    Offered,
    /// Timed out: answered already; the id stays taken until the node answers too.
    Orphan,
}

impl Purpose {
    /// The other request of a hedged read.
    pub(crate) fn other_leg(self) -> Option<Leg> {
        match self {
            Purpose::Hedged { link, stream, .. } => Some(Leg { link, stream }),
            _ => None,
        }
    }
}

/// One request in flight on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: Purpose,
    pub(crate) client: ClientRef,
    /// The pool of the request. A client may have moved on by USE before its request is sent a
    /// second time.
    pub(crate) pool: PoolId,
    /// The client's own stream id.
    pub(crate) stream: i16,
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    /// Number of earlier attempts whose link died.
    pub(crate) retries: u8,
    /// True if a node that never answered had the request: it may have been executed, or may be
    /// yet.
    pub(crate) fate_unknown: bool,
    /// Times that one of its statements was prepared again.
    pub(crate) reprepares: u8,
    pub(crate) plan: Plan,
    /// Time at which the client's request was decoded.
    pub(crate) received_ns: u64,
    /// Time at which it went to this node.
    pub(crate) sent_ns: u64,
    pub(crate) kept: Kept,
    /// The trace that its client records.
    pub(crate) trace: TraceKey,
}

// One of them lies in the stream table for each query in flight.
const _: () = assert!(size_of::<Option<Pending>>() <= 112);

/// The recipient of an answer, and the time since which it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipient {
    pub(crate) client: ClientRef,
    /// The client's own stream id.
    pub(crate) stream: i16,
    /// The tenant at which the request counts as in flight.
    pub(crate) tenant: TenantKey,
    /// Time at which the client's request was decoded.
    pub(crate) received_ns: u64,
    /// Time at which it went to the node that had it last; 0 if none had it.
    pub(crate) sent_ns: u64,
}

impl Pending {
    /// A request of the proxy itself.
    pub(crate) fn own(now_ns: u64, purpose: Purpose, opcode: u8) -> Self {
        Self {
            purpose,
            client: ClientRef::PROXY,
            pool: PoolId::NONE,
            stream: 0,
            opcode,
            flags: 0,
            retries: 0,
            fate_unknown: false,
            reprepares: 0,
            plan: Plan::anywhere(),
            received_ns: now_ns,
            sent_ns: now_ns,
            kept: Kept::Nothing,
            trace: TraceKey::NONE,
        }
    }

    #[inline]
    pub(crate) fn recipient(&self) -> Recipient {
        let Self { client, stream, plan, received_ns, sent_ns, .. } = *self;
        // The parts of a split request share its plan, and count as one.
        let tenant = if client.is_client() { plan.tenant } else { TenantKey::NONE };
        Recipient { client, stream, tenant, received_ns, sent_ns }
    }
}

/// Bits of one word of the free ids.
const WORD: usize = u64::BITS as usize;
/// Requests for which the table of a link without requests keeps its room. A link that once had all
/// its ids in use would keep megabytes, and a role may have hundreds of links.
const SLOTS_KEPT: usize = 1_024;
/// Words of the free ids: enough for every id a connection can have.
const WORDS: usize = STREAMS_PER_CONNECTION_MAX / WORD;

/// The streams of one link.
pub(crate) struct Streams {
    slots: Vec<Option<Pending>>,
    /// A bit for each free id below the bound.
    free: Box<[u64; WORDS]>,
    /// A bit for each word of `free` that is not 0.
    free_words: [u64; WORDS / WORD],
    used: usize,
    max: usize,
}

impl Streams {
    /// Allows at most `max` in flight, and at most 32,767.
    pub(crate) fn new(max: usize) -> Self {
        let max = max.min(STREAMS_PER_CONNECTION_MAX - 1);
        let mut free = Box::new([0; WORDS]);
        // Whole words first: a link opens in the time of a few.
        let (whole, rest) = ((max + 1) / WORD, (max + 1) % WORD);
        free[..whole].fill(u64::MAX);
        if let Some(word) = free.get_mut(whole) {
            *word = (1 << rest) - 1;
        }
        // Id 0 is never given out.
        free[0] &= !1;
        let mut free_words = [0; WORDS / WORD];
        for (index, _) in free.iter().enumerate().filter(|(_, word)| **word != 0) {
            free_words[index / WORD] |= 1 << (index % WORD);
        }
        Self { slots: vec![None], free, free_words, used: 0, max }
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

    /// True if less than the reserve is left.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.used >= self.max - self.max / LINK_RESERVE_PARTS
    }

    #[inline]
    fn set_free(&mut self, id: usize) {
        self.free[id / WORD] |= 1 << (id % WORD);
        self.free_words[id / WORD / WORD] |= 1 << (id / WORD % WORD);
    }

    /// Takes the lowest free id.
    #[inline]
    fn take_free(&mut self) -> Option<usize> {
        let group = self.free_words.iter().position(|words| *words != 0)?;
        let word = group * WORD + self.free_words[group].trailing_zeros() as usize;
        let bits = self.free[word];
        self.free[word] = bits & (bits - 1);
        if self.free[word] == 0 {
            self.free_words[group] &= self.free_words[group] - 1;
        }
        Some(word * WORD + bits.trailing_zeros() as usize)
    }

    /// Takes a stream id; `None` when all are in flight. A heartbeat may exceed the bound by one,
    /// because a link full of unanswered requests is the one to probe. The id's slot is empty until
    /// [`put`](Self::put).
    #[inline]
    pub(crate) fn take_id(&mut self, purpose: Purpose) -> Option<u16> {
        let id = match self.take_free() {
            Some(id) => id,
            None if purpose == Purpose::Heartbeat
                && self.slots.len() < STREAMS_PER_CONNECTION_MAX =>
            {
                self.slots.len()
            }
            None => return None,
        };
        // The lowest free id is at most one beyond those in use.
        if id == self.slots.len() {
            self.slots.push(None);
        }
        self.used += 1;
        Some(id as u16)
    }

    /// Puts a request under the id that was taken for it; returns the stored request.
    #[inline(always)]
    pub(crate) fn put(&mut self, id: u16, pending: Pending) -> Option<&mut Pending> {
        Some(self.slots.get_mut(usize::from(id))?.insert(pending))
    }

    /// Sets the place of a request's bytes.
    pub(crate) fn set_kept(&mut self, id: u16, kept: Kept) {
        if let Some(pending) = self.get_mut(id) {
            pending.kept = kept;
        }
    }

    /// The request with this id; `None` for an id that is not taken, which only a misbehaving node
    /// causes.
    #[inline]
    pub(crate) fn get(&self, stream: i16) -> Option<&Pending> {
        self.slots.get(usize::try_from(stream).ok()?)?.as_ref()
    }

    /// Frees an id. Read the request with [`get`](Self::get) before: most answers need only a part
    /// of it.
    #[inline]
    pub(crate) fn remove(&mut self, stream: i16) {
        let Ok(id) = usize::try_from(stream) else { return };
        let Some(slot @ Some(_)) = self.slots.get_mut(id) else { return };
        *slot = None;
        self.set_free(id);
        self.used -= 1;
    }

    pub(crate) fn get_mut(&mut self, stream: u16) -> Option<&mut Pending> {
        self.slots.get_mut(usize::from(stream))?.as_mut()
    }

    /// Frees the room of many requests, if none is in flight.
    pub(crate) fn shrink(&mut self) {
        if self.used == 0 && self.slots.len() > SLOTS_KEPT {
            self.slots = vec![None];
        }
    }

    /// Requests in flight.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Pending)> {
        self.slots.iter().enumerate().filter_map(|(id, slot)| Some((id as u16, slot.as_ref()?)))
    }

    /// Empties the table and returns the requests that were in flight.
    pub(crate) fn take_all(&mut self) -> Vec<Pending> {
        let Self { slots, .. } = std::mem::replace(self, Self::new(self.max));
        slots.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(streams: &mut Streams, pending: Pending) -> Option<u16> {
        let id = streams.take_id(pending.purpose)?;
        streams.put(id, pending);
        Some(id)
    }

    fn pending(stream: i16) -> Pending {
        Pending {
            purpose: Purpose::Client,
            client: ClientRef { slot: 1, id: 2 },
            pool: PoolId(0),
            stream,
            opcode: 7,
            flags: 0,
            retries: 0,
            fate_unknown: false,
            reprepares: 0,
            plan: Plan::anywhere(),
            received_ns: 0,
            sent_ns: 0,
            kept: Kept::Nothing,
            trace: TraceKey::NONE,
        }
    }

    #[test]
    fn every_id_is_given_out_once_and_then_none() {
        let mut streams = Streams::new(32_768);
        let mut seen = vec![false; 32_768];
        for i in 1..=i16::MAX {
            let id = insert(&mut streams, pending(i)).unwrap();
            assert!(!std::mem::replace(&mut seen[usize::from(id)], true));
        }
        assert!(streams.is_full() && !seen[0]);
        assert!(insert(&mut streams, pending(0)).is_none());
        for i in 1..=i16::MAX {
            assert_eq!(streams.get(i).unwrap().stream, i);
            streams.remove(i);
        }
        assert_eq!(streams.len(), 0);
    }

    #[test]
    fn a_table_of_any_size_begins_with_all_its_ids() {
        for max in [1, 62, 63, 64, 65, 4_095, 4_096, 32_766, 32_767] {
            let mut streams = Streams::new(max);
            let ids: Vec<_> =
                std::iter::from_fn(|| insert(&mut streams, pending(1)).map(usize::from)).collect();
            assert!(ids.iter().copied().eq(1..=max), "{max}");
        }
    }

    /// Without that, a client with many keyspaces makes each of its links keep megabytes.
    #[test]
    fn a_table_without_requests_gives_back_the_room_of_many() {
        let mut streams = Streams::new(16_384);
        (0..16_384).for_each(|_| assert!(insert(&mut streams, pending(1)).is_some()));
        (2..=16_384).for_each(|id| streams.remove(id));
        streams.shrink();
        assert_eq!(streams.slots.len(), 16_385, "one is in flight");
        streams.remove(1);
        streams.shrink();
        assert!(streams.slots.capacity() <= SLOTS_KEPT);
        let ids = (0..16_384).map(|_| insert(&mut streams, pending(1)).map(usize::from));
        assert!(ids.eq((1..=16_384).map(Some)), "all ids are free");
        assert!(streams.is_full());
    }

    #[test]
    fn stream_0_belongs_to_no_request() {
        let mut streams = Streams::new(2);
        assert!((0..2).all(|_| insert(&mut streams, pending(0)).is_some()));
        assert!(streams.get(0).is_none());
        streams.remove(0);
        assert_eq!((streams.len(), insert(&mut streams, pending(0))), (2, None));
    }

    #[test]
    fn an_id_nobody_asked_for_is_refused() {
        let mut streams = Streams::new(4);
        let id = insert(&mut streams, pending(9)).unwrap() as i16;
        assert!(streams.get(-1).is_none());
        assert!(streams.get(4).is_none());
        assert!(streams.get(id).is_some());
        streams.remove(id);
        assert!(streams.get(id).is_none(), "answered twice");
        streams.remove(id);
        assert_eq!(streams.len(), 0, "taken back twice");
    }

    #[test]
    fn the_lowest_free_id_is_given_out() {
        let mut streams = Streams::new(300);
        let ids: Vec<u16> = (0..200).map(|i| insert(&mut streams, pending(i)).unwrap()).collect();
        assert_eq!(ids, (1..=200).collect::<Vec<u16>>());
        for id in [130, 7, 64, 3] {
            streams.remove(id);
        }
        let again: Vec<u16> = (0..5).map(|i| insert(&mut streams, pending(i)).unwrap()).collect();
        assert_eq!(again, [3, 7, 64, 130, 201]);
    }

    #[test]
    fn a_full_link_can_still_be_probed() {
        for max in [4, 64, 32_767] {
            let mut streams = Streams::new(max);
            (0..max).for_each(|_| assert!(insert(&mut streams, pending(0)).is_some()));
            let probe = Pending { purpose: Purpose::Heartbeat, ..pending(0) };
            assert_eq!(insert(&mut streams, probe), (max < 32_767).then_some(max as u16 + 1));
            assert!(insert(&mut streams, pending(0)).is_none());
        }
    }

    #[test]
    fn an_emptied_table_starts_anew() {
        let mut streams = Streams::new(100);
        (0..100).for_each(|i| assert!(insert(&mut streams, pending(i)).is_some()));
        streams.remove(50);
        assert_eq!(streams.take_all().len(), 99);
        assert_eq!((streams.len(), insert(&mut streams, pending(0))), (0, Some(1)));
    }
}

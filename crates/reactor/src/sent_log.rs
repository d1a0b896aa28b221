//! The sent log keeps the bytes of in-flight requests so that they can be sent again over another
//! connection, without copying them: an output buffer that the kernel has taken completely goes
//! here instead of back into the pool, for as long as its retain count is above 0. The table holds
//! only live buffers; slots are reused, and the sequence number carries the slot's cycle so that a
//! stale number is noticed.

/// "No buffer": returned when nothing can be kept, and ignored by every operation.
pub(crate) const NONE: u32 = u32::MAX;
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

#[derive(Default, Debug)]
struct Slot {
    /// Kept bytes; empty while they are still in the connection's output or sending buffer.
    buffer: Vec<u8>,
    count: u32,
    /// Number of uses of the slot; wraps at 12 bits.
    cycle: u32,
}

/// Bookkeeping of one connection's retained buffers.
#[derive(Debug)]
pub(crate) struct LogTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slot of the output buffer that is being filled, if part of it is retained.
    filling: u32,
    /// Slot of the buffer that is being sent.
    sending: u32,
    /// Capacity of the buffers kept here.
    bytes: usize,
}

/// The place of the bytes of a sequence number.
pub(crate) enum Place<'a> {
    Filling,
    Sending,
    Kept(&'a [u8]),
    Nowhere,
}

impl Default for LogTable {
    fn default() -> Self {
        LogTable { slots: Vec::new(), free: Vec::new(), filling: NONE, sending: NONE, bytes: 0 }
    }
}

impl LogTable {
    /// Retains the buffer that is being filled once more; returns its sequence number.
    #[inline]
    pub(crate) fn retain(&mut self) -> u32 {
        if self.filling == NONE {
            self.filling = self.allocate();
            if self.filling == NONE {
                return NONE;
            }
        }
        let slot = &mut self.slots[self.filling as usize];
        slot.count += 1;
        self.filling | slot.cycle << INDEX_BITS
    }

    /// Notes that the output buffer became the sending buffer.
    #[inline]
    pub(crate) fn started_sending(&mut self) {
        debug_assert_eq!(self.sending, NONE);
        self.sending = std::mem::replace(&mut self.filling, NONE);
    }

    /// Notes that the kernel has taken all of `buffer`. Gives it back if no part of it is retained
    /// any more.
    #[inline]
    pub(crate) fn finished_sending(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let index = std::mem::replace(&mut self.sending, NONE);
        if index == NONE {
            return Some(buffer);
        }
        let slot = &mut self.slots[index as usize];
        if slot.count == 0 {
            self.recycle(index);
            return Some(buffer);
        }
        self.bytes += buffer.capacity();
        slot.buffer = buffer;
        None
    }

    /// Releases a buffer once; gives it back if that was the last time and it was sent completely.
    #[inline]
    pub(crate) fn release(&mut self, sequence: u32) -> Option<Vec<u8>> {
        let index = self.index_of(sequence)?;
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.count > 0, "released more often than retained");
        slot.count = slot.count.saturating_sub(1);
        if slot.count > 0 || index == self.filling || index == self.sending {
            return None;
        }
        let buffer = std::mem::take(&mut slot.buffer);
        self.bytes -= buffer.capacity();
        self.recycle(index);
        Some(buffer)
    }

    pub(crate) fn place(&self, sequence: u32) -> Place<'_> {
        match self.index_of(sequence) {
            None => Place::Nowhere,
            Some(index) if index == self.filling => Place::Filling,
            Some(index) if index == self.sending => Place::Sending,
            Some(index) => Place::Kept(&self.slots[index as usize].buffer),
        }
    }

    /// Bytes of memory held by buffers that were sent and are still retained.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_filling(&self) -> bool {
        self.filling != NONE
    }

    /// Turns the table into the service's log, with the unsent buffers in their places.
    pub(crate) fn into_log(mut self, filling: Vec<u8>, sending: Vec<u8>) -> SentLog {
        if self.filling != NONE {
            self.slots[self.filling as usize].buffer = filling;
        }
        if self.sending != NONE {
            self.slots[self.sending as usize].buffer = sending;
        }
        SentLog { slots: self.slots }
    }

    /// Every buffer kept, for the pool.
    pub(crate) fn into_buffers(self) -> impl Iterator<Item = Vec<u8>> {
        self.slots.into_iter().map(|slot| slot.buffer)
    }

    #[inline]
    fn index_of(&self, sequence: u32) -> Option<u32> {
        let index = sequence & INDEX_MASK;
        let slot = self.slots.get(index as usize)?;
        (slot.cycle == sequence >> INDEX_BITS).then_some(index)
    }

    #[inline]
    fn allocate(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            // The all-ones index is never given out, so that NONE is no valid sequence number.
            None if self.slots.len() < INDEX_MASK as usize => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => NONE,
        }
    }

    #[inline]
    fn recycle(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.cycle = (slot.cycle + 1) & (u32::MAX >> INDEX_BITS);
        self.free.push(index);
    }
}

/// The retained buffers of a connection that ended, taken with
/// [`Io::take_sent_log`](crate::Io::take_sent_log).
#[derive(Default, Debug)]
pub struct SentLog {
    slots: Vec<Slot>,
}

impl SentLog {
    /// The whole buffer with this sequence number, or `None` if it was released.
    pub fn get(&self, sequence: u32) -> Option<&[u8]> {
        let slot = self.slots.get((sequence & INDEX_MASK) as usize)?;
        (slot.cycle == sequence >> INDEX_BITS && slot.count > 0).then_some(slot.buffer.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_until_the_last_release() {
        let mut log = LogTable::default();
        let first = log.retain();
        assert_eq!(log.retain(), first);
        log.started_sending();
        assert!(log.finished_sending(b"queries".to_vec()).is_none());
        assert_eq!(log.bytes(), 7);
        assert!(log.release(first).is_none());
        assert!(matches!(log.place(first), Place::Kept(b"queries")));
        assert_eq!(log.release(first), Some(b"queries".to_vec()));
        assert_eq!(log.bytes(), 0);
        assert!(matches!(log.place(first), Place::Nowhere));
    }

    #[test]
    fn released_before_it_was_sent() {
        let mut log = LogTable::default();
        let sequence = log.retain();
        assert!(log.release(sequence).is_none());
        log.started_sending();
        assert_eq!(log.finished_sending(b"x".to_vec()), Some(b"x".to_vec()));
    }

    #[test]
    fn a_stale_sequence_number_is_not_somebody_elses() {
        let mut log = LogTable::default();
        let old = log.retain();
        log.started_sending();
        log.finished_sending(b"old".to_vec());
        log.release(old);
        let new = log.retain();
        assert_ne!(old, new);
        assert!(log.release(old).is_none());
        assert!(matches!(log.place(new), Place::Filling));
        assert!(log.release(NONE).is_none());
    }

    #[test]
    fn the_taken_log_has_sent_sending_and_filling_buffers() {
        let mut log = LogTable::default();
        let sent = log.retain();
        log.started_sending();
        log.finished_sending(b"sent".to_vec());
        let sending = log.retain();
        log.started_sending();
        let filling = log.retain();
        let log = log.into_log(b"filling".to_vec(), b"sending".to_vec());
        assert_eq!(log.get(sent), Some(&b"sent"[..]));
        assert_eq!(log.get(sending), Some(&b"sending"[..]));
        assert_eq!(log.get(filling), Some(&b"filling"[..]));
        assert_eq!(log.get(NONE), None);
    }

    #[test]
    fn the_table_holds_live_buffers_only() {
        let mut log = LogTable::default();
        let slow = log.retain();
        log.started_sending();
        log.finished_sending(b"slow".to_vec());
        for _ in 0..100_000 {
            let quick = log.retain();
            log.started_sending();
            log.finished_sending(b"quick".to_vec());
            log.release(quick);
        }
        assert!(log.slots.len() <= 2);
        assert!(matches!(log.place(slow), Place::Kept(b"slow")));
    }
}

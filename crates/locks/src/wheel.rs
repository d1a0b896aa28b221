//! A hierarchical timer wheel: finds due entries without visiting the others.
//!
//! Six levels of 64 slots; a slot of level n spans 64^n milliseconds. An entry lies in the slot of
//! the lowest level in which its time differs from now's, and moves down when that slot's time
//! comes. Setting, cancelling and finding due entries take constant time each, for any number of
//! entries (Varghese and Lauck, 1987, scheme 7). Entries lie elsewhere and are linked through
//! [`Links`].

use crate::slab::NIL;

const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Longest delay, two years; later entries are set again then.
const SPAN_MS: u64 = 1 << (SLOT_BITS * LEVELS as u32);
/// Ids of entries are below this number; above it are the slots, as predecessors of their first
/// entries.
const FIRST_OF: u32 = 3 << 30;

/// An entry's place among the others of its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// The entry before; [`FIRST_OF`] plus the slot for the first one; [`NIL`] for an entry in no
    /// slot.
    previous: u32,
    next: u32,
}

impl Links {
    /// Links of an entry in no slot.
    pub(crate) const NONE: Self = Self { previous: NIL, next: NIL };
}

/// Storage of the entries.
pub(crate) trait Entries {
    fn links(&mut self, id: u32) -> &mut Links;
    /// Time at which an entry is due, milliseconds.
    fn due_ms(&self, id: u32) -> u64;
}

/// The slots.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Wheel {
    /// Time up to which all due entries are out, milliseconds.
    elapsed_ms: u64,
    heads: [u32; LEVELS * SLOTS],
    /// Occupied slots of each level.
    occupied: [u64; LEVELS],
}

impl Default for Wheel {
    fn default() -> Self {
        Self { elapsed_ms: 0, heads: [NIL; LEVELS * SLOTS], occupied: [0; LEVELS] }
    }
}

impl Wheel {
    /// Sets an entry to its time, wherever it was before.
    pub(crate) fn set(&mut self, entries: &mut impl Entries, id: u32) {
        self.set_from(entries, id, self.elapsed_ms);
    }

    /// Like [`Self::set`], with this time as now.
    fn set_from(&mut self, entries: &mut impl Entries, id: u32, now_ms: u64) {
        self.cancel(entries, id);
        let due_ms = entries.due_ms(id).clamp(now_ms + 1, now_ms + SPAN_MS - 1);
        let differs = (now_ms ^ due_ms) | (SLOTS as u64 - 1);
        let level = (((63 - differs.leading_zeros()) / SLOT_BITS) as usize).min(LEVELS - 1);
        let place = (due_ms >> (level as u32 * SLOT_BITS)) as usize % SLOTS;
        let slot = level * SLOTS + place;
        let next = std::mem::replace(&mut self.heads[slot], id);
        *entries.links(id) = Links { previous: FIRST_OF + slot as u32, next };
        if next != NIL {
            entries.links(next).previous = id;
        }
        self.occupied[level] |= 1 << place;
    }

    /// Removes an entry, if it is in a slot.
    pub(crate) fn cancel(&mut self, entries: &mut impl Entries, id: u32) {
        let Links { previous, next } = std::mem::replace(entries.links(id), Links::NONE);
        if previous == NIL {
            return;
        }
        if next != NIL {
            entries.links(next).previous = previous;
        }
        if previous < FIRST_OF {
            entries.links(previous).next = next;
            return;
        }
        let slot = (previous - FIRST_OF) as usize;
        self.heads[slot] = next;
        if next == NIL {
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
    }

    /// Removes the next entry due by `now_ms`; `None` if there is none, or if `steps` are used up.
    /// Each entry that is removed, or moved to a lower level, is a step: one slot may have all
    /// entries in it.
    pub(crate) fn next_due(
        &mut self,
        entries: &mut impl Entries,
        now_ms: u64,
        steps: &mut usize,
    ) -> Option<u32> {
        while *steps > 0 {
            let Some((level, place, begins_ms)) =
                self.next_slot().filter(|(.., begins_ms)| *begins_ms <= now_ms)
            else {
                self.elapsed_ms = self.elapsed_ms.max(now_ms);
                return None;
            };
            // Time stays just before the slot until it is empty; otherwise the rest of it would
            // count for the wheel's next turn.
            self.elapsed_ms = begins_ms - 1;
            let id = self.heads[level * SLOTS + place];
            *steps -= 1;
            if entries.due_ms(id) <= now_ms {
                self.cancel(entries, id);
                return Some(id);
            }
            self.set_from(entries, id, begins_ms);
        }
        None
    }

    /// Start of the earliest occupied slot, milliseconds; nothing is due before.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.next_slot().map(|(.., begins_ms)| begins_ms)
    }

    /// The earliest occupied slot: its level, its place there, and its start.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let mut earliest: Option<(usize, usize, u64)> = None;
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = level as u32 * SLOT_BITS;
            let turn = (self.elapsed_ms >> shift) + 1;
            let ahead =
                self.occupied[level].rotate_right((turn % SLOTS as u64) as u32).trailing_zeros();
            let turn = turn + u64::from(ahead);
            // The current slot of a higher level has entries that are later in it.
            let begins_ms = turn << shift;
            if earliest.is_none_or(|(.., least_ms)| begins_ms < least_ms) {
                earliest = Some((level, (turn % SLOTS as u64) as usize, begins_ms));
            }
        }
        earliest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Timers(Vec<(Links, u64)>);

    impl Entries for Timers {
        fn links(&mut self, id: u32) -> &mut Links {
            &mut self.0[id as usize].0
        }

        fn due_ms(&self, id: u32) -> u64 {
            self.0[id as usize].1
        }
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Sets, moves and cancels at random; compares the output with a list.
    #[test]
    fn everything_comes_out_when_it_is_due_and_once() {
        for seed in 1..60u64 {
            let mut state = seed * 0x9e37_79b9;
            let count = if seed % 20 == 0 { 20_000 } else { 100 };
            let mut timers = Timers(vec![(Links::NONE, 0); count]);
            let mut wheel = Wheel::default();
            let mut expected = vec![None; count];
            let (mut now_ms, mut steps) = (0, usize::MAX);
            for _ in 0..count * 3 {
                let id = (random(&mut state) % count as u64) as u32;
                let reach = 1 << (random(&mut state) % 38);
                if random(&mut state).is_multiple_of(5) {
                    wheel.cancel(&mut timers, id);
                    expected[id as usize] = None;
                } else {
                    let due_ms = (now_ms + random(&mut state) % reach).max(1);
                    timers.0[id as usize].1 = due_ms;
                    wheel.set(&mut timers, id);
                    expected[id as usize] = Some(due_ms.max(now_ms + 1));
                }
                if random(&mut state).is_multiple_of(3)
                    && (count == 100 || random(&mut state).is_multiple_of(2000))
                {
                    now_ms += random(&mut state) % (1 << (random(&mut state) % 20));
                    while let Some(id) = wheel.next_due(&mut timers, now_ms, &mut steps) {
                        let due_ms =
                            expected[id as usize].take().expect("it was set, and has not come out");
                        assert!(due_ms <= now_ms, "seed {seed}: {due_ms} at {now_ms}");
                    }
                    let late = expected.iter().flatten().find(|due_ms| **due_ms <= now_ms);
                    assert!(late.is_none(), "seed {seed}: {late:?} at {now_ms}");
                    assert!(wheel.next_ms().is_none_or(|next_ms| next_ms > now_ms));
                }
            }
            while let Some(next_ms) = wheel.next_ms() {
                now_ms = now_ms.max(next_ms);
                while let Some(id) = wheel.next_due(&mut timers, now_ms, &mut steps) {
                    assert!(expected[id as usize].take().is_some_and(|due_ms| due_ms <= now_ms));
                }
            }
            assert!(expected.iter().all(Option::is_none), "seed {seed}");
        }
    }

    #[test]
    fn a_full_slot_is_emptied_in_several_calls() {
        let (count, most) = (50_000, 4_096);
        let due_ms = |number: u64| 300_000 + number % 1_000;
        let mut timers =
            Timers((0..count).map(|number| (Links::NONE, due_ms(number))).collect::<Vec<_>>());
        let mut wheel = Wheel::default();
        (0..count as u32).for_each(|id| wheel.set(&mut timers, id));
        let (mut out, mut calls) = (0, 0);
        // Nothing is due in the first of these, in which all entries move down.
        for now_ms in (262_144..=301_000).step_by(1_000).chain([301_000]) {
            loop {
                let mut steps = most;
                let mut found = 0;
                while let Some(id) = wheel.next_due(&mut timers, now_ms, &mut steps) {
                    assert!(timers.0[id as usize].1 <= now_ms);
                    found += 1;
                }
                (out, calls) = (out + found, calls + 1);
                assert!(found + steps <= most);
                if steps > 0 {
                    break;
                }
            }
            let late =
                count - timers.0.iter().filter(|(_, due_ms)| *due_ms > now_ms).count() as u64;
            assert_eq!(out as u64, late, "{now_ms}");
        }
        assert!(out as u64 == count && calls > 2 * count as usize / most, "{calls} calls");
    }
}

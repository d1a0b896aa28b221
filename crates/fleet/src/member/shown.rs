//! What `/status` shows of all members, as this one has last read of them.

use super::Member;
use crate::answer::State;
use crate::ids::Incarnation;

/// One of the fleet's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Who.
    pub incarnation: Incarnation,
    /// Where clients and other members reach it.
    pub address: String,
    /// Its state.
    pub state: State,
    /// It is about to stop, or has.
    pub leaving: bool,
    /// How many shards are its own.
    pub shards: usize,
    /// Another that lives has the same address, this member or one of the others: see
    /// [`crate::Alarm::SameAddress`]. This member is not a rival of its own.
    pub is_rival: bool,
    /// For how long it has not been seen to renew its lease, in nanoseconds.
    pub silent_ns: u64,
}

impl Member {
    /// So many members at most, this one among them, and how many are left out: those that live
    /// first, the others by how lately they did.
    pub fn members(&self, now_ns: u64, most: usize) -> (Vec<Shown>, usize) {
        let rivals = self.others.rivals(self.me);
        let is_rival = |incarnation| {
            incarnation != self.me
                && rivals.iter().flatten().any(|row| row.incarnation == incarnation)
        };
        let shards = |incarnation| {
            self.fleet.as_ref().map_or(0, |row| row.view.shards_of(incarnation).len())
        };
        let mut members: Vec<&_> = self.others.all().collect();
        let rank = |incarnation, state, since_ns: u64| {
            (incarnation != self.me, state != State::Live, now_ns.saturating_sub(since_ns))
        };
        members.sort_by_key(|seen| rank(seen.row.incarnation, seen.row.state, seen.since_ns));
        let left_out = members.len().saturating_sub(most);
        members.truncate(most);
        let mut shown: Vec<Shown> = members
            .into_iter()
            .map(|seen| Shown {
                incarnation: seen.row.incarnation,
                address: seen.row.address.clone(),
                state: seen.row.state,
                leaving: seen.row.leaving,
                shards: shards(seen.row.incarnation),
                is_rival: is_rival(seen.row.incarnation),
                silent_ns: now_ns.saturating_sub(seen.since_ns),
            })
            .collect();
        shown.sort_by(|a, b| {
            (a.state, &a.address, a.incarnation).cmp(&(b.state, &b.address, b.incarnation))
        });
        (shown, left_out)
    }

    /// How this member is called.
    pub fn incarnation(&self) -> Incarnation {
        self.me
    }
}

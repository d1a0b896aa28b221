//! All members for `/status`, as this one last read them.

use super::Member;
use crate::answer::State;
use crate::ids::Incarnation;

/// One of the fleet's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The member's incarnation.
    pub incarnation: Incarnation,
    /// Address for clients and other members.
    pub address: String,
    /// State of the member.
    pub state: State,
    /// The member is about to stop, or has stopped.
    pub leaving: bool,
    /// Number of its shards.
    pub shards: usize,
    /// Another live member has the same address: see [`crate::Alarm::SameAddress`]. This member is
    /// never a rival of itself.
    pub is_rival: bool,
    /// Time since it was last seen to renew its lease, in nanoseconds.
    pub silent_ns: u64,
}

impl Member {
    /// Up to `most` members including this one, and the number left out: live ones first, the
    /// others by how recently they lived.
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

    /// Incarnation of this member.
    pub fn incarnation(&self) -> Incarnation {
        self.me
    }
}
